"""Runs: what is stored, what is beside an accuracy, and that a kill costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepmark.errors import ConfigError, EngineError, RunError, VerifierError
from stepmark.evals import evaluate_policy, read_result, run, show, weights_hash
from stepmark.protocols import OutcomeVerifier
from stepmark.statistics import mean_at_k, wilson
from stepmark.store import RunFolder, SampleStore
from stepmark.types import Item, Sampling, Verdict

GREEDY = Sampling(temperature=0.0, max_tokens=40)
SAMPLED = Sampling(temperature=1.0, max_tokens=40)


class Counting:
    """A verifier around another, which counts and can fail."""

    key = "counting@1"
    columns = frozenset[str]()

    def __init__(self, inner: OutcomeVerifier, fails: Sequence[str] = ()) -> None:
        self.inner, self.fails, self.marked = inner, set(fails), list[str]()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        self.marked += [item.problem.id for item in items]
        return [
            Verdict.failed("verifier_raised", traceback=f"Traceback: {item.problem.id} broke")
            if item.problem.id in self.fails
            else verdict
            for item, verdict in zip(items, self.inner(items), strict=True)
        ]


def start(
    fake: ModuleType, verifier: Any, out: Path, engine: Any = None, count: int = 20, **given: Any
) -> Any:
    settings: dict[str, Any] = {"sampling": GREEDY, "model": "fake", "resume": True} | given
    task = settings.pop("task", None) or fake.sums(count)
    engine = engine or fake.FakeEngine(fake.right_below(12))
    sampling = settings.pop("sampling")
    return run(engine, fake.FakeTokenizer(), task, verifier, sampling, out=out, **settings)


def test_a_greedy_run_gives_the_share_with_wilsons_interval(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    result = start(fake, math, tmp_path / "r")
    assert (result.n, result.k, result.name) == (20, 1, "accuracy")
    assert result.accuracy == 11 / 20  # below 12 all but the silent one
    assert (result.low, result.high) == wilson(11, 20)
    assert result.no_answer == 2 / 20
    assert (result.truncated, result.errors, result.abstains) == (0, 0, 0)
    assert result.accuracy_upper == result.accuracy
    names = {"config.toml", "manifest.json", "summary.json", "table.md", "timings.jsonl"}
    assert names <= {path.name for path in (tmp_path / "r").iterdir()}
    assert read_result(tmp_path / "r") == result


def test_truncation_is_counted_beside_the_accuracy(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    result = start(fake, math, tmp_path / "r", sampling=Sampling(temperature=0.0, max_tokens=6))
    assert result.truncated == 1
    assert result.mean_tokens == 6


def test_several_samples_give_the_clustered_mean(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    engine = fake.FakeEngine(fake.mixed)
    result = start(fake, math, tmp_path / "r", engine, sampling=SAMPLED, n=4)
    rows: dict[str, list[float]] = {}
    for sample, verdict in show(tmp_path / "r"):
        rows.setdefault(sample.id, []).append(float(verdict.correct is True))
    found = mean_at_k(list(rows.values()))
    assert result.name == "mean@4"
    assert (result.accuracy, result.se) == (found.mean, found.se)
    assert (result.low, result.high) == found.interval
    assert 0 < result.accuracy < 1


def test_the_same_run_has_the_same_bytes_but_for_times(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        start(fake, math, tmp_path / name)
    for path in (p for p in (tmp_path / "a").rglob("*") if p.is_file()):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        if path.name != "timings.jsonl":
            assert path.read_bytes() == other.read_bytes(), path.name


def test_a_finished_run_is_not_made_or_marked_again(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    first = start(fake, Counting(math), tmp_path / "r")
    engine, verifier = fake.FakeEngine(fake.mixed), Counting(math)
    assert start(fake, verifier, tmp_path / "r", engine) == first
    assert engine.asked == verifier.marked == []


def test_an_interrupted_run_makes_only_what_is_missing(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    whole = start(fake, math, tmp_path / "whole", sampling=SAMPLED, n=3)

    def interrupt(done: int, total: int) -> None:
        if done >= 21:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(fake, math, tmp_path / "r", sampling=SAMPLED, n=3, on_progress=interrupt)
    store = RunFolder.open(tmp_path / "r").samples
    assert len(store.keys()) == 21
    with pytest.raises(RunError, match="Run its command again"):
        read_result(tmp_path / "r")
    engine, verifier = fake.FakeEngine(fake.right_below(12)), Counting(math)
    verifier.key = math.key  # type: ignore[misc]
    again = start(fake, verifier, tmp_path / "r", engine, sampling=SAMPLED, n=3)
    assert again == whole
    assert len(engine.asked) == 20 - 7
    assert len(verifier.marked) == 60


def test_a_group_that_is_there_in_part_is_completed(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    start(fake, math, tmp_path / "r", sampling=SAMPLED, n=3, count=2)
    shard = RunFolder.open(tmp_path / "r").samples.shards()[0]
    before = shard.read_bytes()
    shard.write_bytes(b"".join(before.splitlines(keepends=True)[:4]))
    engine = fake.FakeEngine(fake.right_below(12))
    start(fake, math, tmp_path / "r", engine, sampling=SAMPLED, n=3, count=2)
    assert len(engine.asked) == 1
    assert shard.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sampling": Sampling(0.0, 30)}, r"sampling\.max_tokens was 40 and is now 30"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"limit": 5}, r"data\.limit was 'none' and is now 5"),
        ({"model": "other"}, "model was 'fake' and is now 'other'"),
        ({"weights": "ab"}, r"hashes\.weights was None and is now 'ab'"),
        ({"count": 21}, r"hashes\.data\.sums"),
    ],
)
def test_another_setting_is_refused_by_its_name(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    start(fake, math, tmp_path / "r")
    with pytest.raises(RunError, match=named):
        start(fake, math, tmp_path / "r", **change)


def test_another_tokenizer_is_refused(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    class Shifted(fake.FakeTokenizer):  # type: ignore[name-defined, misc]
        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [ord(char) + 1 for char in text]}

    start(fake, math, tmp_path / "r")
    engine = fake.FakeEngine(fake.right_below(12))
    with pytest.raises(RunError, match="another prompt or tokenizer"):
        run(
            engine,
            Shifted(),
            fake.sums(20),
            math,
            GREEDY,
            out=tmp_path / "r",
            model="fake",
            resume=True,
        )


def test_errors_stay_in_the_denominator_and_give_an_upper_bound(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    verifier = Counting(math, fails=["sums/0", "sums/19"])
    result = start(fake, verifier, tmp_path / "r", max_error_share=0.2)
    assert (result.accuracy, result.errors) == (10 / 20, 2)
    assert result.accuracy_upper == 12 / 20
    assert "0 + 2, max 60.0 %" in (tmp_path / "r" / "table.md").read_text()


def test_too_many_errors_stop_the_run_and_a_mended_verifier_goes_on(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    broken = Counting(math, fails=[f"sums/{n}" for n in range(200)])
    with pytest.raises(VerifierError, match="Traceback: sums/199 broke"):
        start(fake, broken, tmp_path / "r", count=200)
    made = len(RunFolder.open(tmp_path / "r").samples.keys())
    assert made < 100  # it was found early
    mended = Counting(math)
    result = start(fake, mended, tmp_path / "r", count=200)
    assert (result.n, result.errors) == (200, 0)


def test_an_engine_that_loses_prompts_is_an_error(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    engine = fake.FakeEngine(fake.mixed)
    generate = engine.generate
    engine.generate = lambda *given: list(generate(*given))[1:]
    with pytest.raises(EngineError, match="19 of 20"):
        start(fake, math, tmp_path / "r", engine)


def test_several_greedy_samples_are_refused(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="temperature 0"):
        start(fake, math, tmp_path / "r", n=4)
    assert not (tmp_path / "r").exists()


def test_a_policy_in_memory_reaches_what_a_run_reaches(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    stored = start(fake, math, tmp_path / "r", limit=9, model="policy")
    engine = fake.FakeEngine(fake.right_below(12))
    result = evaluate_policy(engine, fake.FakeTokenizer(), fake.sums(20), math, GREEDY, limit=9)
    assert result == stored
    assert result.metrics()["accuracy"] == result.accuracy
    assert len(engine.asked) == 9


def test_weights_are_told_apart_by_any_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"0" * 100)
    one = weights_hash(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"0" * 99 + b"1")
    assert one != weights_hash(tmp_path)
    assert weights_hash("some/hub-name") is None


KILLED = """
import sys
from pathlib import Path
from stepmark.evals import run
from stepmark.registry import load_file
from stepmark.types import Sampling
from stepmark.verifiers import load_verifier
fake = load_file(Path(sys.argv[1]))
engine = fake.FakeEngine(fake.mixed, delay_s=0.004)
print("go", flush=True)
run(engine, fake.FakeTokenizer(), fake.sums(300), load_verifier("math"),
    Sampling(1.0, 40), out=Path(sys.argv[2]), model="fake", n=2, resume=True)
