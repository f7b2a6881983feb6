"""What goes wrong that is the user's or the machine's doing; a model's failure is a value instead.

Every message has four parts in at most three lines: what is wrong, the value seen, what is
allowed, what to do. The command line prints these without a traceback and exits with
``exit_code``; anything that is not one of these is a defect of Stepmark and keeps its traceback.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import ClassVar

__all__ = [
    "ConfigError",
    "DataError",
    "EngineError",
    "Error",
    "GateFailed",
    "Partial",
    "RunError",
    "SetupError",
    "Stopped",
    "UnknownNameError",
    "VerifierError",
    "did_you_mean",
    "require",
]


class Error(Exception):
    """The root of everything that Stepmark raises on purpose."""

    exit_code: ClassVar[int] = 2
    """Exit code of the command line: 1 a gate failed, 2 bad input, 3 partial, 130/143 stopped."""


class ConfigError(Error, ValueError):
    """A setting has a value, or a combination of values, that cannot work."""


class DataError(Error, ValueError):
    """A file or data set cannot be read, lacks a column, or holds rows that cannot be used."""


class UnknownNameError(Error, LookupError):
    """A name is not registered; the message suggests the nearest ones."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownNameError:
        """The standard message for an unknown name.

        >>> print(UnknownNameError.of("verifier", "mth", ["math", "exact"]))
        There is no verifier named 'mth'. Did you mean 'math'? Known: exact, math.
        """
        names = sorted(known)
        listed = ", ".join(names) or "none"
        wrong = f"There is no {kind} named {name!r}."
        parts = [wrong, did_you_mean(name, names), f"Known: {listed}.", hint]
        return cls(" ".join(part for part in parts if part))


class SetupError(Error, RuntimeError):
    """Something must be installed or set up first; the message ends in a command to paste."""


class VerifierError(Error, RuntimeError):
    """Too many verdicts were errors for the run to mean anything; carries the first traceback."""


class RunError(Error, RuntimeError):
    """A run folder or sample store is locked, altered, or of other settings than the ones given."""


class EngineError(Error, RuntimeError):
    """The generation engine failed; the message holds the engine's own words."""


class GateFailed(Error):
    """The work was done, and a threshold that the user set was not met."""

    exit_code: ClassVar[int] = 1


class Partial(Error):
    """The work was done in part: some rows could not be, and a file says which."""

    exit_code: ClassVar[int] = 3


class Stopped(Error):
    """A signal ended the run at a point from which it can be resumed."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message, signal_number)
        self.message = message
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number  # type: ignore[misc]  # per instance: 130 or 143

    def __str__(self) -> str:
        return self.message


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known name, or an empty string.

    >>> did_you_mean("grop", ["grpo", "sft"])
    "Did you mean 'grpo'?"
    >>> did_you_mean("zzz", ["grpo", "sft"])
    ''
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean {near[0]!r}?" if near else ""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """The imported module, or an error that ends in the pip line of the extra that brings it.

    Args:
        module: the module to import, such as ``torch``.
        extra: the extra of this package that brings it, such as ``train``.
        purpose: what the user was doing, for the first half of the message.

    Raises:
        SetupError: the module is not installed.
    """
    package = module.split(".", maxsplit=1)[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".", maxsplit=1)[0] != package:
            raise
        raise SetupError(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"It comes with an extra:\n    pip install 'stepmark[{extra}]'"
        ) from error
