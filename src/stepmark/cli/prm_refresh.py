"""``stepmark prm refresh``: a reward model learns from new rows and from some of its history."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import DataError

from .console import Debug, Json, emit, grid, out, say, show, warn
from .interrupt import same_command, stoppable
from .prm_train import watching

if TYPE_CHECKING:
    from stepmark.prm.replay import AdmissionReport, Mixture, RefreshOutcome, ReplayBuffer
    from stepmark.types import LabelledSteps

__all__ = ["refresh"]

Checkpoint = Annotated[str, typer.Argument(metavar="CKPT", help="Folder of the reward model.")]
New = Annotated[
    list[str], typer.Option("--new", metavar="ROWS.jsonl", help="Rows of the round; repeatable.")
]
Buffer = Annotated[
    Path, typer.Option("--buffer", metavar="DIR", help="Folder of all rows of all rounds.")
]
History = Annotated[
    list[str] | None,
    typer.Option(
        "--history", metavar="ROWS.jsonl", help="What CKPT learnt from: round 0 of a new buffer."
    ),
]
Replay = Annotated[float | None, typer.Option(help="Share of earlier rows; 0.1 unless set.")]
ReplayOf = Annotated[
    str | None, typer.Option(help="Of what: mixture (667 to 6,000 new ones), or history.")
]
MaxOldDrop = Annotated[
    float | None, typer.Option(help="Most that F1 may fall on any earlier round; 0.05 unless set.")
]
Probe = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labelled rows, frozen, to examine every model.")
]
Files = Annotated[
    list[Path] | None, typer.Option("--config", help="TOML file of settings; later ones win.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="One setting: algorithm.learning_rate=1e-6.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of the rounds; else --buffer.")
]
DryRun = Annotated[bool, typer.Option(help="Say what would be drawn; write nothing.")]


def refresh(
    checkpoint: Checkpoint,
    new: New,
    buffer: Buffer,
    history: History = None,
    replay: Replay = None,
    replay_of: ReplayOf = None,
    max_old_drop: MaxOldDrop = None,
    probe: Probe = None,
    config: Files = None,
    set_: Sets = None,
    out_: Out = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Refresh a process reward model with replay (DeepSeekMath 4.1.4); a gate keeps the better one.

    The accepted model is DIR/current: give that as CKPT next time. Exit 1: the gate rejected it.

    stepmark prm refresh runs/prm/checkpoints/best --new new.jsonl --buffer runs/refresh
    """
    from stepmark.config import Flag, compose, validate
    from stepmark.prm.replay import RefreshConfig, ReplayBuffer
    from stepmark.prm.replay.config import TABLES

    flags = {
        "replay.share": Flag("--replay", replay),
        "replay.reading": Flag("--replay-of", replay_of),
        "gate.max_old_drop": Flag("--max-old-drop", max_old_drop),
    }
    composed = compose(config or [], set_ or [], flags, tables=TABLES)
    settings = validate(RefreshConfig, composed.tree, origin=composed.origin_of)
    rows, earlier = _rows(new), _rows(history or [])
    if dry_run:
        with TemporaryDirectory(prefix="stepmark-") as place:
            copy = _copied(buffer, Path(place) / "buffer")
            number, reports = _add(copy, rows, earlier, new, history or [])
            _forecast(copy, number, reports, settings, as_json)
        return 0
    probes = _probe(probe)
    from stepmark.prm.replay import refresh as run

    with stoppable(same_command(out_ or buffer)):
        store = ReplayBuffer(buffer)
        number, reports = _add(store, rows, earlier, new, history or [])
        _tell_admission(reports)
        say(f"round {number} of {out_ or buffer}; the model before is {checkpoint}")
        with watching("refresh") as watch:
            done = run(checkpoint, store, number, settings, out_, probe=probes, on_event=watch)
    where = out_ or buffer
    _draw_matrix(where)
    emit(_to_row(done, reports, where), as_json, lambda: _tell(done, where))
    return 0 if done.accepted else 1


def _rows(files: Sequence[str]) -> list[LabelledSteps]:
    from stepmark.prm import labelled_steps

    return [row for file in files for row in labelled_steps(file)]


def _probe(file: str | None) -> Sequence[LabelledSteps]:
    if file is None:
        return ()
    from stepmark.prm.eval_rows import read_eval_rows

    return read_eval_rows(file).rows


def _copied(buffer: Path, place: Path) -> ReplayBuffer:
    """The buffer in another folder, where a round can be tried out."""
    from stepmark.prm.replay import ReplayBuffer

    place.mkdir()
    for pattern in ("*.json", "shard-*.jsonl", "index.jsonl", "rounds.jsonl", "conflicts.jsonl"):
        for file in buffer.glob(pattern) if buffer.is_dir() else ():
            shutil.copy2(file, place / file.name)
    return ReplayBuffer(place)


