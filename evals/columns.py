"""Which column of a recorded file holds what: named, known from the layout, or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepmark.errors import DataError, did_you_mean

__all__ = ["Columns", "find_columns"]

COMPLETION = (
    "completion",
    "completions",
    "response",
    "responses",
    "output",
    "generated_text",
    "resps",
)
GOLD = ("gold", "ground_truth", "gts", "target", "solution", "answer")
LABEL = ("is_correct", "correct", "label")
GROUP = ("model",)
ID = ("id", "question_id", "problem_id", "doc_id", "unique_id")
PROBLEM = ("problem", "question", "prompt", "prompts", "input", "messages")


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns; None is guessed where it can be, and else does without.

    A dot reaches into a cell that holds an object: ``doc.answer``.
    """

    completion: str | None = None
    gold: str | None = None
    label: str | None = None
    """Holds a recorded verdict to compare with."""
    group: str | None = None
    """Rows are counted apart by it."""
    id: str | None = None
    problem: str | None = None


def find_columns(
    names: Sequence[str],
    given: Columns,
    known: Columns | None = None,
    *,
    needs_gold: bool = True,
    inner: Sequence[str] = (),
) -> tuple[Columns, str]:
    """Which column holds what, and one line that says so.

    A column of the first name (``completion``, ``gold``) is never ambiguous; of the other names
    there may be one.

    Args:
        names: the columns there are.
        given: those that were named.
        known: those that the layout of the file fixes, where none was named.
        needs_gold: False where golds come from elsewhere: a file without is read then.
        inner: names with a dot, which may be named and are never guessed.

    Raises:
        DataError: a named column is missing, or the completion or gold has no column or several.
    """
    if not names:
        raise DataError("The file holds no rows. Give one with at least one response.")
    known = known or Columns()

    def one(kind: str, guesses: Sequence[str], *, needed: bool) -> str | None:
        asked = getattr(given, kind)
        if asked is not None:
            if asked in names or asked in inner:
                return asked
            raise _missing(kind, asked, [*names, *inner])
        if getattr(known, kind) is not None:
            return getattr(known, kind)
        found = [name for name in guesses if name in names]
        if len(found) <= 1 or found[0] == guesses[0]:
            if found or not needed:
                return found[0] if found else None
            raise _refusal(kind, f"no column that is known to hold the {kind}", guesses, names)
        if not needed:
            return found[0]
        raise _refusal(kind, f"several candidates for the {kind}", found, names)

    found = Columns(
        completion=one("completion", COMPLETION, needed=True),
        gold=one("gold", GOLD, needed=True) if needs_gold else given.gold,
        label=one("label", LABEL, needed=False),
        group=one("group", GROUP, needed=False),
        id=one("id", ID, needed=False),
        problem=one("problem", PROBLEM, needed=False),
    )
    parts = [
        f"{kind} from {getattr(found, kind)!r}"
        for kind in Columns.__slots__
        if getattr(found, kind) is not None
    ]
    return found, f"Columns: {', '.join(parts)}."


def _missing(kind: str, asked: str, names: Sequence[str]) -> DataError:
    hint = did_you_mean(asked, names)
    return DataError(
        f"There is no column {asked!r} for the {kind}. {hint}{' ' if hint else ''}"
        f"The columns are: {', '.join(names)}."
    )


def _refusal(kind: str, problem: str, listed: Sequence[str], names: Sequence[str]) -> DataError:
    colon = "" if problem.startswith("no ") else ":"
    shown = f"({', '.join(listed)})" if not colon else f"{colon} {', '.join(listed)}"
    joint = " " if not colon else ""
    other = ", or join it from a task: --gold-from TASK --join-on COLUMN" if kind == "gold" else ""
    return DataError(
        f"The file has {problem}{joint}{shown}. The columns are: {', '.join(names)}. "
        f"Say which one: --{kind}-column NAME{other}."
    )
