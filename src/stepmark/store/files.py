"""Files that a kill cannot spoil: rows are appended and synced, whole files are renamed."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepmark.errors import RunError

from .lock import is_running

__all__ = [
    "append_rows",
    "drop_torn_line",
    "file_hash",
    "publish",
    "read_rows",
    "rows_hash",
    "sweep",
    "text_hash",
    "write_json",
]

log = logging.getLogger(__name__)

DIGEST_BYTES = 8

LEFT_BEHIND = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(?P<kind>part|old)")
"""What `publish` calls its temporary places."""


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows at the end of a JSON-lines file, on the disk when this returns.

    One write, then a flush and an fsync. What a killed writer left of a last line is cut off first,
    so that no row is ever glued to it. Numbers that JSON does not know (NaN, infinities) are
    written as null.
    """
    block = b"".join(_line(row) for row in rows)
    if not block:
        return
    is_new = not path.exists()
    if not is_new:
        drop_torn_line(path)
    with path.open("ab") as file:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; a file that does not exist has none.

    A last line without its line break is what a killed writer leaves: it is dropped and reported.

    Raises:
        RunError: a line before the last is not a JSON object, so somebody altered the file.
    """
    if not path.exists():
        return []
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        _report_torn(path, len(rest))
    return [
        parse_line(line, path, f"line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def parse_line(line: bytes, path: Path, where: str) -> dict[str, Any]:
    """The row in one complete line.

    Raises:
        RunError: it is not a JSON object.
    """
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _altered(path, where, str(error)) from error
    if not isinstance(row, dict):
        raise _altered(path, where, f"it holds a {type(row).__name__}")
    return row


def drop_torn_line(path: Path) -> int:
    """Bytes of an unfinished last line that were cut off; 0 when the file ends as it should."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = _end_of_last_line(file, size)
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
            _report_torn(path, size - end)
    return size - end


def _end_of_last_line(file: Any, size: int, block: int = 1 << 16) -> int:
    """Offset just behind the last line break."""
    at = size
    while at > 0:
        start = max(0, at - block)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


@contextmanager
def publish(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary place beside ``path``; what is there at the end of the block becomes ``path``.

    The block makes a file or a folder. If it raises, the temporary place is removed and ``path`` is
    as it was. A file takes the place of an earlier file; an earlier folder with something in it is
    only replaced when asked for.

    Raises:
        RunError: a folder with something in it stands there, or the block made nothing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    occupied = path.is_dir() and any(path.iterdir())
    if occupied and not replace:
        raise RunError(
            f"The folder {str(path)!r} already exists and is not empty; nothing was written. "
            "Choose another folder, or remove this one first."
        )
    part = path.parent / f".{path.name}.{os.getpid()}.part"
    _remove(part)
    try:
        yield part
        if not part.exists():
            raise RunError(f"Nothing was made to publish as {str(path)!r}.")
        _sync_tree(part)
        if occupied:
            aside = path.parent / f".{path.name}.{os.getpid()}.old"
            path.rename(aside)
            part.rename(path)
            _remove(aside)
        else:
            part.replace(path)
        _sync_folder(path.parent)
    finally:
        _remove(part)


def sweep(folder: Path, name: str | None = None) -> list[Path]:
    """Remove what killed processes left of their `publish` in a folder; the places, by their names.

    An earlier folder whose writer was killed between its two renames gets its name back. What
    belongs to another living process stays. Call it under the lock that all writers take.

    Args:
        folder: its own entries alone are looked at.
        name: only what was to be published under this name; None for all.
    """
    swept: list[Path] = []
    for place in sorted(folder.iterdir()):
        found = LEFT_BEHIND.fullmatch(place.name)
        if found is None or name not in (None, found["name"]):
            continue
        pid = int(found["pid"])
        if pid != os.getpid() and is_running(pid):
            continue
        home = folder / found["name"]
        if found["kind"] == "old" and not home.exists():
            place.rename(home)
        else:
            _remove(place)
        swept.append(place)
    if swept:
        names = ", ".join(place.name for place in swept)
        log.warning("%s: a killed process left %s behind; swept.", folder, names)
    return swept


def write_json(path: Path, value: Any) -> None:
    """A JSON file for people and machines, complete or not there at all."""
    with publish(path) as part:
        text = json.dumps(_finite(value), ensure_ascii=False, indent=2, default=_plain)
        part.write_text(text + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """Sixteen hexadecimal digits that change with any byte of the file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)
        ).hexdigest()


def text_hash(text: str) -> str:
    """Sixteen hexadecimal digits that change with the text.

    >>> text_hash("1 + 1?")
    '5ff699181b13a351'
    """
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def rows_hash(rows: Iterable[Mapping[str, Any]]) -> str:
    """Sixteen hexadecimal digits that change with any value or the order of rows, not of keys.

    >>> rows_hash([{"a": 1, "b": 2}]) == rows_hash([{"b": 2, "a": 1}])
    True
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, default=_plain).encode() + b"\n")
    return digest.hexdigest()


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(row), ensure_ascii=False, default=_plain)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair, as recorded responses hold them: only an escape can carry it.
        return json.dumps(json.loads(text)).encode() + b"\n"


def _finite(value: Any) -> Any:
    """The value with NaN and infinities, which JSON does not know, as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """What JSON can say of a value that it has no word for: numbers of numpy, dates, paths."""
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return dict(value) if isinstance(value, Mapping) else str(value)


def _report_torn(path: Path, size: int) -> None:
    log.warning("%s: the last line was cut off by a kill; its %d bytes are dropped.", path, size)


def _altered(path: Path, where: str, why: str) -> RunError:
    return RunError(
        f"{path}, {where} is not a JSON object ({why}). Only the last line of a killed "
        "writer may be incomplete: the file was altered. Restore it, or start a new run folder."
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(path: Path) -> None:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


def _sync_folder(path: Path) -> None:
    """Puts new names on the disk, where the system can sync a folder."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
