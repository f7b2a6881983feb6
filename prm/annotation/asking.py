"""What may be asked for a solution, before anything is drawn: which prefixes, and at what cost."""

from __future__ import annotations

from collections.abc import Iterable

from .counts import Cost
from .estimates import StepReason
from .items import ToAnnotate
from .settings import AnnotationSettings

__all__ = ["asks_root", "most_asked", "prefixes_without_room", "refusal", "upper_bound"]


def upper_bound(
    items: Iterable[ToAnnotate], settings: AnnotationSettings, max_length: int | None = None
) -> Cost:
    """What annotating these solutions takes at most; needs no engine.

    Equal prefixes of a problem's solutions count once. Early stopping, and a ``binary`` search that
    meets no noise, stay well below it, and so does an engine that reads shared prefixes once.

    Args:
        items: the solutions.
        settings: method and roll-outs.
        max_length: tokens that the model can hold.
    """
    seen: dict[str, tuple[int, int]] = {}
    for item in items:
        for steps, each in most_asked(item, settings, max_length).items():
            prefix = item.prefix(steps)
            seen[prefix.name] = each, len(prefix.all_ids)
    rollouts = sum(each for each, _ in seen.values())
    read = sum(each * length for each, length in seen.values())
    return Cost(rollouts, rollouts * settings.sampling.max_tokens, read)


def most_asked(
    item: ToAnnotate, settings: AnnotationSettings, max_length: int | None = None
) -> dict[int, int]:
    """Prefixes that may be rolled out, by number of steps, and how often at most."""
    if refusal(item, settings) is not None:
        return {}
    no_room = prefixes_without_room(item, settings, max_length)
    is_right = item.verdict is not None and item.verdict.correct
    last = 1 if settings.method == "binary" and is_right else len(item.steps)
    if 0 in no_room:
        return {}
    asked = [prefix for prefix in range(1, last) if prefix not in no_room]
    root = {0: settings.rollouts} if asks_root(item, settings) else {}
    return dict.fromkeys(asked, settings.most_rollouts(2)) | root


def asks_root(item: ToAnnotate, settings: AnnotationSettings) -> bool:
    """Whether the bare prompt is rolled out, to see if the problem is settled."""
    return settings.skip_settled and (item.root is None or item.root[1] < 2)


def prefixes_without_room(
    item: ToAnnotate, settings: AnnotationSettings, max_length: int | None
) -> frozenset[int]:
    """Prefixes behind which a roll-out may not fit in the model; 0 is the bare prompt."""
    if max_length is None:
        return frozenset()
    room = max_length - settings.sampling.max_tokens - len(item.prompt.ids)
    return frozenset(k for k in range(len(item.steps)) if len(item.prefix(k).ids) > room)


def refusal(item: ToAnnotate, settings: AnnotationSettings) -> str | None:
    """Why a solution is left out before anything is drawn for it; None where it is not."""
    if not item.steps:
        return "no_steps"
    if settings.skip_settled and item.root is not None and item.root[1] > 1:
        hits, every = item.root
        if hits in (0, every):
            return "settled"
    if settings.method == "binary" and item.verdict is not None:
        if item.verdict.correct is None:
            return str(StepReason.NO_VERDICT)
        if item.verdict.correct and settings.right == "skip":
            return "right"
    return None
