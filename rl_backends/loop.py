"""The only training loop: Algorithm 1 of DeepSeekMath (arXiv:2402.03300) for every backend.

::

    for each outer iteration:      reference <- policy                 (from the second one on)
      for each step:               groups <- completions, drawn and marked, or those of the data
                                   window <- backend.prepare(groups)
        mu times, per minibatch:   one optimizer step on the backend's losses
        the engine takes over the policy; held-out evaluation and checkpoints when due
      reward models <- this iteration's completions and some of earlier ones    (outer > 1)

Old log-probs are the sampler's, because the engine holds the model itself; the first batch is
checked for that. Dropout is off: log-probs in training must be those of sampling. A run that is
resumed from a checkpoint, between steps or inside of one, goes on exactly as one that was never
stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stepmark.config.tables import RolloutTable
from stepmark.errors import Error, GateFailed, Stopped
from stepmark.protocols import Engine
from stepmark.store.run import RunFolder
from stepmark.training.checkpoint import Policy
from stepmark.training.lora import check_policy
from stepmark.training.precision import Precision
from stepmark.types import Marked, Prompt

from .backend import Backend
from .config import check_rollout
from .evaluation import Evaluate
from .events import Event, Refreshed, Started, StepDone
from .interrupts import Interrupted, StopRequest
from .optimizers import set_rates
from .parts import Parts, parts_of
from .replay import BrokenUpdate, save_replay
from .result import TrainResult, result_of
from .reward import Reward
from .sources import drawing_of
from .window import Window

__all__ = ["Evaluate", "TrainResult", "train"]

EXACT = Precision()
"""Forward passes in the type of the weights."""


def train(
    run: RunFolder,
    backend: Backend,
    policy: Policy,
    *,
    prompts: Callable[[int], Sequence[Prompt]],
    rollout: RolloutTable,
    stop_strings: Sequence[str] = (),
    engine: Engine | None = None,
    reward: Reward | None = None,
    reference: Any = None,
    evaluate: Evaluate | None = None,
    on_event: Callable[[Event], None] | None = None,
    precision: Precision = EXACT,
) -> TrainResult:
    """The policy, trained in place, and where its checkpoints lie.

    A run folder that holds checkpoints is continued from the newest whole one.

    Args:
        run: open and locked; samples, metrics, timings and checkpoints go there.
        backend: with its settings.
        policy: model and tokenizer as the run began, also when it is resumed.
        prompts: the rendered problems of a step, counted from 1; a pure function.
        rollout: group size, temperature, length and seed.
        stop_strings: what ends a sampled completion besides the end tokens.
        engine: draws from the policy; not used by a backend that learns from data alone.
        reward: verifiers and weights; not used by such a backend either.
        reference: frozen model to compare with; by default a copy of the first policy.
        evaluate: called at the start, every ``eval_every`` steps and at the end.
        on_event: told what happens; see `stepmark.rl_backends.events`.
        precision: from `precision_of`, for autocast and gradient checkpointing.

    Raises:
        ConfigError: settings that cannot work together, or no engine or verifier.
        EngineError: the engine's log-probs are not the policy's.
        VerifierError: more error verdicts in one step than ``max_error_share``.
        RunError: a loss or gradient is not finite, no checkpoint is whole, or the run began with
            other models.
        GateFailed, Stopped: by rejected refreshes, or by a signal; the run can be resumed.
    """
    check_policy(policy.model)
    check_rollout(backend.config, rollout, backend)
    drawing = drawing_of(backend, policy, rollout, stop_strings, engine, reward)
    tell = on_event or (lambda _: None)
    with StopRequest() as stop:
        parts = parts_of(
            run,
            backend,
            policy,
            drawing,
            prompts=prompts,
            rollout=rollout,
            reference=reference,
            evaluate=evaluate,
            precision=precision,
            stop=stop.check,
            tell=tell,
        )
        return Loop(run, backend.config, policy, drawing.engine, parts, stop, tell).run()


class Loop:
    """One run of the loop; `train` is the way in."""

    def __init__(
        self,
        run: RunFolder,
        config: Any,
        policy: Policy,
        engine: Engine,
        parts: Parts,
        stop: StopRequest,
        tell: Callable[[Event], None],
    ) -> None:
        self.folder, self.config, self.policy, self.engine = run, config, policy, engine
        self.parts, self.keeper = parts, parts.keeper
        self.stop, self.tell = stop, tell

    def run(self) -> TrainResult:
        """All steps that are left."""
        keeper, config, evaluation = self.keeper, self.config, self.parts.evaluation
        self._resume()
        done = keeper.state.step
        self.tell(Started(done, config.steps))
        if keeper.window is None and (row := evaluation.if_due(done)):
            self.folder.log_metrics(done, row)
        self._stop_if_asked()
        for step in range(done + 1, config.steps + 1):
            with suppress(Interrupted):
                self._one_step(step)
            self._stop_if_asked()
        if keeper.resumed_from != self.folder.checkpoints / "final":
            self._refresh_reward_models(config.outer - 1)
            keeper.save("final")
        return result_of(self.folder, keeper.state)

    def _resume(self) -> None:
        """Put everything where the newest whole checkpoint has it, if there is one."""
        keeper, frozen, refresher = self.keeper, self.parts.frozen, self.parts.refresher
        keeper.resume(frozen.restore)
        frozen.is_at_reference &= keeper.state.step == 0 and keeper.window is None
        refresher.start(keeper.state.reward_models)
        keeper.change(reward_models=refresher.state())
        self.engine.sync(self.policy.model, keeper.state.step)

    def _one_step(self, step: int) -> None:
        """Draw, mark, prepare, learn, write; a step that is open already is gone on with."""
        parts, keeper, started = self.parts, self.keeper, time.monotonic()
        is_whole = keeper.window is None
        groups = self._groups(step) if is_whole else []
        collected = time.monotonic()
        keeper.window = window = keeper.window or parts.preparation.window(step, groups)
        updater = parts.updater
        rate = set_rates(step, self.config, updater.optimizer, updater.critic_optimizer)
        learnt = self._learn(window)
        keeper.close()
        self.engine.sync(self.policy.model, step)
        updated = time.monotonic()
        metrics = {**window.measured, **learnt, "learning_rate": rate}
        self.tell(StepDone(step, self.config.steps, metrics, groups[0][0] if groups else None))
        self._write(step, metrics)
        seconds = {"collect_s": collected - started, "update_s": updated - collected}
        seconds |= parts.rollouts.collector.clock.take()
        if is_whole:  # else the tokens are of the step, and the seconds of what was left of it
            seconds["tokens_per_s"] = metrics["num_tokens"] / max(updated - started, 1e-9)
        self.folder.log_timings(step, seconds)

    def _groups(self, step: int) -> list[tuple[Marked, ...]]:
        """The step's groups; what goes wrong here leaves a checkpoint of the step before."""
        iteration = self.config.iteration_of(step)
        if step > 1 and iteration != self.config.iteration_of(step - 1):
            self._refresh_reward_models(iteration - 1)
            # Algorithm 1, line 3: the reference becomes the policy, and so does what samples.
            self.keeper.change(reference=self.parts.frozen.refresh(self.policy.model))
        try:
            return self.parts.rollouts.groups(step, self.parts.preparation.models(step))
        except Error:
            self.keeper.save()
            raise

    def _learn(self, window: Window) -> dict[str, float]:
        """The mu epochs; between two minibatches the run can be stopped and saved."""
        try:
            return self.parts.updater.update(window, self._between_minibatches)
        except BrokenUpdate as broken:
            raise save_replay(self.folder.path, broken, self.parts.updater, self.policy) from None

    def _between_minibatches(self) -> None:
        """Stop when asked for; a checkpoint inside of the step when due."""
        self.stop.check()
        every, window = self.config.save_every_minibatches, self.keeper.window
        if window is None or every is None or not window.done or window.done % every:
            return
        if self.keeper.resumed_from != self.keeper.place():
            self.keeper.save()

    def _write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Evaluate when due, unless a stop was asked for; metrics; a checkpoint when due."""
        config, found = self.config, dict[str, float]()
        try:
            if self.stop.number is None:
                found = self.parts.evaluation.if_due(step)
        except Error:
            # The step is learnt: it is kept, and the resumed run evaluates first.
            self.folder.log_metrics(step, metrics)
            self.keeper.save()
            raise
        self.folder.log_metrics(step, {**metrics, **found})
        if config.save_every is not None and step % config.save_every == 0 and step < config.steps:
            self.keeper.save()

    def _refresh_reward_models(self, iteration: int) -> None:
        """Algorithm 1, last line: the reward models learn from the outer iteration that ends.

        A checkpoint is written first: a reward model that fails costs nothing else.
        """
        refresher = self.parts.refresher
        if self.config.outer == 1 or not refresher.is_due(iteration):
            return
        steps = self.config.steps_of(iteration)
        self.keeper.save()
        found = refresher.refresh(iteration, steps)
        self.keeper.change(reward_models=refresher.state())
        self.folder.log_metrics(steps[-1], found)
        self.tell(Refreshed(steps[-1], iteration, found))
        if steps[-1] < self.config.steps:
            self._stop_if_rejected()

    def _stop_if_rejected(self) -> None:
        try:
            self.parts.refresher.check_rejected()
        except GateFailed:
            self.keeper.save()
            raise

    def _stop_if_asked(self) -> None:
        if self.stop.number is None:
            return
        self.keeper.save()
        window, steps = self.keeper.window, self.config.steps
        inside = "" if window is None else f" and {window.done} minibatches of the next one"
        raise Stopped(
            f"Stopped after step {self.keeper.state.step} of {steps}{inside}; nothing is lost. "
            f"The run in {self.folder.path} can be resumed.",
            self.stop.number,
        )
