"""The loop that trains reward models: batches, optimizer steps, held-out rows, checkpoints.

::

    for each step:   batch <- a pure function of seed and step
                     one optimizer step on the learner's loss, packed by a budget of tokens
                     held-out evaluation, early stop and checkpoints when due

Of several processes each computes a share of the batch, and their gradients are added up.

Dropout is off. A run that is resumed from a checkpoint goes on exactly as one that was never
stopped; one that ends before its held-out metric has settled says so.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from stepmark.errors import RunError, Stopped
from stepmark.store.run import RunFolder
from stepmark.training.events import Evaluated, Saved, Started, StepDone
from stepmark.training.interrupts import StopRequest
from stepmark.training.optimizer import adamw, learning_rate, set_learning_rate
from stepmark.training.precision import Precision

from .batches import Batches, shares
from .keeping import Keeper, Progress, with_minus_loss
from .train_config import LearningTable

__all__ = ["FitResult", "Learner", "Loss", "fit"]

log = logging.getLogger(__name__)

Event = Started | StepDone | Evaluated | Saved


class Loss(NamedTuple):
    """The loss of one micro-batch, with gradient, and numbers that add up over micro-batches."""

    value: Tensor
    numbers: Mapping[str, float]
    """With ``loss`` and ``num_tokens`` among them."""


class Learner(Protocol):
    """What is trained: a model with its rows and its loss."""

    model: Any
    tokenizer: Any
    extra: nn.Module | None
    """What learns besides the model and is no part of it."""
    head: nn.Module | None
    """What of the model learns besides adapters, where it has any."""
    batches: Batches

    def losses(
        self, rows: Sequence[int], budget: int, mine: Sequence[int] | None = None
    ) -> Iterator[Callable[[], Loss]]:
        """The losses of a batch, to be taken one after the other; their sum is its loss.

        With ``mine``, the part of that sum that these rows of the batch make.
        """
        ...

    def size(self, row: int) -> int:
        """How much work a row is, in tokens."""
        ...

    def evaluate(self) -> Mapping[str, float]:
        """Metrics on held-out rows; empty without any."""
        ...

    def best_metric(self, found: Mapping[str, float]) -> str:
        """Which of these metrics is to rise; ``minus_loss`` is among them."""
        ...

    def write(self, folder: Path) -> None:
        """Put what a checkpoint holds besides model and tokenizer into a folder."""
        ...


@dataclass(frozen=True, slots=True)
class FitResult:
    """Where a finished training stands."""

    step: int
    final: Path
    best: Path | None
    """The checkpoint with the highest held-out metric; None without held-out rows."""
    best_step: int | None
    best_metric: str
    best_value: float | None
    converged: bool | None
    """None where nothing tells: no target, no patience, or no held-out rows."""
    why: str
    """What ended the training, in words."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the last evaluation."""


def fit(
    run: RunFolder,
    learner: Learner,
    config: LearningTable,
    *,
    precision: Precision,
    on_event: Callable[[Event], None] | None = None,
) -> FitResult:
    """Train until the steps are done, the target is reached or patience is out.

    A run folder that holds checkpoints is continued from the newest whole one.

    Args:
        run: open and locked; metrics, timings and checkpoints go there.
        learner: trained in place.
        config: how long, how fast, how often to look and to save.
        precision: of the forward passes.
        on_event: told what happens; see `stepmark.training.events`.

    Raises:
        RunError: a loss or gradient is not finite, no checkpoint is whole, or the run began with
            other weights.
        Stopped: by SIGINT or SIGTERM; a checkpoint to resume from is on the disk.
    """
    with StopRequest() as stop:
        return Fit(run, learner, config, precision, stop, on_event or (lambda _: None)).run()


