"""`refresh`: one round of DeepSeekMath's 4.1.4, from a reward model and a buffer to the next model.

::

    draw -> figures of the model before -> train on new + replayed rows -> figures after -> gate
    accepted:  OUT/rounds/k/rm, and OUT/current points there
    rejected:  OUT/rounds/k/rejected.json; the model before stays

Every part is a pure function of buffer, model, settings and round, or resumes where it was: a call
that is killed and made again ends with the same weights, and one that is made again after it ended
only says what it said. The model before is never written to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepmark.engines.loading import load_tokenizer
from stepmark.errors import RunError
from stepmark.prm.checkpoint import load_step_model, read_card
from stepmark.prm.encoding import StepEncoder
from stepmark.prm.fitting import FitResult
from stepmark.prm.places import folder_digest, folder_of
from stepmark.store import build_manifest, text_hash, write_json
from stepmark.store.run import differing
from stepmark.types import LabelledSteps

from .buffer import ReplayBuffer
from .config import RefreshConfig
from .draw import Mixture
from .drawing import drawn
from .figures import Change, Figures, HeldOut, Read, change, held_out, read
from .gate import Decision, judge
from .learning import Learnt, encode_mixture, label_rule, learn
from .matrix import matrix_of
from .probe import frozen_probe, rescale_of, rows_id
from .reading import reader_of
from .rounds import (
    MODEL,
    Rescale,
    clear_work,
    finished,
    finished_rounds,
    held,
    publish_round,
    switch,
    work_folder,
)

__all__ = ["RefreshOutcome", "refresh"]

ON_PROBE = "probe"


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """What a refresh came to."""

    round: int
    accepted: bool
    model: Path
    """The reward model to use from now on: the refreshed one, or the one before it."""
    reasons: tuple[str, ...]
    """Why it was rejected."""
    before: Mapping[str, Figures]
    """Figures of the model before, by held-out set: the number of its round, or ``probe``."""
    after: Mapping[str, Figures]
    """The same of the refreshed model, also where it was rejected."""
    changes: Mapping[str, Change]
    """Where a set can tell, with the paired interval."""
    row: Mapping[int, float | None]
    """Row of the matrix: F1 of the model to use, by round of the held-out rows."""
    counts: Mapping[str, Any]
    """Of the draw; see `Mixture.to_row`."""
    rescale: Rescale | None
    """Moves scores of the refreshed model to where those before it lay; None without a probe."""
    folder: Path
    """Of the round."""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Wall time by part; empty where an earlier call did the work."""

    def to_row(self) -> dict[str, Any]:
        """The outcome as plain values."""
        return {
            "round": self.round,
            "accepted": self.accepted,
            "model": str(self.model),
            "reasons": list(self.reasons),
            "before": {name: one.to_row() for name, one in self.before.items()},
            "after": {name: one.to_row() for name, one in self.after.items()},
            "changes": {name: one._asdict() for name, one in self.changes.items()},
            "row": {str(number): value for number, value in self.row.items()},
            "mixture": dict(self.counts),
            "rescale": None if self.rescale is None else self.rescale.to_row(),
            "folder": str(self.folder),
            "seconds": dict(self.seconds),
        }


def refresh(
    model: Path | str,
    buffer: ReplayBuffer,
    round: int,
    settings: RefreshConfig | None = None,
    out: Path | str | None = None,
    *,
    probe: Sequence[LabelledSteps] = (),
    on_event: Callable[[Any], None] | None = None,
) -> RefreshOutcome:
    """Train a reward model on a round of the buffer and on some of its history, if that helps it.

    Args:
        model: folder or hub id of a process reward model of ``stepmark prm train``; read only.
        buffer: holds the round whole, and the history.
        round: whose rows are new.
        settings: of draw, gate and training.
        out: folder of the rounds; the buffer's own unless given.
        probe: labelled rows on which every model of this folder is examined, and whose scores say
            how to rescale. Frozen by the first refresh; the held-out rows of the first round
            unless given.
        on_event: told what happens in training; see `stepmark.training.events`.

    Raises:
        RunError: the buffer is of another tokenizer or encoding, the round is half-written, it was
            refreshed otherwise before, another process refreshes here, or a loss is not finite.
        DataError: there is nothing new to learn from.
        SetupError: there is no such reward model.
        Stopped: by SIGINT or SIGTERM; the same call continues.
    """
    settings = settings or RefreshConfig()
    folder, place = folder_of(model).resolve(), Path(buffer.folder if out is None else out)
    with held(place):
        buffer.claim(reader_of(folder))
        buffer.check(round)
        frozen = frozen_probe(place, buffer, probe, settings.gate.held_out_limit)
        inputs = {
            "model": folder_digest(folder),
            "buffer": buffer.digest(round),
            "probe": rows_id(frozen),
            "settings": settings.settings(),
        }
        known = finished(place, round)
        if known is not None:
            _check_same(place, round, known, inputs, folder)
        else:
            known = Refresh(folder, buffer, round, settings, place, frozen, on_event).run(inputs)
        if known["accepted"] and round == _newest_accepted(place):
            switch(place, round)
        _write_views(place)
        clear_work(place, round)
        return _outcome(known, place, round)