def _add(
    buffer: ReplayBuffer,
    rows: list[LabelledSteps],
    earlier: list[LabelledSteps],
    files: Sequence[str],
    earlier_files: Sequence[str],
) -> tuple[int, list[AdmissionReport]]:
    """The number of the round, and what became of all rows."""
    from stepmark.prm.replay import Provenance

    if not rows:
        raise DataError(
            f"{', '.join(files)} has no row, so there is nothing new. Give rows of stepmark prm "
            "convert or annotate."
        )
    reports: list[AdmissionReport] = []
    if earlier:
        reports.append(buffer.add(earlier, 0, _named(Provenance, earlier_files)))
    elif not buffer.rounds():
        warn("the buffer is new and --history is not given: there is nothing to replay yet.")
    number = buffer.next_round(rows)
    reports.append(buffer.add(rows, number, _named(Provenance, files)))
    return number, reports


def _named(provenance: Any, files: Sequence[str]) -> Any:
    return provenance(origin=", ".join(Path(file).name for file in files))


def _tell_admission(reports: Sequence[AdmissionReport]) -> None:
    for one in reports:
        again = " (there already)" if one.is_repeat else ""
        say(
            f"round {one.round}: {one.given:,} rows given, {one.train:,} to learn from, "
            f"{one.held_out:,} held out{again}"
        )
        for reason, number in one.rejected.items():
            say(f"  {number:,} refused: {reason}")
        if one.conflicts:
            warn(f"{one.conflicts:,} solutions were labelled otherwise before: conflicts.jsonl")


def _forecast(
    buffer: ReplayBuffer,
    number: int,
    reports: Sequence[AdmissionReport],
    settings: Any,
    as_json: bool,
) -> None:
    """What a refresh would learn from."""
    from stepmark.prm.replay.drawing import drawn

    mixture = drawn(buffer, number, settings)
    _tell_admission(reports)
    value = {
        "round": number,
        "admission": [report.to_row() for report in reports],
        "mixture": mixture.to_row(),
        "settings": settings.settings(),
    }
    emit(value, as_json, lambda: _tell_mixture(mixture))
    say("These settings can run. No weights were loaded, and nothing was written.")


def _tell_mixture(mixture: Mixture) -> None:
    out.print(
        f"{len(mixture.new):,} new rows of {mixture.admitted:,}, and {len(mixture.replay):,} of "
        f"{mixture.history:,} earlier ones (a share of the mixture asks for "
        f"{mixture.by_mixture:,}, one of the history for {mixture.by_history:,}); "
        f"{mixture.has_error:.0%} of all have an error",
        markup=False,
    )
    if not mixture.strata:
        return
    table = grid("round", "error", "steps", "source", "there", "drawn")
    for stratum, there, number in mixture.strata:
        words = (str(stratum.round), "yes" if stratum.has_error else "no", stratum.steps)
        table.add_row(*words, stratum.source, f"{there:,}", f"{number:,}")
    show(table)


def _draw_matrix(where: Path) -> None:
    from stepmark.prm.replay.matrix import matrix_of, matrix_svg
    from stepmark.store import publish

    with publish(where / "matrix.svg", replace=True) as part:
        part.write_text(matrix_svg(matrix_of(where)), encoding="utf-8")


def _to_row(
    done: RefreshOutcome, reports: Sequence[AdmissionReport], where: Path
) -> dict[str, Any]:
    from stepmark.prm.replay.matrix import matrix_of

    return {
        **done.to_row(),
        "admission": [report.to_row() for report in reports],
        "matrix": matrix_of(where).to_row(),
    }


def _tell(done: RefreshOutcome, where: Path) -> None:
    counts = done.counts
    out.print(
        f"Round {done.round}: {counts['n_new']:,} new rows, {counts['n_replay']:,} of "
        f"{counts['n_history']:,} earlier ones",
        markup=False,
    )
    table = grid("held-out rows", "rows", "F1 before", "after", "change", "interval")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in done.before.items():
        words = f"round {name}" if name.isdecimal() else name
        found = done.changes.get(name)
        if found is None:
            table.add_row(words, f"{one.rows:,}", "cannot tell")
            continue
        span = f"{found.low:+.3f} to {found.high:+.3f}"
        cells = (f"{found.before:.3f}", f"{found.after:.3f}", f"{found.gain:+.3f}", span)
        table.add_row(words, f"{one.rows:,}", *cells)
    show(table)
    for reason in done.reasons:
        warn(f"gate: {reason}.")
    word = "accepted" if done.accepted else "rejected: the model before stays"
    out.print(f"  {word}; the model to use is {done.model}", markup=False)
    say(f"Everything is in {where}: rounds/{done.round}, matrix.json, matrix.svg.")
