"""PRM800K (arXiv:2305.20050): people rated the completions of every step -1, 0 or 1.

A step has one or more rated *completions*. The one that was accepted (``chosen_completion``, else
the labeller's own ``human_completion``) is what the next step follows. Phase 1 rates several
completions a step; phase 2 rates one and stops at the first error, so that its last step has no
accepted one.

A rating of 0 is *neutral*. OpenAI counts it as right; the converter that TRL ships counted it as
wrong. Here that is the setting ``neutral``, and the manifest keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from stepmark.types import LabelledSteps, Problem

from .cells import choice_of, need_text, optional_text
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id

__all__ = ["Prm800k"]

Row = Mapping[str, Any]
NEUTRAL = {"positive": 1.0, "negative": 0.0, "mask": None}


class Rated(NamedTuple):
    """One completion of a step, with its label; ``is_rated`` is False where nobody rated it."""

    text: str
    label: float | None
    is_rated: bool = True


class Step(NamedTuple):
    """The completions of one step, and the one that the next step follows."""

    completions: tuple[Rated, ...]
    accepted: Rated | None
    chosen: int | None


class Prm800k:
    """The format ``prm800k``: columns question and label, as OpenAI published them.

    Args:
        neutral: a rating of 0 is ``positive``, ``negative`` or has no label (``mask``).
        alternatives: what is made of several rated completions of a step. ``branch``: one row for
            the accepted steps, and one for every other rated completion, labelled in its last
            step only, so that every rating is in the file once. ``prefix``: one row per rated
            completion with the labels of all steps before it. ``trajectory``: the accepted steps
            only.
        phase: 1, 2 or ``both``: rows of the other phase are left out.
        human: steps that the labeller wrote count as ``positive``, or have no label (``mask``).
        screening: rows of quality control and of the labellers' entrance test are left out
            (``drop``) or read (``keep``).
    """

    name: ClassVar[str] = "prm800k"

    def __init__(
        self,
        neutral: str = "positive",
        alternatives: str = "branch",
        phase: int | str = "both",
        human: str = "positive",
        screening: str = "drop",
    ) -> None:
        choice_of("neutral", neutral, tuple(NEUTRAL))
        choice_of("alternatives", alternatives, ("branch", "prefix", "trajectory"))
        choice_of("phase", str(phase), ("both", "1", "2"))
        choice_of("human", human, ("positive", "mask"))
        choice_of("screening", screening, ("drop", "keep"))
        self.neutral, self.alternatives, self.phase = neutral, alternatives, str(phase)
        self.human, self.screening = human, screening
        self._labels = {1: 1.0, 0: NEUTRAL[neutral], -1: 0.0}

    @staticmethod
    def matches(row: Row) -> bool:
        """A question with a problem, and a label with steps."""
        question, label = row.get("question"), row.get("label")
        if not (isinstance(question, Mapping) and isinstance(label, Mapping)):
            return False
        return "problem" in question and isinstance(label.get("steps"), list)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The solutions in one trajectory; see ``alternatives``."""
        if not self.matches(row):
            raise Rejected(
                RejectReason.COLUMN, f"question.problem and label.steps are needed: {row!r:.80}"
            )
        question, label, phase = row["question"], row["label"], phase_of(row)
        if why := self._left_out(row, phase):
            yield LeftOut(why)
            return
        text = need_text(question, "problem")
        problem = Problem(problem_id(text), text, optional_text(question, "ground_truth_answer"))
        steps = [self._step(index, step) for index, step in enumerate(label["steps"])]
        _check_stop(steps)
        meta = {"phase": phase, "finish": label.get("finish_reason")}
        for kind, rated in self._solutions(steps):
            if not isinstance(rated, LeftOut):
                yield _solution(problem, rated, meta | {"row": kind})
            else:
                yield rated

    def _left_out(self, row: Row, phase: int) -> str:
        """Why the settings leave out the whole row; empty when they do not."""
        if row["label"].get("finish_reason") == "bad_problem":
            return "bad_problem"
        if self.phase not in ("both", str(phase)):
            return "other_phase"
        if self.screening == "drop" and row.get("is_quality_control_question"):
            return "quality_control"
        if self.screening == "drop" and row.get("is_initial_screening_question"):
            return "screening"
        return ""

    def _step(self, index: int, step: Any) -> Step:
        where = f"step {index + 1}"
        if not isinstance(step, Mapping) or not isinstance(step.get("completions") or [], list):
            raise Rejected(RejectReason.COLUMN, f"{where} has no list of completions: {step!r:.60}")
        completions = tuple(self._rated(one, where) for one in step.get("completions") or [])
        chosen, human = step.get("chosen_completion"), step.get("human_completion")
        if chosen is not None:
            place = _place(chosen, len(completions), where)
            return Step(completions, completions[place], place)
        if human is None or (isinstance(human, Mapping) and human.get("text") is None):
            # Tables write a completion that does not exist as one of which every part is null.
            return Step(completions, None, None)
        written = self._rated({"text": human} if isinstance(human, str) else human, where)
        if not written.is_rated:
            written = written._replace(label=1.0 if self.human == "positive" else None)
        return Step(completions, written, None)

    def _rated(self, completion: Any, where: str) -> Rated:
        if not isinstance(completion, Mapping):
            raise Rejected(RejectReason.COLUMN, f"{where}: a completion is {completion!r:.60}")
        text, rating = need_text(completion, "text"), completion.get("rating")
        if rating is None:
            return Rated(text, None, is_rated=False)
        is_number = isinstance(rating, int | float) and not isinstance(rating, bool)
        if not is_number or rating not in self._labels:
            raise Rejected(RejectReason.RATING, f"{where}: rating {rating!r}; allowed: -1, 0, 1")
        return Rated(text, self._labels[rating])

    def _solutions(self, steps: Sequence[Step]) -> Iterator[tuple[str, list[Rated] | LeftOut]]:
        """The rows as lists of rated steps, or what is left out, each with the kind of row."""
        main = trajectory_of(steps)
        if self.alternatives != "prefix" and main:
            known = any(one.label is not None for one in main)
            yield "trajectory", main if known else LeftOut("nothing_rated")
        before: list[Rated] = []
        for number, step in enumerate(steps):
            for index, one in enumerate(step.completions):
                in_main = index == step.chosen or (number < len(main) and one is main[number])
                yield from self._completion(before, one, in_main)
            if step.accepted is not None:
                before.append(step.accepted)

    def _completion(
        self, before: Sequence[Rated], one: Rated, in_main: bool
    ) -> Iterator[tuple[str, list[Rated] | LeftOut]]:
        if self.alternatives == "prefix":
            kept = one.label is not None
            yield "prefix", [*before, one] if kept else _nothing_known(one)
        elif not in_main:
            if one.label is None:
                yield "", _nothing_known(one)
            elif self.alternatives == "trajectory":
                yield "", LeftOut("alternative")
            else:
                yield "branch", [*(step._replace(label=None) for step in before), one]