class Refresh:
    """One refresh that is to be done; `refresh` is the way in."""

    def __init__(
        self,
        folder: Path,
        buffer: ReplayBuffer,
        round: int,
        settings: RefreshConfig,
        out: Path,
        probe: Sequence[LabelledSteps],
        on_event: Callable[[Any], None] | None,
    ) -> None:
        self.folder, self.buffer, self.round = folder, buffer, round
        self.settings, self.out, self.probe, self.on_event = settings, out, probe, on_event
        self.work = work_folder(out, round)
        self.seconds: dict[str, float] = {}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The record of the round, which is on the disk."""
        with self._timed("draw"):
            mixture = drawn(self.buffer, self.round, self.settings)
        with self._timed("encode"):
            learnt = encode_mixture(mixture, self.folder, self.settings)
            sets = self._sets()
        with self._timed("score"):
            before = self._read(self.folder, sets)
        with self._timed("train"):
            result = self._learn(mixture, learnt, sets)
        candidate = result.best or result.final
        with self._timed("score"):
            after = self._read(candidate, sets)
        with self._timed("judge"):
            changes = self._changes(before, after)
            decision = self._judge(changes)
        record = self._record(inputs, mixture, result, before, after, changes, decision)
        started = time.perf_counter()
        accepted = candidate if decision.accepted else None
        metrics = self.work / "run" / "metrics.jsonl"
        times = {"seconds": self.seconds}
        publish_round(self.out, self.round, record, accepted, times, metrics)
        self.seconds["publish"] = time.perf_counter() - started
        return {**record, "seconds": self.seconds}

    def _learn(self, mixture: Mixture, learnt: Learnt, sets: Mapping[str, HeldOut]) -> FitResult:
        new = sets[str(self.round)]
        others = [data for name, data in sets.items() if name not in (str(self.round), ON_PROBE)]
        old = HeldOut(
            [row for data in others for row in data.rows],
            [problem for data in others for problem in data.problems],
            {},
        )
        return learn(
            self.folder, mixture, learnt, (new, old), self.settings, self.work, self.on_event
        )

    def _sets(self) -> dict[str, HeldOut]:
        """The held-out rows of every round up to this one, and the probe, as tokens."""
        encoder = StepEncoder(load_tokenizer(str(self.folder)), read_card(self.folder).encoding)
        rule, limit = label_rule(self.settings.data), self.settings.gate.held_out_limit
        every = self.buffer.entries(until=self.round, split="held_out")
        found: dict[str, HeldOut] = {}
        for round in sorted({entry.round for entry in every} | {self.round}):
            own = [entry for entry in every if entry.round == round]
            chosen = sorted(own, key=lambda entry: text_hash("limit " + entry.id))[:limit]
            found[str(round)] = held_out(self.buffer.rows(chosen), encoder, rule)
        if self.probe:
            found[ON_PROBE] = held_out(self.probe, encoder, rule)
        return found

    def _read(self, folder: Path, sets: Mapping[str, HeldOut]) -> dict[str, Read]:
        table, algorithm = self.settings.model, self.settings.algorithm
        model, _ = load_step_model(folder, table.dtype, table.device)
        threshold, budget = self.settings.gate.threshold, algorithm.tokens_per_microbatch
        found = {name: read(model, data, threshold, budget) for name, data in sets.items()}
        if self.probe:
            encoder = StepEncoder(model.tokenizer, read_card(folder).encoding)
            whole = [encoder.encode(row.problem, row.steps) for row in self.probe]
            scores = model.step_probabilities(whole, budget)
            found[ON_PROBE] = found[ON_PROBE]._replace(scores=scores)
        return found

    def _changes(
        self, before: Mapping[str, Read], after: Mapping[str, Read]
    ) -> dict[str, Change | None]:
        gate = self.settings.gate
        return {
            name: change(one, after[name], level=gate.level, resamples=gate.resamples)
            for name, one in before.items()
        }

    def _judge(self, changes: Mapping[str, Change | None]) -> Decision:
        own = str(self.round)
        old = {int(k): v for k, v in changes.items() if k not in (own, ON_PROBE)}
        return judge(changes[own], old, self.settings.gate)

    def _record(
        self,
        inputs: Mapping[str, Any],
        mixture: Mixture,
        result: FitResult,
        before: Mapping[str, Read],
        after: Mapping[str, Read],
        changes: Mapping[str, Change | None],
        decision: Decision,
    ) -> dict[str, Any]:
        seeds = {"draw": self.settings.replay.seed, "training": self.settings.algorithm.seed}
        rescale = rescale_of(before.get(ON_PROBE), after.get(ON_PROBE))
        return {
            "round": self.round,
            "accepted": decision.accepted,
            "reasons": list(decision.reasons),
            "model_before": self._model_before(),
            "parent": str(self.folder),
            "inputs": dict(inputs),
            "mixture": mixture.to_row(),
            "training": {"steps": result.step, "best_step": result.best_step, "why": result.why},
            "before": {name: one.figures.to_row() for name, one in before.items()},
            "after": {name: one.figures.to_row() for name, one in after.items()},
            "changes": {k: None if v is None else v._asdict() for k, v in changes.items()},
            "rescale": None if rescale is None else rescale.to_row(),
            "manifest": build_manifest(config=self.settings.settings(), seeds=seeds),
        }

    def _model_before(self) -> int:
        """Round that the model before is of: the last one done here, or the last of the history."""
        done = [number for number in finished_rounds(self.out) if number < self.round]
        earlier = done or [n for n in self.buffer.rounds() if n < self.round]
        return max(earlier, default=self.round - 1)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - started


def _check_same(
    out: Path, round: int, known: Mapping[str, Any], inputs: Mapping[str, Any], folder: Path
) -> None:
    """Refuse to call a round the same that was made of other things.

    The refreshed model itself may be given again: it is what ``current`` points at when a call
    that was killed at its very end is repeated.
    """
    changed = differing(known["inputs"], inputs)
    if folder == (out / "rounds" / str(round) / MODEL).resolve():
        changed.pop("model", None)
    if changed:
        shown = "; ".join(
            f"{k} was {a!r} and is now {b!r}" for k, (a, b) in list(changed.items())[:3]
        )
        raise RunError(
            f"Round {round} in {str(out)!r} was refreshed otherwise: {shown}. Nothing was changed. "
            "Repeat it as it was, add new rows as the next round, or choose another folder."
        )


def _newest_accepted(out: Path) -> int | None:
    return max((n for n, row in finished_rounds(out).items() if row["accepted"]), default=None)


def _write_views(out: Path) -> None:
    """``matrix.json``, made from the records of the rounds."""
    write_json(out / "matrix.json", matrix_of(out).to_row())


def _outcome(known: Mapping[str, Any], out: Path, round: int) -> RefreshOutcome:
    place = out / "rounds" / str(round)
    counted = known["after" if known["accepted"] else "before"]
    return RefreshOutcome(
        round=round,
        accepted=known["accepted"],
        model=(place / MODEL).resolve() if known["accepted"] else Path(known["parent"]),
        reasons=tuple(known["reasons"]),
        before={name: Figures(**row) for name, row in known["before"].items()},
        after={name: Figures(**row) for name, row in known["after"].items()},
        changes={k: Change(**v) for k, v in known["changes"].items() if v is not None},
        row={int(k): v["value"] for k, v in counted.items() if k.isdecimal()},
        counts=known["mixture"],
        rescale=None if known["rescale"] is None else Rescale(**known["rescale"]),
        folder=place,
        seconds=dict(known.get("seconds", {})),
    )
