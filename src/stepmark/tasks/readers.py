"""Tables of rows from files, folders and the hub; a row that cannot be read stops the reading."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepmark.errors import DataError, SetupError, require

__all__ = ["FORMATS", "Row", "Table", "read_table", "split_place"]

Row = dict[str, Any]
FORMATS = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w-]+")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows, and where each was read, for messages."""

    place: str
    rows: list[Row] = field(repr=False)
    lines: Sequence[int] | None = field(default=None, repr=False)
    """Line of each row in a text file, from 1; None where rows have no lines."""

    def where(self, index: int) -> str:
        """The place of a row, such as ``data.jsonl, line 17``."""
        if self.lines is None:
            return f"{self.place}, row {index + 1}"
        return f"{self.place}, line {self.lines[index]}"

    @property
    def columns(self) -> list[str]:
        """The columns of all rows, in order of first appearance."""
        return list(dict.fromkeys(key for row in self.rows for key in row))


def split_place(place: str) -> tuple[str, str | None]:
    """A place and the split that is named after its last colon, if one is.

    >>> split_place("openai/gsm8k:test"), split_place("rows.jsonl")
    (('openai/gsm8k', 'test'), ('rows.jsonl', None))
    """
    before, colon, split = place.rpartition(":")
    if colon and re.fullmatch(r"[A-Za-z]\w*", split) and len(before) > 1:
        return (place, None) if Path(place).exists() else (before, split)
    return place, None


