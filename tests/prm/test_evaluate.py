"""Evaluation: a scorer's figures, beside what knows nothing, on parts that share no problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepmark.errors import ConfigError, DataError, RunError, UnknownNameError
from stepmark.prm import labelled_steps
from stepmark.prm.evaluate import Scored, evaluate, score_rows
from stepmark.prm.formats import problem_id
from stepmark.prm.splits import is_in_share, overlap, read_problems, write_problems
from stepmark.types import LabelledSteps, Problem, StepItem, StepScores


def row(name: str, labels: Sequence[float | None], right: bool | None = None) -> LabelledSteps:
    steps = tuple(f"step {n} of {name}" for n in range(len(labels)))
    return LabelledSteps(Problem(name, f"problem {name}", "1"), steps, tuple(labels),
                         final_correct=right)  # fmt: skip


class Truthful:
    """Scores 0.9 for right steps and 0.2 for wrong ones, as its table says."""

    key = "truthful@1"

    def __init__(self, rows: Sequence[LabelledSteps]) -> None:
        self.known = {one.steps: one.labels for one in rows}

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return ((0, len(text)),)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        return [
            StepScores(
                tuple(0.2 if label == 0 else 0.9 for label in self.known[item.steps]), self.key
            )
            for item in items
        ]


class Short(Truthful):
    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        return [StepScores((0.5,), self.key) for _ in items]


ROWS = [
    row("a", [1, 1, 0], False),
    row("b", [1, 0, None], False),
    row("c", [1, 1], True),
    row("d", [1, 1, 1], True),
    row("e", [None, 1], True),
]


def test_a_scorer_that_knows_the_truth_has_full_marks() -> None:
    told: list[tuple[int, int]] = []
    scored = list(score_rows(Truthful(ROWS), ROWS, lambda done, of: told.append((done, of))))
    assert told == [(5, 5)]
    found = evaluate(scored, name="own", scorer="truthful@1")
    assert found.errors is not None
    assert (found.errors.f1, found.errors.errors, found.errors.corrects) == (1.0, 2, 2)
    assert (found.steps.auroc, found.steps.within_auroc) == (1.0, 1.0)
    assert (found.steps.right, found.steps.wrong) == (9, 2)
    assert found.steps.balanced_accuracy == 1.0
    assert found.outcome_auroc == 1.0
    assert dict(found.confusion) == {(2, 2): 1, (1, 1): 1, (-1, -1): 2}
    assert found.floors["outcome oracle"] == pytest.approx(2 / 3)
    assert found.fitted_on == 0
    assert found.unscored_steps == 0


def test_positions_are_told_apart() -> None:
    rows = [row(str(n), [1] * n + [0]) for n in (1, 3, 12)]
    found = evaluate([Scored(one, (0.5,) * len(one.steps)) for one in rows], name="n", scorer="s")
    positions = {position: (count, area) for position, count, area in found.steps.by_position}
    assert positions[1] == (3, None), "only right steps there"
    assert positions[2] == (3, 0.5)
    assert positions[10] == (4, 0.5), "the tenth and all after it"


def test_scores_that_only_fall_along_a_solution_look_good_within_it_and_nowhere_else() -> None:
    rows = [row(str(n), [1] * n + [0]) for n in (1, 2, 3)]
    falling = [Scored(one, tuple(1 / (at + 1) for at in range(len(one.steps)))) for one in rows]
    found = evaluate(falling, name="n", scorer="s").steps
    assert found.within_auroc == 1.0
    assert found.same_position_auroc == 0.5
    assert found.comparable == 5, "three steps in the second place, two in the third"


def test_steps_at_one_position_are_compared_pair_by_pair() -> None:
    rows = [row("a", [1, 0]), row("b", [1, 1]), row("c", [1, 1]), row("d", [0])]
    scores = [(0.9, 0.5), (0.2, 0.7), (0.6, 0.5), (0.4,)]
    scored = [Scored(one, given) for one, given in zip(rows, scores, strict=True)]
    found = evaluate(scored, name="n", scorer="s").steps
    assert found.same_position_auroc == pytest.approx((2 + 1.5) / (3 + 2))
    assert found.comparable == 7


def test_a_threshold_is_fitted_on_problems_that_are_left_out_of_the_figures() -> None:
    rows = [row(f"p{n}", [1, n % 2]) for n in range(200)]
    scored = [Scored(one, tuple(0.3 if label else 0.1 for label in one.labels)) for one in rows]
    fixed = evaluate(scored, name="n", scorer="s")
    assert fixed.errors is not None
    assert fixed.errors.f1 == 0.0, "0.5 calls every step wrong"
    found = evaluate(scored, name="n", scorer="s", threshold=None, dev_share=0.25)
    assert found.errors is not None
    assert found.errors.f1 == 1.0
    assert 0.1 < found.threshold <= 0.3
    assert found.rows + found.fitted_on == 200
    assert 30 < found.fitted_on < 70


def test_steps_beyond_the_limit_are_counted_and_never_called_wrong() -> None:
    rows = [row("a", [1, 0]), row("b", [1, 1])]
    scored = [Scored(rows[0], (0.9, None)), Scored(rows[1], (0.9, 0.9))]
    found = evaluate(scored, name="n", scorer="s")
    assert found.unscored_steps == 1
    assert found.errors is not None
    assert found.errors.error_accuracy == 0.0
    assert found.confusion[1, -1] == 1


def test_rows_of_one_kind_have_step_figures_and_no_f1() -> None:
    found = evaluate([Scored(row("a", [1, 1]), (0.9, 0.8))], name="n", scorer="s")
    assert found.errors is None
    assert found.floors == {}
    assert found.steps.auroc is None
    assert found.outcome_auroc is None


def test_what_cannot_be_evaluated_is_refused() -> None:
    scored = [Scored(row("a", [1, 0]), (0.9, 0.1))]
    with pytest.raises(DataError, match=r"1 scores for the 3 steps of problem 'a'"):
        list(score_rows(Short(ROWS), ROWS))
    with pytest.raises(ConfigError, match="n has no rows"):
        evaluate([], name="n", scorer="s")
    with pytest.raises(ConfigError, match=r"threshold is 1\.5"):
        evaluate(scored, name="n", scorer="s", threshold=1.5)
    with pytest.raises(UnknownNameError, match="median"):
        evaluate(scored, name="n", scorer="s", aggregation="median")
    with pytest.raises(ConfigError, match=r"share of 0\.0"):
        evaluate(scored, name="n", scorer="s", threshold=None, dev_share=0.0)


def test_a_part_holds_all_rows_of_a_problem_however_it_is_spaced() -> None:
    texts = [f"problem {n}" for n in range(2000)]
    chosen = [is_in_share(text, 0.2) for text in texts]
    assert chosen == [is_in_share(text.replace(" ", "\n  "), 0.2) for text in texts]
    assert 0.16 < sum(chosen) / 2000 < 0.24
    other = [is_in_share(text, 0.2, "held out") for text in texts]
    both = sum(a and b for a, b in zip(chosen, other, strict=True))
    assert 0.02 < both / 2000 < 0.06, "parts of different names are independent"


def test_overlap_is_by_problem(tmp_path: Path) -> None:
    write_problems(tmp_path, ["1 + 1?", "2 + 2?", " 2  + 2? "])
    trained = read_problems(tmp_path)
    assert trained == {problem_id("1 + 1?"), problem_id("2 + 2?")}
    found = overlap(trained, ["2 +\n2?", "3?", "2 + 2?"])
    assert (len(found.shared), found.rows, found.of_rows) == (1, 2, 3)
    assert read_problems(tmp_path / "elsewhere") is None
    (tmp_path / "problems.txt").write_text("not an id\n")
    with pytest.raises(RunError, match="not an id"):
        read_problems(tmp_path)


def test_processbench_and_math500_share_the_problems_that_are_known(
    data: Path, tmp_path: Path
) -> None:
    from stepmark.prm import convert_file

    out = tmp_path / "math.jsonl"
    convert_file(data / "processbench" / "processbench_math.jsonl", out, format="processbench")
    lines = (data / "math" / "math500.jsonl").read_text().splitlines()
    trained = [problem_id(json.loads(line)["problem"]) for line in lines]
    problems = {one.problem.text for one in labelled_steps(out)}
    assert len(overlap(trained, problems).shared) == 108


def test_solutions_without_a_score_are_missed_and_counted_by_the_reason() -> None:
    rows = [row("a", [0, None]), row("b", [1, 1]), row("c", [1, 1]), row("d", [0, None])]
    wide = [Scored(rows[0], (0.1, 0.1)), Scored(rows[1], (0.9, 0.9))]
    none = [Scored(rows[2], (None, None)), Scored(rows[3], (None, None), failed=True)]
    found = evaluate([*wide, *none], name="n", scorer="s")
    assert (found.unscored_rows, found.failed_rows, found.unscored_steps) == (1, 1, 2)
    assert found.errors is not None
    assert (found.errors.error_accuracy, found.errors.correct_accuracy) == (0.5, 0.5)
    assert dict(found.confusion) == {(0, 0): 1, (-1, -1): 1}


def test_tiny_products_still_order_solutions() -> None:
    rows = [row("a", [1] * 200, True), row("b", [1] * 200, False)]
    scored = [Scored(rows[0], (0.02,) * 200), Scored(rows[1], (0.01,) * 200)]
    assert evaluate(scored, name="n", scorer="s", aggregation="prod").outcome_auroc == 1.0
