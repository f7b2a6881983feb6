"""``stepmark prm train``: rows in, a reward model out; what cannot work is said at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command

pytest.importorskip("torch")


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


SMALL = (
    "algorithm.steps=2", "algorithm.rows_per_step=4", "encoding.max_tokens=64", "model.device=cpu",
    "data.held_out=0.3",
)  # fmt: skip


def run(*words: object) -> int:
    sets = [part for text in SMALL for part in ("--set", text)]
    return command.run(["prm", "train", *map(str, words), *sets])


def test_a_run_ends_in_a_checkpoint_and_its_numbers(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("--base", base, "--data", rows, "--out", out, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["step"], found["why"]) == (2, "all 2 steps are done")
    assert (Path(found["final"]) / "prm.json").is_file()
    assert run("--base", base, "--data", rows, "--out", out, "--resume") == 0
    assert "Done after step 2" in capsys.readouterr().out


def test_a_dry_run_counts_labels_and_loads_no_weights(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bare" / name).write_bytes((base / name).read_bytes())
    assert run("--base", tmp_path / "bare", "--data", rows, "--dry-run", "--json") == 0
    told = capsys.readouterr()
    counts = json.loads(told.out)["data"]
    assert counts["train"]["rows"] + counts["held_out"]["rows"] == 20
    assert "memory (estimate)" in told.err
    assert "nothing was written" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "nothing.jsonl"), "There is no file 'nothing.jsonl'"),
        (("--set", "algorithm.learningrate=1"), "algorithm.learning_rate"),
        (("--set", "optimizer.lr=1"), "There is no table 'optimizer'"),
        (("--head", "value"), "'classifier' or 'two_logits'"),
        (("--resume",), "--out RUN"),
    ],
)
def test_what_cannot_work_is_said_and_exits_with_2(
    base: Path, rows: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = () if "--data" in words else ("--data", rows)
    assert run("--base", base, *given, *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
