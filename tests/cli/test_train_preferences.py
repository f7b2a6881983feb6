"""``stepmark train`` with preferences, self-play and rejection sampling: from data to a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""

SMALL = ("algorithm.steps=2", "algorithm.warmup_steps=0", "algorithm.outer=1")
SMALL += ("rollout.prompts_per_step=2", "rollout.group_size=2", "rollout.max_tokens=8")
SMALL += ("data.eval_limit=8", "algorithm.learning_rate=1e-3")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with the arith tokenizer, on the disk."""
    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    place = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture(autouse=True)
def _one_thread_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    import torch

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("tiny").symlink_to(tiny)
    write("pairs.jsonl", "prompt", "chosen", "rejected")


def write(name: str, *columns: str, spoilt: Any = None) -> None:
    """Forty preferences; the last one is spoilt where asked."""
    rows = [
        dict(zip(columns, (f"What is {n} + 1?", said(n + 1), str(n + 2)), strict=True))
        for n in range(40)
    ]
    if spoilt is not None:
        rows[-1] |= spoilt
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def said(number: int) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": str(number)}]


def train(*more: str, sets: tuple[str, ...] = ()) -> int:
    pairs = [part for text in (*SMALL, *sets) for part in ("--set", text)]
    return command.run(["train", "--model", "tiny", *pairs, *more])


@pytest.mark.parametrize("preset", ["dpo", "ipo"])
def test_preference_data_in_trls_columns_is_learnt_from(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--preset", preset, "--dataset", "pairs.jsonl", "--out", "r") == 0
    rows = RunFolder.open(Path("r")).metrics()
    assert rows[0]["loss"] == pytest.approx({"dpo": 0.693147, "ipo": 25.0}[preset], abs=1e-5)
    assert rows[1]["loss"] != rows[0]["loss"]
    assert rows[0]["pairs"] == 2
    assert "Done after step 2" in capsys.readouterr().out


def test_columns_of_other_names_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    write("mine.jsonl", "q", "good", "bad")
    more = ("--backend", "dpo", "--dataset", "mine.jsonl", "--prompt-column", "q", "--out", "r")
    sets = ("data.chosen_column=good", "data.rejected_column=bad")
    assert train(*more, sets=sets) == 0
    assert train(*more, "--resume", sets=sets) == 0
    assert RunFolder.open(Path("r")).config()["data"]["chosen_column"] == "good"


def test_preferences_that_are_cut_are_counted_before_the_first_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--preset", "dpo", "--dataset", "pairs.jsonl")
    assert train(*more, "--out", "r", sets=("rollout.max_tokens=1",)) == 0
    said = capsys.readouterr().err
    assert (
        "chosen and rejected completions of 'pairs' have more than rollout.max_tokens = 1" in said
    )


@pytest.mark.parametrize("preset", ["online-dpo", "spin", "rft"])
def test_presets_that_sample_run_on_a_task(preset: str) -> None:
    assert train("--preset", preset, "--task", ARITH, "--out", "r") == 0
    run = RunFolder.open(Path("r"))
    assert [row["step"] for row in run.metrics()] == [0, 1, 2]
    size = 3 if preset == "spin" else 2
    assert sum(1 for _ in run.samples.rows()) == 2 * 2 * size
    assert [key.partition("@")[0] for key in run.samples.verdict_keys()] == ["math"]


BAD: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (("--dataset", "spoilt.jsonl"), (), "spoilt.jsonl, row 40 (spoilt/"),
    (("--dataset", "spoilt.jsonl"), (), "'chosen' is [{'role': 'user', 'content': 'no'}]; it must"),
    (("--dataset", "other.jsonl", "--prompt-column", "q"), (), "other.jsonl, row 1 (other/"),
    (("--dataset", "pairs.jsonl"), ("data.chosen_column=chosn",), "Did you mean 'chosen'?"),
    (("--dataset", "pairs.jsonl"), ("data.rejectd_column=x",), "data.rejected_column"),
    (("--task", ARITH), (), "--backend online-dpo"),
    (("--task", ARITH), ("data.chosen_column=x",), "set without data.dataset"),
    (("--dataset", "pairs.jsonl"), ("algorithm.beta=0",), "algorithm.beta is 0"),
    (("--dataset", "pairs.jsonl"), ("algorithm.loss=ipo",), "algorithm.loss"),
    (("--dataset", "pairs.jsonl", "--backend", "spin"), (), "no worked solution to learn from"),
    (("--dataset", "pairs.jsonl", "--backend", "online-dpo"), (), "--gold-column"),
    (("--task", ARITH, "--backend", "rtf"), (), "Did you mean 'rft'?"),
    (("--task", ARITH, "--backend", "rft"), ("algorithm.threshold=2",), "threshold is 2"),
]


@pytest.mark.parametrize(("more", "sets", "message"), BAD, ids=[row[2] for row in BAD])
def test_bad_input_exits_2_says_why_and_writes_nothing(
    more: tuple[str, ...],
    sets: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    turns = [{"role": "user", "content": "no"}]
    write("spoilt.jsonl", "prompt", "chosen", "rejected", spoilt={"chosen": turns})
    write("other.jsonl", "q", "good", "bad")
    before = sorted(path.name for path in Path().iterdir())
    backend = () if "--backend" in more else ("--backend", "dpo")
    assert train(*backend, *more, "--out", "r", sets=sets) == 2
    shown = capsys.readouterr().err
    assert message in shown
    error = shown[shown.index("Error: ") :].strip()
    assert len(error.splitlines()) <= 3, error
    assert sorted(path.name for path in Path().iterdir()) == before
