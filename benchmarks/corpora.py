"""The rows that verifiers are measured on, read from a folder of public data sets.

The folder is named on the command line or by STEPMARK_DATA. Its layout:

* ``verify/*.jsonl``: labelled answer pairs (`id, gold, answer, expected, form, kind, source,
  debatable`), collected from the test suites of public graders, public bug reports, recorded
  answers of models on MATH, and the golds of MATH themselves;
* ``recorded/responses_gsm8k_openai.jsonl``: the responses that openai/grade-school-math publishes
  (four models, the GSM8K test set), with the authors' `is_correct`;
* ``recorded/responses_math_qwen_cot100.jsonl``: eight samples for each of 100 MATH problems, from
  QwenLM/Qwen2.5-Math, with `is_correct` as adjudicated by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmark.errors import DataError
from stepmark.store import read_rows

PAIRS = (
    "peer_tests",
    "bug_reports",
    "recorded_answers",
    "hard_negatives",
    "reflexive_golds",
)
QUICK = dict(zip(PAIRS, (4, 4, 8, 20, 20), strict=True))
"""Of the pairs, a quick run takes one in so many."""
GSM8K = "gsm8k_responses"
MATH = "math_responses"
RECORDED = {GSM8K: "responses_gsm8k_openai", MATH: "responses_math_qwen_cot100"}
GROUP = 8
"""Completions of one problem in the recorded MATH responses, next to each other in the file."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to mark, and whether it is right."""

    id: str
    gold: str
    completion: str
    expected: bool
    debatable: bool = False
    answer: str = ""
    """The bare answer of a pair; empty where the completion is a model's response."""
    kind: str = ""


def load(data: Path, *, quick: bool = False) -> dict[str, list[Row]]:
    """All corpora by name, in the order in which they are measured.

    Args:
        data: the folder described above.
        quick: a tenth of the responses and a part of the pairs, evenly spread.

    Raises:
        DataError: the folder lacks a file, or a row lacks a column.
    """
    found = {name: _pairs(data / "verify" / f"{name}.jsonl") for name in PAIRS}
    for name, stem in RECORDED.items():
        found[name] = _responses(data / "recorded" / f"{stem}.jsonl")
    if not quick:
        return found
    small = {name: found[name][::step] for name, step in QUICK.items()}
    for name in RECORDED:
        small[name] = [row for group in list(groups(found[name]))[::10] for row in group]
    return small


def groups(rows: list[Row], size: int = GROUP) -> Iterator[list[Row]]:
    """Neighbouring rows, `size` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _pairs(path: Path) -> list[Row]:
    found: list[Row] = []
    for row in _rows(path, ("id", "gold", "answer", "form", "expected")):
        bare = row["form"] == "expr"
        completion = f"The answer is $\\boxed{{{row['answer']}}}$." if bare else row["answer"]
        found.append(
            Row(
                str(row["id"]),
                row["gold"],
                completion,
                bool(row["expected"]),
                bool(row.get("debatable", False)),
                row["answer"] if bare else "",
                row.get("kind", ""),
            )
        )
    return found


def _responses(path: Path) -> list[Row]:
    return [
        Row(str(row["id"]), row["gold"], row["response"], bool(row["is_correct"]))
        for row in _rows(path, ("id", "gold", "response", "is_correct"))
    ]


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    if not path.is_file():
        raise DataError(
            f"The data folder has no {path.parent.name}/{path.name} (looked at {path}). It must "
            f"hold verify/ and recorded/ as benchmarks/corpora.py describes. "
            f"Give that folder with --data, or set STEPMARK_DATA to it."
        )
    rows = read_rows(path)
    for number, row in enumerate(rows, 1):
        for column in columns:
            if column not in row:
                raise DataError(
                    f"{path.name}, line {number} has no {column!r}; it has {', '.join(row)}. "
                    f"Needed: {', '.join(columns)}. Repair the file or give another with --data."
                )
    return rows
