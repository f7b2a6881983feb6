"""The replay buffer: content-addressed, append-only, whole after any kill."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import RunError
from stepmark.prm import labelled_steps
from stepmark.prm.data import is_held_out
from stepmark.prm.formats import row_id
from stepmark.prm.replay import Annotator, Provenance, Reader, ReplayBuffer
from stepmark.store.lock import Lock, Owner

Make = Callable[..., Any]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def test_a_record_is_named_by_problem_and_steps(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add([row("1 + 1?", ["a", "b"]), row(" 1 +  1?", ["a", " b "], [1, 0])], 0)
    (entry,) = buffer.entries()
    assert entry.id == row_id("1 + 1?", ["a", "b"])
    assert lines(tmp_path / "shard-00001.jsonl")[0]["id"] == entry.id


def test_a_record_says_where_it_comes_from(tmp_path: Path, row: Make) -> None:
    annotator = Annotator("mc", "1", 8, "policy@400")
    given = Provenance("policy@400", {"temperature": 1.0}, annotator, "rollouts")
    ReplayBuffer(tmp_path).add([row("1?", source="trl", meta={"k": 2})], 3, given)
    buffer = ReplayBuffer(tmp_path)
    (record,) = buffer.records(buffer.entries())
    assert record.provenance == given
    assert record.round == 3
    assert record.row.source == "trl"
    assert record.row.meta == {"k": 2}


def test_a_shard_is_a_file_of_labelled_steps(tmp_path: Path, sums: Make) -> None:
    ReplayBuffer(tmp_path).add(sums(5, "no"), 0)
    read = list(labelled_steps(tmp_path / "shard-00001.jsonl"))
    assert [(r.problem.text, r.labels) for r in read] == [
        (r.problem.text, r.labels) for r in sums(5, "no")
    ]


def test_rows_are_held_out_by_their_problem_as_in_training(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path, held_out=0.3)
    rows = [row(f"{n}?", [f"s {k}"], [1]) for n in range(40) for k in range(2)]
    buffer.add(rows, 0)
    parts: dict[str, set[str]] = {}
    for record in buffer.records(buffer.entries()):
        parts.setdefault(record.row.problem.text, set()).add(record.split)
    assert all(
        split == {"held_out" if is_held_out(text, 0.3) else "train"}
        for text, split in parts.items()
    )
    assert len({next(iter(split)) for split in parts.values()}) == 2


def test_the_held_out_share_is_fixed_when_the_buffer_is_made(tmp_path: Path, row: Make) -> None:
    ReplayBuffer(tmp_path, held_out=0.3).add([row("1?")], 0)
    assert ReplayBuffer(tmp_path).held_out_share == 0.3
    with pytest.raises(RunError, match=r"holds out 0\.3 .* not 0\.2"):
        ReplayBuffer(tmp_path, held_out=0.2)


def test_the_same_round_again_changes_nothing(tmp_path: Path, sums: Make) -> None:
    first = ReplayBuffer(tmp_path).add(sums(9, "no"), 1)
    before = bytes_of(tmp_path)
    again = ReplayBuffer(tmp_path).add(iter(sums(9, "no")), 1)
    assert again.is_repeat
    assert not first.is_repeat
    assert again.to_row() == first.to_row()
    assert bytes_of(tmp_path) == before


def test_a_round_takes_no_other_rows_and_none_comes_before_the_newest(
    tmp_path: Path, sums: Make
) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add(sums(9, "no"), 1)
    with pytest.raises(RunError, match=r"Round 1 .* holds other rows .* as round 2"):
        buffer.add(sums(8, "no"), 1)
    with pytest.raises(RunError, match="cannot be added behind round 1"):
        buffer.add(sums(8, "no"), 0)
    assert buffer.next_round(sums(9, "no")) == 1
    assert buffer.next_round(sums(8, "no")) == 2


def test_earlier_bytes_are_never_rewritten(tmp_path: Path, sums: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add(sums(9, "no"), 0)
    before = (tmp_path / "shard-00001.jsonl").read_bytes()
    buffer.add(sums(9, "na"), 1)
    assert (tmp_path / "shard-00001.jsonl").read_bytes().startswith(before)


def test_shards_stay_within_their_bound(tmp_path: Path, sums: Make) -> None:
    buffer = ReplayBuffer(tmp_path, shard_bytes=1500)
    for number in range(3):
        buffer.add(sums(12, f"no{number}"), number)
    shards = sorted(tmp_path.glob("shard-*.jsonl"))
    assert len(shards) > 3
    assert all(path.stat().st_size <= 1500 for path in shards)
    found = ReplayBuffer(tmp_path, shard_bytes=1500)
    assert len(found.rows(found.entries())) == 36


def test_a_missing_or_wrong_index_is_made_anew(tmp_path: Path, sums: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add(sums(9, "no"), 0)
    whole = (tmp_path / "index.jsonl").read_bytes()
    for spoilt in (None, b"", b"{}\n", whole[:-20], whole.split(b"\n", 1)[1]):
        (tmp_path / "index.jsonl").unlink(missing_ok=True)
        if spoilt is not None:
            (tmp_path / "index.jsonl").write_bytes(spoilt)
        found = ReplayBuffer(tmp_path)
        assert found.entries() == buffer.entries()
        assert found.digest(0) == buffer.digest(0)
        found.add(sums(9, "no"), 0)
    found.add(sums(2, "na"), 1)
    assert len(lines(tmp_path / "index.jsonl")) == 11


def test_a_torn_last_line_is_dropped_reported_and_written_again(
    tmp_path: Path, sums: Make, caplog: pytest.LogCaptureFixture
) -> None:
    rows = sums(9, "no")
    ReplayBuffer(tmp_path / "whole").add(rows, 0)
    buffer = ReplayBuffer(tmp_path / "torn")
    buffer.add(rows, 0)
    torn = tmp_path / "torn"
    shard = torn / "shard-00001.jsonl"
    shard.write_bytes(shard.read_bytes()[:-30])
    (torn / "index.jsonl").unlink()
    ledger = (torn / "rounds.jsonl").read_text().splitlines()
    (torn / "rounds.jsonl").write_text(ledger[0] + "\n")
    with caplog.at_level(logging.WARNING):
        found = ReplayBuffer(torn)
    assert "cut off by a kill" in caplog.text
    assert sum(found.torn.values()) > 0
    assert len(found.entries()) == 8
    report = found.add(rows, 0)
    assert report.admitted == 9
    assert shard.read_bytes() == (tmp_path / "whole" / "shard-00001.jsonl").read_bytes()
    assert not ReplayBuffer(torn).torn


def test_a_half_written_round_is_named_and_completed_by_the_same_rows(
    tmp_path: Path, sums: Make
) -> None:
    rows = sums(9, "no")
    buffer = ReplayBuffer(tmp_path)
    buffer.add(sums(3, "na"), 0)
    whole = (tmp_path / "rounds.jsonl").read_text()
    buffer.add(rows, 1)
    begun = (tmp_path / "rounds.jsonl").read_text().splitlines()[2]
    (tmp_path / "rounds.jsonl").write_text(whole + begun + "\n")
    shard = (tmp_path / "shard-00001.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "shard-00001.jsonl").write_bytes(b"".join(shard[:7]))
    half = ReplayBuffer(tmp_path)
    assert half.rounds() == [0]
    with pytest.raises(RunError, match=r"Round 1 .* is half-written: .* 4 of its 9 rows"):
        half.check(1)
    with pytest.raises(RunError, match="add the same rows as that round again"):
        half.add(sums(5, "nu"), 2)
    assert half.next_round(rows) == 1
    assert half.add(rows, 1).admitted == 9
    assert (tmp_path / "shard-00001.jsonl").read_bytes() == b"".join(shard)


def test_an_altered_record_is_refused_by_place(tmp_path: Path, sums: Make) -> None:
    ReplayBuffer(tmp_path).add(sums(3, "no"), 0)
    shard = tmp_path / "shard-00001.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"ok 1", b"ok 7", 1))
    (tmp_path / "index.jsonl").unlink()
    with pytest.raises(RunError, match=r"shard-00001.* never rewritten: the file was altered"):
        ReplayBuffer(tmp_path)


def test_one_process_writes_at_a_time(tmp_path: Path, sums: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add(sums(3, "no"), 0)
    lock = Lock(tmp_path / ".lock")
    lock.acquire()
    with pytest.raises(RunError, match=f"in use by process {Owner.me().pid}"):
        buffer.add(sums(3, "na"), 1)
    lock.release()
    assert buffer.rounds() == [0]


def test_another_tokenizer_or_encoding_is_refused_by_name(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path)
    buffer.add([row("1?")], 0)
    buffer.claim(Reader("e1", "t1"))
    buffer.claim(Reader("e1", "t1"))
    assert ReplayBuffer(tmp_path).reader == Reader("e1", "t1")
    with pytest.raises(RunError, match="tokenizer t1, and this one has t2"):
        ReplayBuffer(tmp_path).claim(Reader("e1", "t2"))
    with pytest.raises(RunError, match="encoding e1, and this one has e2"):
        ReplayBuffer(tmp_path).claim(Reader("e2", "t1"))


def test_a_later_round_leaves_earlier_views_as_they_were(tmp_path: Path, row: Make) -> None:
    buffer = ReplayBuffer(tmp_path, held_out=0.0)
    buffer.add([row("1?"), row("2?")], 0)
    before = buffer.digest(0)
    buffer.add([row("1?", labels=[1, 0]), row("3?")], 1)
    assert buffer.digest(0) == before
    assert len(buffer.entries(until=0)) == 2
    assert len(buffer.entries(until=1, round=0)) == 1
    assert len(buffer.entries(until=1, round=1)) == 2


def test_half_a_surrogate_pair_and_other_scripts_are_kept(tmp_path: Path, row: Make) -> None:
    given = [row("1? \ud835"), row("\u4e00 + 1?"), row("3?")]
    buffer = ReplayBuffer(tmp_path)
    buffer.add(given, 0)
    for found in (buffer, ReplayBuffer(tmp_path)):
        texts = {r.problem.text for r in found.rows(found.entries())}
        assert texts == {r.problem.text for r in given}
    (tmp_path / "index.jsonl").unlink()
    assert ReplayBuffer(tmp_path).entries() == buffer.entries()


def test_shards_are_the_same_wherever_they_are_written(tmp_path: Path, sums: Make) -> None:
    digests = set()
    for name in ("a", "b"):
        ReplayBuffer(tmp_path / name).add(sums(9, "no"), 0)
        shard = (tmp_path / name / "shard-00001.jsonl").read_bytes()
        digests.add(hashlib.sha256(shard).hexdigest())
    assert len(digests) == 1
