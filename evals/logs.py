"""Logs of trainers and chats: verl's dumps, TRL's completion logs, OpenAI's layouts, our store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmark.store import text_hash

from .cells import finish_of, is_chat, last_reply, problem_text, reply_text
from .columns import COMPLETION, ID, Columns
from .layout import Laid, Layout, first_of, several
from .lines import Line, Reject, short

__all__ = ["OPENAI", "STEPMARK", "TRL", "VERL"]


def _names(lines: list[Line]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.row))


def _with_ids(lines: list[Line], problem: str) -> tuple[list[Line], str]:
    """Rows with an id, and its column: what was asked names the problem where no column does.

    The samples of one prompt share it, and so do the steps of a training run.
    """
    if own := first_of(_names(lines), (*ID, "uid", "index")):
        return lines, own
    made = []
    for line in lines:
        text = problem_text(line.row.get(problem))
        id = text_hash(text)[:12] if text else f"line-{line.number}"
        made.append(line._replace(row=line.row | {"id": id}))
    return made, "id"


def _verl(lines: list[Line]) -> Laid:
    """Rollout and validation dumps of verl: one row a sample, one file a step."""
    names = _names(lines)
    lines, id = _with_ids(lines, "input")
    known = Columns(
        completion="output",
        gold=first_of(names, ("gts", "ground_truth", "gold")),
        label=first_of(names, ("acc", "score")),
        group=several(lines, "step"),
        id=id,
        problem="input",
    )
    return Laid(lines, known)


def _trl(lines: list[Line]) -> Laid:
    """Completion logs of TRL's online trainers: prompt, completion, a column for each reward.

    A row may hold a whole batch, in lists of one length.
    """
    names = _names(lines)
    prompt = first_of(names, ("prompt", "prompts"))
    lines = [part for line in lines for part in _unbatched(line, prompt or "")]
    lines, id = _with_ids(lines, prompt or "")
    rewards = _rewards(lines, names)
    is_sure = [name for name in rewards if any(w in name for w in ("accura", "correct", "math"))]
    label = first_of(names, ("is_correct", "correct", "label"))
    if label is None and len(is_sure or rewards) == 1:
        label = (is_sure or rewards)[0]
    note = "" if label or not rewards else f"Of the rewards ({', '.join(rewards)}) none is compared"
    known = Columns(
        completion=first_of(names, ("completion", "completions")),
        label=label,
        group=several(lines, "step"),
        id=id,
        problem=prompt,
    )
    return Laid(lines, known, note and f"{note}: name it with --label-column.")


def _unbatched(line: Line, prompt: str) -> list[Line]:
    """The samples of a batch as rows of their own: every list of its length is taken apart."""
    cell = line.row.get(prompt)
    if not isinstance(cell, list) or is_chat(cell) or not cell:
        return [line]
    batched = {
        name
        for name, value in line.row.items()
        if isinstance(value, list) and len(value) == len(cell) and not is_chat(value)
    }
    return [
        line._replace(row={name: v[at] if name in batched else v for name, v in line.row.items()})
        for at in range(len(cell))
    ]


def _rewards(lines: list[Line], names: Sequence[str]) -> list[str]:
    """Columns that hold a reward: numbers, under a name that says so."""
    found = []
    for name in names:
        words = ("reward", "accuracy", "correct", "score")
        if name == "advantage" or not any(word in name for word in words):
            continue
        cells = [line.row.get(name) for line in lines]
        if all(cell is None or isinstance(cell, int | float | list) for cell in cells):
            found.append(name)
    return found


def _is_trl(names: frozenset[str]) -> bool:
    has_texts = {"prompt", "completion"} <= names or {"prompts", "completions"} <= names
    return has_texts and (
        bool({"advantage", "step"} & names) or any("reward" in name for name in names)
    )


def _stepmark(lines: list[Line]) -> Laid:
    """Rows of our own sample store."""
    group = several(lines, "policy") or several(lines, "step")
    return Laid(lines, Columns("completion", "gold", None, group, "id", "problem"))


def _openai(lines: list[Line]) -> Laid:
    """Chats: lists of messages, stored replies of the API, and lines of its batch files."""
    kept: list[Line] = []
    rejects: list[Reject] = []
    for line in lines:
        try:
            kept.append(line._replace(row=line.row | _chat(line.row)))
        except ValueError as error:
            rejects.append(Reject(line.number, str(error), short(line.row), line.file))
    names = _names(kept)
    id = first_of(names, ("custom_id", *ID))
    problem = first_of(names, ("problem", "question", "prompt"))
    return Laid(kept, Columns("completion", id=id, problem=problem), rejects=rejects)


def _chat(row: dict[str, Any]) -> dict[str, Any]:
    """Completions, problem and finish of one line of a chat log.

    Raises:
        ValueError: the line holds no reply, such as one of a request that failed.
    """
    found: dict[str, Any] = {}
    response = row.get("response") or {}
    if isinstance(response, str):
        return {"completion": response} | _asked(row, row.get("request"))
    body = response.get("body") if isinstance(response, dict) and "body" in response else response
    if row.get("error") or (isinstance(response, dict) and response.get("status_code", 200) >= 400):
        raise ValueError(f"the request failed: {short(row.get('error') or body)}")
    request = row.get("request") or row.get("body") or {}
    asked = request.get("messages") if isinstance(request, dict) else None
    messages = row.get("messages") or asked
    choices = row.get("choices") or (body.get("choices") if isinstance(body, dict) else None)
    if choices:
        found["completion"] = [reply_text(choice.get("message") or {}) for choice in choices]
        found["finish_reason"] = finish_of(choices[0].get("finish_reason"))
    elif messages is not None and is_chat(messages):
        found["completion"] = last_reply(messages)
    else:
        raise ValueError("no reply of an assistant (choices, or messages that end in one)")
    return found | _asked(row, messages)


def _asked(row: dict[str, Any], cell: Any) -> dict[str, Any]:
    """The problem in a request, where the row has no column for it."""
    text = problem_text(cell)
    return {"problem": text} if text and "problem" not in row else {}


def _is_openai(names: frozenset[str]) -> bool:
    if "choices" in names or {"custom_id", "response"} <= names or {"request", "response"} <= names:
        return "completion" not in names
    return "messages" in names and not any(name in names for name in COMPLETION)


STEPMARK = Layout(
    "stepmark", lambda names: {"id", "k", "step", "completion", "gold"} <= names, _stepmark
)
VERL = Layout(
    "verl",
    lambda names: {"input", "output"} <= names and bool({"gts", "score"} & names),
    _verl,
)
TRL = Layout("trl", _is_trl, _trl)
OPENAI = Layout("openai", _is_openai, _openai)
