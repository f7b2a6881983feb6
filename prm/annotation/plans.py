"""Which prefixes of a solution are rolled out: all of them, or those that a binary search asks for.

A plan is a generator. It yields what it wants to know, prefix (as a number of steps) -> roll-outs,
and is sent the outcomes of exactly those: in order of their places, True for a roll-out that
reached the answer, None for one without a verdict. It returns one estimate per step. What it does
depends on outcomes alone, so that equal outcomes give equal labels, however they were drawn.

Of a solution of ``m`` steps, prefix ``k`` ends in step ``k``, counted from 1. Prefix ``m`` is the
whole solution; its verdict is known and it is never asked for.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from stepmark.types import LabelKind

from .estimates import StepEstimate, StepReason, estimate_of
from .settings import AnnotationSettings

__all__ = ["Plan", "is_settled", "plan_for"]

Outcomes = Sequence[bool | None]
Wanted = dict[int, int]
"""Prefix -> roll-outs from its first one on; those that were asked for before are included."""
Plan = Generator[Wanted, Mapping[int, Outcomes], list[StepEstimate]]


def plan_for(
    steps: int,
    correct: bool | None,
    settings: AnnotationSettings,
    *,
    is_finished: bool = True,
    no_room: frozenset[int] = frozenset(),
) -> Plan:
    """The plan of one solution.

    Args:
        steps: how many it has, at least 1.
        correct: whether it is right; None where the verifier gave no score.
        settings: method, roll-outs and labels.
        is_finished: False when its last step was cut off.
        no_room: prefixes that are too long for the model.
    """
    last = _last(correct, settings, is_finished=is_finished)
    if settings.method == "mc":
        return _monte_carlo(steps, last, settings, no_room)
    return _binary(steps, correct, last, settings, no_room)


def is_settled(outcomes: Outcomes, of: int, threshold: float) -> bool:
    """Whether no further roll-out can change a hard label.

    Args:
        outcomes: so far.
        of: how many there will be.
        threshold: share that must reach the answer; at 0 one roll-out is enough.

    >>> is_settled([True], 8, 0), is_settled([False] * 7, 8, 0), is_settled([False] * 5, 8, 0.5)
    (True, False, True)
    """
    left = of - len(outcomes)
    if not left:
        return True
    known = [outcome for outcome in outcomes if outcome is not None]
    # Roll-outs without a verdict make the share's denominator smaller, never its numerator larger.
    hits, most = sum(known), len(known) + left
    is_right = hits > 0 and hits / most >= threshold
    is_wrong = (hits + left) / most < threshold
    return is_right or is_wrong


def _last(correct: bool | None, settings: AnnotationSettings, *, is_finished: bool) -> StepEstimate:
    if not is_finished:
        return StepEstimate(None, StepReason.UNFINISHED)
    if not settings.include_last:
        return StepEstimate(None, StepReason.NOT_ASKED)
    if correct is None:
        return StepEstimate(None, StepReason.NO_VERDICT)
    return StepEstimate(float(correct), StepReason.VERDICT)


def _monte_carlo(
    steps: int, last: StepEstimate, settings: AnnotationSettings, no_room: frozenset[int]
) -> Plan:
    asked = [prefix for prefix in range(1, steps) if prefix not in no_room]
    found = yield from _asked(asked, settings.rollouts, settings)
    none = StepEstimate(None, StepReason.NO_ROOM)
    return [*(found.get(prefix, none) for prefix in range(1, steps)), last]


def _asked(
    prefixes: Sequence[int], upto: int, settings: AnnotationSettings
) -> Generator[Wanted, Mapping[int, Outcomes], dict[int, StepEstimate]]:
    """The estimate of each prefix after so many roll-outs, or as soon as it is settled."""
    kind: LabelKind = settings.labels
    open_, found = list(prefixes), dict[int, StepEstimate]()
    for end in settings.rounds(upto):
        if not open_:
            break
        given = yield dict.fromkeys(open_, end)
        done = [p for p in open_ if end == upto or is_settled(given[p], upto, settings.threshold)]
        found |= {p: estimate_of(given[p], kind, settings.threshold) for p in done}
        open_ = [prefix for prefix in open_ if prefix not in found]
    return found


def _binary(
    steps: int,
    correct: bool | None,
    last: StepEstimate,
    settings: AnnotationSettings,
    no_room: frozenset[int],
) -> Plan:
    """The first error by bisection (OmegaPRM, arXiv:2406.06592, section 3.3).

    It holds by assumption that a prefix of one that can be completed can be completed too. Noise
    breaks that: the two prefixes around the border are drawn ``recheck`` times as often, and where
    one of them then says otherwise, the search goes on on that side.
    """
    if correct is None:
        return _around({}, 0, None, steps, last)
    if correct:
        reached = StepEstimate(1.0, StepReason.REACHED)
        return [*([reached] * (steps - 1)), last]
    search = _Search(steps, settings, no_room)
    error = yield from search.run()
    return _around(search.found, search.low, error, steps, last)


class _Search:
    """A bisection between a prefix that reaches the answer and a longer one that does not."""

    def __init__(self, steps: int, settings: AnnotationSettings, no_room: frozenset[int]) -> None:
        self.steps, self.settings, self.no_room = steps, settings, no_room
        self.found: dict[int, StepEstimate] = {}
        self.low = 0
        """The longest prefix that is taken to reach the answer; 0 is the prompt."""
        self.final: set[int] = set()
        """Prefixes that were drawn for the last time."""

    def run(self) -> Generator[Wanted, Mapping[int, Outcomes], int | None]:
        """The first prefix that cannot be completed; None where a prefix says nothing."""
        high = self.steps
        while True:
            while high - self.low > 1:
                middle = (self.low + high) // 2
                label = yield from self._label(middle, again=False)
                if label is None:
                    return None
                self.low, high = (middle, high) if label else (self.low, middle)
            again = [p for p in (self.low, high) if 0 < p < self.steps and p not in self.final]
            if not again or self.settings.recheck == 1:
                return high
            for prefix in again:
                label = yield from self._label(prefix, again=True)
                if label is None:
                    return None
            self.low, high = self._border()

    def _label(
        self, prefix: int, *, again: bool
    ) -> Generator[Wanted, Mapping[int, Outcomes], float | None]:
        if prefix in self.no_room:
            self.found[prefix] = StepEstimate(None, StepReason.NO_ROOM)
            return None
        known = self.found.get(prefix)
        if known is None or again:
            times = self.settings.recheck if again else 1
            found = yield from _asked([prefix], times * self.settings.rollouts, self.settings)
            self.found[prefix] = known = found[prefix]
        if again:
            self.final.add(prefix)
        return known.label

    def _border(self) -> tuple[int, int]:
        """The first prefix known to fail, and the longest one before it known to succeed."""
        failing = [p for p, estimate in self.found.items() if estimate.label == 0]
        high = min([*failing, self.steps])
        return max([0, *(p for p in self.found if p < high)]), high


def _around(
    found: Mapping[int, StepEstimate],
    low: int,
    error: int | None,
    steps: int,
    last: StepEstimate,
) -> list[StepEstimate]:
    """One estimate per step: 1 before the first error, 0 at it, none after it.

    Args:
        found: what was asked.
        low: the longest prefix that reached the answer.
        error: the first one that did not; None where the search ended without one.
        steps: of the solution.
        last: the last step, by the verdict.
    """
    made: list[StepEstimate] = []
    for prefix in range(1, steps):
        known = found.get(prefix)
        if prefix <= low:
            one = known if known and known.label else StepEstimate(1.0, StepReason.REACHED)
        elif prefix == error and known:
            one = known
        elif error is not None:
            one = StepEstimate(None, StepReason.AFTER_ERROR)
        else:
            one = known or StepEstimate(None, StepReason.NOT_ASKED)
            one = replace(one, label=None)
        made.append(one)
    if error is not None and error < steps and last.label is not None:
        last = StepEstimate(None, StepReason.AFTER_ERROR)
    return [*made, last]
