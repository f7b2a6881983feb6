"""Training of step models: what is learnt, how it resumes, and what is refused before it begins."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from stepmark.errors import ConfigError, DataError, RunError, Stopped
from stepmark.prm.batches import Batches
from stepmark.prm.checkpoint import PrmCard, load_step_model, read_card
from stepmark.prm.data import LabelRule, StepRow, encode_rows
from stepmark.prm.encoding import EncodingSettings, StepEncoder
from stepmark.prm.formats import problem_id, write_labelled_steps
from stepmark.prm.learning import (
    StepLearner,
    check_reading,
    class_weights,
    held_out_metrics,
    step_loss,
)
from stepmark.prm.loading import Base, base_model
from stepmark.prm.model import StepModel, TwoTokens, sample_of
from stepmark.prm.splits import read_problems
from stepmark.prm.train import _batches, prepare, train_step_model
from stepmark.prm.train_config import PrmConfig
from stepmark.store import RunFolder
from stepmark.training.checkpoint import load_state
from stepmark.training.events import Evaluated, Saved, Started, StepDone
from stepmark.training.forward import hidden_states
from stepmark.types import LabelledSteps, Problem

Folder = Callable[..., Path]


@pytest.fixture(scope="session")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small sums; a wrong one has the word ``no`` in it, so that a tiny model finds it."""
    draw, place = random.Random(0), tmp_path_factory.mktemp("rows") / "sums.jsonl"
    with place.open("w") as file:
        for number in range(160):
            bad = draw.choice([None, None, 0, 1, 2])
            steps = [f"{'no' if n == bad else 'ok'} {number}" for n in range(3)]
            labels = [int(bad is None or n < bad) for n in range(3)]
            row = {"problem": f"sum {number}?", "steps": steps, "labels": labels}
            file.write(json.dumps({**row, "origin": "human"}) + "\n")
    return place


def config(base: Path, rows: Path, **changes: Any) -> PrmConfig:
    tree: dict[str, dict[str, Any]] = {
        "model": {"base": str(base), "device": "cpu"},
        "data": {"rows": [str(rows)], "held_out": 0.2, "held_out_limit": 20},
        "encoding": {"max_tokens": 200},
        "algorithm": {
            "steps": 4, "rows_per_step": 4, "learning_rate": 1e-3, "eval_every": 2,
            "save_every": 2, "tokens_per_microbatch": 300,
        },
    }  # fmt: skip
    for key, value in changes.items():
        table, _, name = key.partition("__")
        tree[table][name] = value
    return PrmConfig.model_validate(tree)


def trained(made: PrmConfig, out: Path, **given: Any) -> Any:
    return train_step_model(prepare(made), out, **given)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForTokenClassification.from_pretrained(folder).state_dict()


def rows_of(made: PrmConfig) -> tuple[StepModel, list[StepRow]]:
    table = made.model
    model = base_model(Base(table.base, table.head), device="cpu")
    return model, prepare(made).train


