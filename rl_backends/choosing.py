"""Which completions of an outer iteration are annotated, where not all of them can be."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from stepmark.seeds import derive_seed
from stepmark.store.samples import Key

__all__ = ["to_annotate"]


def to_annotate(
    keys: Sequence[Key], outcomes: Mapping[Key, float], most: int | None, seed: int
) -> list[Key]:
    """The completions to annotate, the most telling first: whoever runs out stops anywhere.

    Those of groups that hold right and wrong ones come first, right and wrong in turn: labels of
    one kind alone teach little. Every problem has its turn before one has its second.

    Args:
        keys: completions of the iteration.
        outcomes: score of the first verifier; full marks are right, and what is missing is unknown.
        most: of each problem, over all steps of the iteration; None for all.
        seed: of the order among equals.

    >>> group = [Key(1, "p", k) for k in range(4)] + [Key(1, "q", k) for k in range(2)]
    >>> scores = {key: float(key.k == 3) for key in group}
    >>> [key[1:] for key in to_annotate(group, scores, 2, seed=0)]
    [('p', 3), ('p', 1), ('q', 1), ('q', 0)]
    """
    problems: dict[str, list[Key]] = {}
    for key in sorted(keys):
        problems.setdefault(key.id, []).append(key)
    names = sorted(problems)
    random.Random(derive_seed(seed, "problems")).shuffle(names)
    ranked: list[tuple[bool, int, int, Key]] = []
    for place, name in enumerate(names):
        own = problems[name]
        random.Random(derive_seed(seed, name)).shuffle(own)
        mixed = _mixed(own, outcomes)
        order = [*_in_turn([key for key in own if (key.step, key.id) in mixed], outcomes)]
        order += [key for key in own if (key.step, key.id) not in mixed]
        ranked += [
            ((key.step, key.id) not in mixed, turn, place, key)
            for turn, key in enumerate(order[:most])
        ]
    return [key for *_, key in sorted(ranked)]


def _mixed(keys: Sequence[Key], outcomes: Mapping[Key, float]) -> set[tuple[int, str]]:
    """The groups with right and wrong completions."""
    seen: dict[tuple[int, str], set[bool]] = {}
    for key in keys:
        if key in outcomes:
            seen.setdefault((key.step, key.id), set()).add(outcomes[key] == 1)
    return {group for group, kinds in seen.items() if len(kinds) > 1}


def _in_turn(keys: Sequence[Key], outcomes: Mapping[Key, float]) -> Iterator[Key]:
    """Right and wrong ones in turn, then what is not known."""
    right = [key for key in keys if outcomes.get(key) == 1]
    wrong = [key for key in keys if key in outcomes and outcomes[key] != 1]
    for pair in zip_longest(right, wrong):
        yield from (key for key in pair if key is not None)
    yield from (key for key in keys if key not in outcomes)
