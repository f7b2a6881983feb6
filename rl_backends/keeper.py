"""What a run keeps of itself: its state, its checkpoints, the best of them, and how it goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stepmark.errors import ConfigError, RunError
from stepmark.training.adapter_files import check_base
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
from stepmark.training.lora import take_weights, weights_of

from .card import Card
from .events import Event, Saved
from .window import Window

__all__ = ["Keeper"]

log = logging.getLogger(__name__)

EARLIER = (
    "(A run begun by a Stepmark whose fingerprints depended on the number of threads is refused "
    "too: finish it with that one.)"
)


class Keeper:
    """The state of a run, between steps and inside of one, and its checkpoints on the disk.

    Args:
        checkpoints: the folder that holds them.
        policy: as the run began.
        optimizer: of that policy.
        critic: what learns along with the policy, with its optimizer; None without one.
        keep: numbered checkpoints that stay.
        tell: takes the events.
        card: what the final and the best checkpoint hold besides; None for nothing.
        given_reference: fingerprint of the reference that the run was given; empty without one.
    """

    def __init__(
        self,
        checkpoints: Path,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        keep: int,
        tell: Callable[[Event], None],
        critic: tuple[Any, torch.optim.Optimizer] | None = None,
        card: Card | None = None,
        given_reference: str = "",
    ) -> None:
        self.checkpoints, self.policy, self.optimizer = checkpoints, policy, optimizer
        self.critic, self.card = critic, card
        self.keep, self.tell = keep, tell
        first = fingerprint(policy.model)
        self.state = TrainingState(0, {}, first_policy=first, given_reference=given_reference)
        self.window: Window | None = None
        """The step that is being learnt from; None between steps."""
        self.resumed_from: Path | None = None

    def change(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def close(self) -> None:
        """The step of the window is done."""
        if self.window is not None:
            self.change(step=self.window.step)
        self.window = None

    def resume(self, restore: Callable[[Mapping[str, Tensor]], None]) -> None:
        """Put policy, optimizer, generators and window where the newest checkpoint has them.

        Args:
            restore: takes the weights that the frozen models had, once they were refreshed.

        Raises:
            RunError: the run began with other weights or another reference, or no checkpoint is
                whole.
        """
        place = last_good(self.checkpoints)
        if place is None:
            return
        state = load_state(place)
        check_base(self.policy.model, place)
        self._refuse_others(state)
        set_aside(self.checkpoints, place)
        load_weights(self.policy.model, place)
        self.optimizer.load_state_dict(dict(state.optimizer))
        if self.critic is not None and state.critic is not None:
            take_weights(self.critic[0], state.critic["weights"])
            self.critic[1].load_state_dict(state.critic["optimizer"])
        set_random_state(state.random)
        if state.reference is not None:
            restore(state.reference)
        self.window = None if state.window is None else Window.from_row(state.window)
        self.state, self.resumed_from = replace(state, window=None), place
        log.info("Resumed from %s after step %d.", place, state.step)

    def _refuse_others(self, state: TrainingState) -> None:
        """Refuse to go on with models that are not those that the run began with."""
        run = self.checkpoints.parent
        if state.first_policy != self.state.first_policy:
            raise RunError(
                f"The run in {run} began with other weights than model.policy holds now. "
                "Resume with the model that it began with, or choose another --out. "
                f"{EARLIER}"
            )
        if state.given_reference != self.state.given_reference:
            was, now = state.given_reference or "none", self.state.given_reference or "none"
            raise RunError(
                f"The run in {run} began with another reference than model.reference gives now "
                f"(fingerprints: {was} then, {now} now). "
                f"Resume with the one that it began with, or choose another --out. {EARLIER}"
            )

    def place(self) -> Path:
        """Where a checkpoint of this very moment lies, numbered by step and minibatch."""
        done = None if self.window is None else self.window.done
        return step_folder(self.checkpoints, self.state.step, done)

    def save(self, name: str | None = None) -> Path:
        """A resumable checkpoint, at `place` unless it has a name."""
        window = self.window
        place = self.place() if name is None else self.checkpoints / name
        self.change(optimizer=self.optimizer.state_dict(), random=random_state())
        if self.critic is not None:
            model, optimizer = self.critic
            self.change(critic={"weights": weights_of(model), "optimizer": optimizer.state_dict()})
        state = self.state if window is None else replace(self.state, window=window.to_row())
        is_named = name is not None
        more = self._more() if is_named else None
        save_checkpoint(place, self.policy, state, more, whole=is_named)
        prune(self.checkpoints, self.keep)
        self.tell(Saved(self.state.step, place))
        return place

    def evaluated(self, step: int, found: Mapping[str, float], metric: str) -> bool:
        """Whether these metrics are the best so far, in which case the policy is kept as ``best``.

        Raises:
            ConfigError: the metric to compare is not among them.
        """
        if metric not in found:
            raise ConfigError(
                f"algorithm.best_metric is {metric!r}, which the evaluation does not give. "
                f"It gives: {', '.join(sorted(found))}."
            )
        is_best = self.state.best is None or found[metric] > self.state.best
        if is_best:
            self.change(best=found[metric], best_step=step)
        row = {f"eval/{key}": value for key, value in found.items()}
        self.change(evaluated_at=step, evaluation=row)
        if is_best:
            save_checkpoint(self.checkpoints / "best", self.policy, more=self._more())
        return is_best

    def _more(self) -> Callable[[Path], None] | None:
        """Writes the model card, with the evaluation where it is of this very step."""
        card, state = self.card, self.state
        if card is None:
            return None
        found = state.evaluation if state.evaluated_at == state.step else {}
        return lambda folder: card.write(folder, state.step, found)
