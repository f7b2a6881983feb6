"""The benchmark of the verifier runs on a handful of rows, without the peer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PAIRS = (
    {"id": "a", "gold": "1/2", "answer": "0.5", "form": "expr", "expected": True},
    {"id": "b", "gold": "1/2", "answer": r"\boxed{0.6}", "form": "response", "expected": True},
    {"id": "c", "gold": "7", "answer": "8", "form": "expr", "expected": False},
)
SPREAD = 20
"""A quick run takes one pair in so many, or more."""
RESPONSES = [
    {"id": f"r{i}", "gold": "18", "response": f"A: {17 + i % 2}", "is_correct": i % 2 == 1}
    for i in range(8)
]


def write(path: Path, rows: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))  # type: ignore[attr-defined]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A data folder of three kinds of pairs (the second is labelled wrongly), eight responses."""
    for name in (
        "peer_tests",
        "bug_reports",
        "recorded_answers",
        "hard_negatives",
        "reflexive_golds",
    ):
        spread = [{**row, "id": f"{row['id']}{i}"} for row in PAIRS for i in range(SPREAD)]
        write(tmp_path / "verify" / f"{name}.jsonl", spread)
    for name in ("responses_gsm8k_openai", "responses_math_qwen_cot100"):
        write(tmp_path / "recorded" / f"{name}.jsonl", RESPONSES)
    return tmp_path


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's modules can be imported, as they are when the script is run."""
    monkeypatch.syspath_prepend(str(FOLDER))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "verifier.py"), *words]
    spared = {k: v for k, v in os.environ.items() if k != "STEPMARK_DATA"}
    spared["STEPMARK_WORKERS"] = (
        "1"  # rates over more workers are a measurement, and cost a start each
    )
    return subprocess.run(command, capture_output=True, text=True, check=False, env=spared)


def test_results_hold_goals_and_labels_and_other_benchmarks_stay(
    rows: Path, tmp_path: Path, benchmark: None
) -> None:
    out, failing = tmp_path / "out" / "results.json", tmp_path / "failing.jsonl"
    write(out, [{"another": {"seconds": 1}}])
    places = ("--data", str(rows), "--out", str(out), "--failing", str(failing))
    done = run(*places, "--peer", "none", "--quick")
    assert done.returncode == 0, done.stderr
    written = json.loads(out.read_text())
    assert written["another"] == {"seconds": 1}
    results = written["verifier"]
    for name in ("peer_tests", "hard_negatives"):
        own = results["accuracy"][name]["ours"]
        assert own["accuracy"]["value"] == pytest.approx(2 / 3)
        assert own["false_negatives"]["value"] == pytest.approx(1 / 2)
        assert own["false_positives"]["count"] == 0
    assert results["accuracy"]["gsm8k_responses"]["ours"]["accuracy"]["value"] == 1
    assert results["differing"]["math_responses"]["ours"] == []
    reached = {(goal["corpus"], goal["what"]): goal["reached"] for goal in results["goals"]}
    assert reached["gsm8k_responses", "accuracy"]
    assert not reached["peer_tests", "accuracy"]
    assert reached["", "sympy loaded by import stepmark.verifiers"]
    listed = [json.loads(line) for line in failing.read_text().splitlines()]
    assert {row["id"][0] for row in listed} == {"b"}
    assert len({row["corpus"] for row in listed}) == 5
    from page import page  # type: ignore[import-not-found]

    assert (out.parent / "verifier.md").read_text() == page(results)
    assert sorted(path.name for path in out.parent.iterdir()) == ["results.json", "verifier.md"]


def test_a_data_folder_without_its_files_is_refused_by_name(rows: Path, tmp_path: Path) -> None:
    (rows / "verify" / "bug_reports.jsonl").unlink()
    out = tmp_path / "results.json"
    done = run("--data", str(rows), "--out", str(out), "--peer", "none")
    assert done.returncode == 2
    assert "verify/bug_reports.jsonl" in done.stderr
    assert "--data" in done.stderr
    assert not out.exists()
    assert run("--peer", "none", "--out", str(out)).returncode == 2


@pytest.fixture
def processes(benchmark: None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import processes  # type: ignore[import-not-found]

    monkeypatch.setattr(processes, "BLOCK_S", 1.0)
    return processes


def test_a_hung_block_ends_at_its_deadline_and_the_next_is_answered(processes: ModuleType) -> None:
    pairs = [(r"\boxed{0.5}", "1/2"), (r"\boxed{0.6}", "1/2")]
    with processes.Child("ours", 0) as child:
        first = child.process.pid
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(processes.Hung, match="no reply in 1 s"):
            child.ask("block", pairs)
        processes.BLOCK_S = 60.0
        reply = child.ask("block", pairs)
        assert [answer["correct"] for answer in reply["answers"]] == [True, False]
        assert reply["cpu_ns"] > 0
        assert child.process.pid != first


def test_percentiles_are_values_that_were_measured(benchmark: None) -> None:
    from figures import percentile  # type: ignore[import-not-found]

    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100
    assert percentile([3.0], 0.99) == 3


def test_a_ratio_of_equal_blocks_is_exact(benchmark: None) -> None:
    from figures import ratio  # type: ignore[import-not-found]

    assert ratio([(6.0, 2.0)] * 5, seed=0) == {"value": 3.0, "low": 3.0, "high": 3.0}
