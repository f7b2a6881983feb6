"""What a part must offer to be plugged in, where that can be said without torch.

`stepmark.rl_backends.Backend` stands beside the backends: its methods speak in tensors.
Plain functions are verifiers too: see `stepmark.verifiers.from_function`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from stepmark.types import Group, Item, Prompt, Rollout, Sampling, StepItem, StepScores, Verdict

__all__ = ["Engine", "OutcomeVerifier", "RewardModel", "StepScorer"]


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
    """Scores every step of a solution in [0, 1]."""

    @property
    def key(self) -> str:
        """File-safe ``name@version`` (or a hash of weights and encoding)."""
        ...

    def segment(self, rollout: Rollout) -> tuple[int, ...]:
        """Index of the last sampled token of each step; the last one is the last token."""
        ...

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        """As many scores per item as it has steps."""
        ...


@runtime_checkable
class RewardModel(StepScorer, Protocol):
    """A step scorer that learns during the run (DeepSeekMath 4.1.4)."""

    def refresh(
        self,
        fresh: Sequence[StepItem],
        history: Sequence[StepItem],
        history_share: float,
        seed: int,
    ) -> Mapping[str, float]:
        """Metrics of training on fresh rows mixed with ``history_share`` of earlier ones."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What a checkpoint must hold to continue exactly."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
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
