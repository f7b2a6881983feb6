"""What ``train`` says of data that does not fit ``rollout.max_tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .console import warn

if TYPE_CHECKING:
    from stepmark.tasks import LoadedTask

    from .plan import Plan

__all__ = ["tell_cut"]


def tell_cut(plan: Plan, tokenizer: Any) -> None:
    """Say how many texts of the data are learnt from in part only, and what would take them whole.

    Raises:
        SetupError: the tokenizer has no end token.
    """
    from stepmark.rl_backends import Demonstrations

    if plan.backend.source == "rollouts":
        return
    data, limit = Demonstrations(tokenizer), plan.config.rollout.max_tokens
    is_pair = plan.backend.source == "preferences"
    what = "chosen and rejected completions" if is_pair else "solutions"
    for task in plan.tasks:
        texts = _pairs(task) if is_pair else [p.solution for p in task.problems if p.solution]
        found = data.cut(texts, limit)
        if found.number:
            warn(
                f"{found.number:,} of {len(texts):,} {what} of {task.name!r} have more than "
                f"rollout.max_tokens = {limit} tokens: they are learnt up to there, without an "
                f"end. Set rollout.max_tokens={found.longest} to take all whole, or remove them."
            )


def _pairs(task: LoadedTask) -> list[str]:
    from stepmark.rl_backends.preference_data import CHOSEN, REJECTED

    return [str(problem.meta[name]) for problem in task.problems for name in (CHOSEN, REJECTED)]
