"""The only training loop: Algorithm 1 of DeepSeekMath (arXiv:2402.03300) for every backend.

::

    for each outer iteration:      reference <- policy                 (from the second one on)
      for each step:               groups <- completions, drawn and marked, or those of the data
                                   samples <- backend.prepare(groups)
        mu times, per minibatch:   one optimizer step on the backend's losses
        the engine takes over the policy; held-out evaluation and checkpoints when due
      reward models <- this iteration's completions and some of earlier ones    (outer > 1)

Old log-probs are the sampler's, because the engine holds the model itself; the first batch is
checked for that. Dropout is off: log-probs in training must be those of sampling. A run that is
resumed from a checkpoint goes on exactly as one that was never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stepmark.config.tables import RolloutTable
from stepmark.errors import Error, Stopped
from stepmark.protocols import Engine
from stepmark.store.run import RunFolder
from stepmark.training.checkpoint import Policy, fingerprint
from stepmark.training.critic import critic_values
from stepmark.training.forward import reference_logps
from stepmark.training.optimizer import learning_rate, set_learning_rate
from stepmark.training.precision import Precision
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Prompt

from .backend import Backend, Models
from .card import Card
from .collect import Collector
from .config import check_rollout
from .events import Evaluated, Event, Refreshed, Started, StepDone, StepsCounted
from .frozen import FrozenModels
from .interrupts import Interrupted, StopRequest
from .keeper import Keeper
from .metrics import describe
from .optimizers import critic_of, optimizer_of
from .refresh import Refresher
from .replay import BrokenUpdate, save_replay
from .resample import drawn_further
from .reward import Reward, check_errors
from .scoring import check_step_counts
from .sources import Drawing, drawing_of, is_sampled, sampled_part
from .startup import check_engine, check_first_loss, check_one_bos
from .update import Updater

__all__ = ["Evaluate", "TrainResult", "train"]

EXACT = Precision()
"""Forward passes in the type of the weights."""

Evaluate = Callable[[Policy, int], Mapping[str, float]]
"""Held-out evaluation of a policy at a step; the metrics are logged with ``eval/`` in front."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where a finished run stands."""

    step: int
    final: Path
    """A plain Hugging Face folder."""
    best: Path | None
    """The checkpoint with the highest best metric; None without a held-out evaluation."""
    best_step: int | None
    best_value: float | None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the last step, and of the last evaluation with ``eval/`` in front."""


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
        RunError: a loss or gradient is not finite, or no checkpoint is whole.
        Stopped: by SIGINT or SIGTERM; a checkpoint to resume from is on the disk.
    """
    check_rollout(backend.config, rollout, backend)
    drawing = drawing_of(backend, policy, rollout, stop_strings, engine, reward)
    with StopRequest() as stop:
        loop = Loop(
            run, backend, policy, prompts, rollout, drawing, evaluate, on_event, stop, precision
        )
        return loop.run(reference)