def test_a_planted_wrong_step_is_found(tiny_base: Folder, sums: Path, tmp_path: Path) -> None:
    made = config(
        tiny_base(), sums, algorithm__steps=45, algorithm__learning_rate=1e-2,
        algorithm__rows_per_step=12, algorithm__eval_every=15,
        algorithm__tokens_per_microbatch=2000,
    )  # fmt: skip
    result = trained(made, tmp_path / "run")
    assert result.best_metric == "f1"
    assert result.best_value is not None
    assert result.best_value > 0.9
    model, card = load_step_model(tmp_path / "run" / "checkpoints" / "best", device="cpu")
    encoder = StepEncoder(model.tokenizer, card.encoding)
    row = encoder.encode(Problem("x", "sum 999?", None), ("ok 999", "no 999", "ok 999"))
    scores = model.step_probabilities([row])[0]
    assert scores[1] < 0.5 < scores[0]
    assert card.aggregation == "min"
    assert [on.name for on in card.trained_on] == ["sums.jsonl"]
    assert len(card.self_test) == 3


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        ("classifier", {"algorithm__lm_weight": 0.5}),
        ("two_logits", {"algorithm__lm_weight": 0.5}),
        ("classifier", {"data__sampling": "balanced", "algorithm__class_weights": "balanced"}),
        ("classifier", {"model__peft": "lora", "algorithm__average": "rows"}),
    ],
)
def test_a_resumed_run_is_the_one_that_was_never_stopped(
    tiny_base: Folder, sums: Path, tmp_path: Path, head: str, changes: dict[str, Any]
) -> None:
    made = config(tiny_base(), sums, model__head=head, **changes)
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    whole = trained(made, straight)
    assert whole.step == 4

    def stop_after_3(event: Any) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="after step 3 of 4") as stopped:
        trained(made, broken, on_event=stop_after_3)
    assert stopped.value.exit_code == 143
    events: list[Any] = []
    trained(made, broken, resume=True, on_event=events.append)
    assert isinstance(events[0], Started)
    assert events[0].step == 3
    one, two = (load_state(place / "checkpoints" / "final") for place in (straight, broken))
    assert one.progress is not None
    assert two.progress is not None
    assert one.progress["loop"] == two.progress["loop"]
    for part in {"extra", "head"} & {*one.progress}:
        for name, weight in one.progress[part].items():
            assert torch.equal(weight, two.progress[part][name])
    files = [place / "checkpoints" / "final" / "model.safetensors" for place in (straight, broken)]
    assert files[0].read_bytes() == files[1].read_bytes(), "weights"
    assert str(one.optimizer) == str(two.optimizer)
    for key, state in one.optimizer["state"].items():
        for name, tensor in state.items():
            assert torch.equal(tensor, two.optimizer["state"][key][name])
    rows = [RunFolder.open(place).metrics() for place in (straight, broken)]
    assert rows[0] == rows[1]


def test_a_torn_checkpoint_is_refused_by_name_and_the_one_before_is_used(
    tiny_base: Folder, sums: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, out = config(tiny_base(), sums, algorithm__steps=6), tmp_path / "run"
    trained(made, out)
    final = (out / "checkpoints" / "final" / "model.safetensors").read_bytes()
    shutil.rmtree(out / "checkpoints" / "final")
    torn = out / "checkpoints" / "step-000004" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-9])
    trained(made, out, resume=True)
    assert "step-000004 is refused: model.safetensors is not what was written" in caplog.text
    assert (out / "checkpoints" / "final" / "model.safetensors").read_bytes() == final


