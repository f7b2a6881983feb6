"""The lock: one living owner at a time; the dead keep nothing, whoever has their number now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from stepmark.errors import RunError
from stepmark.store.lock import Lock, Owner

HOLD = """
import sys, time
from pathlib import Path
from stepmark.store import Lock
try:
    Lock(Path(sys.argv[1])).acquire()
    print("mine", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
if sys.argv[2] == "stay":
    time.sleep(60)
"""


def holder(path: Path, how: str = "stay") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how], stdout=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_living_owner_keeps_it_and_a_killed_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    owner = holder(path)
    assert said(owner) == "mine"
    with pytest.raises(RunError, match=f"process {owner.pid} on host"):
        Lock(path).acquire()
    end(owner)
    Lock(path).acquire()
    assert Lock(path).owner() == Owner.me()


def test_a_number_that_was_given_out_again_does_not_look_alive(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    earlier = replace(Owner.me(), start="1")
    path.write_text(json.dumps(asdict(earlier)))
    assert earlier.is_gone()
    Lock(path).acquire()


def test_the_boot_before_this_one_is_over_and_another_host_may_live(tmp_path: Path) -> None:
    assert replace(Owner.me(), boot="another").is_gone()
    assert not Owner.me().is_gone()
    other = replace(Owner.me(), host="elsewhere", boot="another")
    assert not other.is_gone()
    (tmp_path / ".lock").write_text(json.dumps(asdict(other)))
    with pytest.raises(RunError, match="'elsewhere'"):
        Lock(tmp_path / ".lock").acquire()


def test_a_record_cut_off_by_a_kill_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text('{"host": "x", "pi')
    Lock(tmp_path / ".lock").acquire()


def test_releasing_gives_it_back_and_never_takes_another_ones(tmp_path: Path) -> None:
    lock = Lock(tmp_path / ".lock")
    lock.release()
    lock.acquire()
    lock.release()
    assert lock.owner() is None
    theirs = replace(Owner.me(), pid=os.getpid() + 1, host="elsewhere")
    lock.path.write_text(json.dumps(asdict(theirs)))
    lock.release()
    assert lock.owner() == theirs


def test_of_many_that_start_at_once_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps(asdict(replace(Owner.me(), start="1"))))
    processes = [holder(path) for _ in range(4)]
    answers = sorted(said(process) for process in processes)
    for process in processes:
        end(process)
    assert answers == ["RunError", "RunError", "RunError", "mine"]
