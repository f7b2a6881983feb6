"""Whether a refreshed reward model takes the place of the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .config import GateTable
from .figures import Change

__all__ = ["Decision", "judge"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Accepted, or why not."""

    accepted: bool
    reasons: tuple[str, ...]
    """Why it is rejected, in words; empty where it is accepted."""


def judge(new: Change | None, old: Mapping[int, Change | None], gate: GateTable) -> Decision:
    """Accepted where the new set gained, and no old one lost too much.

    Args:
        new: on the held-out rows of the round; None where they cannot tell.
        old: on those of each earlier round; one that cannot tell has no say.
        gate: the bounds.
    """
    reasons: list[str] = []
    if gate.new != "any":
        reasons += _new(new, gate)
    for round, found in sorted(old.items()):
        if found is not None and -found.gain > gate.max_old_drop + 1e-12:
            reasons.append(
                f"F1 on the held-out rows of round {round} falls by {-found.gain:.3f} (from "
                f"{found.before:.3f} to {found.after:.3f}; interval {_span(found)}), and "
                f"gate.max_old_drop is {gate.max_old_drop:g}"
            )
    return Decision(not reasons, tuple(reasons))


def _new(new: Change | None, gate: GateTable) -> list[str]:
    if new is None:
        return [
            "the held-out rows of the new round cannot tell: they lack rows with an error, or rows "
            'without (give more problems, or set gate.new = "any")'
        ]
    if gate.new == "not_fall":
        if new.gain >= 0:
            return []
        return [f"F1 on the new held-out rows falls from {new.before:.3f} to {new.after:.3f}"]
    if new.low > 0:
        return []
    return [
        f"F1 on the new held-out rows does not surely rise: from {new.before:.3f} to "
        f"{new.after:.3f}, with the interval {_span(new)} of the difference"
    ]


def _span(found: Change) -> str:
    return f"{found.low:+.3f} to {found.high:+.3f}"
