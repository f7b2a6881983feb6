"""A minibatch whose loss or gradient was no number, kept so that it can be looked at again.

``RUN/replay/step-000012/`` is a plain Hugging Face folder with the weights that the optimizer step
began from, and ``batch.pt`` in it: the samples with their advantages and log-probs, the backend's
settings, and the critic where there is one. `replay` gives the same loss and gradient norm again,
and asks each sample alone which one it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch

from stepmark.errors import DataError, RunError
from stepmark.store.files import publish
from stepmark.training.adapter_files import FOLDER, restore_adapter
from stepmark.training.checkpoint import Policy, write_policy
from stepmark.training.critic import Critic, make_critic
from stepmark.training.lora import take_weights, weights_of
from stepmark.training.optimizer import adamw
from stepmark.training.precision import Autocast, precision_of
from stepmark.training.sample import TrainingSample

if TYPE_CHECKING:
    from .update import Updater

__all__ = [
    "BrokenUpdate",
    "Replay",
    "ReplayBatch",
    "load_replay",
    "replay",
    "save_replay",
    "updater_of",
]

BATCH = "batch.pt"

UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, EOFError)
"""What reading a file raises that is torn, or something else."""


class BrokenUpdate(Exception):
    """An optimizer step that must not be made; the loop keeps its minibatch and ends the run."""

    def __init__(
        self,
        what: str,
        value: float,
        step: int,
        epoch: int,
        samples: Sequence[TrainingSample],
        trains_policy: bool,
    ) -> None:
        super().__init__(what, value, step, epoch)
        self.what, self.value, self.step, self.epoch = what, value, step, epoch
        self.samples, self.trains_policy = list(samples), trains_policy


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """What `load_replay` read: all that the loss of that minibatch depends on."""

    folder: Path
    """Holds the weights too."""
    step: int
    epoch: int
    what: str
    """The number that stopped the run, such as ``loss/policy``."""
    value: float
    backend: str
    settings: Mapping[str, Any]
    temperature: float
    trains_policy: bool
    samples: tuple[TrainingSample, ...]
    critic: Mapping[str, Any] | None
    dtype: str
    autocast: Autocast
    checkpointing: bool

    def critic_of(self, policy: Any) -> Critic | None:
        """The critic as it was, on the policy's body where it was shared."""
        if self.critic is None:
            return None
        critic = make_critic(policy, shared=self.settings.get("critic") == "shared")
        take_weights(critic, self.critic)
        return critic


@dataclass(frozen=True, slots=True)
class One:
    """What one completion, or one pair of them, adds to loss and gradient by itself."""

    samples: tuple[TrainingSample, ...]
    loss: float
    grad_norm: float

    @property
    def size(self) -> float:
        """How bad it is: infinite where a number is none, else the norm of its gradient."""
        finite = math.isfinite(self.loss) and math.isfinite(self.grad_norm)
        return self.grad_norm if finite else math.inf


@dataclass(frozen=True, slots=True)
class Replay:
    """The numbers of a minibatch, made again."""

    numbers: Mapping[str, float]
    """Loss, its terms, the backend's metrics, and the gradient norms."""
    ones: tuple[One, ...]
    """Every completion or pair by itself, in the order of the minibatch."""

    @property
    def worst(self) -> int:
        """Place of the one whose loss or gradient is no number; else of the longest gradient."""
        return max(range(len(self.ones)), key=lambda place: self.ones[place].size)

    @property
    def broken(self) -> int:
        """How many have a loss or gradient that is no number; all of them: look at the weights."""
        return sum(math.isinf(one.size) for one in self.ones)


