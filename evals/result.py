"""What an evaluation found: an accuracy and, beside it, all that a reader needs to judge it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from stepmark.errors import DataError
from stepmark.statistics import mean_at_k, wilson
from stepmark.store import Sample
from stepmark.types import Reason, Status, Verdict

__all__ = ["METRICS", "About", "EvalResult", "summarise"]

METRICS = {
    "accuracy": "accuracy",
    "accuracy_low": "low",
    "accuracy_high": "high",
    "accuracy_upper": "accuracy_upper",
    "score": "score",
    "no_answer": "no_answer",
    "truncated": "truncated",
    "abstains": "abstains",
    "errors": "errors",
    "mean_tokens": "mean_tokens",
    "n": "n",
    "k": "k",
}
"""Name of each metric for a training loop -> field of `EvalResult`."""


@dataclass(frozen=True, slots=True)
class About:
    """What was evaluated on what, and how: the words of the table's columns and footnote."""

    model: str
    task: str
    split: str
    data_hash: str
    prompt: str
    prompt_hash: str
    verifier: str
    greedy: bool
    temperature: float
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Accuracy with its interval, and the shares without which it cannot be read.

    The denominator of every share is all completions: one without a score (abstain, error) counts
    as not correct in ``accuracy`` and as correct in ``accuracy_upper``.
    """

    about: About
    n: int
    """Problems."""
    k: int
    """Completions per problem."""
    accuracy: float
    """Share of completions with full marks; every problem counts once (mean@k)."""
    low: float
    high: float
    """Bounds of the 95 % interval: Wilson, with the effective sample size when k > 1."""
    se: float | None
    """Standard error clustered by problem; None for one problem."""
    accuracy_upper: float
    """The accuracy if every completion without a score were correct."""
    score: float
    """Mean score in [0, 1], partial credit included."""
    no_answer: float
    """Share of completions in which the verifier found no answer."""
    truncated: float | None
    """Share of completions that ran out of tokens; None where that was not recorded."""
    abstains: int
    errors: int
    mean_tokens: float | None
    """Sampled tokens per completion; None where they were not recorded."""

    @property
    def name(self) -> str:
        """What the accuracy is called: ``accuracy`` when greedy, else ``mean@k``."""
        return "accuracy" if self.about.greedy else f"mean@{self.k}"

    def metrics(self) -> dict[str, float]:
        """Numbers for a training loop, by name; only those that are known."""
        values = {name: getattr(self, field) for name, field in METRICS.items()}
        return {name: float(value) for name, value in values.items() if value is not None}

    def to_row(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        row = asdict(self)
        return row.pop("about") | {"metric": self.name, "interval": "wilson 95 %"} | row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The result that `to_row` wrote."""
        about = About(**{item.name: row[item.name] for item in fields(About)})
        own = {item.name: row[item.name] for item in fields(cls) if item.name != "about"}
        return cls(about=about, **own)


def summarise(about: About, graded: Sequence[tuple[Sample, Verdict]]) -> EvalResult:
    """The result of marked completions.

    Raises:
        DataError: there are none.
    """
    if not graded:
        raise DataError("There are no marked completions to summarise. Give at least one problem.")
    correct: dict[str, list[float]] = {}
    for sample, verdict in graded:
        correct.setdefault(sample.id, []).append(float(verdict.correct is True))
    unscored: dict[str, list[float]] = {}
    for sample, verdict in graded:
        unscored.setdefault(sample.id, []).append(float(verdict.correct is not False))
    k = max(map(len, correct.values()))
    found = mean_at_k(list(correct.values()))
    # One completion each is the plain binomial case: the bounds are Wilson's to the last digit.
    interval = wilson(sum(map(sum, correct.values())), len(correct)) if k == 1 else found.interval
    verdicts = [verdict for _, verdict in graded]
    lengths = [len(sample.ids) for sample, _ in graded if sample.ids is not None]
    ends = [sample.finish for sample, _ in graded if sample.finish is not None]
    return EvalResult(
        about=about,
        n=len(correct),
        k=k,
        accuracy=found.mean,
        low=interval.low,
        high=interval.high,
        se=found.se if len(correct) > 1 else None,
        accuracy_upper=mean_at_k(list(unscored.values())).mean,
        score=sum(verdict.score or 0.0 for verdict in verdicts) / len(verdicts),
        no_answer=_share(verdict.reason == Reason.NO_ANSWER for verdict in verdicts),
        truncated=_share(end == "length" for end in ends) if ends else None,
        abstains=sum(verdict.status is Status.ABSTAIN for verdict in verdicts),
        errors=sum(verdict.status is Status.ERROR for verdict in verdicts),
        mean_tokens=sum(lengths) / len(lengths) if lengths else None,
    )


def _share(claims: Any) -> float:
    held = list(claims)
    return sum(held) / len(held)
