"""Further problems for a step whose groups teach too little: DAPO's dynamic sampling.

DAPO (arXiv:2503.14476), section 3.2: completions of one problem that are all right, or all wrong,
have no advantage; the batch is filled up with other problems, within a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepmark.types import Marked, Prompt

from .backend import Backend, Models

__all__ = ["drawn_further"]

Groups = list[tuple[Marked, ...]]


def drawn_further(
    backend: Backend,
    groups: Groups,
    prompts: Callable[[int], Sequence[Prompt]],
    draw: Callable[[Sequence[Prompt]], Groups],
    models: Models,
) -> Groups:
    """The groups of a step, with those of further problems while the backend lacks useful ones.

    Backends without a method ``lacks_groups`` take what they get. The further problems are those
    of steps beyond the run's last one, so that the data order of the run stays what it is.

    Args:
        backend: says whether more are needed; its config says how often at most.
        groups: of the step's own problems.
        prompts: the rendered problems of any step, counted from 1; a pure function.
        draw: draws and marks further problems of this step.
        models: what the backend is told about the step.
    """
    lacks = getattr(backend, "lacks_groups", None)
    if lacks is None:
        return groups
    rounds = backend.config.resample_rounds
    for number in range(rounds):
        if not lacks(groups, models):
            break
        seen = {group[0].rollout.prompt.problem.id for group in groups}
        beyond = backend.config.steps + (models.step - 1) * rounds + number + 1
        further = [prompt for prompt in prompts(beyond) if prompt.problem.id not in seen]
        groups = groups + draw(further) if further else groups
    return groups
