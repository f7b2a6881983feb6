"""The words that every part of Stepmark speaks, as frozen values.

*problem* -> *prompt* (rendered, tokenised) -> *rollout* (a sampled completion with ids and
log-probs) -> *verdict* (a score in [0, 1] and why) -> *reward* (what the optimiser sees).
A *group* is the rollouts of one problem. Ids and log-probs are plain tuples: nothing is padded
outside a forward pass, and this module needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

__all__ = [
    "Finish",
    "Group",
    "Item",
    "LabelKind",
    "LabelledSteps",
    "Marked",
    "Problem",
    "Prompt",
    "Reason",
    "Rollout",
    "Sampling",
    "Status",
    "StepItem",
    "StepScores",
    "Verdict",
]

Finish = Literal["stop", "length"]
"""Why a completion ended: it said so (an end token or a stop string), or it ran out of tokens."""
LabelKind = Literal["hard", "soft"]
"""Labels of 0 and 1, or estimates in between (a share of rollouts that reached the answer)."""


class Status(StrEnum):
    """Whether a verdict has a score, and whose fault it is when it has none."""

    OK = "ok"
    """Marked. What the completion itself did (no answer, unreadable, too slow) is marked 0."""
    ABSTAIN = "abstain"
    """No score: the gold cannot be used, or the verifier declines. Left out of statistics."""
    ERROR = "error"
    """No score: the verifier raised or its worker was lost. Above a share the run stops."""


class Reason(StrEnum):
    """Why a verifier gave the verdict it gave; custom verifiers may use words of their own."""

    EQUAL = "equal"
    DIFFERENT = "different"
    JUDGED = "judged"
    """A custom verifier returned a number or a bool and gave no reason."""
    NO_ANSWER = "no_answer"
    """The completion holds nothing that the extractor accepts as an answer: score 0."""
    UNREADABLE = "unreadable"
    """An answer was found, and it is not mathematics that the parser can read: score 0."""
    TOO_LARGE = "too_large"
    """The answer is longer, deeper or of greater magnitude than the bounds allow: score 0."""
    TOO_SLOW = "too_slow"
    """The comparison was stopped twice, the second time on an idle worker: score 0."""
    DECLINED = "declined"
    """A custom verifier returned None: no score, the row abstains."""
    GOLD_MISSING = "gold_missing"
    """The problem has no gold: no score, the row abstains."""
    GOLD_UNREADABLE = "gold_unreadable"
    """The gold cannot be parsed: no score, the row abstains."""
    VERIFIER_RAISED = "verifier_raised"
    """The verifier raised; the traceback is in the detail: no score, the row is an error."""
    WORKER_LOST = "worker_lost"
    """The worker process died (killed, out of memory): no score, the row is an error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, with what is known of its solution."""

    id: str
    """Unique in its task and stable between machines, such as ``gsm8k/test/17``."""
    text: str
    """The question as the data set has it, before any prompt template."""
    gold: str | None
    """The reference answer as text; None when the data has none."""
    solution: str | None = None
    """A worked solution, where the data has one: what SFT learns from."""
    task: str = ""
    """The name of the task that it came from."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All other columns of the row: verifiers ask for them by name."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem as the model sees it."""

    problem: Problem
    ids: tuple[int, ...]
    """Token ids, with exactly one BOS where the tokenizer has one."""
    text: str
    """The rendered text that the ids stand for (special tokens included)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn."""

    temperature: float = 1.0
    """0 is greedy. Log-probs are those of the tempered distribution, of the plain one if greedy."""
    max_tokens: int = 256
    """Upper bound on the length of a completion, in tokens."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens. Training refuses top_p < 1 and top_k > 0: ratios would be biased."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; the stop string itself is not part of the text."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled completion: ids in, ids out; the text is only a view."""

    prompt: Prompt
    index: int
    """Place in its group, from 0: the ``k`` of the sample store."""
    ids: tuple[int, ...]
    """The sampled tokens, the end token included when one was sampled. Never empty."""
    logps: tuple[float, ...]
    """Log-probability of each sampled token under the sampler, in nats."""
    finish: Finish
    text: str
    """The ids decoded without special tokens, cut before a stop string."""
    seed: int
    """Sampling this prompt alone with this seed gives the same ids again."""
    policy_version: int = 0
    step_ends: tuple[int, ...] | None = None
    """Index of the last token of each step, increasing; None before segmentation."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logps):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logps)} log-probs in one rollout.")


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one problem, in order of their index."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one completion, and why.

    The score is a number in [0, 1] exactly when the status is ``ok``. Use the constructors
    `marked`, `abstained` and `failed`; they keep that law.
    """

    score: float | None
    status: Status
    reason: str
    extracted: str | None = None
    """The answer found in the completion, as written there."""
    gold: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More for people and debuggers (rule that decided, traceback); plain JSON values only."""

    def __post_init__(self) -> None:
        if (self.score is None) == (self.status is Status.OK):
            raise ValueError(
                f"A verdict with status {self.status.value!r} and score {self.score!r}: "
                "there is a score exactly when the status is 'ok'."
            )
        if self.score is not None and not (math.isfinite(self.score) and 0 <= self.score <= 1):
            raise ValueError(f"A verdict's score is {self.score!r}; it must lie in [0, 1].")

    @property
    def correct(self) -> bool | None:
        """True for full marks, False for anything less, None when there is no score."""
        return None if self.score is None else self.score == 1

    @classmethod
    def marked(
        cls,
        score: float,
        reason: str,
        *,
        extracted: str | None = None,
        gold: str | None = None,
        **detail: Any,
    ) -> Self:
        """A verdict with a score; what the completion itself did wrong is one with score 0."""
        return cls(float(score), Status.OK, reason, extracted, gold, detail)

    @classmethod
    def abstained(cls, reason: str, *, gold: str | None = None, **detail: Any) -> Self:
        """A verdict without a score because the gold or the verifier does not allow one."""
        return cls(None, Status.ABSTAIN, reason, None, gold, detail)

    @classmethod
    def failed(cls, reason: str, *, gold: str | None = None, **detail: Any) -> Self:
        """A verdict without a score because the verifier or the machine failed."""
        return cls(None, Status.ERROR, reason, None, gold, detail)

    def to_row(self) -> dict[str, Any]:
        """The columns of a verdict row (cli contract), ``detail`` only where there is any."""
        row: dict[str, Any] = {
            "correct": self.correct,
            "score": self.score,
            "status": self.status.value,
            "reason": str(self.reason),
            "extracted": self.extracted,
            "gold": self.gold,
        }
        return row | ({"detail": dict(self.detail)} if self.detail else {})

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The verdict that `to_row` wrote."""
        return cls(
            row["score"],
            Status(row["status"]),
            row["reason"],
            row.get("extracted"),
            row.get("gold"),
            row.get("detail", {}),
        )


