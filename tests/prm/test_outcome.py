"""Outcome reward models: one number at the last token, two losses, pairs that stay together."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from stepmark.errors import DataError, RunError, Stopped
from stepmark.prm.checkpoint import load_step_model
from stepmark.prm.data import is_held_out
from stepmark.prm.encoding import EncodingSettings, StepEncoder
from stepmark.prm.formats import problem_id
from stepmark.prm.loading import Base
from stepmark.prm.outcome import load_outcome_model, outcome_base, pair_loss, point_loss
from stepmark.prm.outcome_data import Pair, encode_solutions, pairs_of, read_solutions
from stepmark.prm.outcome_train import (
    OutcomeLearner,
    outcome_metrics,
    prepare_outcomes,
    train_outcome_model,
)
from stepmark.prm.splits import read_problems
from stepmark.prm.train_config import RmConfig
from stepmark.store import RunFolder
from stepmark.training.events import StepDone
from stepmark.types import Problem

Folder = Callable[..., Path]


@pytest.fixture(scope="session")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four solutions a problem, two of them wrong; a wrong one ends in ``no``."""
    place = tmp_path_factory.mktemp("outcomes") / "solutions.jsonl"
    with place.open("w") as file:
        for number in range(60):
            for turn in range(4):
                is_right = turn % 2 == 0
                steps = [f"a {turn}", "ok" if is_right else "no"]
                row = {"problem": f"sum {number}?", "steps": steps, "labels": [None, None]}
                file.write(json.dumps({**row, "final_correct": is_right}) + "\n")
    return place


@pytest.fixture(scope="session")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("outcomes") / "preferences.jsonl"
    with place.open("w") as file:
        for number in range(40):
            row = {"prompt": f"sum {number}?", "chosen": f"a{number} ok", "rejected": "no"}
            file.write(json.dumps(row) + "\n")
        file.write(json.dumps({"prompt": "p", "chosen": "same", "rejected": "same"}) + "\n")
    return place


def config(base: Path, rows: Path, **changes: Any) -> RmConfig:
    tree: dict[str, dict[str, Any]] = {
        "model": {"base": str(base), "device": "cpu"},
        "data": {"rows": [str(rows)], "held_out": 0.2, "held_out_limit": 24},
        "encoding": {"max_tokens": 100},
        "algorithm": {
            "steps": 4, "rows_per_step": 6, "learning_rate": 1e-3, "eval_every": 2,
            "save_every": 2, "tokens_per_microbatch": 250,
        },
    }  # fmt: skip
    for key, value in changes.items():
        table, _, name = key.partition("__")
        tree[table][name] = value
    return RmConfig.model_validate(tree)


def test_rewards_are_those_of_transformers_also_in_a_batch(tiny_base: Folder) -> None:
    model = outcome_base(Base(str(tiny_base())), device="cpu")
    encoder = StepEncoder(model.tokenizer, EncodingSettings())
    rows = [
        encoder.encode(Problem("p", text, None), ("1 + 1 = 2", "so " * count + "2"))
        for count, text in enumerate(("1 + 1?", "And what is one and one?", "?"))
    ]
    found = model.rewards(rows)
    width = max(row.length for row in rows)
    pad = model.tokenizer.pad_token_id
    ids = [[*r.prompt_ids, *r.ids] + [pad] * (width - r.length) for r in rows]
    mask = [[1] * r.length + [0] * (width - r.length) for r in rows]
    with torch.no_grad():
        wanted = model.model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits
    assert found == pytest.approx(wanted.squeeze(-1).tolist(), abs=1e-5)
    assert model.rewards([rows[0]._replace(cut=1), rows[1]]) == [None, pytest.approx(found[1])]


def test_losses_are_those_of_the_formulas() -> None:
    right, wrong = torch.tensor([0.3, 2.0]), torch.tensor([0.1, -1.0])
    every = torch.cat([right, wrong])
    labels = torch.tensor([1.0, 1.0, 0.0, 0.0])
    wanted = torch.nn.functional.binary_cross_entropy(every.sigmoid(), labels, reduction="none")
    assert torch.allclose(point_loss(every, labels), wanted)
    pairs = -(right - wrong - 0.5).sigmoid().log() + 0.01 * (right + wrong) ** 2
    assert torch.allclose(pair_loss(right, wrong, margin=0.5, center=0.01), pairs)


