"""The tour as a page: the tables, where the verifiers differ, and the responses themselves."""

from __future__ import annotations

from stepmark.report import Page, SampleView
from stepmark.types import Verdict

from .marking import DemoResult, MarkedResponse

__all__ = ["demo_page", "word"]

WORDS: dict[bool | None, str] = {True: "right", False: "wrong", None: "no score"}


def word(correct: bool | None) -> str:
    """How tables call a verdict."""
    return WORDS[correct]


def demo_page(result: DemoResult) -> Page:
    """The page of the tour, for `Page.write`."""
    first, second = result.names
    page = Page(
        "Two verifiers, 200 responses",
        f"{len(result.marked)} responses to {result.problems} problems, marked by "
        f"{' and '.join(result.keys)}. All are Stepmark's own, chosen to be hard: "
        "a tour, not a benchmark.",
    )
    page.section("Against each other").table(*_each_other(result))
    page.section("Against our own labels").table(*_labels(result))
    apart = result.disagreements()
    page.section(f"Where they disagree ({len(apart)})").table(
        ["response", "extracted", "gold", first, second, "label"], [_line(one) for one in apart]
    )
    page.section("All responses").text(
        f"The verdict shown is that of {first}; a note says where {second} or our label differs."
    )
    return page.samples([_view(result, one) for one in result.marked])


def _each_other(result: DemoResult) -> tuple[list[str], list[list[object]]]:
    first, second = result.names
    seen = result.against_each_other()
    kinds = [kind for kind in WORDS if any(kind in pair for pair in seen)]
    rows: list[list[object]] = [
        [f"{first}: {word(a)}", *(seen[a, b] for b in kinds)] for a in kinds
    ]
    return ["", *(f"{second}: {word(b)}" for b in kinds)], rows


def _labels(result: DemoResult) -> tuple[list[str], list[list[object]]]:
    rows: list[list[object]] = []
    for name, facts in result.to_json()["verifiers"].items():
        counts = [facts[key] for key in ("agrees_with_label", "right_marked_wrong")]
        rows.append([name, *counts, facts["wrong_marked_right"], facts["no_score"]])
    headers = ["", "agrees", "right marked wrong", "wrong marked right", "no score"]
    return headers, rows


def _line(one: MarkedResponse) -> list[object]:
    first, second = one.verdicts
    found = first.extracted if first.extracted is not None else second.extracted
    verdicts = [_said(verdict) for verdict in one.verdicts]
    return [one.response.name, found, one.response.gold, *verdicts, word(one.response.right)]


def _said(verdict: Verdict) -> str:
    return f"{word(verdict.correct)} ({verdict.reason.replace('_', ' ')})"


def _view(result: DemoResult, one: MarkedResponse) -> SampleView:
    response, verdict = one.response, one.verdicts[0]
    notes = []
    if one.differs:
        notes.append(f"{result.names[1]}: {_said(one.verdicts[1])}.")
    if verdict.correct is not response.right:
        notes.append(f"Our label: {word(response.right)}.")
    return SampleView(
        problem=response.problem,
        completion=response.completion,
        gold=response.gold,
        extracted=verdict.extracted,
        correct=verdict.correct,
        reason=str(verdict.reason),
        title=response.name,
        note=" ".join(notes),
    )
