"""A verifier as the ``compute_score`` of verl; ``stepmark export verl`` writes the file for it.

verl knows no missing score: where the gold or the verifier failed, it gets ``abstain_score``, and
keys beside it that say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stepmark.errors import ConfigError
from stepmark.types import Verdict

from .marker import Marker, Row
from .references import VerifierLike, short_name

__all__ = ["Scorer"]


class Scorer:
    """Marks one response at a time, from any thread: what a ``compute_score`` file calls.

    Args:
        verifier: as `stepmark.verifiers.load_verifier` takes it.
        abstain_score: the score of a response that has none because the gold or the verifier
            failed; any finite number.
        max_error_share: a run stops when more of the last hundred verdicts are errors; in [0, 1].

    Raises:
        ConfigError: the verifier does not load, or an argument is out of its range.
        UnknownNameError: nothing is known under that name.

    >>> mark = Scorer("math")
    >>> mark("gsm8k", "So it is 18.", "18")["score"]
    1.0
    """

    def __init__(
        self,
        verifier: VerifierLike,
        *,
        abstain_score: float = 0.0,
        max_error_share: float = 0.1,
    ) -> None:
        if not math.isfinite(abstain_score):
            raise ConfigError(
                f"abstain_score is {abstain_score!r}; verl needs a finite number for every "
                "response: 0.0 counts what cannot be marked as wrong."
            )
        self.abstain_score = float(abstain_score)
        self.mark = Marker(verifier, short_name(verifier), max_error_share)

    def __repr__(self) -> str:
        return f"Scorer({self.mark.name!r}, abstain_score={self.abstain_score})"

    def __call__(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> dict[str, float | str]:
        """The score, and the keys of `row`; the verifier's columns come from ``extra_info``.

        Raises:
            ConfigError: the verifier asks for a column that ``extra_info`` does not have.
            VerifierError: too many errors.
        """
        columns = {**others, **(extra_info or {}), "data_source": data_source}
        question = str(columns.get("question") or "")
        prompt = str(columns.get("prompt") or question)
        row = Row(solution_str, ground_truth, columns, question, prompt)
        (verdict,) = self.mark([row])
        return self.row(verdict)

    def row(self, verdict: Verdict) -> dict[str, float | str]:
        """What verl is told of a verdict; every response has all keys, or verl would stop.

        ``score`` is optimised, ``acc`` is what validation averages, ``pred`` is what its majority
        votes on. The ``verdict_*`` keys say whether there was a score, and why not.
        """
        is_scored = verdict.score is not None
        return {
            "score": verdict.score if verdict.score is not None else self.abstain_score,
            "acc": float(verdict.correct is True),
            "pred": verdict.extracted or "",
            "verdict_scored": float(is_scored),
            "verdict_status": verdict.status.value,
            "verdict_reason": str(verdict.reason),
        }
