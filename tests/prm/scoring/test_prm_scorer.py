"""`PrmScorer`: a checkpoint as a step scorer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stepmark import Problem, StepItem, StepScorer
from stepmark.errors import ConfigError, RunError, SetupError
from stepmark.prm import PrmScorer, StepEncoder, load_scorer, load_step_model, step_texts

Make = Callable[..., Path]
ITEMS = [
    StepItem(Problem("p", "How many?", "7"), ("3 + 4 = 7", "so 7 pens", "answer: 7")),
    StepItem(Problem("p", "How many?", "7"), ("3 + 4 = 8",)),
    StepItem(Problem("q", "A longer question, with more of it?", "7"), ("1", "2", "3", "4" * 90)),
]


def count_passes(scorer: PrmScorer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each call of the model from here on."""
    rows: list[int] = []
    own = scorer.model.step_logits

    def counted(encoded: Any) -> torch.Tensor:
        rows.append(len(encoded))
        return own(encoded)

    monkeypatch.setattr(scorer.model, "step_logits", counted)
    return rows


@pytest.mark.parametrize("head", ["classifier", "two_logits"])
def test_together_is_as_alone_and_as_a_plain_forward_pass(checkpoint: Make, head: str) -> None:
    folder = checkpoint(head)
    together = load_scorer(f"{folder}?device=cpu").score(ITEMS)
    alone = [PrmScorer(folder, device="cpu").score([item])[0] for item in ITEMS]
    model, card = load_step_model(folder, device="cpu")
    encoder = StepEncoder(model.tokenizer, card.encoding)
    for item, one, two in zip(ITEMS, together, alone, strict=True):
        assert one.scores == pytest.approx(two.scores, abs=1e-5)
        row = encoder.encode(item.problem, item.steps)
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([[*row.prompt_ids, *row.ids]])).logits[0]
        pair = slice(None) if model.tokens is None else list(model.tokens)
        places = [len(row.prompt_ids) + end for end in row.ends]
        wanted = logits[places][:, pair].softmax(-1)[:, 1]
        assert one.scores == pytest.approx(wanted.tolist(), abs=1e-5)
        assert one.scorer == load_scorer(str(folder)).key


def test_a_solution_takes_one_pass_and_is_looked_up_afterwards(
    checkpoint: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = checkpoint()
    scorer = PrmScorer(folder, device="cpu", cache=tmp_path / "cache")
    rows = count_passes(scorer, monkeypatch)
    first = scorer.score([*ITEMS, ITEMS[0]])
    assert rows == [3], "all in one pass, and the one that stands twice once"
    assert first[0] == first[3]
    assert scorer.score(ITEMS[::-1]) == first[2::-1]
    assert sum(rows) == 3
    again = PrmScorer(folder, device="cpu", cache=tmp_path / "cache")
    assert again.score(ITEMS) == first[:3]
    assert "model" not in vars(again), "another process needs no model for what is known"


def test_steps_beyond_the_longest_row_have_no_score(checkpoint: Make) -> None:
    whole = PrmScorer(checkpoint(), device="cpu").score(ITEMS)
    cut = PrmScorer(checkpoint(max_tokens=60), device="cpu").score(ITEMS)
    assert cut[0].scores == pytest.approx(whole[0].scores, abs=1e-5)
    assert cut[2].scores[:3] == pytest.approx(whole[2].scores[:3], abs=1e-5)
    assert cut[2].scores[3] is None
    row = PrmScorer(checkpoint(max_tokens=60, overflow="drop_row"), device="cpu").score(ITEMS)
    assert row[2].scores == (None,) * 4


def test_the_checkpoint_carries_splitter_and_aggregation(checkpoint: Make) -> None:
    scorer = load_scorer(str(checkpoint(splitter="blank_line", aggregation="last")))
    assert isinstance(scorer, StepScorer)
    text = "3 + 4\n= 7\n\nso 7"
    assert step_texts(text, scorer.segment(text)) == ("3 + 4\n= 7", "so 7")
    assert scorer.aggregation == "last"  # type: ignore[attr-defined]


def test_the_key_changes_with_weights_encoding_and_dtype(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint()
    key = load_scorer(str(folder)).key
    assert key.startswith("prm@")
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert load_scorer(str(copy)).key == key, "of what it holds, not of where it lies"
    assert load_scorer(f"{copy}?dtype=bfloat16").key != key
    assert load_scorer(str(checkpoint(max_tokens=60))).key != key
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert load_scorer(str(copy)).key != key


def test_what_is_no_checkpoint_is_refused_before_a_model_is_loaded(
    checkpoint: Make, tiny_base: Make, tmp_path: Path
) -> None:
    folder = checkpoint()
    with pytest.raises(SetupError, match=r"no prm\.json, so it is no reward model"):
        load_scorer(str(tiny_base()))
    with pytest.raises(SetupError, match="There is no model folder"):
        load_scorer(str(tmp_path / "nowhere"))
    with pytest.raises(SetupError, match="neither a folder here nor to be had from the hub"):
        load_scorer("nobody/nothing-of-that-name")
    with pytest.raises(ConfigError, match="devise"):
        load_scorer(f"{folder}?devise=cpu")
    with pytest.raises(ConfigError, match="allowed are float32, bfloat16"):
        load_scorer(f"{folder}?dtype=bf16")
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    card = copy / "prm.json"
    card.write_text(card.read_text().replace('"process"', '"outcome"'))
    with pytest.raises(RunError, match="outcome reward model"):
        load_scorer(str(copy))


def test_altered_weights_are_found_when_the_first_score_is_asked_for(
    checkpoint: Make, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(checkpoint(), tmp_path / "elsewhere")
    held = load_file(copy / "model.safetensors")
    held["score.weight"] = held["score.weight"] + torch.tensor([[0.5], [0.0]])
    save_file(held, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=r"self-test of .* fails"):
        load_scorer(f"{copy}?device=cpu").score(ITEMS)
