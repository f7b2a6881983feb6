"""The one sample store: what was asked, what came back, and what was said of it.

Used by evaluation, training rollouts and verification alike. Append-only: a row is never changed;
the last row of a key wins. Verdicts and step scores live in side files, one per verifier key
(``verdicts.math@1.jsonl``) and one per scorer key (``scores.prm@3fa2.jsonl``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote

from stepmark.types import Finish, Item, Problem, Rollout, Verdict

from .files import append_rows, parse_line, read_rows

__all__ = ["Key", "Sample", "SampleStore", "ScoredSteps"]

log = logging.getLogger(__name__)

SHARD_BYTES = 64 * 2**20


class Key(NamedTuple):
    """Names one completion; equal to the plain tuple ``(step, id, k)``."""

    step: int
    """Optimizer step of the run at which it was drawn; 0 in an evaluation."""
    id: str
    """Id of the problem."""
    k: int
    """Place among the completions of that problem, from 0."""


class ScoredSteps(NamedTuple):
    """Where the steps of one completion end, and what a scorer says of each."""

    ends: tuple[int, ...]
    """Index of the last sampled token of each step, rising; the last one is the last token."""
    scores: tuple[float | None, ...]
    """One per step, in [0, 1]; None for a step that the scorer left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion as stored: the row of the run folder."""

    id: str
    k: int
    step: int
    problem: str
    """Text of the problem."""
    prompt: str
    """The rendered prompt."""
    completion: str
    ids: tuple[int, ...] | None
    """Sampled token ids; None where only text is known."""
    logps: tuple[float, ...] | None
    """Log-probs of the sampled ids under the sampler, in nats."""
    finish: Finish | None
    gold: str | None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    policy: str = ""
    """Which weights drew it, such as a model name or ``name@step``."""
    request: str = ""
    """Digest of all that shaped the completion: prompt, sampling, seed, weights."""

    @property
    def key(self) -> Key:
        """What names this completion in the store and in the side files."""
        return Key(self.step, self.id, self.k)

    @classmethod
    def from_rollout(
        cls, rollout: Rollout, *, step: int = 0, policy: str = "", request: str = ""
    ) -> Self:
        """The row of a rollout."""
        problem = rollout.prompt.problem
        return cls(
            id=problem.id,
            k=rollout.index,
            step=step,
            problem=problem.text,
            prompt=rollout.prompt.text,
            completion=rollout.text,
            ids=rollout.ids,
            logps=rollout.logps,
            finish=rollout.finish,
            gold=problem.gold,
            meta=problem.meta,
            policy=policy,
            request=request,
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The sample that a row of the store describes; columns of later versions are ignored."""
        known = {name: row[name] for name in cls.__slots__ if name in row}
        for name in ("ids", "logps"):
            value = known.get(name)
            known[name] = None if value is None else tuple(value)
        return cls(**known)

    def to_row(self) -> dict[str, Any]:
        """The columns of the store; ``ids`` and ``logps`` only where they are known."""
        row = {name: getattr(self, name) for name in self.__slots__}
        return {k: v for k, v in row.items() if v is not None or k not in ("ids", "logps")}

    def to_item(self) -> Item:
        """What a verifier is asked to mark."""
        problem = Problem(self.id, self.problem, self.gold, meta=self.meta)
        tokens = None if self.ids is None else len(self.ids)
        return Item(problem, self.completion, self.prompt, tokens)


