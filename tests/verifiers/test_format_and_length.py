"""`format` and `length`: what they demand, what they leave alone, and the formula of the latter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError
from stepmark.types import Item, Problem, Reason, Status
from stepmark.verifiers import FormatVerifier, LengthVerifier, verify


def reason(completion: str, settings: str = "") -> str:
    return verify(completion, gold=None, verifier=f"format?{settings}").reason


@pytest.mark.parametrize(
    ("completion", "settings", "unmet"),
    [
        (r"so \boxed{2}", "", None),
        ("so 2", "", "no_box"),
        (r"so \boxed{2", "", "no_box"),
        (r"so \boxed{ }", "", "no_box"),
        ("so 2", "boxed=false", None),
        (r"\boxed{2} \boxed{2}", "one_box=true", "many_boxes"),
        (r"\boxed{2}. Bye", "ends_boxed=true", "no_end"),
        (r"\boxed{2}$." + "\n", "ends_boxed=true", None),
        (r"1+1=2" + "\n" + r"\boxed{2}", "steps=2", None),
        (r"\boxed{2}", "steps=2", "few_steps"),
        ("Step 1: a\nb\nc\n" + r"\boxed{2}", "steps=2", "few_steps"),
        ("Step 1: a\n**Step 2:** b\n" + r"\boxed{2}", "steps=2", None),
        (r"<think>hm \boxed{2}", "", "think_open"),
        (r"<think>hm</think> \boxed{2}", "", None),
        (r"hm</think> \boxed{2}", "", None),
        (r"<think>\boxed{2}</think> two", "", "no_box"),
        (r"<think>a</think><think>b \boxed{2}", "", "think_open"),
        (r"<think>hm</think> \boxed{2}", "think=true", None),
        (r"\boxed{2}", "think=true", "no_think"),
        (r"<think> </think> \boxed{2}", "think=true", "no_think"),
        (r"Well <think>hm</think> \boxed{2}", "think=true", "no_think"),
    ],
)
def test_each_demand_is_told_by_its_reason(
    completion: str, settings: str, unmet: str | None
) -> None:
    assert reason(completion, settings) == (unmet or Reason.JUDGED)


def test_the_share_counts_the_demands_that_are_met() -> None:
    demands = "format?steps=2&one_box=true&share=true"
    assert verify(r"\boxed{2}", gold=None, verifier=demands).score == 3 / 4
    assert verify("a\nb", gold=None, verifier=demands).score == 3 / 4
    assert verify("a\n" + r"\boxed{2}", gold=None, verifier=demands).score == 1


def test_a_format_that_demands_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="demands nothing"):
        FormatVerifier(boxed=False, closed=False)
    with pytest.raises(ConfigError, match="steps"):
        FormatVerifier(steps=-1)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 1500))
def test_the_penalty_is_dapos_raised_by_one(limit: int, cache: int, length: int) -> None:
    if cache > limit:
        with pytest.raises(ConfigError, match="do not fit"):
            LengthVerifier(limit, cache)
        return
    if length <= limit - cache:  # arXiv:2503.14476, equation 13
        punishment = 0.0
    elif length <= limit:
        punishment = ((limit - cache) - length) / cache
    else:
        punishment = -1.0
    item = Item(Problem("0", "", None), "text", tokens=length)
    (verdict,) = LengthVerifier(limit, cache)([item])
    assert verdict.score == pytest.approx(1 + punishment)
    assert (verdict.detail["unit"], verdict.detail["length"]) == ("tokens", length)


def test_tokens_are_never_guessed_from_characters() -> None:
    verdict = verify("some text", gold=None, verifier="length")
    assert (verdict.status, verdict.reason) == (Status.ABSTAIN, "tokens_missing")
    characters = verify("some text", gold=None, verifier="length?unit=characters")
    assert (characters.score, characters.detail["length"]) == (1, 9)


def test_rollouts_and_stored_samples_carry_their_tokens() -> None:
    from stepmark.rl_backends import Reward
    from stepmark.store import Sample
    from stepmark.types import Prompt, Rollout

    problem = Problem("p", "How many?", "3")
    rollout = Rollout(Prompt(problem, (1,), "P"), 0, (5, 6, 7), (0.0, 0.0, 0.0), "stop", "text", 0)
    judge = LengthVerifier(4, 2)
    (verdict,) = Reward(((judge, 1.0),)).mark([rollout], judge.key)
    assert (verdict.score, verdict.detail["length"]) == (0.5, 3)
    sample = Sample.from_rollout(rollout, step=0, policy="P", request="r")
    assert judge([sample.to_item()]) == [verdict]