def test_another_base_or_other_rows_do_not_continue_a_run(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    base, rows = tmp_path / "base", tmp_path / "sums.jsonl"
    shutil.copytree(tiny_base(), base)
    shutil.copy(sums, rows)
    made, out = config(base, rows, algorithm__steps=2), tmp_path / "run"
    trained(made, out)
    with rows.open("a") as file:
        file.write('{"problem": "p", "steps": ["a"], "labels": [1]}\n')
    with pytest.raises(RunError, match=r"hashes\.data\.sums\.jsonl"):
        trained(made, out, resume=True)
    shutil.copy(sums, rows)
    model = AutoModelForCausalLM.from_pretrained(base)
    model.get_input_embeddings().weight.data += 1
    model.save_pretrained(base)
    with pytest.raises(RunError, match="weights"):
        trained(made, out, resume=True)


@pytest.mark.parametrize("changed", ["a/rows.jsonl", "b/rows.jsonl", "bench.jsonl"])
def test_a_file_that_decides_the_rows_and_has_changed_is_refused_by_name(
    tiny_base: Folder, sums: Path, tmp_path: Path, changed: str
) -> None:
    lines = sums.read_text().splitlines(keepends=True)
    for name, part in (("a", lines[:50]), ("b", lines[50:80])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text("".join(part))
    bench = tmp_path / "bench.jsonl"
    bench.write_text('{"problem": "nothing of the rows"}\n')
    files = [str(tmp_path / name / "rows.jsonl") for name in ("a", "b")]
    made = config(
        tiny_base(), sums, data__rows=files, data__exclude=[str(bench)], data__held_out_limit=None,
        algorithm__steps=1,
    )  # fmt: skip
    trained(made, tmp_path / "run")
    card = read_card(tmp_path / "run" / "checkpoints" / "final")
    assert [(on.name, on.rows) for on in card.trained_on] == [
        ("rows.jsonl", 50), ("rows.jsonl", 30),
    ]  # fmt: skip
    assert len({on.hash for on in card.trained_on}) == 2
    with (tmp_path / changed).open("a") as file:
        file.write('{"problem": "sum 3?", "steps": ["a"], "labels": [1]}\n')
    with pytest.raises(RunError, match=rf"hashes\.data\.[^ ]*{changed}"):
        trained(made, tmp_path / "run", resume=True)


def test_events_and_files_tell_what_happened(tiny_base: Folder, sums: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    out = tmp_path / "run"
    result = trained(config(tiny_base(), sums), out, on_event=events.append)
    assert [type(e) for e in events if isinstance(e, Started | Saved)] == [
        Started, Saved, Saved,
    ]  # fmt: skip
    assert [e.step for e in events if isinstance(e, Evaluated)] == [0, 2, 4]
    assert [e.step for e in events if isinstance(e, StepDone)] == [1, 2, 3, 4]
    run = RunFolder.open(out)
    last = run.metrics()[-1]
    assert {"loss", "grad_norm", "learning_rate", "num_tokens", "labels/wrong", "eval/f1"} <= {
        *last
    }
    assert {"update_s", "cpu_s", "tokens_per_s"} <= {*run.timings()[-1]}
    assert run.config()["encoding"]["max_tokens"] == 200
    counts = json.loads((out / "data.json").read_text())
    assert counts["train"]["rows"] + 20 + counts["dropped"]["beyond data.held_out_limit"] == 160
    assert result.why == "all 4 steps are done"
    assert result.converged is None
    with pytest.raises(RunError, match="already holds a run"):
        trained(config(tiny_base(), sums), out)


def test_a_run_says_when_it_has_not_converged(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    far = config(
        tiny_base(), sums, algorithm__target=0.99, algorithm__schedule="constant",
        algorithm__learning_rate=1e-6,
    )  # fmt: skip
    result = trained(far, tmp_path / "far")
    assert result.converged is False
    assert result.why == "not converged: f1 did not reach 0.99 in 4 steps"
    near = config(
        tiny_base(), sums, algorithm__target=0.01, algorithm__schedule="constant",
        algorithm__target_steps=3, algorithm__learning_rate=1e-2, algorithm__steps=40,
        algorithm__rows_per_step=12, algorithm__tokens_per_microbatch=2000,
    )  # fmt: skip
    result = trained(near, tmp_path / "near")
    assert result.converged is True
    rates = [row["learning_rate"] for row in RunFolder.open(tmp_path / "near").metrics()[1:]]
    reached = result.step - 3
    assert rates[:reached] == [1e-2] * reached
    assert rates[reached:] == pytest.approx([1e-2, 1e-2 * 2 / 3, 1e-2 / 3])
    patient = config(
        tiny_base(), sums, algorithm__patience=2, algorithm__learning_rate=1e-7,
        algorithm__steps=20,
    )  # fmt: skip
    result = trained(patient, tmp_path / "patient")
    assert (result.step, result.converged) == (4, True)
    assert result.why == "2 evaluations brought nothing better"


def test_micro_batches_change_memory_and_not_the_loss(tiny_base: Folder, sums: Path) -> None:
    made = config(tiny_base(), sums, algorithm__lm_weight=0.5)
    model, rows = rows_of(made)
    prepared = prepare(made)
    learner = StepLearner(model, rows, [], _no_card(), made.algorithm, _batches(prepared))
    found = []
    for budget in (1, 300, 100_000):
        model.model.zero_grad()
        whole = 0.0
        for compute in learner.losses(range(12), budget):
            loss = compute()
            loss.value.backward()
            whole += loss.numbers["loss"]
        found.append((whole, model.layer.weight.grad.clone()))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert torch.allclose(gradient, found[0][1], atol=1e-6)


def _no_card() -> PrmCard:
    return PrmCard()


def test_the_loss_is_the_cross_entropy_with_labels_and_estimates(
    tiny_base: Folder, sums: Path
) -> None:
    made = config(tiny_base(), sums)
    model, rows = rows_of(made)
    for average in ("steps", "rows"):
        algorithm = made.algorithm.model_copy(update={"average": average})
        learner = StepLearner(model, rows, [], _no_card(), algorithm, _batches(prepare(made)))
        chosen = [0, 1, 2, 3, 4]
        loss = sum(float(c().value.detach()) for c in learner.losses(chosen, 10_000))
        each = [
            torch.nn.functional.cross_entropy(
                model.step_logits([rows[n].encoded]).detach(),
                torch.tensor(rows[n].labels).long(),
                reduction="none",
            )
            for n in chosen
        ]
        every = torch.cat(each) if average == "steps" else torch.stack([e.mean() for e in each])
        assert loss == pytest.approx(float(every.mean()), rel=1e-5)
    soft = step_loss(torch.tensor([[0.3, 1.1]]), torch.tensor([0.25]), torch.tensor([1.0]))
    target = torch.tensor([[0.75, 0.25]])
    wanted = torch.nn.functional.cross_entropy(torch.tensor([[0.3, 1.1]]), target)
    assert float(soft) == pytest.approx(float(wanted))


def test_balanced_weights_are_the_ratio_of_the_classes_held_within_ten(sums: Path) -> None:
    def of(labels: tuple[float, ...]) -> StepRow:
        return StepRow(*(2 * [torch.zeros(1).int().numpy()]), (0,) * len(labels), labels)

    assert class_weights([of((1, 1, 1, 0))]) == (3.0, 1.0)
    assert class_weights([of((1,) * 50 + (0,))]) == (10.0, 1.0)
    assert class_weights([of((1,) + (0,) * 50)]) == (0.1, 1.0)
    assert class_weights([of((0.75, 0.25, 0.5, 0.5))]) == (1.0, 1.0)
    with pytest.raises(ConfigError, match="one class is missing"):
        class_weights([of((1, 1))])


def test_held_out_metrics_are_those_of_processbench() -> None:
    def of(labels: tuple[float, ...], first: int | None) -> StepRow:
        empty = torch.zeros(1).int().numpy()
        return StepRow(empty, empty, tuple(range(len(labels))), labels, first)

    rows = [of((1, 0), 1), of((1, 0), 1), of((1, 1, 1), -1), of((0,), None)]
    found = held_out_metrics(rows, [(0.9, 0.1), (0.4, 0.1), (0.9, 0.9, 0.8), (0.7,)])
    assert (found["error_accuracy"], found["correct_accuracy"]) == (0.5, 1.0)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["wrong_recall"] == pytest.approx(2 / 3)
    assert found["right_recall"] == pytest.approx(4 / 5)
    assert set(held_out_metrics(rows[2:3], [(0.9, 0.9, 0.8)])) == {"loss", "labels"}


def test_balanced_weights_hold_between_rows_that_are_averaged_first(
    tiny_base: Folder, sums: Path
) -> None:
    made = config(tiny_base(), sums, algorithm__average="rows")
    model, _ = rows_of(made)
    learner = StepLearner(model, [], [], _no_card(), made.algorithm, Batches(2, 2, 0))
    learner.weights = (10.0, 1.0)
    empty = torch.zeros(1).int().numpy()
    right, wrong = (StepRow(empty, empty, (0, 0), (label, label)) for label in (1.0, 0.0))
    weighed = torch.cat(learner._weights([right, wrong]))
    assert weighed.tolist() == pytest.approx([1 / 22, 1 / 22, 10 / 22, 10 / 22])


def test_the_lowest_loss_is_the_best_where_held_out_rows_are_all_right(
    tiny_base: Folder, tmp_path: Path
) -> None:
    place = tmp_path / "right.jsonl"
    lines = [
        {"problem": f"sum {n}?", "steps": [f"ok {n}"] * 2, "labels": [1, 1]} for n in range(40)
    ]
    place.write_text("\n".join(map(json.dumps, lines)))
    made = config(tiny_base(), place, algorithm__learning_rate=1e-2)
    result = trained(made, tmp_path / "run")
    assert result.best_metric == "minus_loss"
    rows = RunFolder.open(tmp_path / "run").metrics()
    losses = {row["step"]: row["eval/loss"] for row in rows if "eval/loss" in row}
    assert losses[4] < losses[0]
    assert result.best_step == min(losses, key=losses.__getitem__)
    assert result.best_value == pytest.approx(-min(losses.values()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_of_bfloat16_weights_loads_in_either_type(
    tiny_base: Folder, sums: Path, tmp_path: Path, dtype: Any
) -> None:
    made = config(tiny_base(), sums, model__dtype="bfloat16", algorithm__steps=2)
    result = trained(made, tmp_path / "run")
    _, card = load_step_model(result.final, dtype, "cpu")
    assert card.self_test_dtype == "bfloat16"
    assert PrmCard().self_test_dtype == "float32", "of cards that do not say"


def test_two_logits_the_wrong_way_round_are_refused(tiny_base: Folder, sums: Path) -> None:
    made = config(tiny_base(), sums, model__head="two_logits")
    model, rows = rows_of(made)
    check_reading(model, rows[0], ("-", "+"))
    assert model.tokens is not None
    turned = StepModel(model.model, model.tokenizer, TwoTokens(*reversed(model.tokens)))
    with pytest.raises(ConfigError, match="wrong way round"):
        check_reading(turned, rows[0], ("-", "+"))
    classifier, rows = rows_of(config(tiny_base(), sums))
    check_reading(classifier, rows[0])
    classifier.layer.weight.data.zero_()
    with pytest.raises(ConfigError, match="or equal"):
        check_reading(classifier, rows[0])


def test_a_loss_that_is_no_number_stops_the_run_with_the_weights_before_it(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    made = config(
        tiny_base(), sums, algorithm__learning_rate=1e30, data__held_out=0.0,
    )  # fmt: skip
    with pytest.raises(RunError, match=r"of step \d is (nan|inf|-inf), which nothing can be") as e:
        trained(made, tmp_path / "run")
    assert "start again with another --out" in str(e.value), "resuming refuses other settings"


def test_every_checkpoint_says_which_problems_it_was_trained_on(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    first = config(tiny_base(), sums, algorithm__steps=2)
    trained(first, tmp_path / "one")
    checkpoints = tmp_path / "one" / "checkpoints"
    expected = {problem_id(row.problem.text) for row in prepare(first).source.train}
    kept = [read_problems(folder) for folder in checkpoints.iterdir() if folder.is_dir()]
    assert len(kept) >= 2
    assert all(found == expected for found in kept)
    held_out = {problem_id(row.problem.text) for row in prepare(first).source.held_out}
    assert held_out
    assert not held_out & expected
    other = tmp_path / "other.jsonl"
    row = LabelledSteps(Problem("p", "Another?", None), ("1 + 1 = 2",), (1,))
    write_labelled_steps(other, [row] * 4)
    further = config(checkpoints / "final", other, algorithm__steps=1, data__held_out=0.0)
    trained(further, tmp_path / "two")
    assert read_problems(tmp_path / "two" / "checkpoints" / "final") == (
        expected | {problem_id("Another?")}
    )


def test_a_prm_learns_further_with_its_own_encoding(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    trained(config(tiny_base(), sums, algorithm__steps=2), tmp_path / "one")
    first = tmp_path / "one" / "checkpoints" / "final"
    again = config(first, sums, algorithm__steps=2)
    with pytest.raises(ConfigError, match=r"encoding\.separator is '\\n\\n'.*trained with"):
        prepare(again.model_copy(update={"encoding": EncodingSettings(separator="\n\n")}))
    trained(again, tmp_path / "two")
    card = read_card(tmp_path / "two" / "checkpoints" / "final")
    assert card.encoding.max_tokens == 200
    assert card.base == str(first)
    other = config(first, sums, model__head="two_logits")
    with pytest.raises(ConfigError, match=r"model\.head is 'two_logits'"):
        trained(other, tmp_path / "three")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoding__max_tokens": 400}, "Rows may have 400 tokens"),
        ({"model__initializer_range": 0.1}, "model.from_scratch"),
        ({"model__dtype": "bfloat16", "algorithm__learning_rate": 1e-5}, "rounded away"),
        ({"algorithm__target": 0.5}, "algorithm.schedule"),
        ({"algorithm__best_metric": "loss"}, "minus_loss"),
        ({"algorithm__patience": 1, "algorithm__eval_every": None}, "algorithm.eval_every"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(
    sums: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        config(Path("nowhere"), sums, **changes)


def test_rows_are_refused_before_a_model_is_loaded(
    tiny_base: Folder, tmp_path: Path, sums: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"problem": "p", "steps": ["a", "b"], "labels": [1]}\n')
    with pytest.raises(DataError, match=r"line 1"):
        prepare(config(tiny_base(), rows))
    rows.write_text('{"problem": "pp pp pp", "steps": ["aa aa aa"], "labels": [1]}\n')
    with pytest.raises(DataError, match=r"1 right and 0 wrong.*within 12 tokens(.|\n)*none"):
        prepare(config(tiny_base(), rows, encoding__max_tokens=12, data__held_out=0.0))
    with pytest.raises(DataError, match="There is no file"):
        prepare(config(tiny_base(), tmp_path / "nothing.jsonl"))


def test_rows_in_training_may_be_shorter_than_what_the_checkpoint_scores(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    made = config(
        tiny_base(), sums, encoding__max_tokens=2000, data__max_tokens=27, algorithm__steps=1
    )
    counts = prepare(made).counts["train"]
    assert sum(counts.kept) < sum(counts.wanted)
    trained(made, tmp_path / "run")
    assert read_card(tmp_path / "run" / "checkpoints" / "final").encoding.max_tokens == 2000


def test_memory_of_a_step_grows_with_the_budget_and_not_with_the_longest_row(
    tiny_base: Folder,
) -> None:
    """Bytes that are kept for the backward pass, at the most of one micro-batch."""
    made = config(tiny_base(), Path("rows.jsonl"))
    model = base_model(Base(str(tiny_base())), device="cpu")
    encoder = StepEncoder(model.tokenizer, EncodingSettings())

    def peak(longest: int, budget: int) -> int:
        source = [
            LabelledSteps(Problem(str(n), f"p {n}", None), ("a" * length,), (1,))
            for n, length in enumerate([longest, *[30] * 60])
        ]
        rows, _ = encode_rows(source, encoder, LabelRule())
        batches = Batches(len(rows), len(rows), 0)
        learner = StepLearner(model, rows, [], PrmCard(), made.algorithm, batches)
        most = 0
        for compute in learner.losses(range(len(rows)), budget):
            kept: dict[int, int] = {}

            def keep(tensor: torch.Tensor, kept: dict[int, int] = kept) -> torch.Tensor:
                storage = tensor.untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                loss = compute()
            most = max(most, sum(kept.values()))
            del loss
        return most

    weights = sum(w.numel() * 4 for w in model.model.parameters())
    small, same, large = peak(40, 300), peak(280, 300), peak(280, 1200)
    assert same - weights < 1.5 * (small - weights), "a row of seven times the length"
    assert large - weights > 2.5 * (same - weights), "four times the budget"


def test_gradient_checkpointing_and_autocast_train_too(
    tiny_base: Folder, sums: Path, tmp_path: Path
) -> None:
    losses = []
    for number, changes in enumerate(
        ({}, {"model__gradient_checkpointing": True}, {"model__autocast": "bfloat16"})
    ):
        made = config(tiny_base(), sums, algorithm__steps=2, **changes)
        trained(made, tmp_path / str(number))
        losses.append(RunFolder.open(tmp_path / str(number)).metrics()[-1]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=0.05)
    assert weights(tmp_path / "2" / "checkpoints" / "final")["score.weight"].dtype == torch.float32


def test_lora_checkpoints_are_whole_models(tiny_base: Folder, sums: Path, tmp_path: Path) -> None:
    made = config(tiny_base(), sums, model__peft="lora", algorithm__steps=3)
    trained(made, tmp_path / "run")
    final = tmp_path / "run" / "checkpoints" / "final"
    model, _ = load_step_model(final, device="cpu")
    fresh = base_model(Base(str(tiny_base())), device="cpu")
    moved = {
        name
        for name, weight in model.model.state_dict().items()
        if not torch.equal(weight, fresh.model.state_dict()[name])
    }
    assert {"score.weight", "score.bias"} <= moved
    assert any("q_proj" in name for name in moved)
    assert not any("embed" in name or "norm" in name for name in moved)


def test_rows_with_one_prefix_cost_it_once(tiny_base: Folder) -> None:
    model = base_model(Base(str(tiny_base())), device="cpu")
    problem = Problem("p", "What is 1 + 2 + 3? " * 8, None)
    rows = [
        LabelledSteps(problem, ("1 + 2 = 3", f"{n} + 3 = {n + 3}"), (None, int(n == 3)))
        for n in range(4)
    ]
    found, _ = encode_rows(rows, StepEncoder(model.tokenizer, EncodingSettings()), LabelRule())
    assert len({row.prompt.tobytes() for row in found}) == 1

    seen: list[int] = []
    hook = model.body.embed_tokens.register_forward_hook(  # type: ignore[union-attr]
        lambda module, given, out: seen.append(given[0].numel())
    )
    hidden_states(model.body, [sample_of(row.encoded) for row in found])
    hook.remove()
    assert seen[-1] <= len(found[0].prompt) + sum(len(row.ids) + 1 for row in found)
