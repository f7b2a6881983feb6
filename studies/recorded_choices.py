"""Choosing among recorded samples: Qwen2.5-Math's 100 problems with 8 samples and a reward each.

    python studies/recorded_choices.py FILE [--golds MATH_TEST_FILE]

FILE holds rows with ``question``, ``gold``, ``responses``, ``preds``, ``correct`` and ``rm_score``,
lists of eight each (QwenLM/Qwen2.5-Math, evaluation/data/eval_rm_maj_example). It prints accuracy
at 1, 2, 4 and 8 samples: with the verdicts and results in the file, and with those of the verifier
``math``; then every row on which the two differ. ``--golds`` names MATH's test file (``problem``,
``answer``): the file lost one of its golds on the way.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmark.prm.search import answer_classes
from stepmark.report import markdown_table
from stepmark.statistics import Drawn, accuracy_curve
from stepmark.types import Item, Problem
from stepmark.verifiers import close_workers, load_verifier

METHODS = {
    "any one (mean@k)": "mean",
    "majority (maj@k)": "majority",
    "best by reward (rm@k)": "best",
    "weighted majority": "weighted",
    "one is right (pass@k)": "pass",
}


@dataclass(frozen=True)
class Row:
    """A problem with its recorded samples."""

    id: int
    question: str
    gold: str
    responses: tuple[str, ...]
    preds: tuple[str, ...]
    correct: tuple[bool, ...]
    rewards: tuple[float, ...]


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read(path: Path, golds: Path | None = None) -> list[Row]:
    """The rows of the file, with golds from another where it is named."""
    known = {row["problem"].strip(): row["answer"] for row in lines(golds)} if golds else {}
    return [
        Row(
            row["id"],
            row["question"],
            known.get(row["question"].strip(), row["gold"]),
            tuple(row["responses"]),
            tuple(row["preds"]),
            tuple(row["correct"]),
            tuple(row["rm_score"]),
        )
        for row in lines(path)
    ]


def as_recorded(rows: Sequence[Row]) -> list[Drawn]:
    """By the verdicts and the results in the file."""
    return [_drawn(row, row.correct, [text or None for text in row.preds]) for row in rows]


def as_verified(rows: Sequence[Row]) -> list[Drawn]:
    """By the verifier's verdicts and its equality of results."""
    verifier = load_verifier("math")
    marked: list[Any] = []
    for row in rows:
        items = [Item(Problem(str(row.id), row.question, row.gold), text) for text in row.responses]
        marked.append(list(zip(items, verifier(items), strict=True)))
    classes = answer_classes(verifier, marked)
    close_workers()
    return [
        _drawn(row, [verdict.correct is True for _, verdict in pairs], names)
        for row, pairs, names in zip(rows, marked, classes, strict=True)
    ]


def _drawn(row: Row, right: Sequence[bool], classes: Sequence[str | None]) -> Drawn:
    """Rewards may be below 0, and weights may not: a sigmoid makes them."""
    weights = [1 / (1 + math.exp(-reward)) for reward in row.rewards]
    return Drawn([float(one) for one in right], row.rewards, classes, weights)


def curve_table(problems: Sequence[Drawn]) -> str:
    """Accuracy by method and number of samples, in Markdown."""
    sizes = (1, 2, 4, 8)
    rows = [
        (name, *(f"{point.mean:.3f}" for point in accuracy_curve(problems, method, sizes)))
        for name, method in METHODS.items()
    ]
    return markdown_table(("", *(f"k = {k}" for k in sizes)), rows)


def differences(rows: Sequence[Row], ours: Sequence[Drawn]) -> list[str]:
    """One line for each sample that the file and the verifier mark differently."""
    words = {True: "right", False: "wrong"}
    return [
        f"problem {row.id}, sample {k}: the file {words[told]}, math {words[bool(found)]}; "
        f"gold {row.gold}, read as {row.preds[k]}"
        for row, drawn in zip(rows, ours, strict=True)
        for k, (told, found) in enumerate(zip(row.correct, drawn.right, strict=True))
        if told != bool(found)
    ]


def main() -> None:
    """Print the tables and the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--golds", type=Path)
    given = parser.parse_args()
    rows = read(given.file, given.golds)
    ours = as_verified(rows)
    print(f"With the file's verdicts and results:\n\n{curve_table(as_recorded(rows))}\n")
    right = int(sum(sum(drawn.right) for drawn in ours))
    print(f"With the verifier math ({right} of {8 * len(rows)} right):\n\n{curve_table(ours)}\n")
    found = differences(rows, ours)
    print(f"Samples that are marked differently: {len(found)}")
    for line in found:
        print(f"  {line}")


if __name__ == "__main__":
    main()
