"""The page on process rewards is true: its settings are read, its function scores."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from stepmark.config import RewardTable
from stepmark.config.validate import validate
from stepmark.prm import load_scorer
from stepmark.types import Problem, StepItem

PAGE = Path(__file__).resolve().parents[2] / "docs" / "process-rewards.md"
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_settings_on_the_page_are_the_defaults_but_for_process_supervision() -> None:
    tables = [tomllib.loads(text)["reward"] for kind, text in BLOCKS if kind == "toml"]
    rewards, refresh = (validate(RewardTable, table) for table in tables)
    plain = RewardTable()
    assert (rewards.outcome, rewards.process) == (0.0, plain.process)
    assert refresh.refresh == plain.refresh


def test_the_function_on_the_page_is_a_scorer(tmp_path: Path) -> None:
    (source,) = (text for kind, text in BLOCKS if kind == "python")
    (tmp_path / "checks.py").write_text(source)
    scorer = load_scorer(f"{tmp_path}/checks.py:short?splitter=step_n")
    (found,) = scorer.score([StepItem(Problem("p", "?", None), ("1", "2" * 80))])
    assert found.scores == (1.0, 0.0)


def test_the_metrics_on_the_page_are_those_that_are_logged() -> None:
    from stepmark.rl_backends import scoring

    named = set(re.findall(r"`(steps/\w+)`", PAGE.read_text(encoding="utf-8")))
    assert named == set(re.findall(r'"(steps/\w+)"', Path(scoring.__file__).read_text()))
