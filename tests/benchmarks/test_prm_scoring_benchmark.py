"""The benchmark of scoring runs on a handful of solutions, and its sides give the same scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with a config and a tokenizer of bytes."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words |= {c: i + 3 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    made.save_pretrained(tmp_path / "base")
    LlamaConfig(vocab_size=len(words), bos_token_id=1, eos_token_id=2).save_pretrained(
        tmp_path / "base"
    )
    return tmp_path / "base"


@pytest.mark.slow
def test_a_quick_round_gives_equal_scores_and_keeps_other_results(
    base: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "data" / "processbench", tmp_path / "results.json"
    data.mkdir(parents=True)
    rows = [{"id": f"g-{n}", "problem": f"{n} + 1?", "steps": ["so", f"{n + 1}"]} for n in range(9)]
    (data / "processbench_gsm8k.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    out.write_text('{"verifier": {"about": 1}}')
    script = ROOT / "benchmarks" / "prm_scoring.py"
    words = [sys.executable, str(script), "--base", str(base), "--quick", "--out", str(out)]
    named = {"OMP_NUM_THREADS": "1", "STEPMARK_DATA": str(data.parent)}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **named}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["verifier"] == {"about": 1}
    [row] = found["prm_scoring"]["rows"]
    assert row["solutions"] == 8
    assert all(peer["largest_gap"] < 1e-5 for peer in row["peers"].values())
    command = found["prm_scoring"]["about"]["command"]
    assert command == "python benchmarks/prm_scoring.py --quick"


def test_the_flags_of_make_bench_reach_every_benchmark() -> None:
    text = (ROOT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
    commands = text.replace("\\\n", " ").splitlines()[1:]
    assert len(commands) == 5
    assert all("$(BENCH_FLAGS)" in command for command in commands)
