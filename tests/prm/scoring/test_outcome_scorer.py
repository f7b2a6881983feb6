"""`OutcomeScorer`: a trained outcome reward model as a scorer of whole solutions."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stepmark import Problem, StepItem, StepScorer
from stepmark.errors import ConfigError, DataError, RunError
from stepmark.prm import (
    Base,
    EncodingSettings,
    OutcomeScorer,
    PrmCard,
    PrmScorer,
    StepEncoder,
    aggregate,
    load_outcome_model,
    load_scorer,
    save_step_model,
    scores_whole,
    step_texts,
)
from stepmark.prm.checkpoint import SelfTestRow
from stepmark.prm.outcome import outcome_base
from stepmark.prm.outcome_data import Solution, encode_solutions
from stepmark.prm.outcome_scorer import score_of_reward
from stepmark.protocols import RewardModel

Make = Callable[..., Path]
PROBLEM = Problem("p", "How many?", "7")
TEXT = "3 + 4 = 7\nso 7 pens\n\nanswer: 7"
ITEMS = [
    StepItem(PROBLEM, (TEXT,)),
    StepItem(PROBLEM, ("3 + 4 = 8",)),
    StepItem(Problem("q", "A longer question, with more of it?", "7"), ("1", "2", "3", "4" * 90)),
]


@pytest.fixture(scope="session")
def outcome(tiny_base: Make, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The folder of an outcome model with drawn weights; its head times ``times``."""
    made: dict[str, Path] = {}

    def make(times: float = 1.0, **settings: Any) -> Path:
        name = repr((times, settings))
        if name not in made:
            folder = tmp_path_factory.mktemp("orm") / "ckpt"
            model = outcome_base(Base(str(tiny_base()), seed=1), device="cpu")
            with torch.no_grad():
                model.layer.weight.mul_(times)
            row = SelfTestRow(problem="1 + 1?", steps=("1 + 1 = 2", "answer: 2"))
            card = PrmCard(
                kind="outcome",
                head="reward",
                encoding=EncodingSettings(**settings),
                aggregation="last",
                self_test=(row,),
            )
            save_step_model(folder, model, card)
            made[name] = folder
        return made[name]

    return make