@dataclass(frozen=True, slots=True)
class Item:
    """What a verifier is asked to mark: one completion of one problem."""

    problem: Problem
    completion: str
    prompt: str = ""
    """The rendered prompt, for verifiers that ask for it by name."""
    tokens: int | None = None
    """How many tokens were sampled; None for a text of which only the characters are known."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A rollout with what was said of it."""

    rollout: Rollout
    verdicts: Mapping[str, Verdict]
    """By verifier key, such as ``math@2``."""
    reward: float | None
    """The weighted sum of the scores, unitless; None when a needed score is missing."""
    step_scores: tuple[float | None, ...] | None = None
    """One per step, in [0, 1]: the mean over the scorers by weight; None for a step that one of
    them left out. None as a whole without step scorers."""

    @property
    def step_ends(self) -> tuple[int, ...] | None:
        """Index of the last sampled token of each step, rising; the last one is the last token.

        As many as there are ``step_scores``; None without step scorers.
        """
        return self.rollout.step_ends


@dataclass(frozen=True, slots=True)
class StepItem:
    """What a step scorer is asked to mark: a problem and the steps of one solution, in order."""

    problem: Problem
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelledSteps:
    """What a reward model learns from: the steps of one solution with what is known of them.

    >>> row = LabelledSteps(Problem("p", "1 + 1?", "2"), ("1 + 1 = 3", "answer: 3"), (0, None))
    >>> row.first_error
    0
    """

    problem: Problem
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    """One per step, in [0, 1]: 1 for right; None where nothing is known of the step (masked)."""
    kind: LabelKind = "hard"
    """Whether labels are 0 or 1, or estimates between them."""
    origin: str = ""
    """Who labelled: ``human``, ``first_error`` (a person, up to the first error), ``rollouts``,
    ``planted`` (errors written into right solutions); empty where the data do not say."""
    source: str = ""
    """The format that it was read from, such as ``prm800k``."""
    final_correct: bool | None = None
    """Whether the solution ends in the right answer; None where that is not known."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the data say of this solution (generator, phase, finish); plain JSON values."""

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.labels):
            raise ValueError(f"{len(self.steps)} steps but {len(self.labels)} labels in one row.")
        for number, label in enumerate(self.labels, 1):
            if label is not None and not 0 <= label <= 1:
                raise ValueError(f"Step {number} has the label {label!r}; labels lie in [0, 1].")

    @property
    def first_error(self) -> int | None:
        """Index of the first step labelled 0, from 0; -1 if every step is labelled and none is 0.

        None where that cannot be told: a step without a label stands before, there is no error
        among the labels that are known, or they are estimates and none is 0.
        """
        for index, label in enumerate(self.labels):
            if label is None:
                return None
            if label == 0:
                return index
        return -1 if self.kind == "hard" else None


@dataclass(frozen=True, slots=True)
class StepScores:
    """One score in [0, 1] per step; None for a step beyond the scorer's limit."""

    scores: tuple[float | None, ...]
    scorer: str
    """Key of the scorer, such as ``arith-rules@1``."""
    failed: bool = False
    """Whether all are None for a reason that may pass: worth asking again, not worth keeping."""