class Fit:
    """One training; `fit` is the way in."""

    def __init__(
        self,
        run: RunFolder,
        learner: Learner,
        config: LearningTable,
        precision: Precision,
        stop: StopRequest,
        tell: Callable[[Event], None],
    ) -> None:
        self.folder, self.learner, self.config = run, learner, config
        self.precision, self.stop, self.tell = precision, stop, tell
        self.steps = config.steps or learner.batches.steps(config.epochs)
        trained = nn.ModuleList([part for part in (learner.model, learner.extra) if part])
        self.weights = [w for w in trained.parameters() if w.requires_grad]
        self.optimizer = adamw(
            trained,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=(config.adam_beta1, config.adam_beta2),
            epsilon=config.adam_epsilon,
        )
        self.keeper = Keeper(run.checkpoints, learner, self.optimizer, config, tell)
        self.processes, self.agreed = self.keeper.processes, None
        learner.model.eval()

    def run(self) -> FitResult:
        """All steps that are left."""
        keeper = self.keeper
        keeper.resume()
        done = keeper.state.step
        self.tell(Started(done, self.steps))
        if keeper.state.evaluated_at is None and (row := self._evaluate(done)):
            self._log(done, row)
        self._stop_if_asked()
        for step in range(done + 1, self.steps + 1):
            if self._end() is not None:
                break
            self._one_step(step)
            self._stop_if_asked()
        if keeper.resumed_from != self.folder.checkpoints / "final":
            keeper.save("final")
            self.processes.exchange(None)  # until it is on the disk
        return self._result()

    def _one_step(self, step: int) -> None:
        started, cpu = time.monotonic(), time.process_time()
        epoch, rows = self.learner.batches.of_step(step)
        rate = self._rate(step)
        set_learning_rate(self.optimizer, rate)
        numbers = self._learn(step, rows)
        if numbers is None:
            return
        self.keeper.change(step=step)
        seconds = time.monotonic() - started
        numbers |= {"learning_rate": rate, "epoch": float(epoch)}
        self.tell(StepDone(step, self.steps, numbers, None))
        found = self._evaluate(step) if self._is_due(step) else {}
        self._log(step, {**numbers, **found})
        cpu = time.process_time() - cpu
        speed = numbers["num_tokens"] / max(seconds, 1e-9)
        times = {"update_s": seconds, "cpu_s": cpu, "tokens_per_s": speed}
        if self.processes.is_first:
            self.folder.log_timings(step, times)
        every = self.config.save_every
        if every is not None and step % every == 0 and step < self.steps:
            self.keeper.save()

    def _log(self, step: int, row: Mapping[str, float]) -> None:
        if self.processes.is_first:
            self.folder.log_metrics(step, row)

    def _learn(self, step: int, rows: Sequence[int]) -> dict[str, float] | None:
        """One optimizer step; its numbers, or None where a process was asked to stop within it.

        A loss that is no number ends the part of one process, and then the run of all.
        """
        self.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        here, budget = self.processes, self.config.tokens_per_microbatch
        for compute in self.learner.losses(rows, budget, *self._mine(rows)):
            if not here.is_alone and self.stop.number is not None:
                break
            with self.precision.forward(), self.precision.recomputing(self.learner.model):
                loss = compute()
            for name, number in loss.numbers.items():
                totals[name] = totals.get(name, 0.0) + number
            if not math.isfinite(totals["loss"]):
                break
            loss.value.backward()
        if not here.is_alone:
            totals, self.agreed = here.agree(totals, self.stop.number)
            if self.agreed is not None:
                return None
        self._check(step, "loss", totals["loss"], rows)
        here.add_gradients(self.weights)
        norm = float(torch.nn.utils.clip_grad_norm_(self.weights, self.config.grad_clip))
        self._check(step, "gradient", norm, rows)
        self.optimizer.step()
        return {**totals, "grad_norm": norm}

    def _mine(self, rows: Sequence[int]) -> tuple[list[int], ...]:
        """The rows of a batch that this process computes, where there are others."""
        here, learner = self.processes, self.learner
        if here.is_alone:
            return ()
        return (shares(rows, here.count, learner.size, learner.batches.unit)[here.index],)

    def _check(self, step: int, what: str, value: float, rows: Sequence[int]) -> None:
        if math.isfinite(value):
            return
        shown = ", ".join(map(str, rows[:5]))
        raise RunError(
            f"The {what} of step {step} is {value}, which nothing can be learnt from; the weights "
            f"are those before it (rows of the batch: {shown}, ...). Lower "
            'algorithm.learning_rate, or set model.autocast = "none", and start again with another '
            "--out: a run that is resumed keeps its settings."
        )

    def _rate(self, step: int) -> float:
        config, reached = self.config, self.keeper.progress.target_at
        if config.target is None:
            return learning_rate(
                step, self.steps, config.learning_rate, config.warmup_steps, config.schedule
            )
        rate = learning_rate(
            step, self.steps, config.learning_rate, config.warmup_steps, "constant"
        )
        return rate if reached is None else rate * (1 - (step - 1 - reached) / config.target_steps)

    def _is_due(self, step: int) -> bool:
        every = self.config.eval_every
        is_last = step == self.steps or self._target_done(step)
        return is_last or (every is not None and step % every == 0)

    def _evaluate(self, step: int) -> dict[str, float]:
        with self.precision.sampling():
            found = with_minus_loss(self.learner.evaluate())
        self.learner.model.eval()
        if not found:
            return {}
        is_best = self.keeper.evaluated(step, found)
        self.tell(Evaluated(step, self.steps, found, is_best))
        return dict(self.keeper.state.evaluation)

    def _target_done(self, step: int) -> bool:
        reached = self.keeper.progress.target_at
        return reached is not None and step >= reached + self.config.target_steps

    def _end(self) -> str | None:
        """Why training ends before its last step; None where it goes on."""
        state, config, progress = self.keeper.state, self.config, self.keeper.progress
        if self._target_done(state.step):
            return f"the target was reached at step {progress.target_at}"
        if config.patience is not None and progress.stale >= config.patience:
            return f"{progress.stale} evaluations brought nothing better"
        return None

    def _stop_if_asked(self) -> None:
        """All of several processes stop at one step: the one that they agreed on."""
        number = self.stop.number if self.processes.is_alone else self.agreed
        if number is None:
            return
        self.keeper.save()
        self.processes.exchange(None)  # until it is on the disk
        raise Stopped(
            f"Stopped after step {self.keeper.state.step} of {self.steps}; nothing is lost. "
            f"The run in {self.folder.path} can be resumed.",
            number,
        )

    def _result(self) -> FitResult:
        state, progress = self.keeper.state, self.keeper.progress
        best = self.folder.checkpoints / "best"
        converged, why = self._convergence(progress)
        return FitResult(
            state.step,
            self.folder.checkpoints / "final",
            best if best.is_dir() else None,
            state.best_step,
            progress.metric,
            state.best,
            converged,
            why,
            dict(state.evaluation),
        )

    def _convergence(self, progress: Progress) -> tuple[bool | None, str]:
        ended, config = self._end(), self.config
        if ended is not None:
            return (config.target is None or progress.target_at is not None), ended
        if progress.metric and config.target is not None:
            return False, (
                f"not converged: {progress.metric} did not reach {config.target:g} in "
                f"{self.steps} steps"
            )
        if progress.metric and config.patience is not None:
            return (
                False,
                f"not converged: {progress.metric} had not settled after {self.steps} steps",
            )
        return None, f"all {self.steps} steps are done"
