"""`ReplayBuffer`: all labelled solutions that a reward model has ever learnt from, by round.

::

    buffer = ReplayBuffer("runs/refresh")
    buffer.add(first_rows, round=0, provenance=Provenance(origin="the rows of its training"))
    report = buffer.add(new_rows, round=1, provenance=Provenance(policy_id="policy@400"))

On the disk::

    DIR/buffer.json        held-out share, and the reward model's encoding and tokenizer
    DIR/shard-00001.jsonl  records; grows to 64 MiB, is synced, and never rewritten
    DIR/index.jsonl        id -> shard, offset, stratum; made anew where it is missing
    DIR/rounds.jsonl       which round was begun and done with which rows
    DIR/conflicts.jsonl    both annotations of solutions that were labelled twice, differently

A round is one set of rows. Adding it again changes nothing; where a kill cut it short, adding the
same rows completes it, and until then nothing is drawn. Rounds rise; round 0 is what the reward
model learnt from before the first refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.errors import RunError
from stepmark.prm.formats.rows import StepmarkRows
from stepmark.store import append_rows, read_rows, rows_hash, write_json
from stepmark.store.files import parse_line
from stepmark.store.lock import Lock
from stepmark.types import LabelledSteps

from .admission import Admission, AdmissionReport, admit
from .records import Entry, Provenance, Record, Split
from .shards import SHARD_BYTES, Shards

__all__ = ["Reader", "ReplayBuffer"]

HELD_OUT = 0.1
CAP = 8
CARD = "buffer.json"
ROUNDS = "rounds.jsonl"
CONFLICTS = "conflicts.jsonl"


class Reader(NamedTuple):
    """How a reward model reads its rows; from `stepmark.prm.replay.reader_of`."""

    encoding: str
    """Hash of the settings of its encoding."""
    tokenizer: str
    """Hash of its tokenizer's rules and vocabulary."""


