"""What the quickstart makes of what lies in its folder: the page, the table, the pairs of DPO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.quickstart import _base_model, _engine, _write_up
from stepmark.cli.quickstart_backends import chosen, write_pairs
from stepmark.errors import RunError
from stepmark.evals import run, weights_hash
from stepmark.store import RunFolder, build_manifest
from stepmark.tasks import load_task
from stepmark.types import Sampling
from stepmark.verifiers import load_verifier

pytest.importorskip("torch")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that has learnt nothing."""
    return _base_model(tmp_path_factory.mktemp("model") / "base")


def evaluated(folder: Path, model: Path, name: str) -> None:
    """A run and its two evaluations, on twenty problems."""
    engine = _engine(model)
    for place in ("eval", "sampled"):
        run(
            engine,
            engine.tokenizer,
            load_task("arith", "test"),
            load_verifier("math"),
            Sampling(temperature=0.0, max_tokens=4),
            out=folder / f"{place}-{name}",
            model=name,
            limit=20,
        )
    engine.close()
    made: dict[str, Any] = {"config": {}, "seeds": {}, "data_hashes": {}, "prompt_hash": {}}
    with RunFolder.create(folder / name, {}, build_manifest(**made)) as one:
        for step in (1, 2):
            one.log_metrics(step, {"reward": 0.5, "eval/accuracy": 0.5, "num_tokens": 9})


def test_table_and_page_are_of_all_that_is_evaluated_in_the_folder(
    model: Path, tmp_path: Path
) -> None:
    for name in ("sft", "grpo"):
        evaluated(tmp_path, model, name)
    (tmp_path / "eval-dpo").mkdir()
    assert [row.name for row in _write_up(tmp_path, chosen("ppo,grpo")).rows] == ["sft", "grpo"]
    evaluated(tmp_path, model, "ppo")
    outcome = _write_up(tmp_path, chosen("ppo"))
    assert [row.name for row in outcome.rows] == ["sft", "ppo", "grpo"]
    assert list(json.loads((tmp_path / "summary.json").read_text())["models"]) == [
        "sft", "ppo", "grpo",
    ]  # fmt: skip
    assert "| grpo " in (tmp_path / "table.md").read_text()
    assert "Side by side" in (tmp_path / "report.html").read_text()


def test_pairs_are_of_these_weights_and_none_is_an_error(model: Path, tmp_path: Path) -> None:
    stale = tmp_path / "dpo-pairs.jsonl"
    stale.write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n')
    engine, weights = _engine(model), weights_hash(model)
    with pytest.raises(RunError, match=r"of 1 problems .* none has both a right and a wrong one"):
        write_pairs(engine, weights, 1, tmp_path)
    assert '"chosen": "a"' in stale.read_text(), "nothing is published in its place"
    with pytest.raises(RunError, match="weights"):
        write_pairs(engine, "0" * 16, 1, tmp_path)
    with pytest.raises(RunError, match="limit"):
        write_pairs(engine, weights, 2, tmp_path)
    engine.close()
