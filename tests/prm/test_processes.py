"""Several processes train what one would: the same batches, gradients and weights."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError, SetupError
from stepmark.prm.batches import shares
from stepmark.training.processes import Processes, check_launch

Folder = Callable[..., Path]
SCRIPT = Path(__file__).with_name("two_processes.py")


@given(
    st.lists(st.integers(0, 200), unique=True, max_size=40),
    st.integers(1, 5),
    st.integers(1, 7),
)
def test_every_row_of_a_batch_is_in_one_share_and_keeps_its_order(
    rows: list[int], count: int, units: int
) -> None:
    def unit(row: int) -> int:
        return row % units

    found = shares(rows, count, lambda row: 1 + row % 11, unit)
    assert sorted(row for share in found for row in share) == sorted(rows)
    for share in found:
        assert share == [row for row in rows if row in share]
    owners = [{unit(row) for row in share} for share in found]
    assert sum(map(len, owners)) == len({unit(row) for row in rows}), "units stay whole"
    if len({unit(row) for row in rows}) >= count:
        assert all(found), "no process is without a row where there are enough"


def test_shares_are_about_as_much_work_each() -> None:
    draw = random.Random(0)
    sizes = [draw.randint(20, 800) for _ in range(64)]
    loads = [sum(sizes[row] for row in share) for share in shares(range(64), 4, sizes.__getitem__)]
    assert max(loads) < 1.05 * min(loads)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, ConfigError, "asks for FSDP"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, ConfigError, "asks for DeepSpeed"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, ConfigError, "asks for Megatron-LM"),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, ConfigError, "mixed_precision 'fp16'"),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, ConfigError, "dynamo_backend 'INDUCTOR'"),
        (
            {"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1"},
            SetupError,
            "accelerate started one",
        ),
    ],
)
def test_what_a_launcher_asks_for_and_cannot_have_is_named(
    given: dict[str, str], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        check_launch(given)


def test_a_plain_launch_is_not_refused() -> None:
    check_launch({})
    check_launch({"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_FSDP": "false"})
    check_launch({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "a", "LOCAL_RANK": "0"})


def test_one_process_exchanges_with_nobody() -> None:
    alone = Processes()
    assert alone.exchange(3) == [3]
    assert alone.divided([1, 2], lambda some: [2 * one for one in some]) == [2, 4]
    assert alone.agree({"loss": 0.5}, None) == ({"loss": 0.5}, None)
    assert alone.give_up(2) == 0


def step_rows(place: Path) -> Path:
    """27 rows of 9 problems, of very different lengths; a few are all right."""
    draw = random.Random(0)
    with place.open("w") as file:
        for number in range(27):
            count = draw.randint(1, 4)
            bad = draw.choice([None, 0, count - 1])
            steps = [
                f"{'no' if n == bad else 'ok'} {'x' * draw.randint(0, 30)}" for n in range(count)
            ]
            labels = [int(bad is None or n < bad) for n in range(count)]
            row = {"problem": f"sum {number % 9}?", "steps": steps, "labels": labels}
            right = bad is None
            file.write(json.dumps({**row, "origin": "human", "final_correct": right}) + "\n")
    return place


def tree(base: Path, rows: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {
        "model": {"base": str(base), "device": "cpu"},
        "data": {"rows": [str(rows)], "held_out": 0.2},
        "encoding": {"max_tokens": 200},
        "algorithm": {
            "epochs": 2.0, "rows_per_step": 4, "learning_rate": 1e-3, "eval_every": 100,
            "save_every": None, "tokens_per_microbatch": 200, "grad_clip": 1e9,
        },
    }  # fmt: skip
    for key, value in changes.items():
        table, _, name = key.partition("__")
        made[table][name] = value
    return made


def cases(base: Path, rows: Path) -> dict[str, dict[str, Any]]:
    def step(dtype: str = "float64", **changes: Any) -> dict[str, Any]:
        return {"verb": "prm", "dtype": dtype, "config": tree(base, rows, **changes)}

    def outcome(objective: str, **changes: Any) -> dict[str, Any]:
        changes = {"algorithm__objective": objective, **changes}
        changes |= {"algorithm__tokens_per_microbatch": 400}
        return {"verb": "rm", "dtype": "float64", "config": tree(base, rows, **changes)}

    return {
        "plain": step("float32", algorithm__steps=1, algorithm__rows_per_step=7),
        "weights": step(algorithm__class_weights="balanced", algorithm__average="rows"),
        "balanced": step(data__sampling="balanced"),
        "prefixes": step(
            data__keep_prefixes_together=True, data__steps="last", algorithm__rows_per_step=2
        ),
        "language": step(algorithm__lm_weight=0.5),
        "two-logits": step(model__head="two_logits", algorithm__lm_weight=0.5),
        "lora": step(model__peft="lora"),
        "pointwise": outcome("pointwise"),
        "pairwise": outcome("pairwise", algorithm__center_coefficient=0.01),
    }


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


QUICK = ("plain", "weights", "prefixes")
"""The cases of the everyday tests."""


def compared(folder: Path, made: dict[str, Any]) -> dict[str, Any]:
    """What two processes computed otherwise than one did, by case."""
    (folder / "cases.json").write_text(json.dumps(made))
    port = free_port()
    both = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), str(index), port],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for index in range(2)
    ]  # fmt: skip
    told = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], "\n".join(told)
    return json.loads((folder / "found.json").read_text())


def check_weights(one: dict[str, Any]) -> None:
    """1e-10 in float64 after two epochs with their last, partial batches."""
    assert len(one["batches"]) > 4
    assert one["weights"] < 1e-10
    alone, together = one["metrics"]
    assert alone.keys() == together.keys()
    assert all(together[name] == pytest.approx(alone[name], abs=1e-6) for name in alone)


def test_two_processes_have_the_gradients_and_weights_of_one(
    tiny_base: Folder, tmp_path: Path
) -> None:
    """Gradients to 1e-5 relative in float32, on rows of uneven length and number."""
    made = cases(tiny_base(), step_rows(tmp_path / "rows.jsonl"))
    found = compared(tmp_path, {name: made[name] for name in QUICK})
    assert found["plain"]["size"] > 0
    assert found["plain"]["gradients"] < 1e-5
    check_weights(found["weights"])
    check_weights(found["prefixes"])
    assert min(found["prefixes"]["batches"]) == 1, "a process without any row"


@pytest.mark.slow
def test_two_processes_learn_every_loss_as_one_does(tiny_base: Folder, tmp_path: Path) -> None:
    made = cases(tiny_base(), step_rows(tmp_path / "rows.jsonl"))
    others = {name: case for name, case in made.items() if name not in QUICK}
    found = compared(tmp_path, others)
    assert found.keys() == others.keys()
    for one in found.values():
        check_weights(one)


@pytest.mark.slow
def test_a_loss_that_is_no_number_in_one_process_ends_all_with_one_message(
    tiny_base: Folder, tmp_path: Path
) -> None:
    made = cases(tiny_base(), step_rows(tmp_path / "rows.jsonl"))
    compared(tmp_path, {"nan": {**made["plain"], "broken": 1}})
    told = [json.loads((tmp_path / f"told-{index}.json").read_text())["nan"] for index in range(2)]
    assert told[0] == told[1]
    assert "The loss of step 1 is nan" in told[0]
