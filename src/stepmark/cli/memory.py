"""The estimate of memory that ``stepmark train --dry-run`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .console import err, grid, say

if TYPE_CHECKING:
    from stepmark.training.memory import MemoryRow

    from .plan import Plan

__all__ = ["estimate", "is_cast", "memory_line", "mib", "tell_memory"]


def estimate(plan: Plan) -> list[MemoryRow] | None:
    """What the run would hold; None where the model is not on this machine's disk."""
    from stepmark.training.memory import memory_rows, shape_of

    config, algorithm = plan.config, plan.backend.config
    shape = shape_of(config.model.policy, config.model.peft)
    if shape is None:
        return None
    needs = plan.backend.needs
    given = int("reference" in needs and config.model.reference != "initial")
    is_shared_copy = not given and {"reference", "first-policy"} <= needs
    frozen = len(needs & {"reference", "first-policy"}) - is_shared_copy - given
    return memory_rows(
        shape,
        dtype=config.model.dtype,
        is_cast=is_cast(config.model),
        checkpointing=config.model.gradient_checkpointing,
        microbatch_tokens=algorithm.tokens_per_microbatch,
        frozen=frozen,
        given=given,
        critic=getattr(algorithm, "critic", "own") if "critic" in needs else None,
        sampled_tokens=_sampled(plan),
    )


def is_cast(model: Any) -> bool:
    """What ``auto`` will be on the device that is named, as far as it can be known here."""
    import torch

    if model.autocast != "auto":
        return model.autocast == "bfloat16"
    wants_gpu = model.device == "auto" or model.device.startswith("cuda")
    return wants_gpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def _sampled(plan: Plan) -> int:
    """Tokens of the completions that are drawn at once; those of prompts are not known yet."""
    if plan.backend.source not in ("rollouts", "self-play"):
        return 0
    rollout = plan.config.rollout
    rows = rollout.group_size * rollout.prompts_per_step
    return min(rows, rollout.batch_size or rows) * rollout.max_tokens


def tell_memory(plan: Plan) -> None:
    """The estimate as a table, or one line that says why there is none."""
    rows = estimate(plan)
    if rows is None:
        say("memory: no estimate, as no folder here holds a config of the model that is known.")
        return
    table = grid("memory (estimate)", "MiB")
    table.columns[1].justify = "right"
    for row in rows:
        table.add_row(row.what, mib(row.size))
    table.add_row("together", mib(sum(row.size for row in rows)), style="bold")
    err.print(table, soft_wrap=False)


def memory_line(plan: Plan) -> str:
    """The sum in one line, for the start of a run; empty where there is no estimate."""
    rows = estimate(plan)
    return "" if rows is None else f"memory: about {mib(sum(r.size for r in rows))} MiB at the peak"


def mib(size: int) -> str:
    """Bytes in MiB, for people."""
    return f"{size / 2**20:,.0f}" if size > 10 * 2**20 else f"{size / 2**20:.1f}"
