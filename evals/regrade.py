"""Recorded responses marked again, beside the verdicts that were recorded with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepmark.protocols import OutcomeVerifier
from stepmark.report.markdown import markdown_table
from stepmark.report.numbers import count, percent
from stepmark.store import append_rows, publish, write_json
from stepmark.types import Verdict
from stepmark.verifiers import check_columns

from .grade import AT_ONCE, check_error_share, mark
from .recorded import Columns, Recorded, Recording, read_recorded
from .result import About, EvalResult, summarise

__all__ = ["Regrade", "RegradedGroup", "regrade"]

KIND = "regrade"

OURS = (
    "n",
    "k",
    "accuracy",
    "low",
    "high",
    "accuracy_upper",
    "score",
    "no_answer",
    "truncated",
    "abstains",
    "errors",
)
"""What a group's row in the summary takes from its result."""


@dataclass(frozen=True, slots=True)
class RegradedGroup:
    """What was recorded for a group of rows, and what our verifier says."""

    name: str
    rows: int
    labelled: int
    """Rows with a recorded verdict."""
    recorded: float | None
    """Share of the labelled rows that were recorded as correct."""
    result: EvalResult
    only_recorded: int
    """Disagreements: recorded as correct, and not so for us."""
    only_ours: int
    """Disagreements: correct for us, recorded as wrong."""
    no_verdict: int
    """Disagreements of the third kind: a label, and no score from us."""

    @property
    def disagreements(self) -> int:
        """All rows in which the two differ."""
        return self.only_recorded + self.only_ours + self.no_verdict

    def to_row(self) -> dict[str, Any]:
        """All of it for machines."""
        own = {
            "group": self.name,
            "rows": self.rows,
            "labelled": self.labelled,
            "recorded_accuracy": self.recorded,
            "disagreements": self.disagreements,
            "only_recorded": self.only_recorded,
            "only_ours": self.only_ours,
            "no_verdict": self.no_verdict,
        }
        ours = {name: getattr(self.result, name) for name in OURS}
        return own | ours


