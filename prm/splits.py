"""Parts of a data set by problem, never by row, and what two data sets have in common.

PRM800K, MATH-500, ProcessBench and PRMBench share problems: a reward model that was trained on a
problem has seen what its steps may look like. Two texts are the same problem however their blanks
are set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stepmark.errors import RunError
from stepmark.store import publish, text_hash

from .formats import problem_id

__all__ = ["PROBLEMS", "Overlap", "is_in_share", "overlap", "read_problems", "write_problems"]

BUCKETS = 10_000
PROBLEMS = "problems.txt"
"""Beside a checkpoint: ids of the problems that it was trained on, one a line."""


def is_in_share(problem: str, share: float, part: str = "dev") -> bool:
    """Whether a problem belongs to a part: a hash of its text, no draw.

    Args:
        problem: its text.
        share: of all problems that the part takes, in [0, 1].
        part: name of the part; parts of different names are independent.

    >>> is_in_share("1 + 1?", 0.0), is_in_share(" 1 +  1?", 1.0)
    (False, True)
    """
    return int(text_hash(f"{part} {problem_id(problem)}"), 16) % BUCKETS < share * BUCKETS


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of what a model is examined on it has been trained on."""

    shared: frozenset[str]
    """Ids of the problems in both."""
    rows: int
    """Rows of the evaluation whose problem was trained on."""
    of_rows: int


def overlap(trained: Iterable[str], problems: Iterable[str]) -> Overlap:
    """What an evaluation shares with the training of a model.

    Args:
        trained: ids of the problems that were trained on.
        problems: text of the problem of each evaluated row.
    """
    known = frozenset(trained)
    ids = [problem_id(text) for text in problems]
    hit = [one for one in ids if one in known]
    return Overlap(frozenset(hit), len(hit), len(ids))


def write_problems(folder: Path, problems: Iterable[str], *, more: Iterable[str] = ()) -> None:
    """Note the problems that a checkpoint was trained on beside it.

    Args:
        folder: of the checkpoint.
        problems: their texts.
        more: ids of others, such as those that its base was trained on.
    """
    ids = {problem_id(text) for text in problems} | set(more)
    with publish(folder / PROBLEMS, replace=True) as part:
        part.write_text("".join(f"{one}\n" for one in sorted(ids)), encoding="ascii")


def read_problems(folder: Path) -> frozenset[str] | None:
    """Ids of the problems that a checkpoint was trained on; None where it does not say.

    Raises:
        RunError: the file is no list of ids.
    """
    path = folder / PROBLEMS
    if not path.is_file():
        return None
    found = path.read_text(encoding="ascii", errors="replace").split("\n")[:-1]
    if bad := [line for line in found if len(line) != 16 or set(line) - set("0123456789abcdef")]:
        raise RunError(
            f"{path} holds {bad[0]!r:.40}, which is no id of a problem; a line has 16 hexadecimal "
            "digits. Restore the file, or remove it: then no overlap can be checked."
        )
    return frozenset(found)
