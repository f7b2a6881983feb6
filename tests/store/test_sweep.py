"""What a killed process left half-made is removed by the next one that holds the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepmark.errors import RunError
from stepmark.store import RunFolder, publish
from stepmark.store.files import sweep

LEAVES = """
import os, signal, sys
from pathlib import Path
from stepmark.store import publish
with publish(Path(sys.argv[1]), replace=True) as part:
    part.mkdir()
    (part / "weights").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def names(folder: Path) -> set[str]:
    return {place.name for place in folder.iterdir()}


def test_what_a_killed_publisher_left_is_swept(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVES, str(tmp_path / "c")], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part")
    assert sweep(tmp_path) == [left]
    assert names(tmp_path) == set()


def test_an_earlier_folder_gets_its_name_back_where_no_new_one_took_it(
    tmp_path: Path, dead: int
) -> None:
    for name in ("best", "final"):
        (tmp_path / f".{name}.{dead}.old").mkdir()
        (tmp_path / f".{name}.{dead}.old" / "weights").write_text("earlier")
    (tmp_path / "final").mkdir()
    sweep(tmp_path)
    assert names(tmp_path) == {"best", "final"}
    assert (tmp_path / "best" / "weights").read_text() == "earlier"
    assert not list((tmp_path / "final").iterdir())


def test_nothing_else_is_swept(tmp_path: Path, dead: int) -> None:
    kept = {f".other.{os.getppid()}.part", ".lock", ".notes.part", f"x.{dead}.part", f".{dead}.old"}
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / f".other.{dead}.part").touch()
    assert sweep(tmp_path, "r") == []
    assert [place.name for place in sweep(tmp_path)] == [f".other.{dead}.part"]
    assert names(tmp_path) == kept


def test_a_run_is_swept_under_its_lock_and_its_neighbours_are_not(
    tmp_path: Path, dead: int
) -> None:
    run = RunFolder.create(tmp_path / "r", {"seed": 0}, {})
    places = [run.checkpoints / f".step-000003.{dead}.part", run.path / f".config.toml.{dead}.part"]
    places += [tmp_path / f".r.{dead}.part", tmp_path / f".s.{dead}.part"]
    for place in places:
        place.mkdir()
    with run:
        assert [place.exists() for place in places] == [False, False, False, True]
        places[0].mkdir()
        with pytest.raises(RunError, match="in use by process"), RunFolder.open(run.path):
            pass
        assert places[0].exists(), "who has not the lock sweeps nothing"


def test_settings_are_rewritten_under_the_lock_alone(tmp_path: Path) -> None:
    one, two = {"seed": 0, "trackers": ["a"]}, {"seed": 0, "trackers": ["b"]}
    run = RunFolder.create(tmp_path / "r", one, {"hashes": {}})
    again = {"resume": True, "may_change": {"trackers"}}
    with run:
        with pytest.raises(RunError, match="in use by process"):
            RunFolder.create(run.path, two, {"hashes": {}}, **again)
        assert run.config() == one
        RunFolder.create(run.path, one, {"hashes": {}}, **again)
    RunFolder.create(run.path, two, {"hashes": {}}, **again)
    assert run.config() == two


def test_a_process_sweeps_what_an_earlier_one_with_its_own_id_left(tmp_path: Path) -> None:
    """In a container the same command has the same process id each time."""
    (tmp_path / f".c.{os.getpid()}.part").mkdir()
    with publish(tmp_path / "c") as part:
        part.write_text("whole")
    (tmp_path / f".d.{os.getpid()}.part").mkdir()
    sweep(tmp_path)
    assert names(tmp_path) == {"c"}
