"""What the training of a reward model keeps of itself: its state, checkpoints, the best of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stepmark.errors import ConfigError, RunError
from stepmark.training.checkpoint import (
    Policy,
    TrainingState,
    fingerprint,
    last_good,
    load_state,
    load_weights,
    prune,
    random_state,
    save_checkpoint,
    set_aside,
    set_random_state,
    step_folder,
)
from stepmark.training.events import Saved
from stepmark.training.lora import is_adapted
from stepmark.training.processes import processes

__all__ = ["MINUS_LOSS", "Keeper", "Progress", "with_minus_loss"]

log = logging.getLogger(__name__)

MINUS_LOSS = "minus_loss"
"""The held-out loss with its sign turned: it rises where nothing else can be measured."""


@dataclass(slots=True)
class Progress:
    """What the loop goes by besides the step."""

    metric: str = ""
    """The held-out metric that is to rise; empty before the first evaluation."""
    stale: int = 0
    """Evaluations since the best one."""
    target_at: int | None = None
    """Step at which the target was reached."""
    processes: int = 1
    """How many computed the newest step."""


def with_minus_loss(found: Mapping[str, float]) -> dict[str, float]:
    """Held-out metrics with the loss as one that is to rise; the best has the highest value.

    >>> with_minus_loss({"loss": 0.5}), with_minus_loss({})
    ({'loss': 0.5, 'minus_loss': -0.5}, {})
    """
    return {**found, MINUS_LOSS: -found["loss"]} if "loss" in found else dict(found)


class Keeper:
    """The state of a training, and its checkpoints on the disk.

    Args:
        checkpoints: the folder that holds them.
        learner: as the run began.
        optimizer: of all that learns.
        config: which metric marks the best, and how many checkpoints stay.
        tell: takes the events.
    """

    def __init__(
        self,
        checkpoints: Path,
        learner: Any,
        optimizer: torch.optim.Optimizer,
        config: Any,
        tell: Callable[[Saved], None],
    ) -> None:
        self.checkpoints, self.learner, self.optimizer = checkpoints, learner, optimizer
        self.config, self.tell = config, tell
        self.policy = Policy(learner.model, learner.tokenizer)
        self.state = TrainingState(0, {}, first_policy=fingerprint(learner.model))
        self.processes = processes()
        self.progress = Progress(processes=self.processes.count)
        self.resumed_from: Path | None = None

    def change(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def resume(self) -> None:
        """Put weights, optimizer and generators where the newest whole checkpoint has them.

        Raises:
            RunError: the run began with other weights, or no checkpoint is whole.
        """
        here = self.processes
        place = here.from_first(last_good(self.checkpoints) if here.is_first else None)
        if place is None:
            return
        if not place.is_dir():
            raise RunError(
                f"Process {here.index} does not see the checkpoint {place}. The folder of --out "
                "must be one that every machine of the run can read."
            )
        state = load_state(place)
        if state.first_policy != self.state.first_policy:
            raise RunError(
                f"The run in {self.checkpoints.parent} began with other weights than model.base "
                "holds now. Resume with the model that it began with, or choose another --out."
            )
        if here.is_first:
            set_aside(self.checkpoints, place)
        load_weights(self.learner.model, place)
        self.optimizer.load_state_dict(dict(state.optimizer))
        set_random_state(state.random)
        kept: Mapping[str, Any] = state.progress or {}
        for name, module in self._apart().items():
            module.load_state_dict(kept[name])
        self.progress = Progress(**kept["loop"])
        if self.progress.processes != here.count:
            log.warning(
                "The run began with %d processes and goes on with %d: sums are rounded in another "
                "order, so it will not be bit for bit the run that was never stopped.",
                self.progress.processes,
                here.count,
            )
            self.progress.processes = here.count
        self.state, self.resumed_from = replace(state, progress=None), place
        log.info("Resumed from %s after step %d.", place, state.step)

    def save(self, name: str | None = None) -> Path:
        """A resumable checkpoint, numbered by step unless it has a name.

        Raises:
            RunError: the processes have come to hold different weights.
        """
        place = step_folder(self.checkpoints, self.state.step)
        place = place if name is None else self.checkpoints / name
        if not self.processes.is_alone:
            self.processes.check_equal(fingerprint(self.learner.model), "weights")
        if not self.processes.is_first:
            return place
        progress = {part: dict(module.state_dict()) for part, module in self._apart().items()}
        state = replace(
            self.state,
            optimizer=self.optimizer.state_dict(),
            random=random_state(),
            progress={**progress, "loop": asdict(self.progress)},
        )
        save_checkpoint(place, self.policy, state, self.learner.write)
        prune(self.checkpoints, self.config.keep_checkpoints)
        self.tell(Saved(self.state.step, place))
        return place

    def evaluated(self, step: int, found: Mapping[str, float]) -> bool:
        """Whether these metrics are the best so far, in which case the model is kept as ``best``.

        Raises:
            ConfigError: the metric to compare is not among them.
        """
        wanted = self.config.best_metric
        metric = self.learner.best_metric(found) if wanted == "auto" else wanted
        if metric not in found:
            raise ConfigError(
                f"algorithm.best_metric is {metric!r}, which the evaluation does not give. "
                f"It gives: {', '.join(sorted(found))}."
            )
        is_best = self.state.best is None or found[metric] > self.state.best
        progress = self.progress
        progress.metric, progress.stale = metric, 0 if is_best else progress.stale + 1
        target = self.config.target
        if progress.target_at is None and target is not None and found[metric] >= target:
            progress.target_at = step
        if is_best:
            self.change(best=found[metric], best_step=step)
        row = {f"eval/{key}": value for key, value in found.items()}
        self.change(evaluated_at=step, evaluation=row)
        if is_best and self.processes.is_first:
            save_checkpoint(self.checkpoints / "best", self.policy, more=self.learner.write)
        return is_best

    def _apart(self) -> dict[str, Any]:
        """What learns and is not among the files of the model: a second head; that of adapters."""
        found = {"extra": self.learner.extra}
        if is_adapted(self.learner.model):
            found["head"] = self.learner.head
        return {name: module for name, module in found.items() if module is not None}
