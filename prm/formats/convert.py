"""A foreign file into rows of ours: rejects with their reasons, a manifest, all or nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import stepmark
from stepmark.errors import ConfigError
from stepmark.store import file_hash, publish, write_json
from stepmark.types import LabelledSteps

from .balance import WORDS, label_word
from .registry import StepFormat, formats, guess_format, load_format, settings_of
from .rejects import LeftOut, Rejected, RejectReason
from .repairs import Repairs, unify_line_ends
from .rows import row_id, row_line
from .source import Source

__all__ = ["Conversion", "convert_file"]

GUESSED_FROM = 50
"""Rows that are looked at when the format is guessed."""
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Conversion:
    """What a conversion read and wrote; the manifest holds the same."""

    format: str
    settings: dict[str, Any]
    """The settings of the format, and the repairs."""
    source: str
    source_hash: str = ""
    written_as: str = "stepmark"
    out: str = ""
    out_hash: str = ""
    rows_in: int = 0
    rows_used: int = 0
    """Rows of the source of which something was written."""
    rows: int = 0
    """Rows written."""
    distinct: int = 0
    """Rows that differ in problem or steps."""
    problems: int = 0
    """Different texts of problems."""
    steps: int = 0
    labels: Counter[str] = field(default_factory=Counter[str])
    """Steps labelled ``right`` (1), ``wrong`` (0), ``between`` (soft) and ``masked``."""
    last_labels: Counter[str] = field(default_factory=Counter[str])
    """The same of the last step of every row."""
    rejects: Counter[str] = field(default_factory=Counter[str])
    """Rows of the source that were rejected, by reason."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Rows and parts of rows that the settings leave out, by reason."""
    repaired: Counter[str] = field(default_factory=Counter[str])
    """Rows that an option mended, by option."""
    first_reject: str = ""

    def manifest(self) -> dict[str, Any]:
        """The content of ``PATH.manifest.json``: equal for equal input and settings."""
        return {
            "stepmark": stepmark.__version__,
            "format": self.format,
            "settings": self.settings,
            "written_as": self.written_as,
            "input": {
                "place": self.source,
                "hash": self.source_hash,
                "rows": self.rows_in,
                "used": self.rows_used,
            },
            "output": {
                "file": Path(self.out).name,
                "hash": self.out_hash,
                "rows": self.rows,
                "distinct": self.distinct,
                "problems": self.problems,
                "steps": self.steps,
                "labels": {word: self.labels[word] for word in WORDS},
                "last_labels": {word: self.last_labels[word] for word in WORDS},
            },
            "rejects": dict(sorted(self.rejects.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "repaired": {name: n for name, n in sorted(self.repaired.items()) if n},
        }


def convert_file(
    place: str | Path,
    out: str | Path,
    format: str | StepFormat | None = None,
    *,
    repairs: Repairs | None = None,
    written_as: str = "stepmark",
    limit: int | None = None,
    on_format: Callable[[StepFormat], None] | None = None,
    on_progress: Progress | None = None,
    **settings: Any,
) -> Conversion:
    """Converts a file; ``out`` gets the rows, and beside it stand rejects and manifest.

    ``PATH.rejects.jsonl`` has line, reason, detail and the row of everything that was rejected;
    without rejects there is no such file. ``PATH.manifest.json`` counts rows, steps, labels and
    reasons. All three are published by rename: an earlier conversion stays until this one is whole.

    Args:
        place: a path (.jsonl, .jsonl.gz, .json, .parquet, .csv), or a hub id with its split.
        out: a path that ends in ``.jsonl``.
        format: a registered name with settings, or a format; guessed from the rows when None.
        repairs: how rows are mended; by default they are rejected.
        written_as: the format to write: ``stepmark``, ``math-shepherd`` or ``trl``.
        limit: stop after so many rows of the source.
        on_format: called with the format before the first row is read.
        on_progress: called with done and total, in bytes or rows.
        settings: settings of the format, such as ``neutral="mask"``.

    Raises:
        ConfigError: a setting is not known, or ``out`` cannot be written to.
        DataError: the file cannot be read, or its format cannot be guessed.
    """
    target, place, repairs = Path(out), str(place), repairs or Repairs()
    _check_out(target, place)
    writer = _writer(written_as)
    source = Source(place)
    reader = _reader(source, format, settings)
    if on_format:
        on_format(reader)
    found = Conversion(
        reader.name, _settings(reader, repairs), place, source.digest(), written_as, str(out)
    )
    rejects = beside(target, "rejects.jsonl")
    with ExitStack() as files:
        # Published in the reverse order: rows that stand there have their rejects and manifest.
        part = files.enter_context(publish(target))
        manifest = files.enter_context(publish(beside(target, "manifest.json")))
        refused = files.enter_context(publish(rejects))
        with part.open("wb") as rows, refused.open("wb") as bad:
            _convert(source, reader, repairs, writer, found, (rows, bad), limit, on_progress)
        found.out_hash = file_hash(part)
        write_json(manifest, found.manifest())
    if not found.rejects:
        rejects.unlink()
    return found


def beside(out: Path, ending: str) -> Path:
    """The path of a file beside the rows.

    >>> beside(Path("rows.jsonl"), "rejects.jsonl").name
    'rows.rejects.jsonl'
    """
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.{ending}")


def _check_out(out: Path, place: str) -> None:
    if not out.name.endswith(".jsonl"):
        raise ConfigError(
            f"--out is {str(out)!r}; rows go to a file of JSON lines. Give a name that ends in "
            ".jsonl."
        )
    if out.resolve() == Path(place).expanduser().resolve():
        raise ConfigError(
            f"--out {out} is the file that is read; it would be lost. Choose another name."
        )


def _writer(name: str) -> Any:
    made = load_format(name)
    if not hasattr(made, "write"):
        able = [one for one in formats.names() if hasattr(formats.load(one), "write")]
        *most, last = able
        raise ConfigError(
            f"The format {name!r} can be read and not written. Write {', '.join(most)} or {last} "
            "instead."
        )
    return made


def _reader(source: Source, wanted: str | StepFormat | None, settings: dict[str, Any]) -> Any:
    if wanted is None:
        seen = (row for _, row in source.rows() if not isinstance(row, Rejected))
        wanted = guess_format(list(islice(seen, GUESSED_FROM)), source.place)
    if isinstance(wanted, str):
        return load_format(wanted, **settings)
    if settings:
        raise ConfigError(
            f"The format {wanted.name!r} is a finished object and takes no settings; got "
            f"{', '.join(settings)}. Name it, or give them to its constructor."
        )
    return wanted


def _settings(reader: StepFormat, repairs: Repairs) -> dict[str, Any]:
    own = {name: getattr(reader, name, None) for name in settings_of(type(reader))}
    return own | asdict(repairs)


class _Seen:
    """Digests of what was written, to count what differs and to find what repeats."""

    def __init__(self) -> None:
        self.rows: dict[str, set[int]] = {}
        self.problems: set[str] = set()

    def repeats(self, labelled: LabelledSteps) -> bool:
        """Whether this solution was written before with the same labels; remembers it."""
        self.problems.add(labelled.problem.id)
        known = self.rows.setdefault(row_id(labelled.problem.text, labelled.steps), set())
        labels = hash(labelled.labels)
        if labels in known:
            return True
        known.add(labels)
        return False


def _convert(
    source: Source,
    reader: StepFormat,
    repairs: Repairs,
    writer: Any,
    found: Conversion,
    files: tuple[IO[bytes], IO[bytes]],
    limit: int | None,
    on_progress: Progress | None,
) -> None:
    seen = _Seen()
    for line, row in islice(source.rows(), limit):
        found.rows_in += 1
        try:
            part = _read(row, reader, repairs)
            lines = [row_line(writer.write(one)) for one in part.solutions]
        except Rejected as why:
            _reject(files[1], found, line, row, why)
            continue
        except RecursionError:
            _reject(files[1], found, line, {}, Rejected(RejectReason.NOT_JSON, "nested too deeply"))
            continue
        _write(files[0], part, lines, found, seen, drop=repairs.duplicates == "drop")
        if on_progress and found.rows_in % 20 == 0:
            on_progress(source.done, source.size)
    found.distinct, found.problems = len(seen.rows), len(seen.problems)
    if on_progress:
        on_progress(source.size, source.size)


class _Part(NamedTuple):
    """What one row of the source holds."""

    solutions: list[LabelledSteps]
    left_out: Counter[str]
    repaired: Counter[str]


def _read(row: Mapping[str, Any] | Rejected, reader: StepFormat, repairs: Repairs) -> _Part:
    if isinstance(row, Rejected):
        raise row
    part = _Part([], Counter(), Counter())
    unified = unify_line_ends(row)
    part.repaired["line_ends"] += unified is not None
    for one in reader.read(unified or row):
        if isinstance(one, LeftOut):
            part.left_out[one.reason] += 1
        else:
            part.solutions.append(repairs.apply(one, part.repaired))
    if not (part.solutions or part.left_out):
        raise Rejected(RejectReason.NO_STEPS, "the row holds no step")
    return part


def _write(
    file: IO[bytes], part: _Part, lines: list[bytes], found: Conversion, seen: _Seen, drop: bool
) -> None:
    found.left_out += part.left_out
    found.repaired += part.repaired
    before = found.rows
    for one, line in zip(part.solutions, lines, strict=True):
        if seen.repeats(one) and drop:
            found.left_out["duplicate"] += 1
            continue
        file.write(line)
        _count(found, one)
    found.rows_used += found.rows > before


def _reject(file: IO[bytes], found: Conversion, line: int, row: Any, why: Rejected) -> None:
    found.rejects[why.reason] += 1
    found.first_reject = found.first_reject or f"line {line}: {why}"
    said: dict[str, Any] = {"line": line, "reason": why.reason, "detail": why.detail}
    if row and not isinstance(row, Rejected):
        said["row"] = row
    file.write(_any_line(said))


def _any_line(row: dict[str, Any]) -> bytes:
    """A line of JSON that also holds what our own rows never do: NaN as it is, dates as text."""
    try:
        return json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, default=str).encode() + b"\n"


def _count(found: Conversion, labelled: LabelledSteps) -> None:
    found.rows += 1
    found.steps += len(labelled.steps)
    words = [label_word(label) for label in labelled.labels]
    found.labels.update(words)
    found.last_labels[words[-1]] += 1
