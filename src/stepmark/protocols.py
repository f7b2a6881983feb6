"""What a part must offer to be plugged in, where that can be said without torch.

`stepmark.rl_backends.Backend` stands beside the backends: its methods speak in tensors.
Plain functions are verifiers too: see `stepmark.verifiers.from_function`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from stepmark.types import (
    Group,
    Item,
    LabelledSteps,
    Prompt,
    Sampling,
    StepItem,
    StepScores,
    Verdict,
)

__all__ = ["Engine", "KeepsRows", "OutcomeVerifier", "RewardModel", "StepScorer"]


@runtime_checkable
class OutcomeVerifier(Protocol):
    """Marks completions: one verdict per item, in the same order, never an exception.

    What a verifier raises becomes a verdict of status ``error`` before it gets here.
    """

    @property
    def key(self) -> str:
        """File-safe ``name@version``, with a digest of the settings when they are not the defaults.

        The version changes whenever a score can change.
        """
        ...

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the data, beyond completion and gold, that it needs: without them, refused."""
        ...

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item."""
        ...


@runtime_checkable
class StepScorer(Protocol):
    """Scores every step of a solution in [0, 1].

    The scorer says where the steps are in the text; the loop finds the sampled tokens in which they
    end, so that a scorer knows nothing of the policy's tokenizer and may have one of its own. An
    attribute ``columns`` (a set of names) is read where there is one: data that lack such a column
    are refused before any model is loaded. An attribute ``scores_whole`` that is true says that a
    text is one step: such a scorer marks whole solutions, and gives None for steps before the last.
    """

    @property
    def key(self) -> str:
        """File-safe ``name@version`` (or a hash of weights and encoding).

        It changes whenever a score can change: scores are stored under it.
        """
        ...

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        """The steps as character spans that follow one another and cover the text.

        `stepmark.prm.split_steps` makes such spans.
        """
        ...

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """As many scores per item as it has steps."""
        ...


@runtime_checkable
class RewardModel(StepScorer, Protocol):
    """A step scorer that learns during the run (DeepSeekMath 4.1.4)."""

    def refresh(
        self,
        fresh: Sequence[LabelledSteps],
        history: Sequence[LabelledSteps],
        history_share: float,
        seed: int,
    ) -> Mapping[str, float]:
        """Metrics of training on fresh rows and on earlier ones.

        ``history`` is drawn already: together with ``fresh`` it makes up ``history_share`` of the
        rows, or less where there were not enough. All that is drawn at random comes from the
        seed, and the random state of the process stays as it was: a resumed run repeats it.
        """
        ...

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint must hold to continue exactly: plain values and tensors."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        ...


@runtime_checkable
class KeepsRows(Protocol):
    """What a reward model offers besides that keeps earlier rows and versions of itself.

    It gets no history, for it draws from its own; its state is the name of a version, not weights.
    A metric ``accepted`` of its refresh says whether the new version took the old one's place (1)
    or the old one stays (0); the loop counts.
    """

    def settle(self, folder: Path) -> None:
        """Keep everything in this folder of the run; called once, before anything else."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Draws completions: ids in, ids out."""

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        """Groups of ``n`` rollouts, one per prompt, each as soon as it is finished.

        The seed of a rollout is ``derive_seed(seed, problem id, index)``. Groups may come in any
        order; each carries its prompt.
        """
        ...

    def sync(self, policy: Any, version: int) -> None:
        """Take over the weights of a policy; later rollouts carry this version."""
        ...

    def sleep(self) -> None:
        """Give memory back while training runs, where the engine can."""
        ...

    def wake(self) -> None:
        """Undo `sleep`."""
        ...

    def close(self) -> None:
        """Release everything; idempotent."""
        ...
