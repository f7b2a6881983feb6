"""Workers for every kind of caller: scripts, notebooks, daemonic processes, torch, the killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

OPEN = "verify(r'\\boxed{\\sin 2x}', gold=r'2 \\sin x \\cos x')"
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="there are no forks to look at")


def run(code: str, folder: Path, *options: str, **environment: str) -> list[str]:
    """The lines that a script prints to standard output; it must end well and write no errors."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, *options, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=os.environ | environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path: Path) -> None:
    code = f"print('started')\nfrom stepmark.verifiers import verify\nprint({OPEN}.correct)\n"
    assert run(code, tmp_path) == ["started", "True"]


@pytest.mark.slow
def test_a_module_beside_the_script_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not the library')")
    code = f"from stepmark.verifiers import verify\nprint({OPEN}.correct)\n"
    assert run(code, tmp_path, "-P") == ["True"]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_daemonic_process_has_workers(tmp_path: Path, method: str) -> None:
    if method == "fork" and sys.platform == "win32":
        pytest.skip("there is no fork")
    code = f"""
        import multiprocessing
        from stepmark.verifiers import verify

        def work():
            print({OPEN}.correct, multiprocessing.current_process().daemon, flush=True)

        if __name__ == "__main__":
            if {method!r} == "fork":  # the caller's own workers stay its own
                print({OPEN}.correct, flush=True)
            process = multiprocessing.get_context({method!r}).Process(target=work, daemon=True)
            process.start()
            process.join()
            print({OPEN}.correct)
        """
    expected = ["True"] * (method == "fork") + ["True True", "True"]
    assert run(code, tmp_path) == expected


def test_an_interactive_interpreter_has_workers(tmp_path: Path) -> None:
    """A notebook's kernel, in short: ``__main__`` has no file, and lines come one by one."""
    lines = f"""
import __main__
hasattr(__main__, "__file__")
from stepmark.verifiers import *
{OPEN}.correct
from stepmark.types import Item, Problem
items = [Item(Problem(str(n), "", "3"), f"#### {{n}}") for n in range(9)]
[verdict.correct for verdict in submit(items).result()].index(True)
"""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == ["False", "True", "3"]
    assert "Error" not in done.stderr


@pytest.mark.slow
def test_an_environment_that_starts_threads_and_prints_gets_workers_that_are_not_forked(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, threading, time\n"
        "if 'piped_worker' in str(sys.orig_argv): print('what it likes', end='')\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
    )
    code = f"""
        from stepmark.verifiers import verify, workers
        print({OPEN}.correct, type(workers._pools["compare"].source).__name__)
        """
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run(code, tmp_path, PYTHONPATH=path) == ["True Spawner"]


@needs_proc
def test_a_caller_that_is_killed_leaves_no_worker_behind(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import os, threading, time
        from stepmark.verifiers import workers as pool
        print(pool.run_all("compare", os.getpid, [()], timeout_s=30)[0].value, flush=True)
        calls = [(range(10**13),)]
        threading.Thread(target=pool.run_all, args=("compare", sum, calls),
                         kwargs={"timeout_s": 60}).start()
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    worker = Path("/proc", done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists()


def test_a_program_ends_though_a_batch_is_not_marked(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("def hangs(completion):\n    while True: pass\n")
    code = """
        import time
        from stepmark.types import Item, Problem
        from stepmark.verifiers import submit
        items = [Item(Problem("1", "", "1"), "1")] * 5
        waiting = submit(items, verifier="hang.py:hangs?timeout_s=900")
        time.sleep(1)
        print(waiting.done())
        """
    start = time.monotonic()
    assert run(code, tmp_path) == ["False"]
    assert time.monotonic() - start < 30


@pytest.mark.slow
@needs_fork
def test_torch_threads_and_forked_data_loaders_do_no_harm(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = f"""
        import torch
        from stepmark.verifiers import verify

        weights = torch.randn(500, 500, requires_grad=True)
        (weights @ weights).sum().backward()

        class Marked(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return {OPEN}.score

        print({OPEN}.correct)
        print(sum(batch.item() for batch in torch.utils.data.DataLoader(Marked(), num_workers=2)))
        print({OPEN}.correct)
        """
    assert run(code, tmp_path) == ["True", "4.0", "True"]
