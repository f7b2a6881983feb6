"""``train --dry-run``: the settings of every preset, also before model and data are known."""

from __future__ import annotations

import json

import pytest

from stepmark.cli import app as command
from stepmark.config import preset_names

ARITH = "arith?size=8"


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_shows_its_settings_and_what_a_run_needs_more(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--task", ARITH) if preset.startswith(("deepseekmath", "quickstart")) else ()
    if preset in ("deepseekmath-process", "deepseekmath-iterative"):
        given = (*given, "--scorer", "arith-steps")
    code = command.run(["train", "--preset", preset, *given, "--dry-run", "--json"])
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert rows["algorithm.backend"]["origin"] == f"preset {preset}"
    assert code == 0, said.err
    if not given:
        assert "A run needs more: --model MODEL and --task NAME (or --dataset FILE)" in said.err


def test_settings_stand_beside_what_is_wrong_with_the_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", "--preset", "dapo", "--model", "m", "--dataset", "no.jsonl", "--dry-run"]
    assert command.run(words) == 2
    said = capsys.readouterr()
    assert "preset dapo" in said.out
    assert "no.jsonl" in said.err
    assert command.run([*words, "--json"]) == 2
    assert set(json.loads(capsys.readouterr().out)) == {"error"}


def test_what_is_wrong_is_still_refused(capsys: pytest.CaptureFixture[str]) -> None:
    bad = ["train", "--preset", "dapo", "--dry-run", "--set", "rollout.group_size=0"]
    assert command.run(bad) == 2
    assert "rollout.group_size" in capsys.readouterr().err
    assert command.run(["train", "--preset", "dapo"]) == 2
    assert "model.policy is not set" in capsys.readouterr().err
