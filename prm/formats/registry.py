"""Formats by name: what a format must offer, and how a file without a name finds its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from stepmark.errors import ConfigError, DataError, did_you_mean
from stepmark.registry import Reference, Registry
from stepmark.types import LabelledSteps

from .rejects import LeftOut

__all__ = ["StepFormat", "formats", "guess_format", "load_format", "settings_of"]

Row = Mapping[str, Any]


@runtime_checkable
class StepFormat(Protocol):
    """Reads rows of one layout. The arguments of its constructor are its settings.

    A format that can also be written has ``write(labelled) -> dict``, which raises `Rejected` for
    what the layout cannot say.
    """

    name: ClassVar[str]
    """What it is called on the command line and in ``LabelledSteps.source``."""

    @staticmethod
    def matches(row: Row) -> bool:
        """Whether a row has the layout, by its columns and their types; never raises."""
        ...

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """The labelled solutions in one row, and what the settings leave out of it.

        Empty steps, rows without labels and the like may be passed on: they are repaired or
        rejected for all formats alike.

        Raises:
            Rejected: the row cannot be used; what was yielded of it before is dropped.
        """
        ...


formats: Registry[Any] = Registry("format", "stepmark.prm_formats")
"""The known formats: classes, or functions that make one."""


def load_format(reference: str | Mapping[str, Any] | Reference, **settings: Any) -> StepFormat:
    """The format that a reference such as ``prm800k?neutral=mask`` stands for.

    Args:
        reference: a name, ``name?key=value``, ``file.py:Class`` or a table with ``name``.
        settings: further settings; they win over those of the reference.

    Raises:
        UnknownNameError: there is no such format.
        ConfigError: it does not take one of the settings, or not with that value.

    >>> load_format("prm800k?neutral=mask").neutral
    'mask'
    """
    wanted = Reference.parse(reference)
    factory = formats.load(wanted.name)
    given = {**wanted.settings, **settings}
    known = settings_of(factory)
    if unknown := [name for name in given if name not in known]:
        said = [
            f"The format {wanted.name!r} has no setting {unknown[0]!r}.",
            did_you_mean(unknown[0], known),
            f"Its settings: {', '.join(known) or 'none'}.",
        ]
        raise ConfigError(" ".join(filter(None, said)))
    made = factory(**given)
    if not isinstance(made, StepFormat):
        raise ConfigError(
            f"{wanted.name!r} is {made!r:.80}, which is no format. A format has name, matches(row) "
            "and read(row)."
        )
    return made


def settings_of(factory: Any) -> dict[str, Any]:
    """The settings that a format takes, with their defaults (None where there is none)."""
    return {
        name: None if one.default is one.empty else one.default
        for name, one in inspect.signature(factory).parameters.items()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    }


def guess_format(rows: Sequence[Row], place: str) -> str:
    """The one registered format that all of these rows have.

    Raises:
        DataError: none has it, or several do; the candidates are named.
    """
    if not rows:
        raise DataError(f"{place} has no row that can be read. Give a file with at least one.")
    fitting = [
        name
        for name in formats.names()
        if (kind := formats.load(name)) and all(kind.matches(row) for row in rows)
    ]
    if len(fitting) == 1:
        return fitting[0]
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    what = f"could be {' or '.join(fitting)}" if fitting else "has the columns of no known format"
    raise DataError(
        f"{place} {what}. Columns: {', '.join(columns)[:300]}. "
        f"Choose with --format NAME: {', '.join(fitting or formats.names())}."
    )
