"""Completions, prompts and golds as trainers hold them, as the text that a verifier reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stepmark.errors import DataError

__all__ = ["completion_text", "gold_text", "prompt_text", "question_text"]


def completion_text(completion: Any) -> str:
    """The text to mark: a string as it is, of messages the last one that the assistant wrote.

    A conversation in which the assistant wrote nothing, such as one that ends in a tool call, is
    an empty completion: it has no answer.

    Raises:
        DataError: neither a string nor messages.

    >>> completion_text([{"role": "assistant", "content": "It is 18."}])
    'It is 18.'
    """
    if isinstance(completion, str):
        return completion
    turns = _messages(completion, "completion")
    written = [turn for turn in turns if turn.get("role", "assistant") == "assistant"]
    return _content(written[-1].get("content")) if written else ""


def prompt_text(prompt: Any) -> str:
    """The whole prompt; messages stand below each other, parted by an empty line.

    Raises:
        DataError: neither a string nor messages.
    """
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(_content(turn.get("content")) for turn in _messages(prompt, "prompt"))


def question_text(prompt: Any) -> str:
    """The question in a prompt: a string as it is, of messages the last one of the user.

    Raises:
        DataError: neither a string nor messages.
    """
    if isinstance(prompt, str):
        return prompt
    asked = [turn for turn in _messages(prompt, "prompt") if turn.get("role") == "user"]
    return _content(asked[-1].get("content")) if asked else prompt_text(prompt)


def gold_text(value: Any) -> str | None:
    """A gold cell as text: text and numbers as they are, None or blank as None, a list of one.

    Raises:
        DataError: anything else.

    >>> gold_text("18"), gold_text(18), gold_text(["18"]), gold_text(" ")
    ('18', '18', '18', None)
    """
    if hasattr(value, "tolist"):  # numpy, as verl's tables hold it
        value = value.tolist()
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"The gold is {value!r:.80}; it must be a text or a number. Mend the row.")


def _messages(value: Any, kind: str) -> Sequence[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list | tuple) and all(isinstance(turn, Mapping) for turn in value):
        return value
    raise DataError(
        f"A {kind} is {value!r:.80}. It must be a text, or a list of messages such as "
        '[{"role": "assistant", "content": "It is 18."}]. Look at the data and its template.'
    )


def _content(content: Any) -> str:
    """The text of one message; of content in parts, the text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = [part.get("text") or "" for part in content if isinstance(part, Mapping)]
        return "".join(parts)
    return str(content)