def rewards_by_transformers(folder: Path, texts: list[tuple[str, str]]) -> list[float]:
    """The reward of each (problem, divided solution), one plain forward pass each."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    found = list[float]()
    for problem, text in texts:
        ids = tokenizer(f"{problem}\n{text}")["input_ids"]
        with torch.no_grad():
            found.append(model(input_ids=torch.tensor([ids])).logits.item())
    return found


def test_a_score_is_the_logistic_of_the_reward_at_the_last_token(outcome: Make) -> None:
    folder = outcome(times=5.0)
    found = load_scorer(f"{folder}?device=cpu").score(ITEMS)
    texts = [
        (PROBLEM.text, "3 + 4 = 7\nso 7 pens\nanswer: 7\n"),
        (PROBLEM.text, "3 + 4 = 8\n"),
        (ITEMS[2].problem.text, "1\n2\n3\n" + "4" * 90 + "\n"),
    ]
    rewards = rewards_by_transformers(folder, texts)
    wanted = [1 / (1 + math.exp(-reward)) for reward in rewards]
    assert max(wanted) - min(wanted) > 0.1, "a test on rewards that differ"
    assert [row.scores[-1] for row in found] == pytest.approx(wanted, abs=1e-5)
    assert found[2].scores[:-1] == (None, None, None)
    assert {row.scorer for row in found} == {load_scorer(str(folder)).key}


def test_together_is_as_alone(outcome: Make) -> None:
    folder = outcome(times=5.0)
    together = OutcomeScorer(folder, device="cpu").score(ITEMS)
    alone = [OutcomeScorer(folder, device="cpu", tokens_per_batch=8).score([i])[0] for i in ITEMS]
    for one, two in zip(together, alone, strict=True):
        assert one.scores == pytest.approx(two.scores, abs=1e-5)


def test_equal_texts_have_equal_scores_however_they_are_divided(outcome: Make) -> None:
    scorer = OutcomeScorer(outcome(), device="cpu")
    ways = [(TEXT,), tuple(TEXT.split("\n\n")), ("3 + 4 = 7", "so 7 pens", " ", "answer: 7")]
    found = scorer.score([StepItem(PROBLEM, way) for way in ways])
    assert {row.scores[-1] for row in found} == {found[0].scores[-1]}
    assert [len(row.scores) for row in found] == [len(way) for way in ways]
    assert all(score is None for row in found for score in row.scores[:-1])


def test_a_text_is_one_step_that_is_all_of_it(outcome: Make) -> None:
    scorer = load_scorer(str(outcome()))
    assert scorer.segment(TEXT) == ((0, len(TEXT)),)
    assert step_texts(TEXT, scorer.segment(TEXT)) == (TEXT,)
    assert scorer.segment("") == ()
    assert isinstance(scorer, StepScorer)
    assert not isinstance(scorer, RewardModel)
    assert scores_whole(scorer)
    assert scorer.aggregation == "last"  # type: ignore[attr-defined]


def test_training_and_scoring_read_the_same_tokens(outcome: Make) -> None:
    folder = outcome(splitter="blank_line")
    model, card = load_outcome_model(folder, device="cpu")
    encoder = StepEncoder(model.tokenizer, card.encoding)
    for steps in (ITEMS[0].steps, ITEMS[2].steps, ("a\n\nb", "", "c\nd")):
        (row,), _ = encode_solutions([Solution("How many?", steps, True)], encoder)
        (reward,) = model.rewards([row.encoded])
        assert reward is not None
        found = OutcomeScorer(folder, device="cpu").score([StepItem(PROBLEM, steps)])[0]
        assert found.scores[-1] == pytest.approx(score_of_reward(reward), abs=1e-6)


@pytest.mark.parametrize("overflow", ["drop_tail", "drop_row"])
def test_a_solution_beyond_the_limit_has_no_score(outcome: Make, overflow: str) -> None:
    whole = OutcomeScorer(outcome(), device="cpu").score(ITEMS)
    cut = OutcomeScorer(outcome(max_tokens=60, overflow=overflow), device="cpu").score(ITEMS)
    assert cut[1].scores == pytest.approx(whole[1].scores, abs=1e-5)
    assert cut[2].scores == (None,) * 4
    with pytest.raises(DataError, match="max_tokens = 60"):
        OutcomeScorer(outcome(max_tokens=60, overflow="error"), device="cpu").score(ITEMS)


def test_large_rewards_keep_their_order_and_the_center_moves_them() -> None:
    rewards = [-1e5, -700.0, -20.0, 0.0, 20.0, 23.0, 23.00001, 30.0, 36.0]
    scores = [score_of_reward(reward) for reward in rewards]
    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores), "in float32 all from 17 on would be 1.0"
    assert score_of_reward(50.0) == score_of_reward(60.0) == 1.0
    assert score_of_reward(50.0, center=55) < 0.5 < score_of_reward(60.0, center=55)
    assert score_of_reward(3.0, center=3) == 0.5


def test_ties_of_a_model_of_large_rewards_end_with_its_center(outcome: Make) -> None:
    folder = outcome(times=1e5)
    model, card = load_outcome_model(folder, device="cpu")
    encoder = StepEncoder(model.tokenizer, card.encoding)
    rows, _ = encode_solutions([Solution(i.problem.text, i.steps, True) for i in ITEMS], encoder)
    rewards = [reward or 0.0 for reward in model.rewards([row.encoded for row in rows])]
    middle = sorted(rewards)[1]
    scorer = load_scorer(f"{folder}?device=cpu&center={middle!r}")
    totals = [row.scores[-1] or 0.0 for row in scorer.score(ITEMS)]
    assert sorted(totals) == pytest.approx([0.0, 0.5, 1.0], abs=1e-2)
    assert sorted(range(3), key=totals.__getitem__) == sorted(range(3), key=rewards.__getitem__)


def test_what_was_scored_is_looked_up(
    outcome: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scorer = OutcomeScorer(outcome(), device="cpu", cache=tmp_path / "cache")
    rows, own = list[int](), scorer.model.rewards_of

    def counted(encoded: Any) -> torch.Tensor:
        rows.append(len(encoded))
        return own(encoded)

    monkeypatch.setattr(scorer.model, "rewards_of", counted)
    first = scorer.score([*ITEMS, ITEMS[0]])
    assert rows == [3], "all in one pass, and the one that stands twice once"
    assert scorer.score(ITEMS[::-1]) == first[2::-1]
    assert sum(rows) == 3
    again = OutcomeScorer(outcome(), device="cpu", cache=tmp_path / "cache")
    assert again.score(ITEMS) == first[:3]
    assert "model" not in vars(again), "another process needs no model for what is known"


def test_the_key_changes_with_all_that_shapes_a_score(outcome: Make, tmp_path: Path) -> None:
    folder = outcome()
    key = load_scorer(str(folder)).key
    assert key.startswith("orm@")
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert load_scorer(str(copy)).key == key
    keys = {load_scorer(f"{copy}?{more}").key for more in ("dtype=bfloat16", "center=2")}
    keys |= {key, load_scorer(str(outcome(max_tokens=60))).key}
    keys |= {load_scorer(str(outcome(times=2.0))).key}
    assert len(keys) == 5
    assert load_scorer(f"{copy}?center=0").key == key


def test_what_cannot_be_used_is_refused_with_what_to_do(
    outcome: Make, checkpoint: Make, tmp_path: Path
) -> None:
    folder = outcome()
    with pytest.raises(RunError, match=r"load_scorer, or OutcomeScorer"):
        PrmScorer(folder)
    with pytest.raises(RunError, match=r"kind = 'process' with head = 'classifier'"):
        OutcomeScorer(checkpoint())
    for bad in ("nan", "inf", "true", "'a'"):
        with pytest.raises(ConfigError, match="a finite number"):
            load_scorer(f"{folder}?center={bad}")
    with pytest.raises(ConfigError, match="centre"):
        load_scorer(f"{folder}?centre=1")
    with pytest.raises(DataError, match="without steps"):
        OutcomeScorer(folder).score([StepItem(PROBLEM, ())])


def test_altered_weights_are_found_when_the_first_score_is_asked_for(
    outcome: Make, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(outcome(), tmp_path / "elsewhere")
    held = load_file(copy / "model.safetensors")
    held["score.weight"] = held["score.weight"] + 0.5
    save_file(held, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=r"self-test of .* fails"):
        load_scorer(f"{copy}?device=cpu").score(ITEMS)


def test_the_aggregation_of_one_score_is_that_score(outcome: Make) -> None:
    (found,) = OutcomeScorer(outcome(), device="cpu").score(ITEMS[:1])
    for how in ("last", "min", "mean", "prod"):
        assert aggregate(found.scores, how) == pytest.approx(found.scores[0])
