"""Ctrl-C and SIGTERM as one thing: work that stops where it can be continued."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from stepmark.errors import Stopped

__all__ = ["same_command", "stoppable"]


@contextmanager
def stoppable(command: str) -> Iterator[None]:
    """Turns a signal within the block into `Stopped`, which the command line exits with.

    SIGTERM interrupts as Ctrl-C does, so that code which cleans up after one does after both.

    Args:
        command: what continues the work, to paste; it ends the message.

    Raises:
        Stopped: SIGINT (exit code 130) or SIGTERM (143) came.
    """
    number = signal.SIGINT
    onwards = f"To continue:\n    {command}"

    def terminate(received: int, _: FrameType | None) -> None:
        nonlocal number
        number = signal.Signals(received)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGTERM, terminate) if in_main else None
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(f"Stopped; what was made is kept. {onwards}", int(number)) from stop
    except Stopped as stop:
        raise Stopped(f"{stop} {onwards}", stop.signal_number) from stop
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, earlier)


def same_command(out: Path, *flags: str) -> str:
    """The command line of this process to paste, with ``--out`` and flags that it lacks."""
    words = [*_launcher(), "stepmark", *sys.argv[1:]]
    if not any(word == "--out" or word.startswith("--out=") for word in words):
        words += ["--out", str(out)]
    words += [flag for flag in flags if flag not in words]
    return shlex.join(words)


def _launcher() -> list[str]:
    """What started this process together with others of this machine; nothing where it is alone."""
    world = os.environ.get("WORLD_SIZE", "1")
    if world == "1" or os.environ.get("LOCAL_WORLD_SIZE") != world:
        return []
    return ["torchrun", "--nproc_per_node", world, "--no-python"]
