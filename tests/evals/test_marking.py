"""Marking that goes on where it was stopped, and replaces nothing but its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepmark.errors import RunError, VerifierError
from stepmark.evals import read_recorded, regrade, verdict_rows
from stepmark.evals.marking import Job, workplace
from stepmark.store import read_rows
from stepmark.types import Item, Verdict
from stepmark.verifiers import load_verifier


class Counting:
    """Right when the completion is the gold; stops the process's work after so many items."""

    def __init__(self, stops_after: int | None = None, key: str = "counting@1") -> None:
        self.key, self.stops_after, self.marked = key, stops_after, 0

    @property
    def columns(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        if self.stops_after is not None and self.marked + len(items) > self.stops_after:
            raise KeyboardInterrupt
        self.marked += len(items)
        return [Verdict.marked(item.completion == item.problem.gold, "equal") for item in items]


def source(tmp_path: Path, size: int = 1000, wrong: int = 3) -> Path:
    path = tmp_path / "f.jsonl"
    rows = [
        {"id": str(n), "response": str(n % 5), "gold": str(n % 5), "label": n % wrong > 0}
        for n in range(size)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def _save_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmark.evals.marking.SAVE_EVERY_S", -1.0)


def test_a_stopped_marking_goes_on_and_ends_as_if_never_stopped(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        regrade(path, Counting(stops_after=500), out)
    kept = read_rows(tmp_path / "out.part" / "verdicts.counting@1.jsonl")
    assert 0 < len(kept) <= 500
    assert not out.exists()
    second = Counting()
    regrade(path, second, out)
    assert second.marked == 1000 - len(kept)
    assert not (tmp_path / "out.part").exists()
    regrade(path, Counting(), tmp_path / "whole")
    for name in ("verdicts.jsonl", "disagreements.jsonl", "summary.json", "table.md"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_file_of_verdict_rows_goes_on_too(tmp_path: Path) -> None:
    recording, out = read_recorded(str(source(tmp_path))), tmp_path / "v.jsonl"
    with pytest.raises(KeyboardInterrupt):
        verdict_rows("f.jsonl", Counting(stops_after=300), out, recording)
    second = Counting()
    verdict_rows("f.jsonl", second, out, recording)
    assert second.marked < 1000
    assert [row["id"] for row in read_rows(out)] == [str(n) for n in range(1000)]


def test_a_torn_last_verdict_is_made_again(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        regrade(path, Counting(stops_after=500), out)
    kept = tmp_path / "out.part" / "verdicts.counting@1.jsonl"
    kept.write_bytes(kept.read_bytes()[:-20])
    regrade(path, Counting(), out)
    assert len(read_rows(out / "verdicts.jsonl")) == 1000


@pytest.mark.parametrize("change", ["verifier", "rows"])
def test_another_job_does_not_go_on_from_these_verdicts(tmp_path: Path, change: str) -> None:
    path, out = source(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        regrade(path, Counting(stops_after=500), out)
    other = Counting(key="other@1") if change == "verifier" else Counting()
    if change == "rows":
        source(tmp_path, size=999)
    with pytest.raises(RunError, match=r"remove .*out\.part"):
        regrade(path, other, out)
    assert other.marked == 0


def test_a_finished_result_is_not_marked_again_nor_lost_to_another_verifier(
    tmp_path: Path,
) -> None:
    path, out = source(tmp_path), tmp_path / "out"
    regrade(path, Counting(), out)
    before = (out / "summary.json").read_bytes()
    again = Counting()
    regrade(path, again, out)
    assert (again.marked, (out / "summary.json").read_bytes()) == (0, before)
    with pytest.raises(RunError, match="Choose another --out"):
        regrade(path, Counting(key="other@1"), out)
    assert (out / "summary.json").read_bytes() == before


def test_both_verifiers_of_a_comparison_are_kept(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        regrade(path, Counting(), out, against=Counting(stops_after=200, key="other@1"))
    first, second = Counting(), Counting(key="other@1")
    found = regrade(path, first, out, against=second)
    assert first.marked == 0
    assert 800 <= second.marked < 1000
    assert (found.label, found.disagreements) == ("other@1", 0)
    assert len(read_rows(out / "against.jsonl")) == 1000


def test_verdicts_that_are_mostly_errors_leave_nothing(tmp_path: Path) -> None:
    class Failing(Counting):
        def __call__(self, items: Sequence[Item]) -> list[Verdict]:
            return [Verdict.failed("verifier_raised") for _ in items]

    with pytest.raises(VerifierError):
        regrade(source(tmp_path), Failing(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["f.jsonl"]


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path, notes = source(tmp_path, 5), tmp_path / "notes.jsonl"
    notes.write_text('{"note": "keep"}\n')
    recording = read_recorded(str(path))
    with pytest.raises(RunError, match="not overwritten"):
        verdict_rows(path, Counting(), notes, recording)
    assert notes.read_text() == '{"note": "keep"}\n'
    (tmp_path / "v.jsonl.part").mkdir()
    (tmp_path / "v.jsonl.part" / "mine").touch()
    with pytest.raises(RunError, match="something else"):
        verdict_rows(path, Counting(), tmp_path / "v.jsonl", recording)


def test_one_process_at_a_time_works_in_a_place(tmp_path: Path) -> None:
    job = Job("f.jsonl", "0", "counting@1")
    second = workplace(tmp_path / "out", job)
    with workplace(tmp_path / "out", job), pytest.raises(RunError, match="in use"), second:
        raise AssertionError("two at a time")


def test_workers_give_the_same_verdicts_in_the_same_order(tmp_path: Path) -> None:
    recording = read_recorded(str(source(tmp_path, 300)))
    math = load_verifier("math")
    here = verdict_rows("f", math, tmp_path / "a.jsonl", recording, in_workers=False)
    there = verdict_rows("f", math, tmp_path / "b.jsonl", recording, in_workers=True)
    assert here == there
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
