"""What runs in the worker processes: calls one after another, and the nursery that workers fork in.

A worker reads requests (a task and the arguments of some calls) and sends the outcomes back while
it goes on, never holding one for longer than `FLUSH_S`: its caller knows by them when a call began.
A nursery is a process without threads that has loaded sympy once; a worker forked in it is ready
in milliseconds. It reaps its workers, and kills them when the process that it serves is gone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

__all__ = ["FLUSH_S", "MEMORY_BYTES", "READY", "is_worker", "nursery", "piped_worker", "read_frame"]

FLUSH_S = 0.005
"""An outcome waits for at most this long, in seconds, before the next call begins."""
MEMORY_BYTES = 4 * 2**30
"""Address space of a worker that compares answers; custom functions may load what they like."""
READY = b"stepmark worker ready\n"
"""The line after which a worker that was not forked speaks in frames."""
GRACE_S = 0.5
"""Time for idle workers to end by themselves, in seconds, when they are no longer needed."""

_inside = threading.Event()


class Channel(Protocol):
    """Frames of bytes, both ways, as `multiprocessing.connection.Connection` has them."""

    def send_bytes(self, data: bytes, /) -> None: ...

    def recv_bytes(self) -> bytes: ...


class Pipes:
    """Frames over two files: what a worker speaks through where it was not forked."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.reader = reader
        self.writer = writer

    def send_bytes(self, data: bytes, /) -> None:
        """Send one frame."""
        self.writer.write(struct.pack("!Q", len(data)) + data)
        self.writer.flush()

    def recv_bytes(self) -> bytes:
        """The next frame; EOFError at the end."""
        return read_frame(self.reader)


def read_frame(reader: BinaryIO) -> bytes:
    """The next frame of a file.

    Raises:
        EOFError: the other side is gone.
    """
    head = reader.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("!Q", head)
    body = reader.read(size)
    if len(body) < size:
        raise EOFError
    return body


def is_worker() -> bool:
    """Whether this process is a worker: it starts no workers of its own."""
    return _inside.is_set()


def serve(channel: Channel) -> None:
    """Answer requests until the caller goes away."""
    while True:
        try:
            path, folder = pickle.loads(channel.recv_bytes())
            body = channel.recv_bytes()
        except (EOFError, OSError):
            return
        sys.path[:] = path
        with contextlib.suppress(OSError):  # the caller's folder may be gone
            os.chdir(folder)
        try:
            try:
                task, arguments = pickle.loads(body)
            except Exception as error:
                channel.send_bytes(_frame([("refused", error)]))
            else:
                _answer(channel, task, arguments)
        except OSError:  # the caller is gone
            return


