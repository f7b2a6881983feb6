"""The files of a replay buffer: shards that only grow, and an index that can be made anew.

A shard is never rewritten. Its last line may be torn where a writer was killed: readers drop and
report it, the next writer cuts it off. The index lies in one file beside the shards; one that is
missing, behind or does not fit is made from the shards.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import RunError
from stepmark.prm.formats.rejects import Rejected
from stepmark.prm.formats.rows import row_line
from stepmark.store import append_rows, publish, read_rows
from stepmark.store.files import parse_line

from .records import Entry, Record

__all__ = ["SHARD_BYTES", "Shards"]

log = logging.getLogger(__name__)

SHARD_BYTES = 64 * 2**20
INDEX = "index.jsonl"


class Line(NamedTuple):
    """A record that is to be written."""

    record: Record
    row: dict[str, Any]
    size: int
    """Bytes."""


class Shards:
    """All records of a buffer, in the order in which they were written.

    Args:
        folder: of the buffer.
        bound: most bytes of a shard; one line may exceed it alone.

    Raises:
        RunError: a shard was altered.
    """

    def __init__(self, folder: Path, bound: int = SHARD_BYTES) -> None:
        self.folder, self.bound = folder, bound
        self.torn: dict[str, int] = {}
        """Bytes of unfinished last lines, by shard."""
        self.entries: list[Entry] = []
        self._behind = False
        self._load()

    def paths(self) -> list[Path]:
        """The shards, in order."""
        return sorted(self.folder.glob("shard-*.jsonl"))

    def append(self, records: Sequence[Record]) -> None:
        """Put records behind the last one, on the disk when this returns; the index follows."""
        if self._behind:
            self._write_index()
        for shard, part in self._parts(records):
            start = self._end_of(shard.name)
            append_rows(shard, (line.row for line in part))
            self.torn.pop(shard.name, None)
            if shard.stat().st_size == start + sum(line.size for line in part):
                fresh = list(_entries(shard, start, part))
            else:  # a line was written otherwise than foreseen, as half a surrogate pair is
                fresh = list(self._scan(shard, start))
            append_rows(self.folder / INDEX, (entry.to_row() for entry in fresh))
            self.entries += fresh

    def read(self, entries: Iterable[Entry]) -> Iterator[Record]:
        """The records of some entries, in their order.

        Raises:
            RunError: a line is not the record that the index says.
        """
        files = {}
        try:
            for entry in entries:
                if entry.shard not in files:
                    files[entry.shard] = (self.folder / entry.shard).open("rb")
                file = files[entry.shard]
                file.seek(entry.offset)
                place = self.folder / entry.shard
                yield _record(file.read(entry.length), place, entry.offset, entry.id)
        finally:
            for file in files.values():
                file.close()

    def _parts(self, records: Sequence[Record]) -> Iterator[tuple[Path, list[Line]]]:
        """The lines of each shard that they go to."""
        paths = self.paths()
        shard = paths[-1] if paths else self.folder / "shard-00001.jsonl"
        used, part = self._end_of(shard.name), list[Line]()
        for record in records:
            row = record.to_row()
            size = len(row_line(row))
            if used and used + size > self.bound:
                if part:
                    yield shard, part
                number = int(shard.stem.rpartition("-")[2]) + 1
                shard, used, part = self.folder / f"shard-{number:05d}.jsonl", 0, []
            part.append(Line(record, row, size))
            used += size
        if part:
            yield shard, part

    def _end_of(self, shard: str) -> int:
        """Offset behind the last whole line."""
        return max((e.offset + e.length for e in self.entries if e.shard == shard), default=0)

    def _load(self) -> None:
        known = self._indexed()
        for shard in self.paths():
            own = [entry for entry in known if entry.shard == shard.name]
            end = own[-1].offset + own[-1].length if own else 0
            self.entries += own
            size = shard.stat().st_size
            if size > end:
                fresh = list(self._scan(shard, end))
                self._behind = self._behind or bool(fresh)
                self.entries += fresh

    def _indexed(self) -> list[Entry]:
        """What the index says, or nothing where it does not fit the shards."""
        sizes = {path.name: path.stat().st_size for path in self.paths()}
        try:
            found = [Entry(**row) for row in read_rows(self.folder / INDEX)]
        except (RunError, TypeError):
            found = None
        ends: dict[str, int] = dict.fromkeys(sizes, 0)
        for entry in found or ():
            if ends.get(entry.shard) != entry.offset:
                found = None
                break
            ends[entry.shard] += entry.length
        if found is not None and all(ends[name] <= size for name, size in sizes.items()):
            return found
        log.warning("%s: the index does not fit the shards and is made anew.", self.folder)
        self._behind = True
        return []

    def _write_index(self) -> None:
        with publish(self.folder / INDEX) as part, part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry.to_row()) + "\n" for entry in self.entries)
        self._behind = False

    def _scan(self, shard: Path, offset: int) -> Iterator[Entry]:
        """Entries of the whole lines from there on."""
        with shard.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    self.torn[shard.name] = len(line)
                    log.warning(
                        "%s: the last line was cut off by a kill; its %d bytes are dropped.",
                        shard,
                        len(line),
                    )
                    return
                record = _record(line, shard, offset, None)
                yield Entry.of(record, shard.name, offset, len(line))
                offset += len(line)


def _entries(shard: Path, offset: int, lines: Iterable[Line]) -> Iterator[Entry]:
    """Entries of lines that were written one behind the other."""
    for line in lines:
        yield Entry.of(line.record, shard.name, offset, line.size)
        offset += line.size


def _record(line: bytes, shard: Path, offset: int, known: str | None) -> Record:
    """The record in a line, whose id is that of its content."""
    row = parse_line(line, shard, f"the row at byte {offset}")
    try:
        record = Record.from_row(row)
    except (Rejected, KeyError, TypeError, ValueError) as error:
        raise _altered(shard, offset, f"is no record of a replay buffer ({error!r:.80})") from error
    for said in (row.get("id"), known):
        if said not in (record.id, None):
            raise _altered(shard, offset, f"calls itself {said!r} and holds {record.id!r}")
    return record


def _altered(shard: Path, offset: int, why: str) -> RunError:
    return RunError(
        f"{shard}, the row at byte {offset}, {why}. Shards only grow and are never rewritten: the "
        "file was altered. Restore it, or start a new buffer."
    )