class ReplayBuffer:
    """A folder of labelled solutions that only grows.

    Reading needs no lock; `add` and `claim` hold it while they write.

    Args:
        folder: made with the first rows.
        held_out: share of the problems whose rows are never learnt from, chosen by a hash of
            their text as in ``stepmark prm train``; fixed when the buffer is made, 0.1 unless
            given. Other than that of an earlier buffer: refused.
        cap: most rows of a problem in a round.
        shard_bytes: size of a shard.

    Raises:
        RunError: the folder holds another kind of file, or a shard was altered.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        held_out: float | None = None,
        cap: int = CAP,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.folder, self.cap, self._bound = Path(folder), cap, shard_bytes
        card = self._card()
        known = card.get("held_out", HELD_OUT if held_out is None else held_out)
        if held_out is not None and held_out != known:
            raise RunError(
                f"The buffer in {str(folder)!r} holds out {known:g} of the problems, not "
                f"{held_out:g}: the part is fixed when a buffer is made, or rows that were learnt "
                "from would be examined on. Leave it out, or start a new buffer."
            )
        self.held_out_share: float = known
        self._shards = Shards(self.folder, shard_bytes)

    @property
    def torn(self) -> dict[str, int]:
        """Bytes of unfinished last lines that are left out, by shard."""
        return dict(self._shards.torn)

    @property
    def reader(self) -> Reader | None:
        """How the reward model of this buffer reads; None before the first `claim`."""
        found = self._card().get("reader")
        return None if found is None else Reader(**found)

    def rounds(self) -> list[int]:
        """Numbers of the rounds that are whole, rising."""
        return sorted(n for n, line in self._ledger().items() if line["state"] == "done")

    def report(self, round: int) -> AdmissionReport:
        """What became of the rows of a whole round.

        Raises:
            RunError: there is no such round, or it is half-written.
        """
        self.check(round)
        return AdmissionReport(**self._ledger()[round]["report"])

    def next_round(self, rows: Sequence[LabelledSteps]) -> int:
        """The number under which these rows belong: their own where they are there already.

        A half-written round, or the newest one, with exactly these rows keeps its number, so that
        the same command continues. Otherwise it is the one behind the newest.
        """
        ledger = self._ledger()
        newest = max(ledger, default=0)
        if newest in ledger and ledger[newest]["rows"] == _digest(rows):
            return newest
        return newest + 1

    def add(
        self, rows: Iterable[LabelledSteps], round: int, provenance: Provenance | None = None
    ) -> AdmissionReport:
        """Put the rows of a round in; on the disk when this returns.

        The same round with the same rows again writes nothing, and completes what a kill cut short.

        Args:
            rows: labelled solutions; see `admit` for those that are refused, and counted.
            round: 0 for what the reward model learnt from first; each later one is higher than
                those that are there.
            provenance: of the rows.

        Raises:
            RunError: the round holds other rows, a later one is there, another round is
                half-written, or another process writes.
        """
        given = list(rows)
        digest = _digest(given)
        with self._writing():
            ledger = self._ledger()
            self._refuse(ledger, round, digest)
            mine = ledger.get(round)
            if mine is not None and mine["state"] == "done":
                return replace(AdmissionReport(**mine["report"]), is_repeat=True)
            begun = {"round": round, "rows": digest, "state": "begun", "given": len(given)}
            if mine is None:
                append_rows(self.folder / ROUNDS, [begun])
            earlier = self.entries(until=round - 1)
            found = admit(
                given,
                round,
                provenance or Provenance(),
                earlier,
                held_out=self.held_out_share,
                cap=self.cap,
            )
            self._write(found, earlier, round)
            done = {
                **begun,
                "state": "done",
                "report": found.report.to_row(),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            append_rows(self.folder / ROUNDS, [done])
            return found.report

    def claim(self, reader: Reader) -> None:
        """Note how the reward model of this buffer reads, or refuse one that reads otherwise.

        Raises:
            RunError: the buffer is of a reward model with another encoding or tokenizer.
        """
        known = self.reader
        if known == reader:
            return
        if known is not None:
            what = "tokenizer" if known.tokenizer != reader.tokenizer else "encoding"
            raise RunError(
                f"The buffer in {str(self.folder)!r} is of a reward model with the {what} "
                f"{getattr(known, what)}, and this one has {getattr(reader, what)}: what was "
                "measured in earlier rounds would not hold for it. Refresh the model that the "
                "buffer is of, or start a new buffer."
            )
        with self._writing():
            write_json(self.folder / CARD, {**self._card(), "reader": reader._asdict()})

    def check(self, round: int) -> None:
        """Refuse a round that is not there, or not whole.

        Raises:
            RunError: it is missing, or it or an earlier one is half-written.
        """
        ledger = self._ledger()
        for number, line in sorted(ledger.items()):
            if number <= round and line["state"] != "done":
                raise _half_written(self.folder, number, line, self._count(number))
        if round not in ledger:
            there = ", ".join(map(str, sorted(ledger))) or "none"
            raise RunError(
                f"The buffer in {str(self.folder)!r} has no round {round}; it has {there}. Add its "
                "rows first."
            )

    def entries(
        self,
        *,
        until: int | None = None,
        round: int | None = None,
        split: Split | None = None,
    ) -> list[Entry]:
        """The records that count, by id.

        A solution that was labelled again counts in its newest round alone.

        Args:
            until: as it was when this round was the newest.
            round: only this one's.
            split: only ``train``, or only ``held_out``.
        """
        newest: dict[str, Entry] = {}
        for entry in self._shards.entries:
            if until is None or entry.round <= until:
                newest[entry.id] = entry
        return sorted(
            (
                entry
                for entry in newest.values()
                if (round is None or entry.round == round) and split in (None, entry.split)
            ),
            key=lambda entry: entry.id,
        )

    def records(self, entries: Iterable[Entry]) -> list[Record]:
        """The records of entries, in their order.

        Raises:
            RunError: a shard was altered.
        """
        return list(self._shards.read(entries))

    def rows(self, entries: Iterable[Entry]) -> list[LabelledSteps]:
        """The labelled solutions of entries, in their order.

        Raises:
            RunError: a shard was altered.
        """
        return [record.row for record in self._shards.read(entries)]

    def digest(self, round: int) -> str:
        """Sixteen hexadecimal digits of all that counts in rounds up to this one."""
        return rows_hash(
            {"id": entry.id, "round": entry.round, "labels": entry.labels}
            for entry in self.entries(until=round)
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The lock, with what other processes wrote until now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.folder / ".lock")
        lock.acquire()
        try:
            self._shards = Shards(self.folder, self._bound)
            if not (self.folder / CARD).is_file():
                card = {"version": 1, "held_out": self.held_out_share}
                write_json(self.folder / CARD, card)
            yield
        finally:
            lock.release()

    def _write(self, found: Admission, earlier: Sequence[Entry], round: int) -> None:
        """Conflicts and records that are not there yet."""
        if found.conflicts:
            there = {(r["round"], r["id"]) for r in read_rows(self.folder / CONFLICTS)}
            places = {entry.id: entry for entry in earlier}
            fresh = [c for c in found.conflicts if (c["round"], c["id"]) not in there]
            append_rows(self.folder / CONFLICTS, (self._with_old(c, places) for c in fresh))
        there = {entry.id for entry in self._shards.entries if entry.round == round}
        self._shards.append([record for record in found.records if record.id not in there])

    def _with_old(self, conflict: dict[str, Any], places: dict[str, Entry]) -> dict[str, Any]:
        if conflict["replaced"]["labels"] is not None:
            return conflict
        (old,) = self.records([places[conflict["id"]]])
        return {**conflict, "replaced": old.to_row()}

    def _refuse(self, ledger: dict[int, dict[str, Any]], round: int, digest: str) -> None:
        if round < 0:
            raise RunError(f"The round is {round}; rounds are counted from 0. Give 0 or more.")
        for number, line in sorted(ledger.items()):
            if line["state"] != "done" and (number, line["rows"]) != (round, digest):
                raise _half_written(self.folder, number, line, self._count(number))
        mine = ledger.get(round)
        if mine is not None and mine["rows"] != digest:
            raise RunError(
                f"Round {round} of the buffer in {str(self.folder)!r} holds other rows (hash "
                f"{mine['rows']}, and these have {digest}); a round is one set of rows and is "
                f"never changed. Add these as round {max(ledger) + 1}."
            )
        if mine is None and ledger and round < max(ledger):
            raise RunError(
                f"Round {round} cannot be added behind round {max(ledger)} of the buffer in "
                f"{str(self.folder)!r}: later draws would change. Add it as {max(ledger) + 1}."
            )

    def _count(self, round: int) -> int:
        return sum(entry.round == round for entry in self._shards.entries)

    def _ledger(self) -> dict[int, dict[str, Any]]:
        """The last line of each round."""
        return {int(line["round"]): line for line in read_rows(self.folder / ROUNDS)}

    def _card(self) -> dict[str, Any]:
        path = self.folder / CARD
        if path.is_file():
            return parse_line(path.read_bytes(), path, "the file")
        if self.folder.is_dir() and any(self.folder.glob("shard-*.jsonl")):
            raise RunError(
                f"{str(self.folder)!r} holds shards and no {CARD}, which says which problems are "
                "held out. Restore the file, or start a new buffer."
            )
        return {}


def _digest(rows: Iterable[LabelledSteps]) -> str:
    write: Callable[[LabelledSteps], dict[str, Any]] = StepmarkRows().write
    return rows_hash(map(write, rows))


def _half_written(folder: Path, round: int, line: dict[str, Any], there: int) -> RunError:
    return RunError(
        f"Round {round} of the buffer in {str(folder)!r} is half-written: a kill cut it short "
        f"after {there:,} of its {line['given']:,} rows (hash {line['rows']}). Nothing is "
        "lost: add the same rows as that round again, which completes it."
    )
