"""A data set of preferences as an engine: it hands out chosen and rejected completions.

The columns are TRL's: ``prompt``, ``chosen``, ``rejected``, each a text or a list of messages. A
list may hold the whole conversation: its last message, by the assistant, is the completion. What
is rejected may be empty (a model that ended at once); what is chosen may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepmark.errors import DataError, did_you_mean
from stepmark.types import Group, Problem, Prompt, Sampling

from .demonstrations import Demonstrations

__all__ = ["CHOSEN", "REJECTED", "PreferenceData", "completion_text", "preference_problems"]

CHOSEN, REJECTED = "chosen", "rejected"
"""Names under which a problem's ``meta`` holds its two completions."""
SHOWN = 60
"""Characters of a cell in an error."""


def preference_problems(
    problems: Sequence[Problem],
    place: str,
    chosen_column: str | None = None,
    rejected_column: str | None = None,
) -> tuple[Problem, ...]:
    """The problems with both completions as texts under ``chosen`` and ``rejected``.

    Args:
        problems: the rows of a data set, in order.
        place: of the data, for errors.
        chosen_column: column of the better completion; ``chosen`` when None.
        rejected_column: column of the worse one; ``rejected`` when None.

    Raises:
        DataError: a column is missing or a cell holds no completion; it names the row.
    """
    columns = {CHOSEN: chosen_column or CHOSEN, REJECTED: rejected_column or REJECTED}
    return tuple(
        _with_texts(problem, columns, f"{place}, row {number} ({problem.id})")
        for number, problem in enumerate(problems, start=1)
    )


def _with_texts(problem: Problem, columns: Mapping[str, str], row: str) -> Problem:
    texts = {name: _cell(problem, column, name, row) for name, column in columns.items()}
    return replace(problem, meta={**problem.meta, **texts})


def _cell(problem: Problem, column: str, name: str, row: str) -> str:
    if column not in problem.meta:
        seen = sorted(problem.meta)
        words = [f"{row}: no column {column!r} with the {name} completion."]
        words += [did_you_mean(column, seen), f"Columns: {', '.join(seen) or 'none'}."]
        words += [
            f"Set data.{name}_column, or learn from marked completions: --backend online-dpo."
        ]
        raise DataError(" ".join(word for word in words if word))
    text = completion_text(problem.meta[column])
    if text is None or (name == CHOSEN and not text.strip()):
        shown = repr(problem.meta[column])
        kind = "a text with words in it" if name == CHOSEN else "a text"
        raise DataError(
            f"{row}: {column!r} is {shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'}; "
            f"it must be {kind}, or messages of which only the last is the assistant's. "
            "Mend or remove the row."
        )
    return text


def completion_text(cell: Any) -> str | None:
    """The completion that a cell holds; None when it holds none, or a longer conversation.

    A model may end at once, so that a completion may be empty.

    >>> completion_text(" 4"), completion_text([{"role": "assistant", "content": "4"}])
    (' 4', '4')
    >>> completion_text([{"role": "user", "content": "2 + 2?"}]) is None
    True
    """
    if isinstance(cell, Sequence) and not isinstance(cell, str) and cell:
        rows: list[Any] = list(cell)
        roles = [row.get("role") if isinstance(row, Mapping) else None for row in rows]
        is_reply = roles[-1] == "assistant" and roles[:-1] in ([], ["user"], ["system", "user"])
        cell = rows[-1].get("content") if is_reply else None
    return cell if isinstance(cell, str) else None


class PreferenceData:
    """An `Engine` whose groups are pairs of the data: the chosen completion, then the rejected one.

    Both end with the end token; one longer than ``max_tokens`` is cut there, without it, and its
    ``finish`` is ``length``. Log-probs are 0: nothing was sampled.

    Args:
        tokenizer: the policy's.

    Raises:
        SetupError: the tokenizer has no end token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.demonstrations = Demonstrations(tokenizer)

    def generate(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int
    ) -> Iterator[Group]:
        """One pair per prompt, whatever ``n`` is.

        Raises:
            DataError: a problem has no such pair.
        """
        for prompt in prompts:
            names, problem = (CHOSEN, REJECTED), prompt.problem
            texts = [_cell(problem, name, name, f"the pair of {problem.id!r}") for name in names]
            rows = (
                self.demonstrations.rollout(prompt, text, k, sampling.max_tokens)
                for k, text in enumerate(texts)
            )
            yield Group(prompt, tuple(rows))

    def sync(self, policy: Any, version: int) -> None:
        """Nothing to take over."""

    def sleep(self) -> None:
        """Nothing to free."""

    def wake(self) -> None:
        """Nothing to restore."""

    def close(self) -> None:
        """Nothing to release."""
