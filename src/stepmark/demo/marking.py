"""Marking the embedded responses with two verifiers, and counting where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepmark.protocols import OutcomeVerifier
from stepmark.types import Verdict

from .data import Response, load_responses

__all__ = ["NAMES", "SHOWN", "DemoResult", "MarkedResponse", "mark_responses"]

NAMES = ("math", "exact")
"""The verifiers of the tour: one that reads mathematics, one that compares strings."""

SHOWN = "flour/1"
"""The response that is explained: an improper fraction, where the gold is a mixed number."""


@dataclass(frozen=True, slots=True)
class MarkedResponse:
    """A response with one verdict per verifier."""

    response: Response
    verdicts: tuple[Verdict, ...]
    """In the order of the verifiers."""

    @property
    def differs(self) -> bool:
        """Whether the verifiers disagree on it."""
        return len({verdict.correct for verdict in self.verdicts}) > 1


@dataclass(frozen=True, slots=True)
class DemoResult:
    """All marked responses, with the counts that the tables show."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    """Of the verifiers, with versions, such as ``math@2``."""
    marked: tuple[MarkedResponse, ...]

    @property
    def problems(self) -> int:
        """How many different problems there are."""
        return len({one.response.id for one in self.marked})

    def against_each_other(self) -> Counter[tuple[bool | None, ...]]:
        """How many responses got each pair of verdicts."""
        return Counter(tuple(v.correct for v in one.verdicts) for one in self.marked)

    def against_labels(self, place: int) -> Counter[tuple[bool | None, bool]]:
        """How many responses got each verdict of one verifier with each label."""
        return Counter((one.verdicts[place].correct, one.response.right) for one in self.marked)

    def disagreements(self) -> list[MarkedResponse]:
        """The responses on which the verifiers differ."""
        return [one for one in self.marked if one.differs]

    def spread(self, count: int) -> list[MarkedResponse]:
        """So many of the disagreements, from different problems, spread over all kinds of them."""
        first: dict[str, MarkedResponse] = {}
        for one in self.disagreements():
            first.setdefault(one.response.id, one)
        different = list(first.values())
        wanted = min(count, len(different))
        return [different[place * len(different) // wanted] for place in range(wanted)]

    def shown(self) -> MarkedResponse:
        """The response to explain in full."""
        return next(one for one in self.marked if one.response.name == SHOWN)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {
            "responses": len(self.marked),
            "problems": self.problems,
            "verifiers": {name: self._verifier_json(at) for at, name in enumerate(self.names)},
            "disagreements": [
                {
                    "id": one.response.id,
                    "k": one.response.k,
                    "label": one.response.right,
                    "verdicts": {
                        name: verdict.to_row()
                        for name, verdict in zip(self.names, one.verdicts, strict=True)
                    },
                }
                for one in self.disagreements()
            ],
        }

    def _verifier_json(self, place: int) -> dict[str, Any]:
        seen = self.against_labels(place)
        return {
            "key": self.keys[place],
            "agrees_with_label": seen[True, True] + seen[False, False],
            "right_marked_wrong": seen[False, True],
            "wrong_marked_right": seen[True, False],
            "no_score": seen[None, True] + seen[None, False],
        }


def mark_responses(verifiers: Sequence[tuple[str, OutcomeVerifier]]) -> DemoResult:
    """What the verifiers say of the embedded responses.

    Args:
        verifiers: names for the tables, and the verifiers.
    """
    responses = load_responses()
    items = [response.item() for response in responses]
    columns = [verifier(items) for _, verifier in verifiers]
    marked = tuple(
        MarkedResponse(response, verdicts)
        for response, verdicts in zip(responses, zip(*columns, strict=True), strict=True)
    )
    names = tuple(name for name, _ in verifiers)
    return DemoResult(names, tuple(verifier.key for _, verifier in verifiers), marked)
