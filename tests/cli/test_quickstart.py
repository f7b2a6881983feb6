"""What ``quickstart --backends`` takes and refuses, and that its table fits a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run
from stepmark.cli.quickstart_backends import PROBLEMS_PER_STEP, RUNS, Run, chosen
from stepmark.cli.quickstart_page import HEADERS, WIDTH, Outcome, Row
from stepmark.config import Flag, compose, preset_names
from stepmark.config.compose import preset_text, read_preset
from stepmark.evals import Comparison, EvalResult
from stepmark.evals.result import About
from stepmark.statistics import Interval

pytest.importorskip("torch")

NAMES = [one.name for one in RUNS]
ABOUT = About("m", "arith", "test", "0", "plain", "0", "math@2", True, 0.0, 64, 0)


def test_all_stands_for_every_backend_and_none_is_run_twice() -> None:
    assert chosen("all") == chosen("grpo,all") == RUNS
    assert [one.name for one in chosen(" ppo,grpo , ppo,")] == ["ppo", "grpo"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("grop", ["Did you mean 'grpo'?", *NAMES, "all"]),
        ("grpo,online_dpo", ["'online_dpo'", "Did you mean 'online-dpo'?"]),
        ("sft", ["The SFT model comes first always."]),
        (" , ", ["names none", *NAMES]),
    ],
)
def test_unknown_names_are_refused_with_the_list_before_anything_is_made(
    given: str,
    told: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "job"
    assert run(["quickstart", "--backends", given, "--out", str(out), "--json"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert all(text in message for text in told)
    assert not out.exists()


def test_every_run_has_a_preset_and_every_preset_a_run() -> None:
    presets = {name for name in preset_names() if name.startswith("quickstart-")}
    assert presets == {one.preset for one in RUNS} | {"quickstart-sft"}


@pytest.mark.parametrize("one", RUNS, ids=lambda one: one.name)
def test_the_settings_of_a_run_can_run_and_each_says_why(one: Run, tmp_path: Path) -> None:
    from stepmark.cli.plan import read_settings

    flags: dict[str, Any] = {"model.policy": Flag("--model", "tiny")}
    if one.from_pairs:
        flags["data.dataset"] = Flag("--dataset", str(tmp_path / "pairs.jsonl"))
    config, backend = read_settings(compose([], [], flags, preset=one.preset))
    steps = read_preset("quickstart-grpo")["algorithm"]["steps"]
    assert read_preset(one.preset)["algorithm"]["steps"] == steps
    if backend.source == "rollouts":
        assert config.rollout.prompts_per_step == PROBLEMS_PER_STEP
    settings = [line for line in preset_text(one.preset).splitlines() if " = " in line[:40]]
    assert len(settings) > 10
    assert all(" # " in line for line in settings if not line.startswith("#"))


def result(accuracy: float) -> EvalResult:
    return EvalResult(
        ABOUT,
        500,
        1,
        accuracy,
        accuracy - 0.05,
        min(1, accuracy + 0.05),
        0.01,
        accuracy,
        accuracy,
        0,
        0,
        0,
        0,
        24.0,
    )


def row(name: str, accuracy: float, difference: float | None, minutes: float = 120.0) -> Row:
    paired = None
    if difference is not None:
        bounds = Interval(difference - 0.04, difference + 0.04)
        paired = Comparison(
            name, "sft", 500, accuracy, 0.142, difference, bounds, 1e-95, "McNemar exact", (), ()
        )
    return Row(name, result(accuracy), result(0.529), 1.0, 3.5, minutes, 12_300_000, paired)


def test_the_table_and_what_is_said_of_it_fit_a_terminal() -> None:
    rows = [row("sft", 0.142, None), *(row(name, 0.984, 0.684) for name in NAMES)]
    rows.append(row("ppo", 1.0, 0.858))
    rows.append(row("grpo-iterative", 0.071, -0.071, 2.41))
    outcome = Outcome(tuple(rows))
    assert max(map(len, outcome.text().splitlines())) <= WIDTH
    table = outcome.table().splitlines()
    assert [cell.strip() for cell in table[0].strip("|").split("|")] == list(HEADERS)
    assert [cell.strip() for cell in table[2].strip("|").split("|")][2:4] == ["–", "–"]
    assert "| -7 [-11, -3] | <1e-9 | 52.9 % | 2.4 |  12 |" in table[-1]


def test_what_is_shown_further_is_the_best_backend() -> None:
    outcome = Outcome((row("sft", 0.9, None), row("ppo", 0.3, -0.6), row("dpo", 0.5, -0.4)))
    assert outcome.best == "dpo"
    assert outcome.to_row()["paired"]["first"] == "ppo"
    assert outcome.to_row()["models"]["sft"]["against_sft"] is None
