"""Recorded responses marked again, beside the verdicts that were recorded with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepmark.errors import ConfigError
from stepmark.protocols import OutcomeVerifier
from stepmark.report.markdown import markdown_table
from stepmark.report.numbers import count, percent
from stepmark.store import append_rows, publish, write_json
from stepmark.types import Verdict
from stepmark.verifiers import check_columns

from .adjudication import Adjudicated, Adjudication, adjudicate
from .marked import MarkedRow, Square, disagreements, square, statuses
from .marking import KIND, Job, Progress, digest_of, is_result, workplace
from .recorded import Columns, Recording, Reject, read_recorded
from .result import About, EvalResult, summarise

__all__ = ["Regrade", "RegradedGroup", "regrade", "verdict_rows"]

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
    label: str = "recorded"
    """What we are compared with: a column, another verifier."""
    digest: str = ""
    """Of all that was marked."""
    against: str | None = None
    """Key of the verifier that stands in place of the label."""
    adjudicated: Adjudicated | None = None
    before: tuple[tuple[str, int, int], ...] = ()
    """The 2 x 2 table before the adjudications; empty without."""
    rows: tuple[MarkedRow, ...] = field(default=(), repr=False)

    @property
    def disagreements(self) -> int:
        """Of all groups; they stand in ``disagreements.jsonl``."""
        return sum(group.disagreements for group in self.groups)

    def to_row(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        found: dict[str, Any] = {
            "kind": KIND,
            "source": Path(self.source).name,
            "digest": self.digest,
            "verifier": self.verifier,
            "against": self.against,
            "label": self.label,
            "columns": self.announcement,
            "rows": sum(group.rows for group in self.groups),
            "rejects": self.rejects,
            "statuses": statuses(self.rows),
            "disagreements": self.disagreements,
            "kinds": dict(Counter(row.kind for row in self.rows if row.kind)),
            "square": [list(line) for line in self.square],
            "groups": [group.to_row() for group in self.groups],
        }
        if self.adjudicated is not None:
            found["adjudicated"] = {
                "rows": self.adjudicated.rows,
                "unsure": self.adjudicated.unsure,
                "unknown": self.adjudicated.unknown,
                "changed": len(self.adjudicated.changes),
                "square_before": [list(line) for line in self.before],
            }
        return found

    @property
    def square(self) -> Square:
        """The 2 x 2 table of labels and verdicts; empty where there are no labels."""
        return square(self.rows)

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
        return f"{text}\n{self._square_text()}\nVerifier: {self.verifier}. {self.announcement}\n"

    def _square_text(self) -> str:
        if not self.square:
            return ""
        headers = (self.verifier, f"{self.label}: correct", f"{self.label}: wrong")
        lines = [(word, count(right), count(wrong)) for word, right, wrong in self.square]
        return f"\n{markdown_table(headers, lines)}\n"


def regrade(
    source: str | Path,
    verifier: OutcomeVerifier,
    out: Path,
    *,
    columns: Columns | None = None,
    recording: Recording | None = None,
    against: OutcomeVerifier | None = None,
    adjudications: Sequence[Adjudication] = (),
    in_workers: bool | None = None,
    max_error_share: float = 0.1,
    on_progress: Progress | None = None,
) -> Regrade:
    """Mark recorded responses (a file, a folder, a hub id, a run) without generating anything.

    ``out`` gets ``verdicts.jsonl``, ``disagreements.jsonl``, ``rejects.jsonl`` (where there are
    any), ``summary.json`` and ``table.md``, all at once. A stopped call goes on where it was; an
    earlier result of the same file and verifier is replaced.

    Args:
        source: what was recorded.
        verifier: what marks.
        out: the folder.
        columns: those that are named.
        recording: read already, and perhaps chosen from: marked in place of the file.
        against: another verifier, whose verdicts stand in place of the labels.
        adjudications: what people decided; they stand in place of all other labels.
        in_workers: mark in several processes; None: as soon as that is worth it.
        max_error_share: largest share of error verdicts, in [0, 1].
        on_progress: called with a verifier's key, the verdicts there are and those there will be.

    Raises:
        DataError: the file cannot be read, or a column is missing or ambiguous.
        ConfigError: a verifier asks for a column that the file lacks.
        RunError: ``out`` holds something else.
        VerifierError: more error verdicts than allowed.
    """
    recording = recording or read_recorded(str(source), columns)
    check_columns(verifier, recording.columns)
    if against is not None:
        check_columns(against, recording.columns)
        _check_differ(verifier, against)
    job = Job(Path(source).name, digest_of(recording), verifier.key)
    with workplace(Path(out), job, in_workers) as place:
        verdicts = place.mark(verifier, recording, max_error_share, on_progress)
        others = None
        if against is not None:
            others = place.mark(against, recording, max_error_share, on_progress)
            labels = [other.correct for other in others]
            recording = _labelled(recording, labels, against.key)
        found = _outcome(str(source), Path(out), job, recording, verdicts, others, adjudications)
        found = replace(found, against=None if against is None else against.key)
        with publish(Path(out), replace=is_result(Path(out))) as part:
            part.mkdir()
            _write(part, found, recording.rejects)
    return found


def _outcome(
    source: str,
    out: Path,
    job: Job,
    recording: Recording,
    verdicts: Sequence[Verdict],
    others: Sequence[Verdict] | None,
    adjudications: Sequence[Adjudication],
) -> Regrade:
    """All that is known of marked rows, with the adjudications in place of other labels."""
    before = square(_rows(recording, verdicts, others))
    adjudicated = None
    if adjudications:
        recording, adjudicated = adjudicate(recording, adjudications)
    rows = _rows(recording, verdicts, others)
    return Regrade(
        source=source,
        out=out,
        verifier=job.verifier,
        groups=tuple(_groups(rows, job.verifier)),
        rejects=len(recording.rejects),
        announcement=recording.announcement,
        label=recording.label,
        digest=job.digest,
        adjudicated=adjudicated,
        before=tuple(before) if adjudicated else (),
        rows=tuple(rows),
    )


def verdict_rows(
    source: str | Path,
    verifier: OutcomeVerifier,
    out: Path,
    recording: Recording,
    *,
    in_workers: bool | None = None,
    max_error_share: float = 0.1,
    on_progress: Progress | None = None,
) -> list[MarkedRow]:
    """The marked rows, which ``out``, a JSON-lines file, gets and nothing else.

    A stopped call goes on where it was. Raises what `regrade` raises.
    """
    check_columns(verifier, recording.columns)
    job = Job(Path(source).name, digest_of(recording), verifier.key)
    with workplace(Path(out), job, in_workers) as place:
        verdicts = place.mark(verifier, recording, max_error_share, on_progress)
        rows = _rows(recording, verdicts, None)
        with publish(Path(out)) as part:
            append_rows(part, (row.to_row() for row in rows))
    return rows


def _check_differ(verifier: OutcomeVerifier, against: OutcomeVerifier) -> None:
    if verifier.key == against.key:
        raise ConfigError(
            f"Both verifiers are {verifier.key}: they agree by themselves. Name another one to "
            "compare with, such as exact or math-verify."
        )


def _labelled(recording: Recording, labels: Sequence[bool | None], name: str) -> Recording:
    rows = [row._replace(label=label) for row, label in zip(recording.rows, labels, strict=True)]
    return replace(recording, rows=rows, label=name)


def _rows(
    recording: Recording, verdicts: Sequence[Verdict], others: Sequence[Verdict] | None
) -> list[MarkedRow]:
    pairs = zip(recording.rows, verdicts, others or [None] * len(verdicts), strict=True)
    return [MarkedRow(row, verdict, other) for row, verdict, other in pairs]


def _groups(rows: Sequence[MarkedRow], key: str) -> Iterator[RegradedGroup]:
    about = About("", "recorded", "", "", "", "", key, False, 0.0, 0, 0)
    groups: dict[str, list[MarkedRow]] = {}
    for row in rows:
        groups.setdefault(row.recorded.group, []).append(row)
    for name, own in groups.items():
        labels = [row.recorded.label for row in own if row.recorded.label is not None]
        kinds = Counter(row.kind for row in own)
        pairs = [(row.recorded.sample, row.verdict) for row in own]
        yield RegradedGroup(
            name=name,
            rows=len(own),
            labelled=len(labels),
            recorded=sum(labels) / len(labels) if labels else None,
            result=summarise(replace(about, model=name), pairs),
            only_recorded=kinds["only_recorded"],
            only_ours=kinds["only_ours"],
            no_verdict=kinds["no_verdict"],
        )


def _write(part: Path, found: Regrade, rejects: Sequence[Reject]) -> None:
    append_rows(part / "verdicts.jsonl", (row.to_row() for row in found.rows))
    (part / "disagreements.jsonl").touch()
    apart = disagreements(found.rows)
    append_rows(part / "disagreements.jsonl", (row.to_disagreement() for row in apart))
    if found.against is not None:
        others = ((row, row.other) for row in found.rows if row.other is not None)
        append_rows(
            part / "against.jsonl",
            (
                {"id": row.recorded.sample.id, "k": row.recorded.sample.k} | other.to_row()
                for row, other in others
            ),
        )
    if found.adjudicated is not None:
        ours = {row.recorded.name: row.verdict.correct for row in found.rows}
        changes = found.adjudicated.changes
        append_rows(part / "changes.jsonl", (one.to_row(ours[one.name]) for one in changes))
    append_rows(part / "rejects.jsonl", (reject.to_row() for reject in rejects))
    write_json(part / "summary.json", found.to_row())
    (part / "table.md").write_text(found.table(), encoding="utf-8")
