"""`likelihood` and `implicit`: scores from log-probs, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from stepmark import Problem, StepItem
from stepmark.engines import load_policy
from stepmark.errors import ConfigError
from stepmark.prm import EncodingSettings, StepEncoder, load_scorer

Make = Callable[..., Path]
ITEM = StepItem(Problem("p", "How many?", "7"), ("3 + 4 = 7", "so 7", "answer: 7"))
SHORT = StepItem(Problem("p", "How many?", "7"), ("7",))


@pytest.fixture(scope="module")
def other(tiny_base: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sister of the tiny base, with the same tokenizer and other weights."""
    model, tokenizer = load_policy(tiny_base(), device="cpu")
    folder = tmp_path_factory.mktemp("other")
    torch.manual_seed(9)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def step_logps(folder: Path) -> list[torch.Tensor]:
    model, tokenizer = load_policy(folder, device="cpu")
    row = StepEncoder(tokenizer, EncodingSettings()).encode(ITEM.problem, ITEM.steps)
    ids = torch.tensor([[*row.prompt_ids, *row.ids]])
    with torch.no_grad():
        logps = model(input_ids=ids).logits[0].log_softmax(-1)
    own = [float(logps[at - 1, ids[0, at]]) for at in range(len(row.prompt_ids), ids.shape[1])]
    edges = [0, *(end + 1 for end in row.ends)]
    return [torch.tensor(own[a:b]) for a, b in pairwise(edges)]


def scores(reference: Any, item: StepItem = ITEM) -> tuple[float | None, ...]:
    return load_scorer(reference).score([item, SHORT])[0].scores


def test_likelihood_is_the_probability_of_the_tokens_of_a_step(tiny_base: Make) -> None:
    folder = tiny_base()
    steps = step_logps(folder)
    mean = scores(f"likelihood?model={folder}&device=cpu")
    assert mean == pytest.approx([math.exp(step.mean()) for step in steps], abs=1e-5)
    least = scores(f"likelihood?model={folder}&device=cpu&of=min")
    assert least == pytest.approx([math.exp(step.min()) for step in steps], abs=1e-5)


def test_implicit_is_the_sigmoid_of_what_a_step_adds_to_the_log_ratio(
    tiny_base: Make, other: Path
) -> None:
    ours, theirs = step_logps(other), step_logps(tiny_base())
    sums, total = [0.0], 0.0
    for one, two in zip(ours, theirs, strict=True):
        total += 0.5 * float((one - two).sum())
        sums.append(total)
    wanted = [1 / (1 + math.exp(a - b)) for a, b in pairwise(sums)]
    found = scores(f"implicit?model={other}&reference={tiny_base()}&beta=0.5&device=cpu")
    assert found == pytest.approx(wanted, abs=1e-5)
    assert max(found) - min(found) > 0.01
    same = scores(f"implicit?model={other}&reference={other}&device=cpu")
    assert same == (0.5, 0.5, 0.5)


def test_steps_beyond_the_limit_have_no_score(tiny_base: Make) -> None:
    found = scores(f"likelihood?model={tiny_base()}&device=cpu&max_tokens=28")
    assert [score is None for score in found] == [False, False, True]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("of=median", "it is 'mean' or 'min'"),
        ("splitter=newlines", "newline"),
        ("max_token=7", "Did you mean 'max_tokens'"),
        ("max_tokens=7", "max_tokens = 7"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    tiny_base: Make, settings: str, said: str
) -> None:
    with pytest.raises((ConfigError, LookupError), match=said):
        load_scorer(f"likelihood?model={tiny_base()}&{settings}")


def test_implicit_needs_one_vocabulary_and_a_weight(tiny_base: Make, tmp_path: Path) -> None:
    from stepmark.tasks import arith_tokenizer, tiny_llama

    tokenizer = arith_tokenizer()
    tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="different vocabularies"):
        scores(f"implicit?model={tmp_path}&reference={tiny_base()}&device=cpu")
    with pytest.raises(ConfigError, match=r"beta = 0"):
        load_scorer(f"implicit?model={tmp_path}&reference={tiny_base()}&beta=0")


def test_keys_change_with_model_and_settings(tiny_base: Make, other: Path) -> None:
    base = tiny_base()
    keys = {
        load_scorer(text).key
        for text in (
            f"likelihood?model={base}",
            f"likelihood?model={other}",
            f"likelihood?model={base}&of=min",
            f"likelihood?model={base}&max_tokens=99",
            f"implicit?model={base}&reference={other}",
            f"implicit?model={other}&reference={base}",
        )
    }
    assert len(keys) == 6