def save_replay(run: Path, broken: BrokenUpdate, updater: Updater, policy: Policy) -> RunError:
    """Keep the minibatch and the weights below the run; the error to raise says where.

    Returns:
        The error, with the command that makes the numbers again.
    """
    config, critic = updater.backend.config, updater.critic
    place = Path(run) / "replay" / f"step-{broken.step:06d}"
    row = {
        "step": broken.step,
        "epoch": broken.epoch,
        "what": broken.what,
        "value": broken.value,
        "backend": config.backend,
        "settings": config.model_dump(mode="json"),
        "temperature": updater.temperature,
        "trains_policy": broken.trains_policy,
        "samples": [sample.to_row() for sample in broken.samples],
        "critic": None if critic is None else dict(weights_of(critic)),
        "dtype": str(policy.model.dtype).removeprefix("torch."),
        "autocast": "none" if updater.precision.autocast is None else "bfloat16",
        "checkpointing": updater.precision.checkpointing,
    }
    place.parent.mkdir(exist_ok=True)
    with publish(place, replace=True) as folder:
        folder.mkdir()
        write_policy(folder, policy, merged=False)
        torch.save(row, folder / BATCH)
    seen = "is not a finite number" if not math.isfinite(broken.value) else _too_large(broken)
    return RunError(
        f"{broken.what} {seen} in step {broken.step}; the weights were left as they were, and the "
        f"minibatch is in {place / BATCH}. Look at it, then start a run with a new --out, a lower "
        "algorithm.learning_rate or algorithm.grad_clip, and a checkpoint of this run as --model:\n"
        f"    stepmark train --replay-batch {place / BATCH}"
    )


def _too_large(broken: BrokenUpdate) -> str:
    return f"is {broken.value:.3g}, which is beyond algorithm.loss_limit,"


def load_replay(file: Path) -> ReplayBatch:
    """The minibatch in a file that `save_replay` wrote, or in the folder that holds it.

    Raises:
        DataError: it is none.
    """
    place = Path(file)
    place = place / BATCH if place.is_dir() else place
    try:
        row: dict[str, Any] = torch.load(place, weights_only=True)
        samples = tuple(TrainingSample.from_row(one) for one in row.pop("samples"))
        return ReplayBatch(folder=place.parent, samples=samples, **row)
    except (*UNREADABLE, UnpicklingError) as error:
        first = next(iter(str(error).splitlines()), "")
        raise DataError(
            f"{str(file)!r} cannot be replayed: {type(error).__name__}: {first} A run that stops "
            f"because its loss is no number leaves RUN/replay/step-000012/{BATCH}: name that file."
        ) from error


def updater_of(batch: ReplayBatch, model: Any) -> Updater:
    """What makes the gradient of the minibatch: backend, critic and settings as the run had them.

    Args:
        batch: from `load_replay`.
        model: the policy in ``batch.folder``; its adapters are added where it has any.
    """
    from .backend import backends
    from .update import Updater

    if (batch.folder / FOLDER).is_dir():
        restore_adapter(model, batch.folder / FOLDER)
    kind: Any = backends.load(batch.backend)
    backend = kind(kind.Config(**batch.settings))
    critic = batch.critic_of(model)
    rate = batch.settings["learning_rate"]
    optimizer = adamw(model, learning_rate=rate)
    own = None if critic is None else adamw(critic, learning_rate=rate)
    precision = precision_of(model, batch.autocast, batch.checkpointing)
    return Updater(model, optimizer, backend, batch.temperature, 0, critic, own, precision)


def replay(updater: Updater, batch: ReplayBatch) -> Replay:
    """Loss and gradient norm of the minibatch once more, and of each completion by itself.

    No optimizer step is made. On a CPU the numbers are those of the run, bit for bit.

    Args:
        updater: with the models as they were.
        batch: from `load_replay`.
    """
    numbers = _measure(updater, batch.samples, batch.trains_policy, None)
    weights = updater.backend.weights(batch.samples)
    units: dict[tuple[str, int], list[TrainingSample]] = {}
    for place, sample in enumerate(batch.samples):
        unit = ("row", place) if sample.pair is None else ("pair", sample.pair)
        units.setdefault(unit, []).append(sample)
    ones: list[One] = []
    for unit in units.values():
        own = _measure(updater, unit, batch.trains_policy, weights)
        norms = [own[name] for name in ("grad_norm", "critic/grad_norm") if name in own]
        ones.append(One(tuple(unit), own["loss"], math.hypot(*norms)))
    updater.clear_gradients()
    return Replay(numbers, tuple(ones))


def _measure(
    updater: Updater,
    samples: Sequence[TrainingSample],
    trains_policy: bool,
    weights: Mapping[str, float] | None,
) -> dict[str, float]:
    found: dict[str, float] = {}
    updater.clear_gradients()
    for loss, numbers in updater.micro_losses(samples, weights):
        for name, value in numbers.items():
            found[name] = found.get(name, 0.0) + value
        loss.backward()
    if not trains_policy:
        updater.optimizer.zero_grad(set_to_none=True)
    return found | updater.gradient_norms()
