"""Rewards in real trainers of TRL: what a missing score does to the advantages there."""

from __future__ import annotations

import ast
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
GROUP = 4


@pytest.fixture(scope="module")
def told(run_with_peer: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Two steps of each trainer, in one process: importing TRL takes longer than training."""
    return run_with_peer("trl", "train_with_trl.py")


def groups(values: list[float]) -> list[list[float]]:
    return [values[start : start + GROUP] for start in range(0, len(values), GROUP)]


def expected(rewards: list[float], eps: float = 1e-4) -> list[float]:
    """DeepSeekMath's advantages over the scored completions of a group; 0 for the others."""
    scored = [reward for reward in rewards if not math.isnan(reward)]
    if len(scored) < 2:
        return [0.0] * len(rewards)
    mean, spread = statistics.fmean(scored), statistics.stdev(scored)
    return [0.0 if math.isnan(r) else (r - mean) / (spread + eps) for r in rewards]


@pytest.mark.parametrize("run", ["text", "messages", "async"])
def test_a_missing_score_has_advantage_0_and_leaves_the_mean(
    run: str, told: dict[str, Any]
) -> None:
    rewards, advantages = told[run]["rewards"]["some"], told[run]["advantages"]
    assert told[run]["steps"] == 2
    assert len(rewards) == len(advantages) == 4 * GROUP  # TRL keeps the last step's
    lone = 0
    for scores, found in zip(groups(rewards), groups(advantages), strict=True):
        assert found == pytest.approx(expected(scores), abs=1e-5)
        scored = [score for score in scores if not math.isnan(score)]
        lone += 0 < len(scored) < GROUP and len(set(scored)) > 1
    assert lone, "no group with a missing score and different ones: this test saw nothing"


def test_texts_messages_and_coroutines_reach_the_verifier(told: dict[str, Any]) -> None:
    shapes = [type(told[run]["completion"][0]) for run in ("text", "messages", "async")]
    assert shapes == [str, list, str]
    awaited = pytest.approx(told["async"]["rewards"]["some"], nan_ok=True)
    assert told["text"]["rewards"]["some"] == awaited
    for run in ("text", "messages", "async"):
        assert len(told[run]["extra"]["some/reason"]) == 4 * GROUP


def test_a_problem_without_a_gold_moves_nothing(told: dict[str, Any]) -> None:
    said = told["math"]
    missing = [math.isnan(reward) for reward in said["rewards"]["math"]]
    assert missing == [reason == "gold_missing" for reason in said["extra"]["math/reason"]]
    assert sum(missing) == GROUP
    assert {a for a, is_missing in zip(said["advantages"], missing, strict=True) if is_missing} == {
        0.0
    }


def test_rewards_are_logged_under_their_name_with_their_faults(told: dict[str, Any]) -> None:
    first = told["math"]["metrics"][0]
    assert first["rewards/math/abstained"] == pytest.approx(0.25)
    assert first["rewards/math/errors"] == 0
    assert "rewards/math/mean" in first


def test_leave_one_out_baselines_leave_out_missing_scores(told: dict[str, Any]) -> None:
    rewards, advantages = told["rloo"]["rewards"]["some"], told["rloo"]["advantages"]
    for scores, found in zip(groups(rewards), groups(advantages), strict=True):
        scored = [score for score in scores if not math.isnan(score)]
        for score, advantage in zip(scores, found, strict=True):
            if math.isnan(score) or len(scored) < 2:
                assert advantage == 0
            else:
                others = (sum(scored) - score) / (len(scored) - 1)
                assert advantage == pytest.approx(score - others, abs=1e-5)


def test_trl_adds_a_missing_score_up_as_0_and_so_it_is_refused(told: dict[str, Any]) -> None:
    # Without us: scores 1, none, 0, 0 beside a constant of 0.5. The second completion is punished.
    assert told["two_plain"]["advantages"][:GROUP] == pytest.approx([1.5, -0.5, -0.5, -0.5], 1e-3)
    assert told["two_refused"].startswith("ConfigError")
    assert "normalize_then_sum" in told["two_refused"]
    assert told["two_accepted"]["steps"] == 2


def test_normalising_first_gives_a_missing_score_no_say(told: dict[str, Any]) -> None:
    said = told["two_normalised"]
    rewards = said["rewards"]["some"]
    parts = [part for scores in groups(rewards) for part in expected(scores)]
    mean, spread = statistics.fmean(parts), statistics.stdev(parts)
    # One scored completion in a group has no deviation: TRL leaves it out, as if it had no score.
    expected_now = [(part - mean) / (spread + 1e-4) for part in parts]
    assert said["advantages"] == pytest.approx(expected_now, abs=1e-3)


def test_missing_columns_end_in_our_words_not_in_a_type_error(told: dict[str, Any]) -> None:
    assert told["no_gold"].startswith("DataError")
    assert "Columns: solution, unit" in told["no_gold"]
    assert told["no_column"].startswith("ConfigError")
    assert "'mass'" in told["no_column"]


def test_the_example_trains_and_shows_the_reward(run_with_peer: Callable[..., Any]) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "trl_grpo.py"
    last = run_with_peer("trl", str(example), parse=ast.literal_eval)
    assert last["rewards/math/abstained"] == 0
    assert 0 <= last["rewards/math/mean"] <= 1
