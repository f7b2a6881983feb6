"""An exported file in verl's own hands: its loader, its reward manager, its Ray workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

pytestmark = pytest.mark.slow

LENGTHS = '''
from stepmark.verifiers import verify

def lengths(completion, gold, unit):
    """The number is marked as mathematics; the unit has to be there."""
    number, _, found = completion.rpartition(" ")
    return verify(number, gold=gold) if found == unit else 0
'''
SCORES = [1.0, 0.0, 0.0, -0.5, 1.0]


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory, run_with_peer: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """What verl says of five responses, in three ways, and what it validates them as."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "lengths.py").write_text(LENGTHS)
    path = folder / "reward.py"
    words = ["--verifier", f"{folder / 'lengths.py'}:lengths", "--out", str(path)]
    assert run(["export", "verl", *words, "--abstain-score", "-0.5"]) == 0
    lines = {"path": path, "name": "compute_score"}
    given = [f"reward.custom_reward_function.{key}={value}" for key, value in lines.items()]
    return run_with_peer("verl", "score_with_verl.py", *given)


def test_the_lines_of_export_are_keys_of_the_configuration_of_verl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: dict[str, Any]
) -> None:
    path = tmp_path / "reward.py"
    assert run(["export", "verl", "--verifier", "math", "--out", str(path)]) == 0
    shown = [line.split("=")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == told["lines"]


def test_the_loader_finds_the_function_and_threads_may_call_it(told: dict[str, Any]) -> None:
    assert [row["score"] for row in told["loader"]] == SCORES


def test_the_reward_manager_hands_over_score_and_status(told: dict[str, Any]) -> None:
    assert [row["reward_score"] for row in told["manager"]] == SCORES
    words = [row["reward_extra_info"]["verdict_status"] for row in told["manager"]]
    assert words == ["ok", "ok", "ok", "abstain", "ok"]


def test_ray_workers_score_alike_and_symbolic_comparisons_work_there(told: dict[str, Any]) -> None:
    assert told["ray"]["rm_scores"] == pytest.approx(SCORES)
    assert told["ray"]["extra"]["pred"] == ["5", "", "", "", r"\sqrt{25}"]


def test_validation_averages_accuracy_and_the_share_that_has_a_score(told: dict[str, Any]) -> None:
    means = {key: value["mean@1"] for key, value in told["validation"]["lengths"].items()}
    assert means == pytest.approx({"score": 0.3, "acc": 0.4, "verdict_scored": 0.8})


def test_to_verl_a_missing_score_is_the_score_that_was_configured(told: dict[str, Any]) -> None:
    # Scores 1, none, 0, 0 with --abstain-score 0: the second response is blamed, the others shift.
    assert told["one_missing"] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-3)
    assert told["left_out"] == pytest.approx([1.1547, -0.5774, -0.5774], abs=1e-3)
    # A gold that cannot be used makes all responses of its problem abstain: nothing moves.
    assert told["all_missing"] == [0.0] * 4
