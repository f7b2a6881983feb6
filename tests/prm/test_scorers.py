"""Step scorers by name: what a reference stands for, and the rule-based one of `arith`."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepmark import Problem, StepItem, StepScorer
from stepmark.errors import ConfigError, UnknownNameError
from stepmark.prm import check_scorer_columns, load_scorer, scorers
from stepmark.tasks import check_steps, load_task

PROBLEM = Problem("p", "How many?", "18")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "def short(steps):\n    return [len(step) < 5 for step in steps]\n"
        "def gold_in(problem, steps):\n"
        "    return [None if not step else float(problem.gold in step) for step in steps]\n"
        "def wants(steps, colour):\n    return []\n"
        "number = 3\n"
        "class Halves:\n"
        "    def __init__(self, value=0.5):\n"
        "        self.value, self.key = value, f'half@{value}'\n"
        "    def segment(self, text):\n        return ((0, len(text)),)\n"
        "    def score(self, items):\n        return []\n"
        "ready = Halves()\n"
        "class Nothing:\n    pass\n"
    )
    return path


def scores(reference: object, *steps: str) -> tuple[float | None, ...]:
    return load_scorer(reference).score([StepItem(PROBLEM, steps)])[0].scores  # type: ignore[arg-type]


def test_functions_are_scorers_that_ask_for_what_they_name(mine: Path) -> None:
    assert scores(f"{mine}:short", "12", "twelve") == (1.0, 0.0)
    assert scores(f"{mine}:gold_in", "it is 18", "", "19") == (1.0, None, 0.0)
    assert isinstance(load_scorer(f"{mine}:short"), StepScorer)


def test_the_key_of_a_function_changes_with_its_text_and_its_splitter(mine: Path) -> None:
    first = load_scorer(f"{mine}:short").key
    assert first.startswith("short@")
    assert load_scorer(f"{mine}:short?splitter=blank_line").key != first
    mine.write_text(mine.read_text().replace("< 5", "< 6"))
    assert load_scorer(f"{mine}:short").key != first


def test_classes_take_settings_and_finished_scorers_do_not(mine: Path) -> None:
    assert load_scorer({"name": f"{mine}:Halves", "value": 0.25}).key == "half@0.25"
    assert load_scorer(f"{mine}:ready").key == "half@0.5"
    assert load_scorer(load_scorer(f"{mine}:ready")).key == "half@0.5"


@pytest.mark.parametrize(
    ("reference", "kind", "said"),
    [
        ("arith-stps", UnknownNameError, "Did you mean 'arith-steps'?"),
        ("arith-steps?strict=true", ConfigError, "strict"),
        ("{mine}", ConfigError, "a scorer is a function or class in it"),
        ("{mine}:wants", ConfigError, "asks for 'colour'"),
        ("{mine}:number", ConfigError, "no step scorer"),
        ("{mine}:Nothing", ConfigError, "no step scorer"),
        ("{mine}:Halves?valeu=1", ConfigError, "Did you mean 'value'?"),
        ("{mine}:ready?value=1", ConfigError, "takes no settings"),
        ("{mine}:short?splitter=word", UnknownNameError, "step splitter"),
    ],
)
def test_what_is_no_scorer_is_refused_with_the_remedy(
    mine: Path, reference: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said.replace("?", r"\?")):
        load_scorer(reference.format(mine=mine))


def test_a_registered_scorer_is_known_by_its_name() -> None:
    @scorers.register("always-half")
    def half(steps: tuple[str, ...]) -> list[float]:
        return [0.5] * len(steps)

    assert scores("always-half", "a", "b") == (0.5, 0.5)


def test_arith_steps_gives_every_worked_solution_full_marks() -> None:
    scorer = load_scorer("arith-steps")
    for problem in load_task("arith?size=50", "test").problems:
        text = problem.solution or ""
        steps = tuple(text[a:b].strip() for a, b in scorer.segment(text))
        (found,) = scorer.score([StepItem(problem, steps)])
        assert steps == tuple(problem.meta["steps"])
        assert found.scores == (1.0,) * len(steps)


def test_a_right_answer_written_again_is_worth_nothing() -> None:
    problem = load_task("arith?size=1", "test").problems[0]
    right = f"answer: {problem.gold}"
    assert check_steps(problem, [right, right, right]) == (True, False, False)
    assert check_steps(problem, ["answer: 999", right]) == (False, True)


def test_data_without_the_column_that_a_scorer_needs_are_refused() -> None:
    scorer = load_scorer("arith-steps")
    check_scorer_columns(scorer, ["moves", "style"], "arith")
    with pytest.raises(ConfigError, match=r"needs the column 'moves', which 'gsm8k' does not have"):
        check_scorer_columns(scorer, ["level"], "gsm8k")
