"""Worker processes as their caller sees them: started, asked, killed.

On Linux workers are forked in a nursery (see `serving`); elsewhere, and where the nursery has
threads, each is a fresh interpreter, and one more is kept warm. Both are started by `subprocess`:
no process of the caller is forked, its ``__main__`` is not run again, and daemonic processes (data
loaders, actors) may have workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.spawn import get_executable
from typing import Any, Protocol

from .serving import READY, Pipes, read_frame

__all__ = ["Nursery", "NurseryUnfit", "Spawner", "Starter", "Worker", "starter"]

START_S = 120
"""Longest time that a fresh interpreter takes to be ready, in seconds, on a busy machine."""

_forked: weakref.WeakSet[ForkedWorker] = weakref.WeakSet()
_nurseries: weakref.WeakSet[Nursery] = weakref.WeakSet()


class NurseryUnfit(OSError):
    """The nursery must not fork: something in its environment starts threads."""


class Worker(Protocol):
    """A process that answers requests, one at a time."""

    def send(self, frame: bytes) -> None:
        """Hand over a frame of a request; OSError when the worker is gone."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """The next frame; TimeoutError when there is none in time, EOFError when it is gone."""
        ...

    def is_ready(self) -> bool:
        """Whether it waits for a request: it lives and has nothing to say."""
        ...

    def kill(self) -> None:
        """End it at once, with all that it started; what is left to do is `close`."""
        ...

    def ending(self) -> str:
        """How one that was lost ended, for people; closes it."""
        ...

    def close(self) -> None:
        """Let it end by itself, if it has not yet; does not wait."""
        ...


class Starter(Protocol):
    """Where workers of one kind come from."""

    def is_alive(self) -> bool:
        """Whether it can start workers."""
        ...

    def start(self) -> Worker:
        """A worker that is ready; OSError when there can be none."""
        ...

    def close(self) -> None:
        """End all that it keeps; its workers are closed or killed before."""
        ...


def _python(entry: str, *arguments: object) -> list[str]:
    """A command that calls an entry of `serving` in a fresh interpreter with our import path."""
    code = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from stepmark.verifiers.serving import {entry}; "
        f"{entry}(*json.loads(sys.argv[2]))"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = json.dumps([str(place) for place in sys.path])
    return [get_executable(), *flags, "-P", "-c", code, path, json.dumps(arguments)]


def _standard_error() -> int:
    """For what a worker prints: standard output may carry our JSON."""
    try:
        os.fstat(2)
    except OSError:  # a service without standard error
        return subprocess.DEVNULL
    return 2


def _signal_group(pid: int) -> None:
    """Kill a group of processes, or the one where there is no such group (yet)."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
            return


class ForkedWorker:
    """A worker that a nursery forked and reaps."""

    def __init__(self, channel: Any, pid: int, nursery: Nursery) -> None:
        self.channel = channel
        self.pid = pid
        self.nursery = nursery
        _forked.add(self)

    def send(self, frame: bytes) -> None:
        """See `Worker`."""
        self.channel.send_bytes(frame)

    def receive(self, timeout_s: float) -> bytes:
        """See `Worker`."""
        if not self.channel.poll(timeout_s):
            raise TimeoutError
        return self.channel.recv_bytes()

    def is_ready(self) -> bool:
        """See `Worker`."""
        return not self.channel.poll(0)

    def kill(self) -> None:
        """See `Worker`. The nursery reaps it only when told, so the process id is still its own."""
        _signal_group(self.pid)

    def ending(self) -> str:
        """See `Worker`."""
        status = self.nursery.ask(f"status {self.pid}")
        self.channel.close()
        if not status.isdigit():
            return "ended, and so did the process that it came from"
        code = os.waitstatus_to_exitcode(int(status))
        return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"

    def close(self) -> None:
        """See `Worker`."""
        self.channel.close()
        self.nursery.tell(f"reap {self.pid}")