class SampleStore:
    """The samples in a folder with their verdicts and step scores; one writer at a time.

    `RunFolder` holds the lock.

    Args:
        folder: made by the first append; a folder that does not exist is an empty store.
        shard_bytes: size at which the next append starts a new shard.
    """

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        self.folder = Path(folder)
        self.shard_bytes = shard_bytes
        self._index: dict[Key, tuple[Path, int]] = {}
        self._scanned: dict[Path, int] = {}

    def append(self, samples: Iterable[Sample]) -> None:
        """Put samples at the end; they are on the disk when this returns."""
        rows = [sample.to_row() for sample in samples]
        if not rows:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        append_rows(self._open_shard(), rows)

    def keys(self) -> set[Key]:
        """The keys of all complete rows."""
        return set(self._places())

    def rows(self, step: int | None = None) -> Iterator[Sample]:
        """The samples, of one step or of all, in the order of the rows; the last row of a key wins.

        Raises:
            RunError: a complete line is not a row.
        """
        return self._read(key for key in self._places() if step is None or key.step == step)

    def chosen(self, keys: Iterable[Key]) -> Iterator[Sample]:
        """The samples with these keys, in the order of the rows; keys without a row give none.

        Raises:
            RunError: a complete line is not a row.
        """
        known = self._places()
        return self._read(key for key in keys if key in known)

    def _read(self, keys: Iterable[Key]) -> Iterator[Sample]:
        wanted: dict[Path, list[int]] = {}
        for key in keys:
            shard, offset = self._index[key]
            wanted.setdefault(shard, []).append(offset)
        for shard in sorted(wanted):
            with shard.open("rb") as file:
                for offset in sorted(wanted[shard]):
                    file.seek(offset)
                    yield Sample.from_row(
                        parse_line(file.readline(), shard, f"the row at byte {offset}")
                    )

    def append_verdicts(
        self, key: str, verdicts: Iterable[tuple[tuple[int, str, int], Verdict]]
    ) -> None:
        """Put verdicts of the verifier ``key`` at the end of its side file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        append_rows(
            self._side_file("verdicts", key),
            ({"step": s, "id": i, "k": k} | verdict.to_row() for (s, i, k), verdict in verdicts),
        )

    def verdicts(self, key: str) -> dict[Key, Verdict]:
        """What the verifier ``key`` said, by sample; empty when it has said nothing."""
        return {
            Key(row["step"], row["id"], row["k"]): Verdict.from_row(row)
            for row in read_rows(self._side_file("verdicts", key))
        }

    def verdict_keys(self) -> list[str]:
        """Keys of the verifiers that have a side file, sorted."""
        return self._side_keys("verdicts")

    def append_scores(
        self, key: str, rows: Iterable[tuple[tuple[int, str, int], ScoredSteps]]
    ) -> None:
        """Put step ends and step scores of the scorer ``key`` at the end of its side file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        append_rows(
            self._side_file("scores", key),
            (
                {"step": s, "id": i, "k": k, "step_ends": row.ends, "step_scores": row.scores}
                for (s, i, k), row in rows
            ),
        )

    def scores(self, key: str) -> dict[Key, ScoredSteps]:
        """What the scorer ``key`` said, by sample; empty when it has said nothing."""
        return {
            Key(row["step"], row["id"], row["k"]): ScoredSteps(
                tuple(row["step_ends"]), tuple(row["step_scores"])
            )
            for row in read_rows(self._side_file("scores", key))
        }

    def score_keys(self) -> list[str]:
        """Keys of the scorers that have a side file, sorted."""
        return self._side_keys("scores")

    def _side_keys(self, kind: str) -> list[str]:
        names = [path.name for path in self.folder.glob(f"{kind}.*.jsonl")]
        return sorted(unquote(name[len(kind) + 1 : -len(".jsonl")]) for name in names)

    def shards(self) -> list[Path]:
        """The files that hold the samples, in order."""
        return sorted(self.folder.glob("samples-*.jsonl"))

    def _side_file(self, kind: str, key: str) -> Path:
        return self.folder / f"{kind}.{quote(key, safe='@+=-._,')}.jsonl"

    def _open_shard(self) -> Path:
        shards = self.shards()
        if shards and shards[-1].stat().st_size < self.shard_bytes:
            return shards[-1]
        return self.folder / f"samples-{len(shards):05d}.jsonl"

    def _places(self) -> dict[Key, tuple[Path, int]]:
        """Shard and offset of the last row of every key; reads only what is new since last time."""
        for shard in self.shards():
            start = self._scanned.get(shard, 0)
            if shard.stat().st_size > start:
                self._scanned[shard] = self._scan(shard, start)
        return self._index

    def _scan(self, shard: Path, offset: int) -> int:
        """Offset behind the last complete row."""
        with shard.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    log.warning(
                        "%s: the last line was cut off by a kill; its %d bytes are dropped.",
                        shard,
                        len(line),
                    )
                    break
                row = parse_line(line, shard, f"the row at byte {offset}")
                self._index[Key(row["step"], row["id"], row["k"])] = (shard, offset)
                offset += len(line)
        return offset
