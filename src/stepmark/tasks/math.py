"""MATH (arXiv:2103.03874): competition problems, and the 500 test problems of MATH-500."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepmark.errors import DataError
from stepmark.types import Problem

from .readers import Table, read_table
from .rows import cell_text, need_columns
from .task import Task

__all__ = ["MATH", "MATH500", "SUBJECTS", "last_box"]

SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
"""The seven configurations of the hub's copy, in the order in which they are read."""
_REMEDY = "Give a file with problem and answer or a boxed solution, or use --dataset FILE."


def last_box(solution: str) -> str | None:
    r"""What the last ``\boxed{...}`` or ``\fbox{...}`` of a data set's solution holds.

    Golds only: what models write is read by `stepmark.verifiers.extract`.

    >>> last_box(r"so $x = \boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return None
    rest = solution[start:].split("box", 1)[1].removeprefix("ed")
    if rest.startswith(" ") and not (rest := rest.lstrip()).startswith("{"):
        # A few rows read "\boxed 2": TeX takes the next token. A command with arguments is none.
        token = re.match(r"\\[A-Za-z]+(?![A-Za-z{])|[^\\]", rest)
        return token[0] if token else None
    if not rest.startswith("{"):
        return None
    depth = 0
    for place, char in enumerate(rest):
        escaped = place > 0 and rest[place - 1] == "\\"
        depth += 0 if escaped else (char == "{") - (char == "}")
        if depth == 0:
            return rest[1:place].strip() or None
    return None


def _tables(split: str, path: str | None) -> Iterator[Table]:
    if path is None or (Path(path).is_dir() and (Path(path) / SUBJECTS[0]).is_dir()):
        for subject in SUBJECTS:
            place = path or "EleutherAI/hendrycks_math"
            yield read_table(place, split=split, config=subject)
    else:
        yield read_table(path.replace("{split}", split), split=split)


def _made(tables: Iterator[Table], task: str, split: str) -> tuple[Problem, ...]:
    made: list[Problem] = []
    for table in tables:
        need_columns(table, ("problem",), _REMEDY)
        for index, row in enumerate(table.rows):
            written = row.get("answer")
            solution = cell_text(row.get("solution"), "solution", table, index)
            gold = cell_text(written, "gold", table, index) or last_box(solution or "")
            if gold is None:
                raise DataError(
                    f"{table.where(index)}: no gold in the columns {', '.join(row)}; expected an "
                    f"answer, or a solution with \\boxed{{...}}. {_REMEDY}"
                )
            id = f"{task}/{split}/{len(made)}"
            made.append(Problem(id, str(row["problem"]), gold, solution, task, dict(row)))
    return tuple(made)


def math_problems(split: str, *, path: str | None = None) -> Sequence[Problem]:
    """The problems of a split: subjects in alphabetical order, each in the data set's order.

    The hub's column map (``EleutherAI/hendrycks_math``: seven configurations with problem,
    solution, level and type; the gold is the last box of the solution) is tested on made rows in
    that layout; it was not tried online.

    Args:
        split: ``train`` or ``test``.
        path: a file with problem and solution or answer, or a folder with one sub-folder a
            subject; ``{split}`` in it is replaced by the split.

    Raises:
        DataError: the rows lack a column or a gold.
        SetupError: the hub cannot be reached.
    """
    return _made(_tables(split, path), "math", split)


def math500_problems(split: str, *, path: str | None = None) -> Sequence[Problem]:
    """The 500 test problems that OpenAI held out (arXiv:2305.20050), in their order.

    The hub's column map (``HuggingFaceH4/MATH-500``: problem, solution, answer, subject, level,
    unique_id) is tested on made rows in that layout; it was not tried online.

    Args:
        split: ``test``.
        path: a file with problem and answer instead of the hub.

    Raises:
        DataError: the rows lack a column or a gold.
        SetupError: the hub cannot be reached.
    """
    table = read_table(path or "HuggingFaceH4/MATH-500", split=split)
    return _made(iter([table]), "math500", split)


MATH = Task(
    name="math",
    version="1",
    problems=math_problems,
    prompt="deepseek_cot_en",
    answer_kind="expression",
    max_tokens=1024,
    licence="MIT",
    source="EleutherAI/hendrycks_math",
)
MATH500 = Task(
    name="math500",
    version="1",
    problems=math500_problems,
    prompt="deepseek_cot_en",
    answer_kind="expression",
    max_tokens=1024,
    licence="MIT",
    source="HuggingFaceH4/MATH-500",
    splits=("test",),
)
