"""The only training loop: Algorithm 1 of DeepSeekMath (arXiv:2402.03300) for every backend.

::

    for each outer iteration:      reference <- policy                 (from the second one on)
      for each step:               groups <- completions, drawn and marked, or demonstrations
                                   samples <- backend.prepare(groups)
        mu times, per minibatch:   one optimizer step on the backend's losses
        the engine takes over the policy; held-out evaluation and checkpoints when due

Old log-probs are the sampler's, because the engine holds the model itself; the first batch is
checked for that. Dropout is off: log-probs in training must be those of sampling. A run that is
resumed from a checkpoint goes on exactly as one that was never stopped.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stepmark.config.tables import RolloutTable
from stepmark.errors import ConfigError, EngineError, RunError, Stopped
from stepmark.protocols import Engine
from stepmark.store.run import RunFolder
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
    set_random_state,
    step_folder,
)
from stepmark.training.forward import reference_logps
from stepmark.training.optimizer import adamw, learning_rate, set_learning_rate
from stepmark.training.sample import TrainingSample
from stepmark.training.tolerances import LOGPS_BFLOAT16, LOGPS_FLOAT32
from stepmark.types import Marked, Prompt, Sampling

from .backend import Backend, Models
from .collect import Collector
from .config import check_rollout
from .demonstrations import Demonstrations
from .events import Evaluated, Event, Saved, Started, StepDone
from .interrupts import Interrupted, StopRequest
from .metrics import describe
from .reward import Reward, check_errors
from .update import Updater

__all__ = ["Evaluate", "TrainResult", "train"]

log = logging.getLogger(__name__)

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
    engine: Engine | None = None,
    reward: Reward | None = None,
    reference: Any = None,
    evaluate: Evaluate | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> TrainResult:
    """The policy, trained in place, and where its checkpoints lie.

    A run folder that holds checkpoints is continued from the newest whole one.

    Args:
        run: open and locked; samples, metrics, timings and checkpoints go there.
        backend: with its settings.
        policy: model and tokenizer as the run began, also when it is resumed.
        prompts: the rendered problems of a step, counted from 1; a pure function.
        rollout: group size, temperature, length and seed.
        engine: draws from the policy; not used by a backend that learns from demonstrations.
        reward: verifiers and weights; not used by such a backend either.
        reference: frozen model for the KL term; by default a copy of the first policy.
        evaluate: called at the start, every ``eval_every`` steps and at the end.
        on_event: told what happens; see `stepmark.rl_backends.events`.

    Raises:
        ConfigError: settings that cannot work together, or no engine or verifier.
        EngineError: the engine's log-probs are not the policy's.
        VerifierError: more error verdicts in one step than ``max_error_share``.
        RunError: a loss or gradient is not finite, or no checkpoint is whole.
        Stopped: by SIGINT or SIGTERM; a checkpoint to resume from is on the disk.
    """
    check_rollout(backend.config, rollout, backend)
    if backend.source == "demonstrations":
        engine, reward = Demonstrations(policy.tokenizer), Reward()
    elif engine is None or reward is None or not reward.terms:
        raise ConfigError(
            f"The backend {backend.config.backend!r} learns from marked completions and got "
            f"{'no engine' if engine is None else 'no verifier'}. "
            "Set rollout.engine and reward.verifiers."
        )
    with StopRequest() as stop:
        loop = Loop(
            run, backend, policy, prompts, rollout, engine, reward, evaluate, on_event, stop
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
        engine: Engine,
        reward: Reward,
        evaluate: Evaluate | None,
        on_event: Callable[[Event], None] | None,
        stop: StopRequest,
    ) -> None:
        self.folder, self.backend, self.policy, self.prompts = run, backend, policy, prompts
        self.engine, self.evaluate, self.stop = engine, evaluate, stop
        self.config = backend.config
        self.tell = on_event or (lambda _: None)
        is_sampled = backend.source == "rollouts"
        self.temperature = rollout.temperature if is_sampled else 1.0
        size = rollout.group_size if is_sampled else 1
        sampling = Sampling(temperature=self.temperature, max_tokens=rollout.max_tokens)
        self.collector = Collector(
            engine, reward, run.samples, sampling, size, rollout.seed, stop.check
        )
        c = self.config
        self.optimizer = adamw(
            policy.model,
            learning_rate=c.learning_rate,
            weight_decay=c.weight_decay,
            betas=(c.adam_beta1, c.adam_beta2),
            epsilon=c.adam_epsilon,
        )
        self.updater = Updater(
            policy.model, self.optimizer, backend, self.temperature, rollout.seed
        )
        self.reference: Any = None
        self.state = TrainingState(0, {}, first_policy=fingerprint(policy.model))
        self.metrics: dict[str, float] = {}
        self.is_checked = not is_sampled

    def run(self, reference: Any) -> TrainResult:
        """All steps that are left."""
        self.policy.model.eval()
        if "reference" in self.backend.needs:
            self.reference = reference or copy.deepcopy(self.policy.model)
            self.reference.eval().requires_grad_(False)
        self._resume()
        self.engine.sync(self.policy.model, self.state.step)
        self.tell(Started(self.state.step, self.config.steps))
        if self.state.step == 0 and self.state.evaluated_at is None:
            row = self._evaluate_if_due(0)
            if row:
                self.folder.log_metrics(0, row)
        for step in range(self.state.step + 1, self.config.steps + 1):
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
            self._refresh_reference()
        groups = self.collector.collect(
            step,
            self.prompts(step),
            fingerprint(self.policy.model) if self.backend.source == "rollouts" else "",
            max_error_share=config.max_error_share,
        )
        collected = time.monotonic()
        check_errors(groups, config.max_error_share, step)
        prepared = self.backend.prepare(groups, Models(self._reference_logps()))
        if not self.is_checked:
            self._check_engine(groups)
        rate = learning_rate(
            step, config.steps, config.learning_rate, config.warmup_steps, config.schedule
        )
        set_learning_rate(self.optimizer, rate)
        learnt = self.updater.update(step, prepared.samples)
        self.engine.sync(self.policy.model, step)
        updated = time.monotonic()
        metrics = {**describe(groups), **prepared.metrics, **learnt, "learning_rate": rate}
        self._change(step=step)
        self.tell(StepDone(step, config.steps, metrics, groups[0][0] if groups else None))
        self.metrics = metrics | self._evaluate_if_due(step)
        self.folder.log_metrics(step, self.metrics)
        seconds = {"collect_s": collected - started, "update_s": updated - collected}
        seconds["tokens_per_s"] = metrics["num_tokens"] / max(updated - started, 1e-9)
        self.folder.log_timings(step, seconds)
        if config.save_every is not None and step % config.save_every == 0 and step < config.steps:
            self._save(step_folder(self.folder.checkpoints, step))

    def _change(self, **changes: Any) -> None:
        row = {name: getattr(self.state, name) for name in TrainingState.__dataclass_fields__}
        self.state = TrainingState(**(row | changes))

    def _reference_logps(self) -> Callable[[Sequence[TrainingSample]], list[Any]] | None:
        if self.reference is None:
            return None
        return partial(
            reference_logps,
            self.reference,
            temperature=self.temperature,
            token_budget=self.config.tokens_per_microbatch,
        )

    def _refresh_reference(self) -> None:
        """Algorithm 1, line 3: the reference becomes the policy."""
        if self.reference is not None:
            self.reference.load_state_dict(self.policy.model.state_dict())
            self._change(reference=self.reference.state_dict())

    def _check_engine(self, groups: Sequence[tuple[Marked, ...]]) -> None:
        """The sampler's log-probs must be the policy's, for they are used as the old ones."""
        rollouts = [row.rollout for group in groups for row in group][:8]
        samples = [TrainingSample(r.prompt.ids, r.ids) for r in rollouts]
        ours = reference_logps(
            self.policy.model, samples, self.temperature, self.config.tokens_per_microbatch
        )
        gaps = [
            abs(float(a) - b)
            for row, r in zip(ours, rollouts, strict=True)
            for a, b in zip(row, r.logps, strict=True)
        ]
        is_float32 = "float32" in str(self.policy.model.dtype)
        gap = max(gaps) if is_float32 else sum(gaps) / len(gaps)
        allowed = LOGPS_FLOAT32 if is_float32 else LOGPS_BFLOAT16
        if not gap <= allowed:
            raise EngineError(
                f"The engine's log-probs differ from the policy's by {gap:.2g} nats on the first "
                f"completions; {allowed:g} is allowed. Ratios would be wrong: check that the "
                "engine holds the same weights, temperature and end tokens."
            )
        self.is_checked = True

    def _evaluate_if_due(self, step: int) -> dict[str, float]:
        """Metrics of a held-out evaluation with ``eval/`` in front; empty when none is due."""
        every, steps = self.config.eval_every, self.config.steps
        is_due = step in (0, steps) or (every is not None and step % every == 0)
        if self.evaluate is None or not is_due:
            return {}
        found = {name: float(value) for name, value in self.evaluate(self.policy, step).items()}
        self.policy.model.eval()
        name = self.config.best_metric
        if name not in found:
            raise ConfigError(
                f"algorithm.best_metric is {name!r}, which the evaluation does not give. "
                f"It gives: {', '.join(sorted(found))}."
            )
        is_best = self.state.best is None or found[name] > self.state.best
        if is_best:
            self._change(best=found[name], best_step=step)
            save_checkpoint(self.folder.checkpoints / "best", self.policy)
        row = {f"eval/{key}": value for key, value in found.items()}
        self._change(evaluated_at=step, evaluation=row)
        self.tell(Evaluated(step, steps, found, is_best))
        return row

    def _save(self, path: Path) -> None:
        self._change(optimizer=self.optimizer.state_dict(), random=random_state())
        save_checkpoint(path, self.policy, self.state)
        prune(self.folder.checkpoints, self.config.keep_checkpoints)
        self.tell(Saved(self.state.step, path))

    def _resume(self) -> None:
        place = last_good(self.folder.checkpoints)
        if place is None:
            return
        state = load_state(place)
        if state.first_policy != self.state.first_policy:
            raise RunError(
                f"The run in {self.folder.path} began with other weights than model.policy "
                "holds now. Resume with the model that it began with, or choose another --out."
            )
        load_weights(self.policy.model, place)
        self.optimizer.load_state_dict(dict(state.optimizer))
        set_random_state(state.random)
        if state.reference is not None and self.reference is not None:
            self.reference.load_state_dict(state.reference)
        self.state = state
        log.info("Resumed from %s after step %d.", place, state.step)

    def _stop_if_asked(self) -> None:
        if self.stop.number is None:
            return
        self._save(step_folder(self.folder.checkpoints, self.state.step))
        raise Stopped(
            f"Stopped after step {self.state.step} of {self.config.steps}; nothing is lost. "
            f"Continue with the same command and --resume (the run is in {self.folder.path}).",
            self.stop.number,
        )

    def _finish(self) -> TrainResult:
        final = self.folder.checkpoints / "final"
        if not final.is_dir():
            self._save(final)
        best = self.folder.checkpoints / "best"
        state = self.state
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
