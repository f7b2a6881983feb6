"""The campaign goes on where it was stopped, and its summary says what did not run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest

CAMPAIGN = Path(__file__).resolve().parents[1] / "campaign"


class Part:
    """A part of three jobs, of which one may be stopped."""

    TITLE = "Counting"

    def __init__(self) -> None:
        self.done: list[int] = []
        self.stops_at: int | None = None

    def jobs(self, seeds: list[int]) -> list[dict[str, Any]]:
        return [{"seed": seed, "backend": "grpo"} for seed in seeds]

    def do(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        assert list(folder.iterdir()) == []
        (folder / "half").write_text("made")
        if job["seed"] == self.stops_at:
            raise KeyboardInterrupt
        self.done.append(job["seed"])
        return {"twice": 2 * job["seed"]}

    def section(self, rows: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> str:
        return f"{len(rows)} of {len(jobs)}"


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = SimpleNamespace(**run_path(str(CAMPAIGN / "run.py")))
    part = module.part = Part()
    monkeypatch.setitem(sys.modules, "counting", part)  # type: ignore[arg-type]
    yield module
    sys.modules.pop("about", None)


def test_a_stopped_campaign_runs_what_is_missing_and_nothing_twice(
    campaign: SimpleNamespace, tmp_path: Path
) -> None:
    campaign.part.stops_at = 2
    with pytest.raises(KeyboardInterrupt):
        campaign.run("counting", [1, 2, 3], tmp_path, 60)
    rows = tmp_path / "counting.jsonl"
    rows.write_text(rows.read_text() + '{"job": {"seed": 2')
    campaign.part.stops_at = None
    assert campaign.run("counting", [1, 2, 3], tmp_path, 60) == 0
    assert campaign.part.done == [1, 2, 3]
    found = campaign.rows_of(rows)
    assert [row["found"]["twice"] for row in found] == [2, 4, 6]
    assert {"machine", "commit"} == set(found[0]["about"])
    assert list((tmp_path / "counting").iterdir()) == []


def test_no_job_begins_when_the_minutes_are_over(campaign: SimpleNamespace, tmp_path: Path) -> None:
    assert campaign.run("counting", [1, 2], tmp_path, 0) == 2
    assert campaign.part.done == []


def test_some_backends_alone_can_be_run(campaign: SimpleNamespace, tmp_path: Path) -> None:
    assert campaign.run("counting", [1, 2], tmp_path, 60, frozenset({"ppo"})) == 0
    assert campaign.part.done == []
    assert campaign.run("counting", [1], tmp_path, 60, frozenset({"grpo", "ppo"})) == 0
    assert campaign.part.done == [1]


def test_what_did_not_run_is_shown_as_not_run(tmp_path: Path) -> None:
    part = run_path(str(CAMPAIGN / "learning.py"))
    found = {"problems": 400, "before": 0.4, "after": 0.7, "difference": 0.3, "p": 1e-9}
    found |= {"interval": [0.2, 0.4], "mean8_before": 0.1, "mean8_after": 0.2}
    found |= {"steps_before": 0.1, "steps_after": 0.2, "lines_before": 2, "lines_after": 3}
    jobs = [{"seed": 0, "backend": name} for name in ("grpo", "ppo")]
    text = part["section"]([{"job": jobs[0], "found": found}], jobs)
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["grpo", "0", "40.0 %", "70.0 %", "+30.0 points [+20.0, +40.0]"] in [
        row[:5] for row in table
    ]
    assert ["ppo", "0", "not run", "–"] in [row[:4] for row in table]
    assert ["ppo", "not run", "–", "–", "–"] in table


def test_kills_of_fewer_seeds_than_were_asked_for_say_which() -> None:
    part = run_path(str(CAMPAIGN / "kills.py"))
    keys = ("kills", *part["PLACES"], "after a refresh", "runs", "equal")
    jobs = [{"seed": seed, "backend": name} for name in ("grpo", "ppo") for seed in (0, 1, 2)]
    rows = [{"job": jobs[0], "found": {**dict.fromkeys(keys, 4), "faults": []}}]
    text = part["section"](rows, jobs)
    assert "1 of 6 jobs (a backend and a seed each) were run; 5 were not run." in text
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["grpo", "0", "1, 2", "4"] in [row[:4] for row in table]
    assert ["ppo", "", "0, 1, 2", "not run"] in [
        [cell.replace("–", "") for cell in row[:4]] for row in table
    ]


def test_the_committed_summary_has_every_part() -> None:
    text = (CAMPAIGN / "summary.md").read_text(encoding="utf-8")
    assert "## Learning" in text