@dataclass(frozen=True, slots=True)
class Regrade:
    """The outcome of marking a file again."""

    source: str
    out: Path
    verifier: str
    groups: tuple[RegradedGroup, ...]
    rejects: int
    """Rows that could not be used; they stand in ``rejects.jsonl``."""
    announcement: str

    @property
    def disagreements(self) -> int:
        """Of all groups; they stand in ``disagreements.jsonl``."""
        return sum(group.disagreements for group in self.groups)

    def to_row(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {
            "kind": KIND,
            "source": Path(self.source).name,
            "verifier": self.verifier,
            "columns": self.announcement,
            "rows": sum(group.rows for group in self.groups),
            "rejects": self.rejects,
            "disagreements": self.disagreements,
            "groups": [group.to_row() for group in self.groups],
        }

    def table(self) -> str:
        """The groups in Markdown."""
        headers = (
            "group",
            "n",
            "recorded",
            "ours [95 %]",
            "disagree",
            "only recorded",
            "only ours",
        )
        rows = [
            (
                group.name or "all",
                count(group.rows),
                percent(group.recorded),
                percent(group.result.accuracy, (group.result.low, group.result.high)),
                count(group.disagreements),
                count(group.only_recorded),
                count(group.only_ours),
                percent(group.result.no_answer),
                count(group.result.abstains + group.result.errors),
            )
            for group in self.groups
        ]
        text = markdown_table((*headers, "no answer", "no verdict"), rows)
        return f"{text}\n\nVerifier: {self.verifier}. {self.announcement}\n"


def regrade(
    source: str | Path,
    verifier: OutcomeVerifier,
    out: Path,
    *,
    columns: Columns | None = None,
    recording: Recording | None = None,
    max_error_share: float = 0.1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Regrade:
    """Mark recorded responses (a file, a hub id or a run folder) without generating anything.

    ``out`` gets ``verdicts.jsonl``, ``disagreements.jsonl``, ``rejects.jsonl`` (where there are
    any), ``summary.json`` and ``table.md``, all at once; an earlier regrade there is replaced.

    A ``recording`` that was read already, and perhaps chosen from, is marked in place of the file.

    Raises:
        DataError: the file cannot be read, or a column is missing or ambiguous.
        ConfigError: the verifier asks for a column that the file lacks.
        RunError: ``out`` holds something else.
        VerifierError: more error verdicts than allowed.
    """
    recording = recording or read_recorded(str(source), columns)
    check_columns(verifier, recording.columns)
    with publish(Path(out), replace=_is_regrade(Path(out))) as part:
        part.mkdir()
        verdicts = _mark_all(recording, verifier, max_error_share, on_progress)
        pairs = list(zip(recording.rows, verdicts, strict=True))
        found = Regrade(
            source=str(source),
            out=Path(out),
            verifier=verifier.key,
            groups=tuple(_groups(recording, pairs, verifier.key)),
            rejects=len(recording.rejects),
            announcement=recording.announcement,
        )
        _write(part, found, recording, pairs)
    return found


Pairs = Sequence[tuple[Recorded, Verdict]]


def _mark_all(
    recording: Recording,
    verifier: OutcomeVerifier,
    max_error_share: float,
    on_progress: Callable[[int, int], None] | None,
) -> list[Verdict]:
    samples = [row.sample for row in recording.rows]
    verdicts: list[Verdict] = []
    for start in range(0, len(samples), AT_ONCE):
        verdicts += mark(verifier, samples[start : start + AT_ONCE])
        check_error_share(verifier.key, verdicts, max_error_share, is_partial=True)
        if on_progress:
            on_progress(len(verdicts), len(samples))
    check_error_share(verifier.key, verdicts, max_error_share)
    return verdicts


def _groups(recording: Recording, pairs: Pairs, key: str) -> Iterator[RegradedGroup]:
    about = About("", "recorded", "", "", "", "", key, False, 0.0, 0, 0)
    for name in dict.fromkeys(row.group for row in recording.rows):
        own = [(row, verdict) for row, verdict in pairs if row.group == name]
        labelled = [(row.label, v.correct) for row, v in own if row.label is not None]
        yield RegradedGroup(
            name=name,
            rows=len(own),
            labelled=len(labelled),
            recorded=sum(label for label, _ in labelled) / len(labelled) if labelled else None,
            result=summarise(replace(about, model=name), [(row.sample, v) for row, v in own]),
            only_recorded=sum(label and correct is False for label, correct in labelled),
            only_ours=sum(not label and correct is True for label, correct in labelled),
            no_verdict=sum(correct is None for _, correct in labelled),
        )


def _write(part: Path, found: Regrade, recording: Recording, pairs: Pairs) -> None:
    append_rows(part / "verdicts.jsonl", (_verdict_row(row, verdict) for row, verdict in pairs))
    (part / "disagreements.jsonl").touch()
    append_rows(
        part / "disagreements.jsonl",
        (
            _verdict_row(row, verdict)
            | {"rule": verdict.detail.get("rule"), "completion": row.sample.completion}
            for row, verdict in pairs
            if row.label is not None and row.label != verdict.correct
        ),
    )
    append_rows(part / "rejects.jsonl", (reject._asdict() for reject in recording.rejects))
    write_json(part / "summary.json", found.to_row())
    (part / "table.md").write_text(found.table(), encoding="utf-8")


def _verdict_row(row: Recorded, verdict: Verdict) -> dict[str, Any]:
    """The columns of the contract, then what this file adds to them."""
    found = {"id": row.sample.id, "k": row.sample.k} | verdict.to_row()
    if row.group:
        found["group"] = row.group
    if row.label is not None:
        found["label"] = row.label
    return found


def _is_regrade(out: Path) -> bool:
    """Whether an earlier regrade stands there: the only thing that this one may replace."""
    try:
        return json.loads((out / "summary.json").read_text(encoding="utf-8"))["kind"] == KIND
    except (OSError, ValueError, KeyError, TypeError):
        return False
