"""How far the positions of a model mean the same, whoever shares its forward pass.

Two kinds of rotary positions, ``longrope`` and ``dynamic``, take other frequencies for a whole call
as soon as its longest row goes beyond a length. Beyond it a log-prob depends on the other rows of
the batch, and keys that are held already keep the frequencies of before. So models of these kinds
are sampled and trained up to that length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError

if TYPE_CHECKING:
    from .sample import TrainingSample

__all__ = ["check_lengths", "room"]


def room(config: Any) -> int | None:
    """Tokens of prompt and completion that a model can hold; None when its config does not say.

    Those of a ``longrope`` model are its original length, not its extended one.
    """
    limit = getattr(config, "max_position_embeddings", None)
    steady = _steady(config)
    found = [some for some in (limit, steady and steady[1]) if isinstance(some, int) and some > 0]
    return min(found, default=None)


def check_lengths(config: Any, samples: Sequence[TrainingSample]) -> None:
    """Refuse samples beyond the length up to which a model's positions are the same in any batch.

    Raises:
        ConfigError: the longest sample is longer; the message names the limit.
    """
    steady = _steady(config)
    if steady is None:
        return
    kind, limit = steady
    longest = max(samples, key=lambda sample: len(sample.prompt_ids) + len(sample.ids))
    length = len(longest.prompt_ids) + len(longest.ids)
    if length > limit:
        raise ConfigError(
            f"A sample has {length} tokens of prompt and completion; with rope_type {kind!r} this "
            f"model takes at most {limit}, since beyond them its log-probs depend on what else is "
            f"in the batch. Leave out or shorten what is above {limit} tokens (a lower max_tokens, "
            "a shorter prompt), or take a model with other positions."
        )


def _steady(config: Any) -> tuple[str, int] | None:
    """Rotary positions that change with the longest row, and the length up to which they do not."""
    text = getattr(config, "get_text_config", lambda: config)()
    limit = getattr(text, "max_position_embeddings", None)
    original = getattr(text, "original_max_position_embeddings", None)
    found: list[tuple[int, str]] = []
    for rope in _ropes(text):
        # Older releases of transformers and older files: "type", and the length in the config.
        kind = str(rope.get("rope_type") or rope.get("type"))
        if kind == "longrope":
            length = rope.get("original_max_position_embeddings") or original or limit
        else:
            length = limit if "dynamic" in kind else None
        if isinstance(length, int) and length > 0:
            found.append((length, kind))
    if not found:
        return None
    length, kind = min(found)
    return kind, length


def _ropes(config: Any) -> list[dict[str, Any]]:
    """Settings of rotary positions: one for all layers, or one for each type of layer."""
    given: Any = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(given, dict):
        return []
    of_types = [some for some in given.values() if isinstance(some, dict)]
    return [given, *of_types]