def test_pairs_are_of_one_problem_and_at_most_so_many(by_bytes: Any, solutions: Path) -> None:
    train, held_out, dropped = read_solutions([str(solutions)], held_out=0.2)
    assert len(train) + len(held_out) == 240
    assert not {one.problem for one in train} & {one.problem for one in held_out}
    assert not dropped
    rows, lost = encode_solutions(train, StepEncoder(by_bytes, EncodingSettings()))
    assert not lost
    for most, wanted in ((4, 4), (1, 1), (99, 4)):
        pairs = pairs_of(rows, per_problem=most, seed=0)
        assert len(pairs) == len(train) // 4 * wanted
        assert len(set(pairs)) == len(pairs)
        for pair in pairs:
            assert rows[pair.chosen].is_right > rows[pair.rejected].is_right
            assert rows[pair.chosen].problem == rows[pair.rejected].problem
    again = pairs_of(rows, per_problem=1, seed=0)
    assert again == pairs_of(rows, per_problem=1, seed=0)


def test_a_solution_that_does_not_fit_is_left_out_and_so_is_its_pair(
    by_bytes: Any, preferences: Path
) -> None:
    train, _, dropped = read_solutions([str(preferences)], held_out=0.0)
    assert dropped == {"chosen and rejected are equal": 1}
    encoder = StepEncoder(by_bytes, EncodingSettings(max_tokens=14))
    rows, lost = encode_solutions(train, encoder)
    assert lost == {"longer than max_tokens": 30}, "chosen ones of two digits"
    pairs = pairs_of(rows, per_problem=4, seed=0)
    assert len(pairs) == 10


@pytest.mark.parametrize("limit", [5, 20])
def test_a_limit_takes_whole_preferences_by_hash_and_not_the_first_ones(
    preferences: Path, limit: int
) -> None:
    given = {"held_out": 0.2, "limit": limit}
    train, held_out, dropped = read_solutions([str(preferences)], **given)
    kinds = Counter(one.preference for one in (*train, *held_out))
    assert set(kinds.values()) == {2}
    assert len(kinds) == limit
    assert sorted(number or 0 for number in kinds) != list(range(limit))
    assert dropped["beyond data.limit"] == 40 - limit
    again = read_solutions([str(preferences)], **given)
    assert again[:2] == (train, held_out)
    few = read_solutions([str(preferences)], held_out=0.2, held_out_limit=2)
    assert [len(few[1]), len({one.preference for one in few[1]})] == [4, 2]


def test_a_limit_keeps_solutions_of_one_problem_together(solutions: Path) -> None:
    train, held_out, _ = read_solutions([str(solutions)], held_out=0.2, limit=42)
    kinds = Counter(one.problem for one in (*train, *held_out))
    assert sorted(kinds.values()) == [2, *[4] * 10]
    assert {*kinds} != {f"sum {number}?" for number in range(11)}


def test_every_checkpoint_says_which_problems_it_was_trained_on(
    tiny_base: Folder, solutions: Path, preferences: Path, tmp_path: Path
) -> None:
    made = config(tiny_base(), solutions, algorithm__steps=2)
    prepared = prepare_outcomes(made)
    result = train_outcome_model(prepared, tmp_path / "one")
    expected = {row.problem for row in prepared.train}
    folders = [place for place in result.final.parent.iterdir() if place.is_dir()]
    assert len(folders) >= 2
    assert [read_problems(place) for place in folders] == [expected] * len(folders)
    [on] = load_outcome_model(result.final, device="cpu")[1].trained_on
    assert (on.name, on.rows) == ("solutions.jsonl", len(prepared.train) + len(prepared.held_out))
    other = tmp_path / "other.jsonl"
    other.write_text(preferences.read_text().replace("sum", "another"))
    further = config(
        result.final, other, algorithm__steps=1, algorithm__objective="pairwise", data__held_out=0.0
    )
    final = train_outcome_model(prepare_outcomes(further), tmp_path / "two").final
    found = read_problems(final)
    assert found is not None
    assert found > expected
    assert problem_id("another 3?") in found