class Nursery:
    """A process without threads that workers are forked in, in milliseconds.

    Args:
        kind: ``compare``: it has sympy loaded; or ``function``.

    Raises:
        OSError: it does not start, or is unfit.
    """

    def __init__(self, kind: str) -> None:
        self.is_gone = False
        self.lock = threading.Lock()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                _python("nursery", kind, theirs.fileno(), os.getpid()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_standard_error(),
            )
        _nurseries.add(self)
        self.control.settimeout(START_S)
        said = self.ask("")
        self.control.settimeout(None)
        if said != "ready":
            self.close()
            if said == "threads":
                raise NurseryUnfit("the environment starts threads in every Python process")
            raise OSError("a fresh Python process that imports stepmark did not get ready")

    def start(self) -> ForkedWorker:
        """See `Starter`."""
        from multiprocessing.connection import Connection

        ours, theirs = socket.socketpair()
        with theirs:
            said = self.ask("fork", theirs.fileno())
        if not said.isdigit():
            ours.close()
            self.is_gone = not said
            raise OSError(said or "the process that workers come from is gone")
        return ForkedWorker(Connection(ours.detach()), int(said), self)

    def tell(self, message: str) -> None:
        """Send a message that has no answer; one that cannot be sent needs none."""
        with self.lock, contextlib.suppress(OSError):
            self.control.send(message.encode())

    def ask(self, message: str, *files: int) -> str:
        """The answer to a message; empty when the nursery is gone."""
        with self.lock, contextlib.suppress(OSError):
            if message:
                socket.send_fds(self.control, [message.encode()], list(files))
            return self.control.recv(256).decode()
        return ""

    def is_alive(self) -> bool:
        """Whether it can fork."""
        return not self.is_gone and self.process.poll() is None

    def close(self) -> None:
        """See `Starter`."""
        self.control.close()
        self.process.wait()


class PipedWorker:
    """A worker that is a fresh interpreter; a thread reads its frames."""

    def __init__(self, kind: str) -> None:
        group: dict[str, Any] = {"process_group": 0}
        if sys.platform == "win32":
            group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self.process = subprocess.Popen(
            _python("piped_worker", kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, **group
        )
        self.frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, name="stepmark-reader", daemon=True)
        self.reader.start()
        self.is_warm = False

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            for line in self.process.stdout:  # type: ignore[union-attr]
                if line == READY:  # before it, the environment may print what it likes
                    break
            self.frames.put(READY)
            while True:
                self.frames.put(read_frame(self.process.stdout))  # type: ignore[arg-type]
        self.frames.put(None)

    def warm(self) -> None:
        """Wait until it is ready."""
        if not self.is_warm:
            self.receive(START_S)
            self.is_warm = True

    def send(self, frame: bytes) -> None:
        """See `Worker`."""
        Pipes(self.process.stdout, self.process.stdin).send_bytes(frame)  # type: ignore[arg-type]

    def receive(self, timeout_s: float) -> bytes:
        """See `Worker`."""
        try:
            frame = self.frames.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if frame is None:
            self.frames.put(None)
            raise EOFError
        return frame

    def is_ready(self) -> bool:
        """See `Worker`."""
        return self.frames.empty()

    def kill(self) -> None:
        """See `Worker`."""
        if os.name == "posix":
            _signal_group(self.process.pid)
        else:
            self.process.kill()

    def ending(self) -> str:
        """See `Worker`."""
        self.close()
        return f"ended with exit code {self.process.wait()}"

    def close(self) -> None:
        """See `Worker`."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]


class Spawner:
    """Starts a fresh interpreter for each worker, and keeps one more warm.

    Args:
        kind: ``compare`` or ``function``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lock = threading.Lock()
        self.spare: PipedWorker | None = None
        self.started: list[PipedWorker] = []

    def start(self) -> PipedWorker:
        """See `Starter`."""
        with self.lock:
            worker = self.spare or self._new()
            self.spare = self._new()
        try:
            worker.warm()
        except (TimeoutError, EOFError) as error:
            worker.kill()
            worker.close()
            raise OSError(
                f"a fresh Python process that imports stepmark did not get ready: {error!r}"
            ) from error
        return worker

    def is_alive(self) -> bool:
        """See `Starter`."""
        return True

    def _new(self) -> PipedWorker:
        for old in [old for old in self.started if old.process.poll() is not None]:
            old.process.stdout.close()  # type: ignore[union-attr]
            self.started.remove(old)
        self.started.append(PipedWorker(self.kind))
        return self.started[-1]

    def close(self) -> None:
        """See `Starter`."""
        with self.lock:
            if self.spare is not None:
                self.spare.kill()
                self.spare.close()
                self.spare = None
            for worker in self.started:
                try:
                    worker.process.wait(1)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.process.wait()
                worker.reader.join()
                worker.process.stdout.close()  # type: ignore[union-attr]
            self.started.clear()


def starter(kind: str) -> Starter:
    """Where this machine's workers of a kind come from."""
    if sys.platform == "linux":
        with contextlib.suppress(NurseryUnfit):
            return Nursery(kind)
    return Spawner(kind)


def _forget() -> None:
    """In a fork of the caller: its workers belong to the caller, which they must see end."""
    for worker in list(_forked):
        worker.channel.close()
    for nursery in list(_nurseries):
        nursery.control.close()
        nursery.process.returncode = 0  # not ours to wait for


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
