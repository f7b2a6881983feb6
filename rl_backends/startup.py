"""What is checked on the first completions, before anything is learnt from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stepmark.engines.render import adds_bos
from stepmark.errors import ConfigError, EngineError, RunError
from stepmark.training.forward import reference_logps, token_logps
from stepmark.training.packing import pack
from stepmark.training.precision import logps_tolerance
from stepmark.training.sample import TrainingSample
from stepmark.training.tolerances import LOGPS_FLOAT32
from stepmark.types import Marked

from .backend import Backend

__all__ = ["ROLLOUTS", "check_engine", "check_first_loss", "check_one_bos"]

ROLLOUTS = 8
"""How many completions are compared: enough to see a wrong temperature or a shifted token."""


def check_engine(
    model: Any, groups: Sequence[tuple[Marked, ...]], temperature: float, token_budget: int
) -> None:
    """The sampler's log-probs must be the policy's, because they are used as the old ones.

    Raises:
        EngineError: they differ by more than the table of tolerances allows.
    """
    rollouts = [row.rollout for group in groups for row in group][:ROLLOUTS]
    if not rollouts:
        return
    samples = [TrainingSample(rollout.prompt.ids, rollout.ids) for rollout in rollouts]
    ours = reference_logps(model, samples, temperature, token_budget)
    gaps = [
        abs(float(own) - sampled)
        for row, rollout in zip(ours, rollouts, strict=True)
        for own, sampled in zip(row, rollout.logps, strict=True)
    ]
    allowed = logps_tolerance(model)
    gap = max(gaps) if allowed == LOGPS_FLOAT32 else sum(gaps) / len(gaps)
    if not gap <= allowed:
        raise EngineError(
            f"The engine's log-probs differ from the policy's by {gap:.2g} nats on the first "
            f"completions; {allowed:g} is allowed. Ratios would be wrong: check that the "
            "engine holds the same weights, temperature and end tokens."
        )


def check_one_bos(groups: Sequence[tuple[Marked, ...]], tokenizer: Any) -> None:
    """Prompts begin with one BOS where the tokenizer adds one by itself, and never with two.

    Raises:
        ConfigError: a prompt of the step does not.
    """
    bos = tokenizer.bos_token_id
    if bos is None:
        return
    least = 1 if adds_bos(tokenizer) else 0
    for prompt in (group[0].rollout.prompt for group in groups if group):
        found = next((n for n, token in enumerate(prompt.ids) if token != bos), len(prompt.ids))
        if not least <= found <= 1:
            raise ConfigError(
                f"The prompt of {prompt.problem.id!r} begins with {found} BOS tokens (id {bos}); "
                f"{'exactly one is' if least else 'at most one is'} right for this tokenizer. Make "
                "prompts with stepmark.engines.render, or with add_special_tokens=False after a "
                "chat template."
            )


def check_first_loss(
    backend: Backend,
    model: Any,
    samples: Sequence[TrainingSample],
    temperature: float,
    token_budget: int,
) -> None:
    """Where policy and reference are one model the loss of preferences is known: ln 2 for DPO.

    A backend says it in an attribute ``first_loss``, None or absent where it is not known. The
    first `ROLLOUTS` pairs are compared.

    Raises:
        RunError: the loss is another one, so the two models saw different inputs.
    """
    expected: float | None = getattr(backend, "first_loss", None)
    if expected is None:
        return
    first = samples[: 2 * ROLLOUTS]
    weights = backend.weights(first)
    found = 0.0
    with torch.no_grad():
        for micro in pack(first, token_budget):
            out = token_logps(model, micro, temperature=temperature)
            found += sum(float(term) for term in backend.losses(out, micro, weights).terms.values())
    allowed = logps_tolerance(model)
    if not abs(found - expected) <= allowed * max(1.0, expected):
        raise RunError(
            f"The first loss is {found:.6g} and must be {expected:.6g}, because policy and "
            "reference are still one model: they gave different log-probs for the same tokens. "
            "Look for dropout or other noise that stays on in eval mode, and for adapters."
        )
