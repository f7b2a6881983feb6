"""What a cell of a recorded row may hold: a text, a chat, samples, nested samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .lines import short

__all__ = [
    "cell_at",
    "finish_of",
    "is_chat",
    "last_reply",
    "problem_text",
    "reply_text",
    "texts_of",
]


def cell_at(row: Mapping[str, Any], column: str | None) -> Any:
    """The cell of a column; ``doc.answer`` reaches into a cell that holds an object."""
    if column is None or column in row:
        return row.get(column or "")
    name, dot, rest = column.partition(".")
    inner = row.get(name)
    return cell_at(inner, rest) if dot and isinstance(inner, Mapping) else None


def is_chat(cell: Any) -> bool:
    """Whether a cell is a list of messages with roles."""
    return (
        isinstance(cell, Sequence)
        and not isinstance(cell, str)
        and len(cell) > 0
        and all(isinstance(turn, Mapping) and "role" in turn for turn in cell)
    )


def texts_of(cell: Any) -> list[str]:
    """The completions in a cell: a text, a chat, or a list of them, of which lists are unfolded.

    Raises:
        ValueError: something in it is no text.
    """
    if isinstance(cell, str):
        return [cell]
    if is_chat(cell):
        return [last_reply(cell)]
    if isinstance(cell, Mapping) and "role" in cell:
        return [reply_text(cell)]
    if isinstance(cell, list | tuple) and cell:
        return [text for entry in cell for text in texts_of(entry)]
    raise ValueError(f"{short(cell)}, not a text")


def last_reply(chat: Sequence[Mapping[str, Any]]) -> str:
    """The text of a chat's last assistant turn.

    Raises:
        ValueError: the assistant does not have the last word.
    """
    if chat[-1].get("role") not in ("assistant", "model"):
        roles = ", ".join(str(turn.get("role")) for turn in chat)
        raise ValueError(f"a chat with the turns {roles}, which ends in no reply of the assistant")
    return reply_text(chat[-1])


def reply_text(message: Mapping[str, Any]) -> str:
    """The text of a message: its content, the text parts of it, or its refusal.

    Raises:
        ValueError: it has none, as a call of a tool has none.
    """
    text = _content(message.get("content"))
    if text is None and isinstance(message.get("refusal"), str):
        return message["refusal"]
    if text is None:
        what = "it calls a tool" if message.get("tool_calls") else "its content is empty"
        raise ValueError(f"a message without text: {what}")
    return text


def problem_text(cell: Any) -> str:
    """The problem in a cell: a text as it stands, a chat's last user turn; else an empty text."""
    if isinstance(cell, str):
        return cell
    if is_chat(cell):
        asked = [_content(turn.get("content")) for turn in cell if turn.get("role") == "user"]
        return next((text for text in reversed(asked) if text), "")
    return ""


def finish_of(reason: Any) -> str | None:
    """``stop`` or ``length`` where a finish reason says one of them."""
    return reason if reason in ("stop", "length") else None


def _content(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        texts = [text for text in parts if isinstance(text, str)]
        return "".join(texts) if texts else None
    return None
