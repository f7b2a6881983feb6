"""A lock that a dead owner does not keep.

The file holds who owns the folder: host, boot, process id and the start time of that process, so
that another process which was given the same id later does not look like the owner. Reading and
writing the record happens under a brief ``flock``; the lock itself is the record, because a
``flock`` held for long would be inherited by forked workers that outlive their parent.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepmark.errors import RunError

__all__ = ["Lock", "Owner", "is_running"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, named so that no other one can be mistaken for it."""

    host: str
    boot: str
    """Changes when the machine is started again; empty where the system does not tell."""
    pid: int
    start: str
    """When the process began, in the system's own units; empty where it cannot be read."""

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        return cls(socket.gethostname(), _boot(), os.getpid(), _start(os.getpid()))

    def is_gone(self) -> bool:
        """True when the process has certainly ended; another host's is never certain."""
        if self.host != socket.gethostname():
            return False
        return self.boot != _boot() or not self.start or _start(self.pid) != self.start


class Lock:
    """The right to write in a folder, held by one process at a time.

    Args:
        path: the lock file; it stays behind, empty, when nobody holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def acquire(self) -> None:
        """Take the lock, also from an owner that has ended without giving it back.

        Raises:
            RunError: a living process, or one on another host, holds it.
        """
        with self._record() as file:
            owner = _read(file)
            if owner is not None and not owner.is_gone():
                raise RunError(
                    f"{str(self.path.parent)!r} is in use by process {owner.pid} on host "
                    f"{owner.host!r}. Wait for it or stop it. If that machine is gone for good, "
                    f"remove the file {str(self.path)!r}."
                )
            _write(file, json.dumps(asdict(Owner.me())))

    def release(self) -> None:
        """Give the lock back; a lock that is not ours is left alone."""
        if not self.path.exists():
            return
        with self._record() as file:
            if _read(file) == Owner.me():
                _write(file, "")

    def owner(self) -> Owner | None:
        """Who the file names, dead or alive; None when nobody holds the lock."""
        if not self.path.exists():
            return None
        with self._record() as file:
            return _read(file)

    @contextmanager
    def _record(self) -> Iterator[Any]:
        """The lock file, open and for this block seen by nobody else."""
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as file:
            try:
                import fcntl
            except ImportError:  # Windows: two that start in the same millisecond may both win
                yield file
                return
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def is_running(pid: int) -> bool:
    """Whether a process of this host has this id; False where the system does not tell."""
    return bool(_start(pid))


def _read(file: Any) -> Owner | None:
    file.seek(0)
    try:
        return Owner(**json.loads(file.read()))
    except (ValueError, TypeError):
        # Empty, or a record whose writer died within the write: nobody holds the lock.
        return None


def _write(file: Any, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Start time of a living process; empty when there is none with that id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _start_by_ps(pid)
    except OSError:
        return ""
    # The name in brackets may hold spaces and brackets itself: count from the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    state, ticks = fields[0], fields[19]
    return "" if state in "ZX" else ticks


def _start_by_ps(pid: int) -> str:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
