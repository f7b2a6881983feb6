"""Rows as they stand in files of recorded responses; a row that cannot be read is set aside."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from stepmark.errors import DataError
from stepmark.tasks.readers import FORMATS, read_table, split_place

__all__ = ["Line", "Reject", "files_of", "read_lines", "short"]

MAX_DEPTH = 100
"""Lists and objects inside each other in one row."""


class Line(NamedTuple):
    """A row, and where it was read."""

    number: int
    """Line of a text file, or place in a table; from 1."""
    row: dict[str, Any]
    file: str = ""
    """Name of the file in a folder of several; else empty."""


class Reject(NamedTuple):
    """A row that could not be used, and why."""

    line: int
    reason: str
    text: str
    file: str = ""
    """Name of the file in a folder of several; else empty."""

    def to_row(self) -> dict[str, Any]:
        """The columns of ``rejects.jsonl``; ``file`` only where there are several."""
        return {name: value for name, value in self._asdict().items() if name != "file" or value}


def read_lines(place: str) -> tuple[list[Line], list[Reject]]:
    """The rows of a file, of a folder of files (dumps of many steps) or of a hub data set.

    Raises:
        DataError: a file cannot be read at all.
        SetupError: a needed package is missing, or the hub cannot be reached.
    """
    path = Path(place).expanduser()
    files = files_of(path) if path.is_dir() else []
    if not files:
        return _of_file(str(path) if path.exists() else place, "")
    lines: list[Line] = []
    rejects: list[Reject] = []
    for file in files:
        name = str(file.relative_to(path)) if len(files) > 1 else ""
        more, bad = _of_file(str(file), name)
        lines += more
        rejects += bad
    return lines, rejects


def files_of(folder: Path) -> list[Path]:
    """The files of rows in a folder and below it, ``2.jsonl`` before ``10.jsonl``.

    A folder that the ``datasets`` package saved is read as a whole instead: it has none. Of our own
    sample store the shards are taken, and not the verdicts beside them.
    """
    if shards := sorted(folder.glob("samples-*.jsonl")):
        return shards
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return []
    endings = tuple(ending for ending in FORMATS if ending != ".json")
    found = [path for path in folder.rglob("*") if path.name.endswith(endings) and path.is_file()]
    return sorted(found, key=lambda path: _natural(str(path.relative_to(folder))))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that orders numbers in names by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _of_file(place: str, name: str) -> tuple[list[Line], list[Reject]]:
    is_file = Path(place).is_file()
    if is_file and place.endswith((".jsonl", ".jsonl.gz")):
        return _collected(_json_lines(place), name)
    if is_file and place.endswith(".csv"):
        return _collected(_csv(place), name)
    source, split = split_place(place)
    table = read_table(source, split=split)
    return [Line(n, row, name) for n, row in enumerate(table.rows, 1)], []


def _collected(
    found: Iterator[tuple[int, dict[str, Any] | None, str, str]], name: str
) -> tuple[list[Line], list[Reject]]:
    lines: list[Line] = []
    rejects: list[Reject] = []
    for number, row, reason, text in found:
        if row is None:
            rejects.append(Reject(number, reason, text[:200].rstrip(), name))
        else:
            lines.append(Line(number, row, name))
    return lines, rejects


def _json_lines(place: str) -> Iterator[tuple[int, dict[str, Any] | None, str, str]]:
    """Number, row, reason and text of each line; the row is None where there is a reason."""
    try:
        with _bytes(place) as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except (ValueError, RecursionError) as error:
                    reason = f"not a JSON object: {error}"
                    yield number, None, reason, text.decode("utf-8", "replace")
                    continue
                if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_deep(row):
                    yield number, None, f"nested deeper than {MAX_DEPTH}", short(text[:80])
                elif isinstance(row, dict):
                    yield number, row, "", ""
                else:
                    reason = f"not a JSON object: it holds a {type(row).__name__}, not an object"
                    yield number, None, reason, text.decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place!r} cannot be read: {error}. Give a file that is whole.") from error


def _is_deep(value: Any) -> bool:
    """Whether a value is nested so deep that code which goes down into it could fail."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [child for part in inner for child in part if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _csv(place: str) -> Iterator[tuple[int, dict[str, Any] | None, str, str]]:
    csv.field_size_limit(2**31 - 1)
    try:
        # utf-8-sig: spreadsheets write a byte order mark, which would become part of a name.
        with (
            _bytes(place) as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as file,
        ):
            reader = csv.reader(file)
            header = next(reader, [])
            if len(set(header)) != len(header) or not all(header):
                raise DataError(
                    f"{place}, line 1: the column names {header} are not all given and different. "
                    "The first line must name every column once."
                )
            for cells in reader:
                if len(cells) == len(header):
                    yield reader.line_num, dict(zip(header, cells, strict=True)), "", ""
                elif cells:
                    reason = f"{len(cells)} cells for {len(header)} columns"
                    yield reader.line_num, None, reason, ",".join(cells)
    except (OSError, EOFError, csv.Error) as error:
        raise DataError(f"{place!r} cannot be read: {error}. Give a file that is whole.") from error


def _bytes(place: str) -> IO[bytes]:
    if place.endswith(".gz"):
        return cast(IO[bytes], gzip.open(place, "rb"))
    return Path(place).open("rb")


def short(value: Any) -> str:
    """A value in at most 80 characters, for messages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