class Loop:
    """One run of the loop; `train` is the way in."""

    def __init__(
        self,
        run: RunFolder,
        backend: Backend,
        policy: Policy,
        prompts: Callable[[int], Sequence[Prompt]],
        rollout: RolloutTable,
        drawing: Drawing,
        evaluate: Evaluate | None,
        on_event: Callable[[Event], None] | None,
        stop: StopRequest,
        precision: Precision = EXACT,
    ) -> None:
        self.folder, self.backend, self.policy, self.prompts = run, backend, policy, prompts
        self.engine, self.evaluate, self.stop = drawing.engine, evaluate, stop
        self.config = backend.config
        self.tell, self.precision = on_event or (lambda _: None), precision
        self.temperature = drawing.temperature
        self.collector = Collector(
            drawing.engine,
            drawing.reward,
            run.samples,
            drawing.sampling,
            drawing.group_size,
            rollout.seed,
            stop.check,
            policy.tokenizer,
        )
        self.refresher = Refresher(drawing.reward, run.samples, rollout.seed)
        c = self.config
        self.optimizer = optimizer_of(policy.model, c, c.learning_rate)
        self.critic = critic_of(backend, policy.model)
        self.updater = Updater(
            policy.model,
            self.optimizer,
            backend,
            self.temperature,
            rollout.seed,
            *(self.critic or (None, None)),
            precision,
        )
        self.frozen = FrozenModels((), policy.model)
        self.keeper = Keeper(
            run.checkpoints,
            policy,
            self.optimizer,
            c.keep_checkpoints,
            self.tell,
            self.critic,
            Card(run, policy, drawing.sampling),
        )
        self.metrics: dict[str, float] = {}
        self.wanted = rollout.prompts_per_step
        self.is_checked = not is_sampled(backend.source)

    def run(self, reference: Any) -> TrainResult:
        """All steps that are left."""
        self.policy.model.eval()
        self.frozen = FrozenModels(self.backend.needs, self.policy.model, reference)
        self.keeper.resume(self.frozen.models())
        self.frozen.is_at_reference &= self.keeper.state.step == 0
        self.refresher.start(self.keeper.state.reward_models)
        self.keeper.change(reward_models=self.refresher.state())
        self.engine.sync(self.policy.model, self.keeper.state.step)
        self.tell(Started(self.keeper.state.step, self.config.steps))
        done = self.keeper.state.step
        if self.keeper.state.evaluated_at != done:
            row = self._evaluate_if_due(done)
            if row:
                self.folder.log_metrics(done, row)
        for step in range(self.keeper.state.step + 1, self.config.steps + 1):
            self._stop_if_asked()
            try:
                self._one_step(step)
            except Interrupted:
                self._stop_if_asked()
        return self._finish()

    def _one_step(self, step: int) -> None:
        """Draw, mark, prepare, learn, write."""
        started, config = time.monotonic(), self.config
        if step > 1 and _outer(step, config) != _outer(step - 1, config):
            self._refresh_reward_models(_outer(step - 1, config))
            self._refresh_reference()
        groups = self._collect(step)
        collected = time.monotonic()
        with self.precision.forward():
            prepared = self.backend.prepare(groups, self._models(step))
            sampled = sampled_part(self.backend.source, groups)
            self._check_start(sampled, prepared.samples)
        rate = learning_rate(
            step, config.steps, config.learning_rate, config.warmup_steps, config.schedule
        )
        set_learning_rate(self.optimizer, rate)
        if self.critic is not None:
            scale = rate / config.learning_rate
            set_learning_rate(self.critic[1], config.critic_learning_rate * scale)
        try:
            learnt = self.updater.update(step, prepared.samples, prepared.trains_policy)
        except BrokenUpdate as broken:
            raise save_replay(self.folder.path, broken, self.updater, self.policy) from None
        self.engine.sync(self.policy.model, step)
        updated = time.monotonic()
        metrics = {**describe(sampled), **prepared.metrics, **learnt, "learning_rate": rate}
        self.keeper.change(step=step)
        self.tell(StepDone(step, config.steps, metrics, groups[0][0] if groups else None))
        try:
            self.metrics = metrics | self._evaluate_if_due(step)
        except Error:
            # The step is learnt: it is kept, and the resumed run evaluates first.
            self.folder.log_metrics(step, metrics)
            self.keeper.save()
            raise
        self.folder.log_metrics(step, self.metrics)
        seconds = {"collect_s": collected - started, "update_s": updated - collected}
        seconds |= self.collector.clock.take()
        seconds["tokens_per_s"] = metrics["num_tokens"] / max(updated - started, 1e-9)
        self.folder.log_timings(step, seconds)
        if config.save_every is not None and step % config.save_every == 0 and step < config.steps:
            self.keeper.save()

    def _check_start(
        self, groups: Sequence[tuple[Marked, ...]], samples: Sequence[TrainingSample]
    ) -> None:
        """What can be known before anything is learnt: log-probs, and the loss at the reference."""
        rows = self.config.tokens_per_microbatch
        if not self.is_checked:
            check_one_bos(groups, self.policy.tokenizer)
            sampler = self.policy.model if self.frozen.first is None else self.frozen.first
            check_engine(sampler, groups, self.collector.sampling.temperature, rows)
            self.is_checked = True
        if self.frozen.is_at_reference and samples:
            check_first_loss(self.backend, self.policy.model, samples, self.temperature, rows)
            self.frozen.is_at_reference = False

    def _collect(self, step: int) -> list[tuple[Marked, ...]]:
        """The step's groups; what goes wrong here leaves a checkpoint of the step before."""
        share = self.config.max_error_share
        try:
            groups = self._draw(step, share)
            check_errors(groups, share, step)
            if step == 1 and self.collector.reward.rewards_steps:
                self._count_steps(groups)
        except Error:
            self.keeper.save()
            raise
        return groups

    def _draw(self, step: int, share: float) -> list[tuple[Marked, ...]]:
        """Drawn from the policy, or from the one that the outer iteration began with."""
        model = self.policy.model
        version = step - 1
        with self.frozen.sampling(model, self.engine, version), self.precision.sampling():
            name = fingerprint(model) if is_sampled(self.backend.source) else ""
            draw = partial(self.collector.collect, step, policy=name, max_error_share=share)
            groups = draw(self.prompts(step))
            return drawn_further(self.backend, groups, self.prompts, draw, self._models(step))

    def _count_steps(self, groups: list[tuple[Marked, ...]]) -> None:
        """Tell how many steps the first completions have; refuse when most have one only."""
        largest = self.collector.reward.largest_single_share
        if (counts := check_step_counts(groups, largest)) is not None:
            self.tell(StepsCounted(1, counts))

    def _reference_logps(self) -> Callable[[Sequence[TrainingSample]], list[Any]] | None:
        if self.frozen.reference is None:
            return None
        return partial(
            reference_logps,
            self.frozen.reference,
            temperature=self.temperature,
            token_budget=self.config.tokens_per_microbatch,
        )

    def _models(self, step: int) -> Models:
        """What the backend may ask while it prepares a step."""
        reward = self.collector.reward
        return Models(
            self._reference_logps(),
            self._values(),
            step,
            outcome=reward.outcome,
            process=reward.process if reward.rewards_steps else 0.0,
            verifiers={verifier.key: weight for verifier, weight in reward.terms},
            groups=self.wanted,
        )

    def _values(self) -> Callable[[Sequence[TrainingSample]], list[Any]] | None:
        if self.critic is None:
            return None
        return partial(
            critic_values, self.critic[0], token_budget=self.config.tokens_per_microbatch
        )

    def _refresh_reference(self) -> None:
        """Algorithm 1, line 3: the reference becomes the policy, and so does what samples."""
        self.keeper.change(reference=self.frozen.refresh(self.policy.model))

    def _refresh_reward_models(self, iteration: int) -> None:
        """Algorithm 1, last line: the reward models learn from the outer iteration that ends.

        A checkpoint is written first: a reward model that fails costs nothing else.
        """
        if not self.refresher.is_due(iteration):
            return
        every = range(1, self.config.steps + 1)
        steps = [step for step in every if _outer(step, self.config) == iteration]
        self.keeper.save()
        found = self.refresher.refresh(iteration, steps)
        self.keeper.change(reward_models=self.refresher.state())
        self.folder.log_metrics(steps[-1], found)
        self.tell(Refreshed(steps[-1], iteration, found))

    def _evaluate_if_due(self, step: int) -> dict[str, float]:
        """Metrics of a held-out evaluation with ``eval/`` in front; empty when none is due."""
        every, steps = self.config.eval_every, self.config.steps
        is_due = step in (0, steps) or (every is not None and step % every == 0)
        if self.evaluate is None or not is_due:
            return {}
        with self.precision.sampling():
            found = {name: float(n) for name, n in self.evaluate(self.policy, step).items()}
        self.policy.model.eval()
        is_best = self.keeper.evaluated(step, found, self.config.best_metric)
        self.tell(Evaluated(step, steps, found, is_best))
        return dict(self.keeper.state.evaluation)

    def _stop_if_asked(self) -> None:
        if self.stop.number is None:
            return
        self.keeper.save()
        raise Stopped(
            f"Stopped after step {self.keeper.state.step} of {self.config.steps}; nothing is lost. "
            f"The run in {self.folder.path} can be resumed.",
            self.stop.number,
        )

    def _finish(self) -> TrainResult:
        final = self.folder.checkpoints / "final"
        if self.keeper.resumed_from != final:
            if self.config.outer > 1:
                self._refresh_reward_models(self.config.outer - 1)
            self.keeper.save("final")
        best = self.folder.checkpoints / "best"
        state = self.keeper.state
        metrics = self.metrics or next(
            (row for row in reversed(self.folder.metrics()) if row["step"] == state.step), {}
        )
        return TrainResult(
            step=state.step,
            final=final,
            best=best if best.is_dir() else None,
            best_step=state.best_step,
            best_value=state.best,
            metrics={**metrics, **state.evaluation},
        )


def _outer(step: int, config: Any) -> int:
    """Which outer iteration a step, from 1, belongs to, from 0."""
    return (step - 1) * config.outer // config.steps
