"""`TrainedScorer`: a checkpoint of ``stepmark prm train`` that learns during a run.

::

    reward_models/NAME/            its replay buffer: labelled completions of every outer iteration
    reward_models/NAME/rounds/2/   what the second refresh came to; with the model where accepted

It begins as the checkpoint. Each refresh is a round of `stepmark.prm.replay`: the fresh rows are
admitted, the history is drawn from all earlier rounds, the model of the version in use is trained
further, and a gate decides whether it takes that one's place. A checkpoint of the run holds the
number and the key of the version, and not its weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepmark.config.refresh_table import RefreshTable
from stepmark.errors import ConfigError, DataError, RunError
from stepmark.prm import PrmScorer, labelled_steps
from stepmark.prm.replay import (
    Annotator,
    Provenance,
    RefreshConfig,
    RefreshOutcome,
    ReplayBuffer,
    Rescale,
    refresh,
)
from stepmark.prm.steps import Span
from stepmark.store import text_hash
from stepmark.types import LabelledSteps, StepItem, StepScores

__all__ = ["TrainedScorer"]

log = logging.getLogger(__name__)


class TrainedScorer:
    """A process reward model that is refreshed after each outer iteration (DeepSeekMath 4.1.4).

    Args:
        scorer: the checkpoint to begin with.
        table: how it learns, and what a refresh must reach.

    Raises:
        ConfigError: a row may be longer than a forward pass of the refresh.
    """

    def __init__(self, scorer: PrmScorer, table: RefreshTable) -> None:
        longest, budget = scorer.card.encoding.max_tokens, table.learning.tokens_per_microbatch
        if longest > budget:
            raise ConfigError(
                f"The reward model {str(scorer.path)!r} reads rows of up to {longest} tokens "
                f"(encoding.max_tokens) and reward.refresh.learning.tokens_per_microbatch is "
                f"{budget}: one row could exceed a forward pass. Set it to {longest} or more."
            )
        self.first, self.scorer, self.table = scorer, scorer, table
        self.folder: Path | None = None
        self.tried = 0
        """Refreshes so far: rounds of the buffer."""
        self.version = 0
        """Round whose model is in use; 0 is the checkpoint to begin with."""
        self.scales: tuple[Rescale, ...] = ()
        """From the first refreshed version on; the last one is applied first."""
        self.columns = scorer.columns

    @property
    def key(self) -> str:
        """That of the version in use, with a digest of how its scores are moved."""
        if not self.scales:
            return self.scorer.key
        moved = text_hash(repr([scale.to_row() for scale in self.scales]))[:4]
        return f"{self.scorer.key}-{moved}"

    @property
    def aggregation(self) -> str:
        """How its scores become that of a solution unless told otherwise."""
        return self.scorer.aggregation

    @property
    def splitter(self) -> str:
        """How a text is divided."""
        return self.scorer.splitter

    def segment(self, text: str) -> tuple[Span, ...]:
        """The steps of a text, as the model knows them from its training."""
        return self.scorer.segment(text)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """One score per step of each item, moved to the scale of the first version where asked."""
        key = self.key
        return [
            replace(row, scores=tuple(map(self._moved, row.scores)), scorer=key)
            for row in self.scorer.score(items)
        ]

    def _moved(self, score: float | None) -> float | None:
        if score is None or not self.scales:
            return score
        for scale in reversed(self.scales):
            score = scale.apply(score)
        return min(max(score, 0.0), 1.0)

    def settle(self, folder: Path) -> None:
        """Keep rows and versions in this folder of the run."""
        self.folder = folder

    def refresh(
        self,
        fresh: Sequence[LabelledSteps],
        history: Sequence[LabelledSteps],
        history_share: float,
        seed: int,
    ) -> Mapping[str, float]:
        """Metrics of one round; ``accepted`` says whether the refreshed model is in use now.

        ``history`` is not looked at: the buffer has its own.

        Raises:
            RunError: it has no folder, or the buffer there was altered.
            Stopped: by a signal; the same call continues.
        """
        buffer, round = self._buffer(), self.tried + 1
        report = buffer.add(fresh, round, self._provenance(fresh))
        self.tried = round
        counts = {
            "admitted": float(report.train),
            "held_out_rows": float(report.held_out),
            "refused_rows": float(sum(report.rejected.values())),
        }
        if not report.train:
            return counts
        # One copy of the weights is enough: what learns is loaded by itself.
        place, self.scorer = self.scorer.path, self._made(self.scorer.path)
        try:
            outcome = refresh(place, buffer, round, self._settings(history_share, seed))
        except DataError as error:  # all labels lie beyond the longest row of the model
            log.warning("The reward model %s stays as it is: %s", self.key, error)
            return {**counts, "accepted": 0.0}
        if outcome.accepted:
            self.version, self.scorer = round, self._made(outcome.model)
            if self.table.rescale == "moments" and outcome.rescale is not None:
                self.scales = (*self.scales, outcome.rescale)
        return {**counts, **_numbers(outcome)}

    def state(self) -> Mapping[str, Any]:
        """Which version is in use; its weights stay in the folder of the run."""
        scales = [scale.to_row() for scale in self.scales]
        return {"tried": self.tried, "version": self.version, "key": self.key, "scales": scales}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue with the version that a checkpoint names.

        Raises:
            RunError: it is gone, or was altered.
        """
        self.tried, self.version = int(state["tried"]), int(state["version"])
        self.scales = tuple(Rescale(**row) for row in state["scales"])
        self.scorer = self.first
        if self.version:
            place = self._home() / "rounds" / str(self.version) / "rm"
            if not place.is_dir():
                raise RunError(
                    f"The run scored with version {self.version} of its reward model "
                    f"({state['key']}), and there is no {str(place)!r} any more. Put it back, or "
                    "begin in another folder."
                )
            self.scorer = self._made(place)
        if self.key != state["key"]:
            raise RunError(
                f"Version {self.version} of the reward model in {str(self.scorer.path)!r} was "
                f"{state['key']} when the run was saved and is {self.key} now: it was altered. "
                "Restore it, or begin in another folder."
            )

    def _home(self) -> Path:
        if self.folder is None:
            raise RunError(
                f"The reward model {self.key} has no folder to keep its rows in, so it cannot be "
                "refreshed. Train in a run folder, or call settle(folder) first."
            )
        return self.folder

    def _buffer(self) -> ReplayBuffer:
        """The buffer, with what the model learnt from before the run as round 0."""
        most = self.table.max_annotated
        buffer = ReplayBuffer(self._home(), cap=self.table.row_budget if most is None else most)
        if self.table.first_rows and not self.tried:
            rows = [row for file in self.table.first_rows for row in labelled_steps(file)]
            names = ", ".join(Path(file).name for file in self.table.first_rows)
            buffer.add(rows, 0, Provenance(origin=names))
        return buffer

    def _made(self, place: Path) -> PrmScorer:
        first = self.first
        return PrmScorer(
            place,
            dtype=first.dtype,
            device=first.device,
            tokens_per_batch=first.tokens_per_batch,
        )

    def _settings(self, share: float, seed: int) -> RefreshConfig:
        table = self.table
        return RefreshConfig.model_validate(
            {
                "replay": {"share": share, "seed": seed},
                "gate": {"max_old_drop": table.max_old_drop, "new": table.gate},
                "model": {"device": self.first.device},
                "algorithm": {**table.learning.model_dump(), "seed": seed},
            }
        )

    def _provenance(self, rows: Sequence[LabelledSteps]) -> Provenance:
        """Who wrote the last of the rows, and who labelled them."""
        last: Mapping[str, Any] = max(
            (row.meta for row in rows), key=lambda meta: meta.get("step", 0), default={}
        )
        drawn = next((r.meta["annotation"] for r in rows if "annotation" in r.meta), {})
        return Provenance(
            policy_id=str(last.get("policy", "")),
            annotator=Annotator(
                kind=self.table.annotator or "",
                n_rollouts=self.table.rollouts if self.table.generates else None,
                completer_id=str(drawn.get("completer", "")),
            ),
            origin="rollouts",
        )


def _numbers(outcome: RefreshOutcome) -> dict[str, float]:
    """What a refresh came to, as metrics."""
    found = {
        "accepted": float(outcome.accepted),
        "round": float(outcome.round),
        "new_rows": float(outcome.counts["n_new"]),
        "replayed_rows": float(outcome.counts["n_replay"]),
    }
    for name, change in outcome.changes.items():
        found |= {f"f1/{name}/before": change.before, f"f1/{name}/after": change.after}
    return found
