"""Verbs that a launcher starts several times: one of the processes speaks for all."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import typer

from stepmark.errors import Error

from .console import err

__all__ = ["is_first", "run_folder", "speaking_once", "wait_silently"]

SILENCE_S = 5.0
"""How long a process that has nothing to say stays: a launcher ends all as soon as one has ended,
the one that speaks too."""


class Silent(NamedTuple):
    """Another process tells what is wrong."""

    exit_code: int


def is_first() -> bool:
    """Whether this process is the one that speaks: the only one, or the first that was launched."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def wait_silently() -> None:
    """Let the first process say what is wrong; its end is that of this one."""
    time.sleep(SILENCE_S)


def speaking_once(verb: Callable[..., None]) -> Callable[..., None]:
    """The same verb; started by ``torchrun`` or ``accelerate launch``, it speaks with one voice.

    Results, progress and notes are those of the first process. An error is told once, by the first
    process that has it, and all of them exit with its code.
    """

    @functools.wraps(verb)
    def told_once(*given: Any, **named: Any) -> None:
        from stepmark.training.processes import is_launched

        if not is_launched():
            verb(*given, **named)
            return
        with nullcontext() if is_first() else _silent():
            error = _together(lambda: verb(*given, **named))
        if isinstance(error, Silent):
            wait_silently()
            raise typer.Exit(error.exit_code)
        if error is not None:
            if not is_first():
                err.print(f"Process {os.environ['RANK']}: ", end="", markup=False)
            raise error

    return told_once


def run_folder(given: Path | None, verb: str) -> Path:
    """Where a run goes: as given, or a new folder; the first process chooses for all."""
    from stepmark.training.processes import processes

    from .wiring import next_run_folder

    return processes().from_first(given or next_run_folder(verb))


def _together(action: Callable[[], None]) -> Error | Silent | None:
    """Connect, act, and wait for the others; what went wrong, if anything did."""
    from stepmark.training.processes import Elsewhere, Lost, processes

    try:
        here = processes()
    except Error as error:  # what the launcher asks for: all of them see it alike
        return error if is_first() else Silent(error.exit_code)
    problem: Error | Silent | None = None
    try:
        action()
        here.exchange(None)
    except Elsewhere as error:
        problem = Silent(error.exit_code)
    except Lost as error:  # the lost one may be the first, so two of them tell it
        return error if here.index <= 1 else Silent(error.exit_code)
    except Error as error:
        speaks = here.give_up(error.exit_code) == here.index
        problem = error if speaks else Silent(error.exit_code)
    here.leave()
    return problem


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing of this process is shown within the block."""
    log = logging.getLogger("stepmark")
    level = log.level
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        log.setLevel(logging.ERROR)
        err.file = nowhere
        try:
            yield
        finally:
            log.setLevel(level)
            err.file = None  # type: ignore[assignment]  # back to standard error
