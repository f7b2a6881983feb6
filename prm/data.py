"""Rows that a reward model learns from: read, split by problem, encoded, and counted on the way.

Truncation removes labels in silence: labels are counted before and after it, and a row that has
none left is dropped with its reason. What no label needs is cut: tokens behind the last labelled
step teach nothing, and those before the first one are shared between rows that begin alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepmark.errors import DataError
from stepmark.store.files import text_hash
from stepmark.types import LabelledSteps

from .encoding import Encoded, StepEncoder
from .formats import labelled_steps, problem_id, row_id
from .formats.balance import has_words
from .splits import is_in_share

__all__ = [
    "Counts",
    "LabelRule",
    "Rows",
    "StepRow",
    "Tally",
    "data_hashes",
    "encode_rows",
    "excluded_problems",
    "is_held_out",
    "read_rows",
    "targets_of",
]

EMPTY_STEP = "empty step"
"""Why a row is dropped that has a step of blanks."""
WRONG_BELOW = 0.5
"""A label below counts as wrong in counts; hard labels are 0 or 1."""


class LabelRule(NamedTuple):
    """Which labels of a row are learnt from; see `stepmark.prm.train_config.DataTable`."""

    steps: str = "all"
    after_error: str = "mask"
    labels: str = "as_given"
    hard_above: float = 0.0


class Tally(NamedTuple):
    """Labels by what they say; an estimate counts as right from one half on."""

    right: int = 0
    wrong: int = 0

    @classmethod
    def of(cls, labels: Iterable[float | None]) -> Tally:
        """The labels that are there."""
        known = [label for label in labels if label is not None]
        wrong = sum(label < WRONG_BELOW for label in known)
        return cls(len(known) - wrong, wrong)

    def __add__(self, other: Any) -> Tally:
        return Tally(self.right + other.right, self.wrong + other.wrong)


NO_LABELS = Tally()


@dataclass(slots=True)
class Counts:
    """What became of the rows of a data set; nothing disappears without a count."""

    rows: int = 0
    """Read."""
    given: Tally = NO_LABELS
    """Labels in those rows."""
    wanted: Tally = NO_LABELS
    """Labels that the settings let the loss cover, before truncation; none of a row that is left
    out for an empty step."""
    kept: Tally = NO_LABELS
    """Labels that are learnt from, or examined."""
    dropped: Counter[str] = field(default_factory=Counter[str])
    """Rows that are not used, by reason."""

    def to_row(self) -> dict[str, Any]:
        """The counts as plain values."""
        tallies = {name: getattr(self, name)._asdict() for name in ("given", "wanted", "kept")}
        return {"rows": self.rows, "labels": tallies, "dropped": dict(sorted(self.dropped.items()))}


@dataclass(frozen=True, slots=True, eq=False)
class StepRow:
    """A solution as far as its labels need it, in compact arrays."""

    prompt: np.ndarray
    """Tokens before the first labelled step: other rows may have the same."""
    ids: np.ndarray
    """Tokens from there to the last labelled step."""
    ends: tuple[int, ...]
    """Place in ``ids`` of the last token of each labelled step."""
    labels: tuple[float, ...]
    first_error: int | None = None
    """Among ``labels``: place of the first wrong one, -1 if there is none; None where the data do
    not tell it of the whole solution."""

    @property
    def encoded(self) -> Encoded:
        """The row as models take it."""
        return Encoded(tuple(self.prompt.tolist()), tuple(self.ids.tolist()), self.ends, 0)

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.prompt) + len(self.ids)

    @property
    def is_wrong(self) -> bool:
        """Whether a label says that a step is wrong."""
        return any(label < WRONG_BELOW for label in self.labels)


class Rows(NamedTuple):
    """Labelled solutions of a data set: those to learn from, and those to examine the model."""

    train: list[LabelledSteps]
    held_out: list[LabelledSteps]
    dropped: Counter[str]
    """Rows that belong to neither, by reason."""
    kind: str
    """``hard`` or ``soft``; one estimate among the labels makes it soft."""
    origin: str
    """Who labelled; empty where the rows do not say or differ."""
    files: Mapping[str, int]
    """How many rows of each file are in either part."""


def is_held_out(problem: str, share: float) -> bool:
    """Whether all rows of a problem are kept from training: a hash of its text, no draw.

    >>> is_held_out("1 + 1?", 0.0), is_held_out(" 1 +  1?", 1.0)
    (False, True)
    """
    return is_in_share(problem, share, "held out")


def read_rows(
    files: Sequence[str],
    *,
    held_out: float,
    excluded: Iterable[str] = (),
    limit: int | None = None,
    held_out_limit: int | None = None,
) -> Rows:
    """The rows of some files, divided by problem; the same files and settings give the same rows.

    Args:
        files: of ``stepmark prm convert``.
        held_out: share of the problems to examine the model with.
        excluded: texts of problems that must be in neither part.
        limit: rows in all, chosen by hash.
        held_out_limit: held-out rows, chosen by hash.

    Raises:
        DataError: a file is missing, a line is no such row, or nothing is left to learn from.
    """
    read = [(file, row) for file in files for row in labelled_steps(file)]
    file_of, found = {id(row): file for file, row in read}, [row for _, row in read]
    dropped: Counter[str] = Counter()
    if limit is not None and limit < len(found):
        dropped["beyond data.limit"] = len(found) - limit
        found = _by_hash(found, limit)
    banned = {problem_id(text) for text in excluded}
    parts: dict[bool, list[LabelledSteps]] = {False: [], True: []}
    for row in found:
        if banned and problem_id(row.problem.text) in banned:
            dropped["problem is in data.exclude"] += 1
        else:
            parts[is_held_out(row.problem.text, held_out)].append(row)
    if held_out_limit is not None and held_out_limit < len(parts[True]):
        dropped["beyond data.held_out_limit"] = len(parts[True]) - held_out_limit
        parts[True] = _by_hash(parts[True], held_out_limit)
    if not parts[False]:
        reasons = ", ".join(f"{n:,} {why}" for why, n in dropped.items()) or "none dropped"
        raise DataError(
            f"No row is left to learn from: {', '.join(map(str, files))} hold {len(found):,} rows "
            f"({reasons}), and {len(parts[True]):,} are held out. Give more problems, or lower "
            "data.held_out."
        )
    kind = "soft" if any(row.kind == "soft" for row in found) else "hard"
    origins = {row.origin for row in parts[False]}
    origin = origins.pop() if len(origins) == 1 else ""
    used = Counter(file_of[id(row)] for part in parts.values() for row in part)
    return Rows(parts[False], parts[True], dropped, kind, origin, used)


def _by_hash(rows: Sequence[LabelledSteps], count: int) -> list[LabelledSteps]:
    """Some rows, chosen by their content, in their order."""

    def place(number: int) -> str:
        return text_hash("limit " + row_id(rows[number].problem.text, rows[number].steps))

    chosen = sorted(sorted(range(len(rows)), key=place)[:count])
    return [rows[number] for number in chosen]


def targets_of(row: LabelledSteps, rule: LabelRule) -> tuple[float | None, ...]:
    """The label of every step that the loss is to cover; None for the others.

    >>> from stepmark.types import Problem
    >>> row = LabelledSteps(Problem("p", "?", None), ("a", "b", "c"), (1, 0, 1))
    >>> [targets_of(row, LabelRule(after_error=how)) for how in ("mask", "wrong", "keep")]
    [(1, 0, None), (1, 0, 0.0), (1, 0, 1)]
    >>> targets_of(row, LabelRule(steps="last", after_error="keep"))
    (None, None, 1)
    """
    labels = list(row.labels)
    if rule.labels == "hard":
        labels = [None if one is None else float(one > rule.hard_above) for one in labels]
    is_hard = row.kind == "hard" or rule.labels == "hard"
    if is_hard and rule.after_error != "keep" and 0 in labels:
        first = labels.index(0)
        behind = None if rule.after_error == "mask" else 0.0
        labels[first + 1 :] = [behind] * (len(labels) - first - 1)
    if rule.steps == "last":
        labels[:-1] = [None] * (len(labels) - 1)
    return tuple(labels)


def encode_rows(
    rows: Sequence[LabelledSteps], encoder: StepEncoder, rule: LabelRule, *, whole: bool = False
) -> tuple[list[StepRow], Counts]:
    """The rows as tokens with the labels that are left, and what became of all labels.

    Args:
        rows: labelled solutions.
        encoder: of the reward model.
        rule: which labels count.
        whole: keep tokens that no label needs, for a next-token loss over all of them.

    Raises:
        DataError: a row is longer than ``max_tokens`` and ``overflow`` is ``error``.
    """
    found, counts = list[StepRow](), Counts()
    for row in rows:
        counts.rows += 1
        counts.given += Tally.of(row.labels)
        targets = targets_of(row, rule)
        made = _one(row, targets, encoder, rule, whole=whole)
        if made != EMPTY_STEP:
            counts.wanted += Tally.of(targets)
        if isinstance(made, str):
            counts.dropped[made] += 1
        else:
            counts.kept += Tally.of(made.labels)
            found.append(made)
    return found, counts


def _one(
    row: LabelledSteps,
    targets: Sequence[float | None],
    encoder: StepEncoder,
    rule: LabelRule,
    *,
    whole: bool,
) -> StepRow | str:
    """The row as tokens, or why it is dropped."""
    if all(target is None for target in targets):
        return "no label"
    if not has_words(row):
        return EMPTY_STEP
    made = encoder.encode(row.problem, row.steps)
    places = [n for n in range(len(made.ends)) if targets[n] is not None]
    if not places:
        return "no label within max_tokens"
    start = 0 if whole or not places[0] else made.ends[places[0] - 1] + 1
    end = len(made.ids) if whole else made.ends[places[-1]] + 1
    labels = tuple(float(targets[n] or 0.0) for n in places)
    tells = rule.steps == "all" and len(made.ends) == len(row.steps)
    return StepRow(
        np.array((*made.prompt_ids, *made.ids[:start]), dtype=np.int32),
        np.array(made.ids[start:end], dtype=np.int32),
        tuple(made.ends[n] - start for n in places),
        labels,
        _first_wrong(targets) if tells else None,
    )


def _first_wrong(targets: Sequence[float | None]) -> int | None:
    """Place of the first wrong target, -1 if there is none; None behind a step without one."""
    for place, target in enumerate(targets):
        if target is None:
            return None
        if target < WRONG_BELOW:
            return place
    return -1


def data_hashes(rows: Sequence[str], exclude: Sequence[str]) -> dict[str, str]:
    """Hash of each file that decides what is learnt, those of excluded problems among them.

    Returns:
        By the name of the file; by its path as given where two files have one name.
    """
    from .formats.source import Source

    files = dict.fromkeys((*rows, *exclude))
    names = Counter(Path(file).name for file in files)
    keys = {file: Path(file).name if names[Path(file).name] == 1 else file for file in files}
    return {keys[file]: Source(file).digest() for file in files}


def excluded_problems(files: Sequence[str]) -> Iterator[str]:
    """The texts of the problems in files whose rows have a column problem or question.

    Raises:
        DataError: a file is missing, or a row has neither.
    """
    from .formats.source import Source

    for file in files:
        for line, row in Source(file).rows():
            text = row.get("problem") or row.get("question") if isinstance(row, Mapping) else None
            if isinstance(text, Mapping):
                text = text.get("problem")
            if not isinstance(text, str):
                raise DataError(
                    f"data.exclude: {file}, line {line}, has no problem. It must hold JSON objects "
                    "with a column problem or question; convert it first."
                )
            yield text
