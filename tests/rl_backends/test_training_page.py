"""The page on training is true: its settings exist, its metrics are those that runs write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepmark.config.tables import DataTable, ModelTable, RewardTable, RolloutTable
from stepmark.rl_backends import AlgorithmConfig, Grpo, GrpoConfig, Ppo, PpoConfig, metrics

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
TABLES = {
    "model": ModelTable,
    "data": DataTable,
    "rollout": RolloutTable,
    "reward": RewardTable,
    "algorithm": AlgorithmConfig,
}


def test_every_setting_on_the_page_exists() -> None:
    named = set(re.findall(r"\b(model|data|rollout|reward|algorithm)\.([a-z_]+)", PAGE))
    assert len(named) > 12
    assert [f"{t}.{key}" for t, key in named if key not in TABLES[t].model_fields] == []


def test_the_metrics_on_the_page_are_those_of_the_code() -> None:
    rows = [line for line in str(metrics.__doc__).splitlines() if line.startswith("| `")]
    missing = [row for row in rows if row not in PAGE]
    assert missing == [], "copy these rows from rl_backends/metrics.py into docs/training.md"


def documented() -> list[str]:
    names = re.findall(r"`([^`]+)`", str(metrics.__doc__))
    return [re.sub(r"<\w+>", "[^/]+", name).replace("...", ".+") for name in names]


@pytest.mark.parametrize(
    "backend", [Grpo(GrpoConfig(steps=1)), Ppo(PpoConfig(steps=1))], ids=["grpo", "ppo"]
)
def test_every_metric_of_a_run_is_in_the_table(bandit, tmp_path, backend) -> None:
    run = bandit(tmp_path / "run")
    run.train(backend, evaluate=lambda policy, step: {"accuracy": 0.5})
    known = documented()
    unknown = [
        name
        for name in run.folder.metrics()[-1]
        if name != "step"
        and not name.startswith("eval/")
        # A row names further metrics of its family by their last part.
        and not any(re.fullmatch(p, name) or name.endswith(f"/{p}") for p in known)
        and not any(re.fullmatch(rf".+/{p}_length", name) for p in known)
    ]
    assert unknown == []


def test_the_timings_on_the_page_are_written(bandit, tmp_path) -> None:
    run = bandit(tmp_path / "run")
    run.train(Grpo(GrpoConfig(steps=1)))
    (row,) = run.folder.timings()
    assert set(row) - {"step"} == set(re.findall(r"`(\w+_s)`", PAGE))
