"""Step models: one forward pass for many rows, read at the ends of steps; heads that are there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

from stepmark.errors import ConfigError, DataError, RunError, SetupError
from stepmark.prm import EncodingSettings, StepEncoder
from stepmark.prm.checkpoint import (
    PrmCard,
    SelfTestRow,
    aggregation_for,
    card_of,
    load_step_model,
    read_card,
    save_step_model,
    self_test_rows,
    write_card,
)
from stepmark.prm.loading import Base, base_model
from stepmark.prm.model import StepModel, TwoTokens
from stepmark.types import LabelledSteps, Problem

Folder = Callable[..., Path]
ADD = Problem("a", "1 + 2 + 3?", "6")
LONG = Problem("b", "Ann has 10 pens and gives 4 away. How many are left? " * 2, "6")
ROWS = [
    (ADD, ("1 + 2 = 3", "3 + 3 = 6")),
    (ADD, ("1 + 2 = 4", "4 + 3 = 7", "answer: 7")),
    (LONG, ("10 - 4 = 6",)),
]


def encoded(model: StepModel, **settings: Any) -> list[Any]:
    encoder = StepEncoder(model.tokenizer, EncodingSettings(**settings))
    return [encoder.encode(problem, steps) for problem, steps in ROWS]


def made(folder: Path, head: str = "classifier", **settings: Any) -> StepModel:
    return base_model(Base(str(folder), head, **settings), device="cpu")  # type: ignore[arg-type]


def card(model: StepModel, **fields: Any) -> PrmCard:
    rows = tuple(SelfTestRow(problem=problem.text, steps=steps) for problem, steps in ROWS)
    return card_of(model, self_test=rows, **fields)


def by_hand(model: StepModel, row: Any) -> torch.Tensor:
    """The same numbers from transformers alone: one row, whole logits, places counted by hand."""
    ids = torch.tensor([[*row.prompt_ids, *row.ids]])
    logits = model.model(input_ids=ids).logits[0]
    at = [len(row.prompt_ids) + end for end in row.ends]
    return logits[at] if model.tokens is None else logits[at][:, list(model.tokens)]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("head", ["classifier", "two_logits"])
def test_logits_are_those_of_transformers_at_the_last_token_of_each_step(
    tiny_base: Folder, kind: str, head: str
) -> None:
    model = made(tiny_base(kind), head)
    rows = encoded(model)
    with torch.no_grad():
        found = model.step_logits(rows)
        wanted = torch.cat([by_hand(model, row) for row in rows])
    assert found.shape == (6, 2)
    assert torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("head", ["classifier", "two_logits"])
def test_scores_do_not_depend_on_the_company_or_the_token_budget(
    tiny_base: Folder, head: str
) -> None:
    model = made(tiny_base(), head)
    rows = encoded(model)
    alone = [model.step_probabilities([row])[0] for row in rows]
    for budget in (1, 100, 10_000):
        together = model.step_probabilities(rows, budget)
        for one, two in zip(alone, together, strict=True):
            assert one == pytest.approx(two, abs=1e-5)


def test_a_later_step_changes_no_earlier_score(tiny_base: Folder) -> None:
    model = made(tiny_base())
    encoder = StepEncoder(model.tokenizer, EncodingSettings())
    short, long = encoder.encode(ADD, ("1 + 2 = 3",)), encoder.encode(ADD, ("1 + 2 = 3", "no"))
    one, two = model.step_probabilities([short, long])
    assert one[0] == pytest.approx(two[0], abs=1e-6)


def test_gradient_reaches_body_and_head(tiny_base: Folder) -> None:
    model = made(tiny_base())
    model.step_logits(encoded(model)).sum().backward()
    assert all(w.grad is not None and w.grad.any() for w in model.model.parameters())


def test_rows_without_a_kept_step_have_no_scores(tiny_base: Folder) -> None:
    model = made(tiny_base())
    rows = encoded(model, max_tokens=40, overflow="drop_row")
    assert [len(scores) for scores in model.step_probabilities(rows)] == [2, 0, 0]
    assert model.step_logits(rows[1:]).shape == (0, 2)


def test_scores_that_are_no_numbers_are_refused(tiny_base: Folder) -> None:
    model = made(tiny_base())
    model.layer.weight.data.fill_(float("nan"))
    with pytest.raises(DataError, match=r"no numbers \(NaN\)"):
        model.step_probabilities(encoded(model))


def test_fresh_heads_are_drawn_from_the_seed(tiny_base: Folder) -> None:
    one, same, other = (made(tiny_base(), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.layer.weight, same.layer.weight)
    assert not torch.equal(one.layer.weight, other.layer.weight)


def test_from_scratch_draws_every_weight_at_the_given_width(tiny_base: Folder) -> None:
    model = made(tiny_base(), from_scratch=True, initializer_range=0.1)
    weight = next(w for name, w in model.model.named_parameters() if "q_proj" in name)
    assert float(weight.detach().std()) == pytest.approx(0.1, rel=0.2)
    assert not torch.equal(weight, next(
        w for n, w in made(tiny_base()).model.named_parameters() if "q_proj" in n
    ))  # fmt: skip


def test_labels_of_two_logits_are_one_token_each_and_differ(tiny_base: Folder) -> None:
    model = made(tiny_base(), "two_logits")
    ids = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in "-+"]
    assert model.tokens == TwoTokens(ids[0][0], ids[1][0])
    with pytest.raises(ConfigError, match=r"'yes' is 3 tokens.*classifier"):
        made(tiny_base(), "two_logits", right="yes")
    with pytest.raises(ConfigError, match="one and the same token"):
        made(tiny_base(), "two_logits", wrong="+")


@pytest.mark.parametrize("head", ["classifier", "two_logits"])
def test_a_checkpoint_gives_the_same_scores_and_loads_with_transformers(
    tiny_base: Folder, tmp_path: Path, head: str
) -> None:
    model = made(tiny_base(), head)
    settings = EncodingSettings(separator="\n\n", max_tokens=300)
    saved = save_step_model(tmp_path / "prm", model, card(model, encoding=settings))
    again, read = load_step_model(tmp_path / "prm", device="cpu")
    assert read == saved
    assert [len(row.scores) for row in read.self_test] == [2, 3, 1]
    assert again.head == head
    assert again.tokens == model.tokens
    auto = AutoModelForTokenClassification if head == "classifier" else AutoModelForCausalLM
    plain = auto.from_pretrained(tmp_path / "prm")
    AutoTokenizer.from_pretrained(tmp_path / "prm")
    assert all(torch.equal(w, plain.state_dict()[n]) for n, w in model.model.state_dict().items())
    save_step_model(tmp_path / "prm", model, card(model))
    assert read_card(tmp_path / "prm").encoding == EncodingSettings()


def test_other_weights_fail_the_self_test_by_row_and_step(
    tiny_base: Folder, tmp_path: Path
) -> None:
    model = made(tiny_base())
    saved = save_step_model(tmp_path / "prm", model, card(model))
    model.layer.bias.data += torch.tensor([0.0, 0.1])
    model.model.save_pretrained(tmp_path / "prm")
    with pytest.raises(RunError, match=r"row 1, step 1 scored 0\.\d+ .* now .*1e-04|0\.0001"):
        load_step_model(tmp_path / "prm", device="cpu")
    save_step_model(tmp_path / "prm", model, card(model))
    shorter = saved.encoding.model_copy(update={"max_tokens": 30})
    write_card(tmp_path / "prm", read_card(tmp_path / "prm").model_copy(
        update={"encoding": shorter}
    ))  # fmt: skip
    with pytest.raises(RunError, match=r"row \d has \d scored steps and had \d"):
        load_step_model(tmp_path / "prm", device="cpu")


def test_bfloat16_passes_the_self_test(tiny_base: Folder, tmp_path: Path) -> None:
    model = made(tiny_base())
    save_step_model(tmp_path / "prm", model, card(model))
    again, _ = load_step_model(tmp_path / "prm", dtype="bfloat16", device="cpu")
    assert again.model.dtype == torch.bfloat16


def test_a_checkpoint_without_its_head_is_refused_by_name(
    tiny_base: Folder, tmp_path: Path
) -> None:
    model = made(tiny_base())
    save_step_model(tmp_path / "prm", model, card(model))
    AutoModelForCausalLM.from_pretrained(tiny_base()).save_pretrained(tmp_path / "prm")
    with pytest.raises(SetupError, match=r"lacks the weights score\.(.|\n)*random"):
        load_step_model(tmp_path / "prm", device="cpu")


def test_a_base_that_lacks_weights_is_refused(tiny_base: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(tiny_base(), folder)
    causal = AutoModelForCausalLM.from_pretrained(folder)
    kept = {n: w for n, w in causal.state_dict().items() if "layers.1.mlp" not in n}
    causal.save_pretrained(folder, state_dict=kept)
    with pytest.raises(SetupError, match=r"lacks the weights model\.layers\.1\.mlp"):
        made(folder)


def test_folders_that_are_no_reward_models_say_so(tiny_base: Folder, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"holds no prm\.json"):
        load_step_model(tiny_base(), device="cpu")
    (tmp_path / "prm.json").write_text('{"version": 2}')
    with pytest.raises(RunError, match="newer version"):
        read_card(tmp_path)
    write_card(tmp_path, PrmCard(kind="outcome", head="reward"))
    with pytest.raises(RunError, match="outcome reward model"):
        load_step_model(tmp_path)
    with pytest.raises(SetupError, match="no model folder"):
        made(tmp_path / "nothing")


def test_the_card_takes_its_aggregation_from_who_labelled() -> None:
    assert [aggregation_for(o) for o in ("human", "first_error", "rollouts", "")] == [
        "min", "min", "last", "min",
    ]  # fmt: skip
    rows = [LabelledSteps(p, steps, (1,) * len(steps)) for p, steps in ROWS] * 4
    assert len(self_test_rows(rows)) == 3
    assert len(self_test_rows(rows[:1])) == 1
    assert self_test_rows([]) == ()
