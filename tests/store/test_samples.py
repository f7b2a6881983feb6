"""The sample store: append-only, the last row of a key wins, verdicts beside the samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stepmark.store import Key, Sample, SampleStore, ScoredSteps
from stepmark.types import Problem, Prompt, Rollout, Verdict


def sample(id: str = "p", k: int = 0, step: int = 0, text: str = "18") -> Sample:
    prompt = Prompt(Problem(id, "How many?", "18", meta={"level": 3}), (1, 2), "How many?\n")
    rollout = Rollout(prompt, k, (5, 6), (-0.5, -0.25), "stop", text, seed=7)
    return Sample.from_rollout(rollout, step=step, policy="tiny@0", request="abc")


def test_samples_come_back_equal(tmp_path: Path) -> None:
    given = [sample("a"), sample("b", k=1, step=2), replace(sample("c"), ids=None, logps=None)]
    store = SampleStore(tmp_path / "samples")
    store.append(given)
    assert list(SampleStore(tmp_path / "samples").rows()) == given
    assert store.keys() == {(0, "a", 0), (2, "b", 1), (0, "c", 0)}
    assert given[0].to_item().problem.meta == {"level": 3}


def test_a_folder_that_is_not_there_is_an_empty_store(tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "none")
    assert (list(store.rows()), store.keys(), store.verdict_keys()) == ([], set(), [])
    store.append([])
    assert not (tmp_path / "none").exists()


def test_the_last_row_of_a_key_wins_across_shards(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, shard_bytes=300)
    for text in ("first", "second", "third"):
        store.append([sample("a", text=text), sample(f"only-{text}", text=text)])
    assert len(store.shards()) == 3
    assert {row.id: row.completion for row in store.rows()} == {
        "a": "third",
        "only-first": "first",
        "only-second": "second",
        "only-third": "third",
    }
    assert len(list(store.rows())) == 4


def test_rows_of_one_step_are_those_of_that_step(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    for step in (1, 2, 1):
        store.append([sample(f"p{len(store.keys())}", step=step)])
    assert [row.id for row in store.rows(1)] == ["p0", "p2"]
    assert [row.id for row in store.rows(2)] == ["p1"]


def test_a_reader_sees_what_another_appends(tmp_path: Path) -> None:
    reader, writer = SampleStore(tmp_path), SampleStore(tmp_path)
    writer.append([sample("a")])
    assert len(reader.keys()) == 1
    writer.append([sample("b")])
    assert {row.id for row in reader.rows()} == {"a", "b"}


def test_a_torn_sample_is_dropped_and_can_be_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SampleStore(tmp_path)
    store.append([sample("a"), sample("b")])
    shard = store.shards()[0]
    shard.write_bytes(shard.read_bytes()[:-9])
    again = SampleStore(tmp_path)
    assert again.keys() == {(0, "a", 0)}
    assert "cut off" in caplog.text
    again.append([sample("b", text="again")])
    assert [row.completion for row in again.rows()] == ["18", "again"]


@pytest.mark.parametrize("key", ["math@1", "math@1+units=require", "file.py:check/a b@3f"])
def test_verdicts_lie_in_a_side_file_of_their_verifier(tmp_path: Path, key: str) -> None:
    store = SampleStore(tmp_path)
    right = Verdict.marked(1, "equal", extracted="18", gold="18", rule="rational")
    failed = Verdict.failed("verifier_raised", gold="18", traceback="Traceback ...")
    store.append_verdicts(key, [(Key(0, "a", 0), failed), (Key(0, "b", 0), right)])
    store.append_verdicts(key, [((0, "a", 0), right)])
    assert SampleStore(tmp_path).verdicts(key) == {(0, "a", 0): right, (0, "b", 0): right}
    assert store.verdict_keys() == [key]
    assert store.verdicts("other@1") == {}


@pytest.mark.parametrize("key", ["arith-steps@1", "file.py:prm/a b@3f"])
def test_step_scores_lie_in_a_side_file_of_their_scorer(tmp_path: Path, key: str) -> None:
    store = SampleStore(tmp_path)
    first, second = ScoredSteps((1, 4), (0.5, None)), ScoredSteps((2,), (1.0,))
    store.append_scores(key, [(Key(1, "a", 0), second), (Key(1, "b", 0), second)])
    store.append_scores(key, [((1, "a", 0), first)])
    assert SampleStore(tmp_path).scores(key) == {(1, "a", 0): first, (1, "b", 0): second}
    assert (store.score_keys(), store.verdict_keys()) == ([key], [])
    assert store.scores("other@1") == {}


def test_chosen_rows_are_read_and_unknown_keys_give_none(tmp_path: Path) -> None:
    store = SampleStore(tmp_path, shard_bytes=300)
    for step in (1, 2, 3):
        store.append([sample("a", step=step)])
    wanted = [Key(3, "a", 0), Key(1, "a", 0), Key(9, "a", 0)]
    assert [row.step for row in store.chosen(wanted)] == [1, 3]