def _answer(
    channel: Channel, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> None:
    ready: list[tuple[str, Any]] = []
    sent = time.monotonic()
    for args in arguments:
        if ready and time.monotonic() - sent > FLUSH_S:
            channel.send_bytes(_frame(ready))
            ready, sent = [], time.monotonic()
        try:
            ready.append(("done", task(*args)))
        except BaseException as error:  # SystemExit, too: the worker must answer
            ready.append(("raised", error))
    channel.send_bytes(_frame(ready))


def _frame(outcomes: list[tuple[str, Any]]) -> bytes:
    """The outcomes as bytes; what cannot travel is replaced by an exception that says so."""
    try:
        data = pickle.dumps(outcomes)
        if any(kind != "done" for kind, _ in outcomes):
            pickle.loads(data)  # exceptions with arguments of their own often cannot be loaded
        return data
    except Exception:
        return pickle.dumps([_portable(kind, value) for kind, value in outcomes])


def _portable(kind: str, value: Any) -> tuple[str, Any]:
    try:
        pickle.loads(pickle.dumps(value))
        return kind, value
    except Exception as error:
        if kind != "done":
            return kind, RuntimeError(repr(value))
        return "raised", TypeError(f"{value!r:.200} cannot leave the worker: {error!r:.200}")


def _enter(kind: str) -> None:
    """First thing in a worker: no interrupts from the keyboard, and bounds on memory."""
    _inside.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if kind == "compare":
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        except (ImportError, ValueError, OSError):
            # Windows and some macOS versions have no such limit; the deadline still holds.
            pass


def _warm() -> None:
    """Load what comparisons need; sympy loads much of itself in its first proof."""
    from .math import prove_task
    from .tree import Binary, Call, Number, Symbol

    sine, cosine = (Call(name, (Symbol("x"),)) for name in ("sin", "cos"))
    squares = (Binary("^", f, Number(2)) for f in (sine, cosine))  # type: ignore[arg-type]
    prove_task(Binary("+", *squares), Number(1))  # type: ignore[arg-type]


def piped_worker(kind: str) -> None:
    """A worker that was started, not forked: it warms up, says so, and serves its pipes."""
    channel = Pipes(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    try:  # what a custom function prints must not come between frames
        os.dup2(2, 1)
    except OSError:  # a service without standard error
        os.dup2(0, 1)
    _enter(kind)
    if kind == "compare":
        _warm()
    channel.writer.write(b"\n" + READY)
    channel.writer.flush()
    serve(channel)


def nursery(kind: str, fileno: int, caller: int) -> None:
    """Fork workers on request until the caller closes its end, or dies.

    Args:
        kind: of all its workers: ``compare`` or ``function``.
        fileno: of our end of a socket with message borders, on which requests come: ``fork``, with
            the worker's end of its channel, answered by a process id; ``reap PID``, for a worker
            that shall end; ``status PID``, for one that died, answered by its exit status.
        caller: process id of the process that is served.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=fileno)
    if kind == "compare":
        _warm()
    if _threads() != 1:
        control.send(b"threads")
        return
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared with the workers
    control.send(b"ready")
    workers: dict[int, float] = {}
    while os.getppid() == caller:
        is_waiting = _reap(workers)
        if not select.select([control], [], [], 0.05 if is_waiting else 2)[0]:
            continue
        message, files, _, _ = socket.recv_fds(control, 256, 1)
        if not message:
            break
        verb, _, word = message.decode().partition(" ")
        if verb == "fork":
            _fork(kind, files[0], control, workers)
        elif verb == "reap":
            workers[int(word)] = time.monotonic() + GRACE_S
        else:
            del workers[int(word)]
            control.send(str(os.waitpid(int(word), 0)[1]).encode())
    workers = dict.fromkeys(workers, time.monotonic() + GRACE_S)
    while _reap(workers):
        time.sleep(0.01)


def _reap(workers: dict[int, float]) -> bool:
    """Reap workers that shall end, kill those past their time, say whether there are more."""
    ending = {pid: end for pid, end in workers.items() if end < float("inf")}
    for pid, end in ending.items():
        if os.waitpid(pid, os.WNOHANG)[0]:
            del workers[pid]
        elif time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
    return any(pid in workers for pid in ending)


def _threads() -> int:
    """Threads of this process; those of libraries count, which Python does not know of."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def _fork(kind: str, fileno: int, control: socket.socket, workers: dict[int, float]) -> None:
    """A worker; the caller is told its process id, or why there is none."""
    try:
        pid = os.fork()
    except OSError as error:
        os.close(fileno)
        control.send(str(error).encode())
        return
    if pid == 0:
        _grow_up(kind, fileno, control)
    os.close(fileno)
    with contextlib.suppress(OSError):  # it ended already
        os.setpgid(pid, pid)  # killed with all that it starts
    workers[pid] = float("inf")
    control.send(str(pid).encode())


def _grow_up(kind: str, fileno: int, control: socket.socket) -> None:
    """In the fork: serve, then end as a program does, exit handlers included."""
    from multiprocessing.connection import Connection

    try:
        control.close()
        _enter(kind)
        serve(Connection(fileno))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    raise SystemExit
