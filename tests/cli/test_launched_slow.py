"""``stepmark prm train`` under a launcher: one voice, one run folder, and an end when one ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
TORCHRUN = ("torchrun", "--nproc_per_node", "2", "--no-python")
ACCELERATE = (
    "accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", "--no_python",
)  # fmt: skip
MANY = 300
"""Steps of a run that is stopped on the way."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("base")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(["</s>", *alphabet])}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>").save_pretrained(folder)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=257, **sizes, **heads)).save_pretrained(folder)
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    lines = [
        {"problem": f"{n} + 1?", "steps": [f"{n} + 1", "so"], "labels": [1, n % 2]}
        for n in range(20)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


Start = Callable[..., Any]


@pytest.fixture
def start(base: Path, rows: Path) -> Start:
    """Begins a training under a launcher, or without one."""

    def started(launcher: tuple[str, ...], out: Path, steps: int, *more: str) -> Any:
        sets = (
            f"algorithm.steps={steps}", "algorithm.rows_per_step=5", "encoding.max_tokens=64",
            "model.device=cpu", "data.held_out=0.3", "algorithm.eval_every=none",
            f"algorithm.save_every={max(1, steps // 20)}", "algorithm.learning_rate=1e-3",
        )  # fmt: skip
        words = ["prm", "train", "--base", base, "--data", rows, "--out", out]
        words += [part for text in sets for part in ("--set", text)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        return subprocess.Popen(
            [*map(str, (*launcher, "stepmark", *words, *more))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    return started


def ended(run: Any, timeout_s: float = 900) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=timeout_s)
    return run.returncode, out, err


def wait_for_step(out: Path, step: int) -> None:
    """Until a run has logged so many steps."""
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + 900
    while time.monotonic() < deadline:
        if metrics.is_file() and len(metrics.read_text().splitlines()) > step:
            return
        time.sleep(0.05)
    raise AssertionError(f"{out} did not come to step {step}")


def workers_of(launcher: int) -> list[int]:
    """The processes of a launcher, in the order of their start."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
    return sorted(int(pid) for pid in children.split())


def final(out: Path) -> bytes:
    return (out / "checkpoints" / "final" / "model.safetensors").read_bytes()


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_two_processes_speak_with_one_voice_and_make_one_run(
    start: Start, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    code, out, err = ended(start(launcher, tmp_path / "two", 4, "--json"))
    assert code == 0, err
    assert json.loads(out)["why"] == "all 4 steps are done"
    assert len(re.findall("step 4 of 4", err)) == 1
    assert [row["step"] for row in metrics(tmp_path / "two")] == [0, 1, 2, 3, 4]
    code, _, err = ended(start((), tmp_path / "one", 4))
    assert code == 0, err
    for one, two in zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True):
        assert one == pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_of_two_that_is_stopped_and_resumed_is_the_one_that_never_was(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    code, _, err = ended(start(TORCHRUN, straight, MANY))
    assert code == 0, err
    run = start(TORCHRUN, broken, MANY)
    wait_for_step(broken, 20)
    run.send_signal(number)
    _, _, err = ended(run, 60)
    assert len(re.findall("Stopped after step", err)) == 1
    assert "torchrun --nproc_per_node 2 --no-python stepmark prm train" in err
    stopped = int(re.search(r"Stopped after step (\d+)", err)[1])  # type: ignore[index]
    assert (broken / "checkpoints" / f"step-{stopped:06d}").is_dir()
    code, _, err = ended(start(TORCHRUN, broken, MANY, "--resume"))
    assert code == 0, err
    assert "bit for bit" not in err
    assert final(broken) == final(straight)
    assert metrics(broken) == metrics(straight)


@pytest.mark.parametrize("index", [0, 1])
def test_a_killed_process_ends_the_run_within_a_minute_and_it_resumes(
    start: Start, tmp_path: Path, index: int
) -> None:
    out = tmp_path / "run"
    run = start(TORCHRUN, out, MANY)
    wait_for_step(out, MANY // 20 + 10)
    os.kill(workers_of(run.pid)[index], signal.SIGKILL)
    code, _, err = ended(run, 60)
    assert code != 0
    assert len(re.findall("Another process of this run was lost", err)) == 1
    code, _, err = ended(start((), out, MANY, "--resume"))
    assert code == 0, err
    assert "began with 2 processes and goes on with 1" in err


def test_bad_input_is_refused_once(start: Start, tmp_path: Path) -> None:
    words = {
        ("--set", "algorithm.rows_per_step=0"): "algorithm.rows_per_step is 0",
        ("--set", "algorithm.rows_per_step=1"): "2 processes were launched",
        ("--set", "model.device=cuda:1"): "each takes a device of its own",
        ("--bogus",): "No such option",
        ("--data", str(tmp_path / "none.jsonl")): "There is no file",
    }
    for more, message in words.items():
        code, _, err = ended(start(TORCHRUN, tmp_path / "run", 4, *more))
        assert code != 0
        assert len(re.findall(re.escape(message), err)) == 1, err
        assert re.search(r"exitcode  : 2 ", err)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("x")
    _, _, err = ended(start(TORCHRUN, tmp_path / "taken", 4))
    assert len(re.findall("exists and is not a run", err)) == 1


def test_a_launcher_that_starts_one_of_two_is_refused(start: Start, tmp_path: Path) -> None:
    launcher = ("accelerate", "launch", "--cpu", "--num_processes", "2", "--no_python")
    code, _, err = ended(start(launcher, tmp_path / "run", 4))
    assert code != 0
    assert "accelerate started one" in err
    assert not (tmp_path / "run").exists()
