"""One reward of several verifiers: the answer, a form that was asked for, and a soft length limit.

Run: python examples/shaped_reward.py
The same as a reference, for --verifier, [reward] of a config, TRL and verl: print(REFERENCE).
"""

from __future__ import annotations

from stepmark.types import Item, Problem
from stepmark.verifiers import load_verifier

REFERENCE = (
    "sum(0.8*first(choice, math), 0.1*format?one_box=true&steps=2, "
    "0.1*length?unit=characters&max_length=200&cache=100)"
)


def main() -> None:
    """Mark completions of two problems, of which one has options and one has none."""
    options = {"choices": ["24", "36", "48"]}
    choice = Problem("p1", "How many eggs are in three dozen?", "B", meta=options)
    number = Problem("p2", "How much is 17 + 4?", "21")
    items = [
        Item(choice, "A dozen is 12.\nThree are 36, so " + r"\boxed{\text{B}}."),
        Item(choice, r"\boxed{36}"),
        Item(choice, r"\boxed{24}, no, \boxed{36}"),
        Item(number, "17 + 4 = 17 + 3 + 1\n= 20 + 1, so " + r"\boxed{21}."),
        Item(number, "I add. " * 30 + r"\boxed{21}"),
        Item(number, r"\boxed{22}"),
    ]
    print(REFERENCE)
    verifier = load_verifier(REFERENCE)
    for item, verdict in zip(items, verifier(items), strict=True):
        parts = [part["score"] for part in verdict.detail["parts"].values()]
        print(f"{verdict.score:.2f}  {parts}  {verdict.reason}  {item.completion[:40]!r}")


if __name__ == "__main__":
    main()