@pytest.mark.parametrize("objective", ["pointwise", "pairwise"])
def test_micro_batches_change_memory_and_not_the_loss(
    tiny_base: Folder, solutions: Path, objective: str
) -> None:
    made = config(tiny_base(), solutions, algorithm__objective=objective)
    prepared = prepare_outcomes(made)
    model = outcome_base(Base(str(tiny_base())), device="cpu")
    learner = OutcomeLearner(model, prepared, None)  # type: ignore[arg-type]
    found = []
    for budget in (1, 250, 100_000):
        model.model.zero_grad()
        whole = 0.0
        for compute in learner.losses(range(8), budget):
            loss = compute()
            loss.value.backward()
            whole += loss.numbers["loss"]
        found.append((whole, model.layer.weight.grad.clone()))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert torch.allclose(gradient, found[0][1], atol=1e-6)


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("pointwise", {"data__sampling": "balanced"}),
        ("pairwise", {"algorithm__margin": 0.1, "algorithm__center_coefficient": 0.01}),
    ],
)
def test_wrong_ends_are_told_from_right_ones(
    tiny_base: Folder, solutions: Path, tmp_path: Path, objective: str, changes: dict[str, Any]
) -> None:
    made = config(
        tiny_base(), solutions, algorithm__objective=objective, algorithm__steps=30,
        algorithm__learning_rate=1e-2, algorithm__eval_every=15, **changes,
    )  # fmt: skip
    result = train_outcome_model(prepare_outcomes(made), tmp_path / "run")
    assert result.best_metric == ("auroc" if objective == "pointwise" else "accuracy")
    assert result.best_value is not None
    assert result.best_value > 0.95
    model, card = load_outcome_model(result.final, device="cpu")
    assert (card.kind, card.head, len(card.self_test)) == ("outcome", "reward", 3)
    encoder = StepEncoder(model.tokenizer, card.encoding)
    good, bad = (
        encoder.encode(Problem("x", "sum 99?", None), ("a 1", end)) for end in ("ok", "no")
    )
    rewards = model.rewards([good, bad])
    assert (rewards[0] or 0.0) > (rewards[1] or 0.0)
    plain = AutoModelForSequenceClassification.from_pretrained(result.final)
    assert plain.config.num_labels == 1
    assert plain.config.pad_token_id is not None
    with pytest.raises(RunError, match="outcome reward model"):
        load_step_model(result.final, device="cpu")


def test_a_resumed_run_is_the_one_that_was_never_stopped(
    tiny_base: Folder, preferences: Path, tmp_path: Path
) -> None:
    made = config(tiny_base(), preferences, algorithm__objective="pairwise")
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train_outcome_model(prepare_outcomes(made), straight)

    def stop_after_3(event: Any) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        train_outcome_model(prepare_outcomes(made), broken, on_event=stop_after_3)
    train_outcome_model(prepare_outcomes(made), broken, resume=True)
    files = [place / "checkpoints" / "final" / "model.safetensors" for place in (straight, broken)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert RunFolder.open(straight).metrics() == RunFolder.open(broken).metrics()


def test_the_lowest_loss_is_the_best_where_held_out_solutions_are_all_right(
    tiny_base: Folder, tmp_path: Path
) -> None:
    place = tmp_path / "rows.jsonl"
    with place.open("w") as file:
        for number in range(40):
            problem = f"sum {number}?"
            is_right = is_held_out(problem, 0.2) or number % 2 == 0
            row = {"problem": problem, "steps": ["ok" if is_right else "no"], "labels": [None]}
            file.write(json.dumps({**row, "final_correct": is_right}) + "\n")
    made = config(tiny_base(), place, algorithm__learning_rate=1e-2)
    result = train_outcome_model(prepare_outcomes(made), tmp_path / "run")
    assert result.best_metric == "minus_loss"
    rows = RunFolder.open(tmp_path / "run").metrics()
    losses = {row["step"]: row["eval/loss"] for row in rows if "eval/loss" in row}
    assert len(set(losses.values())) > 1
    assert result.best_step == min(losses, key=losses.__getitem__)


def test_an_outcome_checkpoint_of_bfloat16_weights_loads_in_float32(
    tiny_base: Folder, solutions: Path, tmp_path: Path
) -> None:
    made = config(tiny_base(), solutions, model__dtype="bfloat16", algorithm__steps=2)
    result = train_outcome_model(prepare_outcomes(made), tmp_path / "run")
    assert load_outcome_model(result.final, device="cpu")[1].self_test_dtype == "bfloat16"


def test_ties_count_half() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0])
    found = outcome_metrics(rewards, [True, False, False], [Pair(0, 1), Pair(0, 2)])
    assert found["accuracy"] == 0.75
    assert found["auroc"] == 0.75


def test_data_of_one_kind_and_broken_preferences_are_refused(
    tiny_base: Folder, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    row = {"problem": "p", "steps": ["a"], "labels": [1]}
    rows.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match="final_correct is not known: 1"):
        prepare_outcomes(config(tiny_base(), rows, data__held_out=0.0))
    rows.write_text(json.dumps({**row, "final_correct": True}) + "\n")
    with pytest.raises(DataError, match="no wrong one"):
        prepare_outcomes(config(tiny_base(), rows, data__held_out=0.0))
    rows.write_text('{"prompt": "p", "chosen": "a", "rejected": " "}\n')
    with pytest.raises(DataError, match="line 1: a preference needs"):
        prepare_outcomes(config(tiny_base(), rows, data__held_out=0.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm__margin": 0.1}, "it is of pairs"),
        ({"algorithm__objective": "pairwise", "encoding__max_tokens": 200}, "one pair could"),
        ({"algorithm__objective": "pairwise", "data__sampling": "balanced"}, "either kind"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        config(Path("nowhere"), Path("rows.jsonl"), **changes)
