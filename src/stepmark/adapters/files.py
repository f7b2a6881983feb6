"""Reward files for other trainers: a few lines that import Stepmark and name a verifier."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepmark.errors import ConfigError
from stepmark.store import publish

from .references import portable, short_name

__all__ = ["trl_file", "verl_file", "write_file"]

MARK = "Written by `stepmark export"
"""What an exported file says in its docstring; only such files are written over."""

VERL = '''\
"""Scores for verl, given by the Stepmark verifier {name}.

{mark} verl`, which writes over this file as long as it says so here.
"""

from pathlib import Path

from stepmark.adapters.verl import Scorer

FOLDER = Path(__file__).resolve().parent
mark = Scorer({verifier}, abstain_score={abstain_score})


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **others):
    """The score of one response, and acc, pred, verdict_scored, verdict_status, verdict_reason."""
    return mark(data_source, solution_str, ground_truth, extra_info, **others)
'''

TRL = '''\
"""A reward function for TRL that asks the Stepmark verifier {name}.

{mark} trl`, which writes over this file as long as it says so here.
"""

from pathlib import Path

from stepmark.adapters.trl import reward

FOLDER = Path(__file__).resolve().parent
reward_func = reward({verifier}, gold={gold!r}, name={name!r})
'''


def verl_file(verifier: str, place: Path, abstain_score: float) -> str:
    """The text of a file with verl's ``compute_score``.

    A verifier's file in the folder of ``place`` or below is named from there, so that the folder
    can be moved as a whole; others are named from the root.

    Raises:
        ConfigError: the reference cannot be written as Python.
    """
    source = _source(verifier, place)
    return _filled(VERL, verifier, verifier_source=source, abstain_score=float(abstain_score))


def trl_file(verifier: str, place: Path, gold: str | None) -> str:
    """The text of a file with a ``reward_func`` for ``trl grpo --reward_funcs``.

    Raises:
        ConfigError: the reference cannot be written as Python, or the file's name is no module.
    """
    if not place.stem.isidentifier():
        raise ConfigError(
            f"TRL imports a reward by the name of its file, and {place.name!r} is no such name. "
            "Use letters, digits and _, such as reward_units.py."
        )
    return _filled(TRL, verifier, verifier_source=_source(verifier, place), gold=gold)


def write_file(text: str, place: Path) -> None:
    """Publish an exported file, complete or not at all.

    Raises:
        ConfigError: something else stands there, it is no Python file, or it cannot be written.
    """
    if place.suffix != ".py":
        raise ConfigError(
            f"{str(place)!r} is no name for a Python file, and trainers load nothing else. "
            "End it in .py, such as reward_units.py."
        )
    is_ours = place.is_file() and MARK in place.read_text(encoding="utf-8", errors="replace")
    if place.exists() and not is_ours:
        raise ConfigError(
            f"{str(place)!r} exists and was not written by `stepmark export`; nothing was written. "
            "Choose another --out, or remove it first."
        )
    try:
        with publish(place) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{str(place)!r} cannot be written: {error.strerror}. Choose another --out."
        ) from error


def _filled(template: str, verifier: str, *, verifier_source: str, **values: Any) -> str:
    name = short_name(verifier)
    return template.format(name=name, mark=MARK, verifier=verifier_source, **values)


def _source(verifier: str, place: Path) -> str:
    """A reference as Python source, for a file that has its own folder in ``FOLDER``."""
    wanted = portable(verifier)
    folder = place.expanduser().resolve().parent
    return _literal({"name": wanted.name, **wanted.settings}, folder)


def _literal(value: Any, folder: Path) -> str:
    if isinstance(value, Mapping):
        cells = (
            f"{key!r}: {_name(cell, folder) if key == 'name' else _literal(cell, folder)}"
            for key, cell in value.items()
        )
        return "{" + ", ".join(cells) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(cell, folder) for cell in value) + "]"
    try:
        is_same = ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError):
        is_same = False
    if not is_same:
        raise ConfigError(
            f"The setting {value!r:.80} of the verifier cannot be written into a Python file; "
            "texts, numbers, true, false, lists and tables can."
        )
    return repr(value)


def _name(name: str, folder: Path) -> str:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place.endswith(".py"):
        return repr(name)
    if Path(place).is_relative_to(folder):
        inside = Path(place).relative_to(folder).as_posix()
        return f'f"{{FOLDER / {inside!r}}}:{attribute}"' if '"' not in inside else repr(name)
    return repr(name)
