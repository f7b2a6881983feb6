"""A verifier of your own: eight lines over ours, its contract test, and a batch.

Run: python examples/own_verifier.py
It warns once that a function of a script has no worker: in a module of yours it has one.
"""

from __future__ import annotations

from stepmark.testing import check_verifier
from stepmark.types import Item, Problem
from stepmark.verifiers import AllOf, equal, extract, load_verifier


def units(completion: str, gold: str, unit: str) -> bool:
    """The gold's value, in the unit that the data's column names."""
    answer = extract(completion, strict=True).text
    return answer is not None and equal(rf"{gold}\text{{ {unit}}}", answer, units="require")


def main() -> None:
    """Mark five completions of one problem by value and unit, and by their form."""
    problem = Problem("table/1", "How wide is the table?", "120", meta={"unit": "cm"})
    completions = (
        r"Two boards of 60 cm: \boxed{120\text{ cm}}.",
        r"Two boards of 60 cm: \boxed{120\text{ m}}.",
        r"Two boards of 60 cm: \boxed{120}.",
        r"\boxed{60\text{ cm}} twice, so \boxed{120\text{ cm}}.",
        "It is 120 cm.",
    )
    items = [Item(problem, completion) for completion in completions]
    mark = load_verifier(units)
    report = check_verifier(mark)
    print(f"{report.key} keeps {len(report.checks)} promises")
    for verifier in (mark, AllOf([mark, "format?one_box=true"])):
        print(verifier.key.partition("@")[0])
        for item, verdict in zip(items, verifier(items), strict=True):
            print(f"  {verdict.score}  {verdict.reason:10}  {item.completion}")


if __name__ == "__main__":
    main()
