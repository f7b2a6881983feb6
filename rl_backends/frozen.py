"""The models of a run that do not learn: what the policy is compared with, and what samples for it.

Offline rejection sampling and self-play sample from the policy that an outer iteration began with.
An engine may hold the policy's own module, so a second module cannot be handed to it: instead the
frozen weights change places with the policy's while completions are drawn. Tensors change hands;
nothing is copied or rounded.

Where adapters learn, a frozen model shares all other weights with the policy: it is the policy
with its adapters off, and from the first refresh on with adapters of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from torch import Tensor

from stepmark.errors import ConfigError
from stepmark.protocols import Engine
from stepmark.training.lora import frozen_copy, is_adapted, take_weights, weights_of

from .backend import Backend, Need

__all__ = ["FrozenModels", "check_reference"]


class FrozenModels:
    """The reference and the sampling policy, as far as a backend needs them.

    Args:
        needs: of the backend.
        policy: the model that is trained, as the run began.
        reference: a model of the user's; a copy of the policy when None.
    """

    def __init__(self, needs: Collection[Need], policy: Any, reference: Any = None) -> None:
        self.policy = policy
        self.reference: Any = None
        self.first: Any = None
        """What samples in the policy's place; None where the policy samples."""
        self.is_at_reference = "reference" in needs and reference is None
        """Whether policy and reference are known to be equal still."""
        if "reference" in needs:
            given = None if reference is None else reference.eval().requires_grad_(False)
            self.reference = frozen_copy(policy) if given is None else given
        if "first-policy" in needs:
            self.first = self.reference if self.is_at_reference else frozen_copy(policy)

    def models(self) -> list[Any]:
        """Those that become the policy at the start of an outer iteration, each once."""
        both = {id(model): model for model in (self.reference, self.first) if model is not None}
        return list(both.values())

    def refresh(self, policy: Any) -> Mapping[str, Tensor] | None:
        """Take over the policy's weights; they come back as a checkpoint keeps them, or None."""
        if not self.models():
            return None
        weights = weights_of(policy)
        self.restore(weights)
        self.is_at_reference = self.reference is not None
        state = self.models()[0].state_dict()
        return {name: state[name] for name in weights}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights that `refresh` returned.

        A reference of the user's beside a policy with adapters makes way for a copy of the policy.
        """
        is_whole = self.reference is not None and not is_adapted(self.reference)
        if is_whole and is_adapted(self.policy):
            self.reference = frozen_copy(self.policy) if self.first is None else self.first
        for model in self.models():
            take_weights(model, weights)

    @contextmanager
    def sampling(self, policy: Any, engine: Engine, version: int) -> Iterator[None]:
        """Inside, policy and engine have the weights that sample; then the policy has its own.

        An engine with a copy of its own takes the policy's weights over at its next ``sync``.
        """
        if self.first is None:
            yield
            return
        _exchange(policy, self.first)
        try:
            engine.sync(policy, version)
            yield
        finally:
            _exchange(policy, self.first)


def check_reference(backend: Backend, policy: Any, reference: Any) -> None:
    """Refuse a reference that could not take over the policy's weights when it is refreshed.

    Beside a policy with adapters it makes way for a copy, and may be any model.

    Raises:
        ConfigError: the message names a weight that differs.
    """
    outer = backend.config.outer
    is_kept = reference is None or "reference" not in backend.needs or is_adapted(policy)
    if outer == 1 or is_kept:
        return
    mine, theirs = _shapes(policy), _shapes(reference)
    if mine == theirs:
        return
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    ours, given = (shapes.get(names[0], "absent") for shapes in (mine, theirs))
    raise ConfigError(
        f"The reference has other weights than the policy: {names[0]!r} is {given} in it and "
        f"{ours} in the policy ({len(names)} differ), but with algorithm.outer = {outer} it must "
        "become the policy. Give a reference of the policy's architecture and size, or set "
        "algorithm.outer to 1."
    )


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in model.state_dict().items()}


def _exchange(one: Any, other: Any) -> None:
    pairs = zip(
        chain(one.parameters(), one.buffers()),
        chain(other.parameters(), other.buffers()),
        strict=True,
    )
    for mine, theirs in pairs:
        mine.data, theirs.data = theirs.data, mine.data
