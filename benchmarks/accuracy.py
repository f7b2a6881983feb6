"""How often a grader's answer is the label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from corpora import PAIRS, RECORDED, Row
from figures import share


def tables(corpora: dict[str, list[Row]], answers: dict[str, dict[str, list]]) -> dict[str, Any]:
    """By corpus and grader: accuracy, false negatives and positives, debatable rows apart."""
    return {
        name: {grader: _table(rows, found[name]) for grader, found in answers.items()}
        for name, rows in corpora.items()
    }


def _table(rows: Sequence[Row], answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is not marked (an abstain, a hang) counts as an answer of "no"."""
    clear = [(row, a) for row, a in zip(rows, answers, strict=True) if not row.debatable]
    debatable = [(row, a) for row, a in zip(rows, answers, strict=True) if row.debatable]
    right = [row for row, a in clear if row.expected]
    wrong = [row for row, a in clear if not row.expected]
    missed = [row for row, a in clear if row.expected and not a["correct"]]
    accepted = [row for row, a in clear if not row.expected and a["correct"]]
    agreed = sum(row.expected == bool(a["correct"]) for row, a in debatable)
    return {
        "accuracy": share(len(clear) - len(missed) - len(accepted), len(clear)),
        "false_negatives": share(len(missed), len(right)),
        "false_positives": share(len(accepted), len(wrong)),
        "not_marked": sum(a["correct"] is None for _, a in clear),
        "hung": sum(a.get("reason") == "hung" for _, a in clear),
        "debatable": {"agreed": agreed, "of": len(debatable)},
    }


def differing(
    corpora: dict[str, list[Row]], answers: dict[str, dict[str, list]]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By recorded corpus and grader: every row where the mark is not the recorded label."""
    return {
        name: {
            grader: [
                {
                    "id": row.id,
                    "gold": row.gold,
                    "label": row.expected,
                    "mark": answer["correct"],
                    "extracted": answer.get("extracted"),
                }
                for row, answer in zip(corpora[name], found[name], strict=True)
                if bool(answer["correct"]) != row.expected
            ]
            for grader, found in answers.items()
        }
        for name in RECORDED
    }


def failing(
    corpora: dict[str, list[Row]], ours: dict[str, list[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Every row of the pairs, not debatable, that ours marks against its label."""
    for name in PAIRS:
        for row, answer in zip(corpora[name], ours[name], strict=True):
            if not row.debatable and bool(answer["correct"]) != row.expected:
                yield {
                    "corpus": name,
                    "id": row.id,
                    "gold": row.gold,
                    "answer": row.answer or row.completion,
                    "expected": row.expected,
                    "kind": row.kind,
                    **{f"ours_{key}": value for key, value in answer.items()},
                }
