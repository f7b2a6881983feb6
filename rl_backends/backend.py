"""What a backend must offer, and the registry of backends.

A backend is a pure module on the one loop, not a trainer: it turns marked groups into training
samples, says what a minibatch is divided by, and gives the losses of a micro-batch. It owns no
model, no optimizer and no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor

from stepmark.registry import Registry
from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked

from .config import AlgorithmConfig

__all__ = ["Backend", "Losses", "Models", "Need", "Prepared", "Source", "backends"]

Source = Literal["rollouts", "demonstrations", "preferences", "self-play"]
"""Where a backend's completions come from: sampled by the engine and marked by verifiers; the
worked solutions of the data set; its chosen and rejected completions; or, for ``self-play``, both
sampled completions and, last in each group, the worked solution. The loop is the same: a data set
is one more engine."""

Need = Literal["reference", "critic", "first-policy"]
"""Further models that the loop must keep for a backend: a frozen copy of the first policy to
compare with, a critic that learns along, or a frozen copy of the first policy that samples. Both
frozen copies become the policy at the start of each outer iteration."""


@dataclass(frozen=True, slots=True)
class Models:
    """What a backend may ask of the models while it prepares; no gradient is taken."""

    reference_logps: Callable[[Sequence[TrainingSample]], list[Tensor]] | None = None
    """Log-probs of each sample's tokens under the reference, nats; None when it is not needed."""
    values: Callable[[Sequence[TrainingSample]], list[Tensor]] | None = None
    """What the critic expects before each token, in reward units; None without a critic."""
    step: int = 1
    """The step that is prepared, from 1."""
    outcome: float = 1.0
    """Weight of what the verifiers say, beside ``process``."""
    process: float = 0.0
    """Weight of what the scorers say of the steps; 0 where steps are not rewarded."""
    verifiers: Mapping[str, float] = field(default_factory=dict[str, float])
    """The verifiers' weights in the reward, by their keys."""
    groups: int | None = None
    """Groups that a step is to learn from, ``rollout.prompts_per_step``, of those drawn."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a step trains on, and what is worth writing down about it."""

    samples: list[TrainingSample]
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    trains_policy: bool = True
    """False leaves the policy and its optimizer as they are: only the critic learns."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of a micro-batch, each already divided by the weights of the whole minibatch."""

    terms: Mapping[str, Tensor]
    """Scalars to be minimised; they are added up. Micro-batches of a minibatch add up too."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers that add up over micro-batches in the same way."""


@runtime_checkable
class Backend(Protocol):
    """An algorithm: what to learn from marked completions."""

    Config: ClassVar[type[AlgorithmConfig]]
    """Model of the settings that this backend reads from the table ``[algorithm]``."""
    source: ClassVar[Source]
    min_group_size: ClassVar[int]
    """Fewest completions per problem that it can learn from; GRPO compares, so 2."""

    @property
    def config(self) -> Any:
        """The settings in force."""
        ...

    @property
    def needs(self) -> frozenset[Need]:
        """Further models that it needs under these settings."""
        ...

    def prepare(self, groups: Sequence[tuple[Marked, ...]], models: Models) -> Prepared:
        """Training samples from marked groups: advantages, returns or pairs; no gradient.

        Every sample carries the index of its group, because minibatches are of whole groups.
        """
        ...

    def weights(self, minibatch: Sequence[TrainingSample]) -> Mapping[str, float]:
        """What the losses of this minibatch, one optimizer step, are divided by."""
        ...

    def losses(
        self, out: TokenOut, micro: Sequence[TrainingSample], weights: Mapping[str, float]
    ) -> Losses:
        """Losses of a micro-batch: sums over its tokens, divided by the minibatch's weights.

        Law: over any split of a minibatch into micro-batches they add up to the same.
        """
        ...


backends: Registry[type[Backend]] = Registry("backend", "stepmark.backends")
