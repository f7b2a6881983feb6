"""Rows of a foreign file one after the other; a line that cannot be read is a value, not an end."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stepmark.errors import DataError
from stepmark.store import file_hash, rows_hash
from stepmark.tasks.readers import read_table, split_place

from .rejects import Rejected, RejectReason

__all__ = ["Source"]

STREAMED = (".jsonl", ".jsonl.gz")


class Source:
    """A file of JSON lines as a stream; parquet, csv, a JSON list, a folder or a hub id as a table.

    Args:
        place: a path, or a hub id with an optional split (``peiyi9979/Math-Shepherd:train``).

    Raises:
        DataError: there is no such file.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.path = Path(place).expanduser()
        self.is_streamed = place.endswith(STREAMED)
        if self.is_streamed and not self.path.is_file():
            raise DataError(
                f"There is no file {place!r} (looked for {self.path.absolute()}). Give a path to "
                "JSON lines, parquet, csv or a JSON list, or a hub id."
            )
        self._table = None if self.is_streamed else _table(place)
        self.done = 0
        """Progress of `rows`, in the unit of ``size``."""

    @property
    def size(self) -> int:
        """Bytes of a file that is streamed, rows of a table."""
        return self.path.stat().st_size if self._table is None else len(self._table.rows)

    def digest(self) -> str:
        """A hash of the file's bytes, or of the rows of a folder or hub data set."""
        if self.path.is_file():
            return file_hash(self.path)
        return rows_hash([] if self._table is None else self._table.rows)

    def rows(self) -> Iterator[tuple[int, dict[str, Any] | Rejected]]:
        """Line numbers (or places in a table, from 1) and rows, or why a line is none."""
        self.done = 0
        if self._table is not None:
            for number, row in enumerate(self._table.rows, 1):
                self.done = number
                yield number, row
            return
        try:
            yield from self._streamed()
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self.place!r} cannot be read: {error}. Download or write it again."
            ) from error

    def _streamed(self) -> Iterator[tuple[int, dict[str, Any] | Rejected]]:
        with self.path.open("rb") as raw, ExitStack() as stack:
            packed = self.place.endswith(".gz")
            file: Any = stack.enter_context(gzip.open(raw)) if packed else raw
            for number, line in enumerate(file, 1):
                # Of a plain file the lines are counted: its position is that of the read-ahead.
                self.done = raw.tell() if packed else self.done + len(line)
                if line.strip():
                    yield number, _row(line.removeprefix(b"\xef\xbb\xbf"))


def _table(place: str) -> Any:
    before, split = split_place(place)
    return read_table(before, split=split)


def _row(line: bytes) -> dict[str, Any] | Rejected:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Rejected(RejectReason.NOT_JSON, f"not UTF-8 ({error}); the line must be UTF-8")
    except (json.JSONDecodeError, RecursionError) as error:
        return Rejected(RejectReason.NOT_JSON, f"{error}; it begins {line[:60]!r}")
    if isinstance(row, dict):
        return row
    return Rejected(RejectReason.NOT_JSON, f"a {type(row).__name__}; it must be one object")
