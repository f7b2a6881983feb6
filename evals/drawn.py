"""The completions of a run as votes and ranks: what metrics and curves over k of them read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from stepmark.errors import Error, RunError
from stepmark.prm.aggregation import aggregate, rank_of
from stepmark.prm.search import answer_classes
from stepmark.protocols import OutcomeVerifier
from stepmark.statistics import Drawn
from stepmark.store import Key, RunFolder, Sample
from stepmark.store.samples import ScoredSteps
from stepmark.types import Verdict
from stepmark.verifiers import load_verifier

from .compare import graded_of

__all__ = ["Choice", "DrawnRun"]


class Choice(NamedTuple):
    """What completions are ordered by, or what their votes count."""

    scorer: str
    """Key of the scorer."""
    ranks: Mapping[Key, float | None]
    weights: Mapping[Key, float | None]

    @property
    def unscored(self) -> int:
        """Completions without a whole score."""
        return sum(rank is None for rank in self.ranks.values())


class DrawnRun:
    """The completions of a finished evaluation, by problem, in the order of the store.

    Args:
        run: the run folder.
        verifier: whose equality says which results are one; by default the run's own.

    Raises:
        RunError: it is no run, or a completion has no verdict.
    """

    def __init__(self, run: Path, verifier: OutcomeVerifier | None = None) -> None:
        self.run = run
        self.problems: dict[str, list[tuple[Sample, Verdict]]] = {}
        for sample, verdict in graded_of(run):
            self.problems.setdefault(sample.id, []).append((sample, verdict))
        self.folder = RunFolder.open(run)
        self._verifier = verifier

    @property
    def least(self) -> tuple[str, int]:
        """The problem with the fewest completions, and how many they are."""
        id = min(self.problems, key=lambda id: len(self.problems[id]))
        return id, len(self.problems[id])

    @cached_property
    def verifier(self) -> OutcomeVerifier:
        """Whose equality makes classes.

        The run's verifier; where its key alone does not give its settings, `math` as it stands.
        """
        if self._verifier is not None:
            return self._verifier
        key = str(self.folder.config().get("verifier", ""))
        try:
            found = load_verifier(key.partition("@")[0])
        except Error:
            return load_verifier("math")
        return found if found.key == key else load_verifier("math")

    @cached_property
    def classes(self) -> dict[Key, str | None]:
        """The class of each completion's result."""
        rows = [
            [(sample.to_item(), verdict) for sample, verdict in row]
            for row in self.problems.values()
        ]
        names = answer_classes(self.verifier, rows)
        return {
            sample.key: name
            for row, of_row in zip(self.problems.values(), names, strict=True)
            for (sample, _), name in zip(row, of_row, strict=True)
        }

    def choice(self, scorer: str, how: str) -> Choice:
        """What a scorer says of the completions.

        Args:
            scorer: its key, or its name before the ``@``.
            how: the aggregation.

        Raises:
            RunError: the run has no scores of that scorer, or not on all completions.
        """
        key, scores = self._scores(scorer)
        rows = {sample.key: scores[sample.key].scores for sample in self._samples()}
        return Choice(
            key,
            {key: rank_of(row, how) for key, row in rows.items()},
            {key: aggregate(row, how) for key, row in rows.items()},
        )

    def drawn(self, choice: Choice | None = None, *, votes: bool = False) -> list[Drawn]:
        """The samples of each problem.

        Args:
            choice: for ranks and weights.
            votes: whether classes are wanted, which takes comparisons of results.
        """
        return [self._one(row, choice, votes) for row in self.problems.values()]

    def _one(
        self, row: Sequence[tuple[Sample, Verdict]], choice: Choice | None, votes: bool
    ) -> Drawn:
        keys = [sample.key for sample, _ in row]
        return Drawn(
            [float(verdict.correct is True) for _, verdict in row],
            [choice.ranks[key] for key in keys] if choice else (),
            [self.classes[key] for key in keys] if votes else (),
            [choice.weights[key] for key in keys] if choice else (),
        )

    def _samples(self) -> list[Sample]:
        return [sample for row in self.problems.values() for sample, _ in row]

    def _scores(self, scorer: str) -> tuple[str, Mapping[Key, ScoredSteps]]:
        store, run = self.folder.samples, self.run
        known = store.score_keys()
        fits = [key for key in known if scorer in (key, key.partition("@")[0])]
        if len(fits) != 1:
            what = "scores of several scorers" if fits else "no scores"
            raise RunError(
                f"{str(run)!r} has {what} named {scorer!r}; there are: "
                f"{', '.join(known) or 'none'}. Name one of those keys, or make the scores:\n"
                f"    stepmark prm score {run} --scorer CHECKPOINT"
            )
        scores = store.scores(fits[0])
        wanted = [sample.key for sample in self._samples()]
        if lacking := sum(key not in scores for key in wanted):
            raise RunError(
                f"{str(run)!r} has no scores of {fits[0]!r} on {lacking} of {len(wanted)} "
                "completions. Make the missing ones:\n"
                f"    stepmark prm score {run} --scorer CHECKPOINT"
            )
        return fits[0], scores
