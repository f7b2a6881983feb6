"""GSM8K (arXiv:2110.14168): 7,473 and 1,319 grade-school word problems with worked solutions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepmark.errors import DataError
from stepmark.types import Problem

from .readers import read_table
from .rows import need_columns
from .task import Task

__all__ = ["GSM8K", "gold_of", "problems", "solution_of"]

_MARK = re.compile(r"<<[^<>\n]*>>")
_REMEDY = "Give the file in GSM8K's layout, or use --dataset FILE --prompt-column --gold-column."


def gold_of(worked: str) -> str | None:
    r"""The gold after ``####``, without thousands separators; None when there is none.

    >>> gold_of("So she pays 1,200.\n#### 1,200")
    '1200'
    """
    _, marker, gold = worked.rpartition("####")
    gold = gold.strip()
    if not marker or not gold:
        return None
    return gold.replace(",", "") if re.fullmatch(r"[-+$]?[\d,]+(\.\d+)?%?", gold) else gold


def solution_of(worked: str) -> str:
    r"""The worked solution without the calculator marks ``<<16-3-4=9>>``; ``####`` line kept.

    >>> solution_of("She has 16 - 7 = <<16-7=9>>9 eggs.\n#### 9")
    'She has 16 - 7 = 9 eggs.\n#### 9'
    """
    return _MARK.sub("", worked)


def problems(split: str, *, path: str | None = None) -> Sequence[Problem]:
    """The problems of a split, in the data set's order.

    The hub's column map (``openai/gsm8k``, configuration ``main``: question, answer) is tested on
    made rows in that layout; it was not tried online.

    Args:
        split: ``train`` or ``test``.
        path: a file with the columns question and answer instead of the hub; ``{split}`` in it is
            replaced by the split, and a folder may hold both.

    Raises:
        DataError: the rows lack a column or a gold.
        SetupError: the hub cannot be reached.
    """
    place = (path or "openai/gsm8k").replace("{split}", split)
    table = read_table(place, split=split, config="main")
    need_columns(table, ("question", "answer"), _REMEDY)
    made: list[Problem] = []
    for index, row in enumerate(table.rows):
        gold = gold_of(str(row["answer"]))
        if gold is None:
            raise DataError(
                f"{table.where(index)}: the answer has no '####' with the gold after it; it ends "
                f"{str(row['answer'])[-40:]!r}. {_REMEDY}"
            )
        made.append(
            Problem(
                f"gsm8k/{split}/{index}",
                str(row["question"]),
                gold,
                solution_of(str(row["answer"])),
                "gsm8k",
                dict(row),
            )
        )
    return tuple(made)


GSM8K = Task(
    name="gsm8k",
    version="1",
    problems=problems,
    prompt="gsm8k_zeroshot",
    answer_kind="number",
    max_tokens=512,
    licence="MIT",
    source="openai/gsm8k",
)
