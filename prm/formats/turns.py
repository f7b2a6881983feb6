"""Conversations in rows: a list of turns, each with a role and a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .rejects import Rejected, RejectReason

__all__ = ["Turn", "turns_of"]

Row = Mapping[str, Any]
ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}


class Turn(NamedTuple):
    """One turn of a user or an assistant."""

    role: str
    text: str


def turns_of(row: Row) -> list[Turn]:
    """The turns under ``messages`` or ``conversations``, without those of the system.

    Raises:
        Rejected: there is no such list, or a turn has another role or no text.
    """
    given = row.get("messages", row.get("conversations"))
    if not isinstance(given, list):
        raise Rejected(RejectReason.COLUMN, f"messages or conversations is {given!r:.60}, no list")
    turns: list[Turn] = []
    for number, turn in enumerate(given, 1):
        named = turn if isinstance(turn, Mapping) else {}
        role = named.get("role", named.get("from"))
        text = named.get("content", named.get("value"))
        if role == "system":
            continue
        if not isinstance(role, str) or role not in ROLES or not isinstance(text, str):
            raise Rejected(
                RejectReason.COLUMN, f"turn {number} is {turn!r:.60}; it needs a role and a text"
            )
        turns.append(Turn(ROLES[role], text))
    return turns
