"""Children that measure a grader, each with a deadline per request: a hung pair ends nothing."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from stepmark.errors import SetupError

START_S = 120.0
BLOCK_S = 240.0
PAIR_S = 60.0


class Hung(Exception):
    """A request was not answered within its deadline; the child is gone."""


class Child:
    """A process with one warm grader in it.

    Args:
        name: the grader, ``ours`` or ``peer``.
        seed: of the hash function, so that sets are walked in the same order each time.
        pool: whether ours may use its workers.

    Raises:
        SetupError: the child does not start; its last words are in the message.
    """

    def __init__(self, name: str, seed: int, *, pool: bool = True) -> None:
        self.name, self.seed, self.pool = name, seed, pool
        self._start()

    def _start(self) -> None:
        self.words = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        script = Path(__file__).with_name("child.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), self.name, "pool" if self.pool else "alone"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env={**os.environ, **threads, "PYTHONHASHSEED": str(self.seed)},
            start_new_session=True,
        )
        self.rest = b""
        try:
            self._read(START_S)
        except Hung as error:
            raise SetupError(
                f"The process that measures {self.name!r} did not start: {error}. It needs "
                f"Stepmark, and math-verify for the peer. Run `make bench`, which installs both."
            ) from error

    def ask(self, do: str, pairs: Sequence[tuple[str, str]], **more: Any) -> dict[str, Any]:
        """The reply to a request.

        Raises:
            Hung: no reply within the deadline (4 minutes, for a single pair one), or the child
                died; the next request starts another child.
        """
        if self.process.poll() is not None:
            self._start()
        assert self.process.stdin is not None
        line = json.dumps({"do": do, "pairs": list(pairs), **more}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # it died in between: reading says so
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        return json.loads(self._read(PAIR_S if len(pairs) == 1 else BLOCK_S))

    def _read(self, deadline_s: float) -> bytes:
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        end = time.monotonic() + deadline_s
        while b"\n" not in self.rest:
            ready, _, _ = select.select([out], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(out, 1 << 20) if ready else b""
            if not piece:
                why = f"no reply in {deadline_s:.0f} s" if not ready else "it died"
                said = self._last_words()
                self.close()
                raise Hung(f"{why}; {said}")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        self.words.seek(0)
        said = self.words.read().decode(errors="replace").strip().splitlines()
        return f"last words: {said[-1]}" if said else "it said nothing"

    def close(self) -> None:
        """End the child with everything that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has ended, and its workers with it
            os.killpg(self.process.pid, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout, self.words):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what it did not read is lost
                    pipe.close()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