print(len(engine.asked), flush=True)
"""


def test_a_killed_run_ends_as_if_it_had_not_been(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    engine = fake.FakeEngine(fake.mixed)
    whole = start(fake, math, tmp_path / "whole", engine, 300, sampling=SAMPLED, n=2)
    place = str(Path(__file__).with_name("fake_engine.py"))
    command = [sys.executable, "-c", KILLED, place, str(tmp_path / "r")]
    for wait_s in (0.1, 0.35):
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "go\n"
        time.sleep(wait_s)
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[1]) < 300
    assert read_result(tmp_path / "r") == whole
    one, two = (
        {row.key: row for row in RunFolder.open(tmp_path / name).samples.rows()}
        for name in ("whole", "r")
    )
    assert one == two


def test_the_summary_holds_no_times(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path
) -> None:
    start(fake, math, tmp_path / "r")
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["metric"] == "accuracy"
    assert not [name for name in summary if name.endswith("_s")]


def test_a_run_reads_its_verdicts_no_more_often_when_it_is_longer(
    fake: ModuleType, math: OutcomeVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    original = SampleStore.verdicts

    def counted(self: SampleStore, key: str) -> Any:
        reads.append(key)
        return original(self, key)

    monkeypatch.setattr(SampleStore, "verdicts", counted)
    start(fake, math, tmp_path / "run", count=400)
    assert len(reads) == 2  # with the first marking, and over all at the end