def phase_of(row: Row) -> int:
    """2 for rows of the second phase, whose solutions were generated as a whole beforehand."""
    given = (row.get("generation"), row["question"].get("pre_generated_steps"))
    return 1 if given == (None, None) else 2


def _place(chosen: Any, completions: int, where: str) -> int:
    """The index of the chosen completion; tables with gaps write whole numbers as decimals."""
    is_number = isinstance(chosen, int | float) and not isinstance(chosen, bool)
    if not is_number or chosen not in range(completions):
        raise Rejected(
            RejectReason.CHOSEN_OUT_OF_RANGE,
            f"{where}: chosen_completion is {chosen!r:.40} of {completions} completions",
        )
    return int(chosen)


def trajectory_of(steps: Sequence[Step]) -> list[Rated]:
    """The accepted steps, with the rejected one that ends them where it is the only one."""
    found: list[Rated] = []
    for step in steps:
        if step.accepted is None:
            return [*found, *step.completions] if len(step.completions) == 1 else found
        found.append(step.accepted)
    return found


def _check_stop(steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps[:-1], 1):
        if step.accepted is None:
            raise Rejected(
                RejectReason.NO_ACCEPTED_STEP,
                f"step {number} of {len(steps)} has no chosen and no human completion, and steps "
                "follow it",
            )


def _nothing_known(one: Rated) -> LeftOut:
    return LeftOut("neutral" if one.is_rated else "unrated")


def _solution(problem: Problem, rated: Sequence[Rated], meta: dict[str, Any]) -> LabelledSteps:
    return LabelledSteps(
        problem,
        tuple(one.text for one in rated),
        tuple(one.label for one in rated),
        origin="human",
        source=Prm800k.name,
        meta=meta,
    )