def read_table(place: str, *, split: str | None = None, config: str | None = None) -> Table:
    """All rows of a file (jsonl, jsonl.gz, json, csv, parquet), a folder or a hub data set.

    A folder holds what ``datasets`` saved, or files named after splits (``test.jsonl``,
    ``data/test-00000-of-00001.parquet``), in a sub-folder per configuration where there are any.

    Args:
        place: path or hub id.
        split: the split to read, where the place has splits.
        config: configuration of a hub data set, such as ``main``.

    Raises:
        DataError: the place does not exist, or a row cannot be read; nothing is returned in part.
        SetupError: a needed package is missing, or the hub cannot be reached.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        table = _folder(path, split, config)
    elif path.is_file():
        table = _file(path, split)
    elif place.startswith((".", "/", "~")) or place.endswith(FORMATS) or not _hub_like(place):
        raise DataError(
            f"There is no file or folder {place!r} (looked for {path.absolute()}). "
            "Give a path, or a hub id such as openai/gsm8k."
        )
    else:
        table = _hub(place, split, config)
    if not table.rows:
        raise DataError(f"{table.place} holds no rows. Give a data set with at least one.")
    return table


def _hub_like(place: str) -> bool:
    return _HUB_ID.fullmatch(place) is not None


def _file(path: Path, split: str | None = None) -> Table:
    name = path.name
    try:
        if name.endswith((".jsonl", ".jsonl.gz")):
            pairs = list(_json_lines(path))
        elif name.endswith(".json"):
            return Table(str(path), _json(path, split))
        elif name.endswith(".csv"):
            pairs = list(_csv(path))
        elif name.endswith(".parquet"):
            return Table(str(path), _parquet(path))
        else:
            raise DataError(f"{str(path)!r} has no known ending. Known: {', '.join(FORMATS)}.")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(
            f"{str(path)!r} cannot be read: {error}. Give a UTF-8 file that is whole."
        ) from error
    return Table(str(path), [row for _, row in pairs], [line for line, _ in pairs])


def _text(path: Path) -> io.TextIOWrapper:
    # utf-8-sig: spreadsheets write a byte order mark, which would become part of a column's name.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # type: ignore[return-value]
    return path.open(encoding="utf-8-sig", newline="")


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    with _text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _object(line, f"{path}, line {number}")


def _object(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not JSON ({error}); it starts {line[:60]!r}. "
            "Every line must be one JSON object; mend or remove it."
        ) from error
    if not isinstance(row, dict):
        raise DataError(
            f"{where}: a {type(row).__name__}, not an object with columns. "
            'Every line must read like {"problem": "...", "gold": "..."}.'
        )
    return row


def _json(path: Path, split: str | None) -> list[Row]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON ({error}). Mend it, or give jsonl.") from error
    if isinstance(value, dict):
        lists = {key: rows for key, rows in value.items() if isinstance(rows, list)}
        value = lists.get(split or "", next(iter(lists.values())) if len(lists) == 1 else None)
    if not isinstance(value, list):
        raise DataError(
            f"{path}: holds no list of rows. It must be a list of objects, or an object with "
            "one list, or with one list per split."
        )
    for index, row in enumerate(value):
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {index + 1}: a {type(row).__name__}, not an object.")
    return value


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(2**31 - 1)
    with _text(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) != len(header) or not all(header):
                raise DataError(
                    f"{path}, line 1: the column names {header} are not all given and different. "
                    "The first line must name every column once."
                )
            for cells in reader:
                if len(cells) != len(header) and cells:
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(cells)} cells for {len(header)} "
                        "columns. Put cells that hold commas in double quotes."
                    )
                if cells:
                    yield reader.line_num, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            raise DataError(
                f"{path}, line {reader.line_num}: not CSV ({error}). Mend or remove that line."
            ) from error


def _parquet(path: Path) -> list[Row]:
    parquet = require("pyarrow.parquet", extra="train", purpose="Reading parquet")
    import pyarrow

    try:
        return parquet.read_table(path, partitioning=None).to_pylist()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not parquet ({error}). Download or write it again.") from error


def _folder(path: Path, split: str | None, config: str | None) -> Table:
    base = path / config if config and (path / config).is_dir() else path
    if (base / "dataset_dict.json").is_file():
        splits = json.loads((base / "dataset_dict.json").read_text())["splits"]
        chosen = split or (splits[0] if len(splits) == 1 else None)
        if chosen is None or chosen not in splits:
            raise _no_split(base, split, splits)
        base = base / chosen
    if (base / "state.json").is_file():
        datasets = require("datasets", extra="train", purpose="Reading a saved data set")
        return Table(str(base), datasets.load_from_disk(str(base)).to_list())
    files = sorted(
        file
        for folder in (base, base / "data")
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(FORMATS)
    )
    named = [file for file in files if split and re.match(rf"{split}(?![A-Za-z])", file.name)]
    chosen_files = named or (files if len(files) == 1 and not split else [])
    if not chosen_files:
        raise _no_split(base, split, [file.name for file in files])
    return Table(str(base), [row for file in chosen_files for row in _file(file).rows])


def _no_split(place: Path | str, split: str | None, seen: Sequence[str]) -> DataError:
    wanted = f"no split {split!r}" if split else "more than one split, or none"
    return DataError(
        f"{str(place)!r} holds {wanted}; it holds: {', '.join(seen) or 'nothing readable'}. "
        "Name the split after a colon (PLACE:test), or give the file itself."
    )


def _hub(place: str, split: str | None, config: str | None) -> Table:
    datasets = require("datasets", extra="train", purpose=f"Loading {place} from the hub")
    try:
        found = datasets.load_dataset(place, config, split=split)
    except ValueError as error:
        raise DataError(
            f"The hub data set {place!r} has no such split or configuration "
            f"({split!r}, {config!r}): {_first_line(error)}"
        ) from error
    except Exception as error:
        # Many kinds come up here: OSError, httpx errors, the hub's own; all mean "not to be had".
        raise SetupError(
            f"The hub data set {place!r} cannot be had: {type(error).__name__}: "
            f"{_first_line(error)} Offline, pass a file instead (NAME?path=FILE or --dataset FILE),"
            " or set the folder of an earlier download:\n    export HF_HOME=FOLDER"
        ) from error
    if isinstance(found, dict):
        if len(found) != 1:
            raise _no_split(place, split, list(found))
        found = next(iter(found.values()))
    return Table(place, found.to_list())


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0][:200].rstrip(".") if lines else "no message") + "."
