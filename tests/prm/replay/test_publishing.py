"""Publishing a round: killed between any two file operations, nothing is half there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = '''
import os, sys
from pathlib import Path
from stepmark.prm.replay.rounds import current_model, finished, held, publish_round, switch

out, model = Path(sys.argv[1]), Path(sys.argv[2])
EVENTS = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate",
          "shutil.copyfile"}

def work():
    with held(out):
        if finished(out, 2) is None:
            publish_round(out, 2, {"round": 2}, model, {"seconds": {}})
        switch(out, 2)

def killed_at(number):
    """Exit code of a process that is gone before its so-many-th file operation."""
    if (child := os.fork()) == 0:
        seen = 0
        def hook(event, given):
            nonlocal seen
            writes = event == "open" and isinstance(given[2], int) and given[2] & os.O_ACCMODE
            if event in EVENTS or writes:
                seen += 1
                if seen == number:
                    os._exit(9)
        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def state():
    """What a reader sees, and whether all of it is whole."""
    rm = out / "rounds" / "2" / "rm"
    if finished(out, 2) is not None or rm.exists():
        assert {p.name: p.read_bytes() for p in rm.iterdir()} == {
            p.name: p.read_bytes() for p in model.iterdir() if p.is_file()}
        assert finished(out, 2) == {"round": 2}
    now = current_model(out)
    assert now is not None and now.name == "rm" and (now / "weights").is_file()
    return now.parent.name

publish_round(out, 1, {"round": 1}, model, {"seconds": {}})
switch(out, 1)
before, number = {p.name for p in out.iterdir()}, 0
while True:
    number += 1
    code = killed_at(number)
    seen = state()
    if code == 0:
        break
    assert code == 9 and seen in ("1", "2")
    work()
    assert state() == "2"
    left = [p.name for f in (out, out / "rounds") for p in f.iterdir() if p.name.endswith(".part")]
    assert not left, left
    import shutil
    shutil.rmtree(out / "rounds" / "2")
    switch(out, 1)
assert state() == "2"
print(number)
'''


def test_a_kill_between_any_two_file_operations_leaves_a_whole_round_or_none(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model"
    (model / "state").mkdir(parents=True)
    for name in ("weights", "prm.json"):
        (model / name).write_text(name)
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(out), str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 12
    assert not (out / "rounds" / "2" / "rm" / "state").exists()
