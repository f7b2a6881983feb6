"""A search led by a step scorer, into a run folder that tables and comparisons read.

The completion that was chosen of each problem is the run's sample (``samples/``, k 0), so that its
accuracy is the run's. All that the search ended with stands in a store of its own beside it,
``candidates/``, and what it cost in ``searches.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stepmark.errors import RunError
from stepmark.prm import check_scorer_columns
from stepmark.prm.aggregation import aggregate
from stepmark.prm.search import Candidate, Found, SearchSettings, answer_classes, search
from stepmark.protocols import Engine, OutcomeVerifier, StepScorer
from stepmark.statistics import Drawn, expected_at_k, mean_at_k
from stepmark.store import (
    Key,
    RunFolder,
    Sample,
    SampleStore,
    append_rows,
    build_manifest,
    publish,
    read_rows,
    text_hash,
    write_json,
)
from stepmark.tasks.task import LoadedTask
from stepmark.types import Prompt, Verdict

from .grade import grade
from .measured import Measured
from .policy import about, prompts_of
from .result import EvalResult, summarise
from .settings import EvalSettings
from .table import table_text

__all__ = ["SearchJob", "SearchResult"]

AT_ONCE = 16
"""Problems that are searched together: what a stopped run makes again at most."""
BESIDE = {
    "majority of the candidates": "majority",
    "weighted majority": "weighted",
    "any one of the candidates": "mean",
    "one of the candidates is right": "pass",
}
"""What else could be done with all completions of a search -> the method."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search reached and what it cost."""

    result: EvalResult
    """Of the completions that were chosen."""
    beside: tuple[Measured, ...]
    """What else could be done with the same candidates: votes, any one, the bound of all."""
    tokens: int
    """All that were sampled."""
    rounds: float
    """Steps that a search went, on average."""
    candidates: float
    """Completions that a search ended with, on average."""

    def to_row(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        found = {
            "tokens": self.tokens,
            "tokens_per_problem": self.tokens / self.result.n,
            "rounds": self.rounds,
            "candidates": self.candidates,
            "beside": [one.to_row() for one in self.beside],
        }
        return self.result.to_row() | {"search": found}


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A search of a model on a task, with all that decides its numbers."""

    task: LoadedTask
    verifier: OutcomeVerifier
    scorer: StepScorer
    search: SearchSettings
    model: str
    """Name or path, for the table and the settings."""
    limit: int | None = None
    """So many problems, by a hash of their ids; all by default."""
    first: int | None = None
    weights: str | None = None
    """Digest of the model's weights, see `stepmark.evals.weights_hash`."""
    max_error_share: float = 0.1

    @property
    def asked(self) -> EvalSettings:
        """The evaluation that the chosen completions make."""
        label = f"{self.model} + {_shape(self.search)}"
        return EvalSettings(
            self.search.sampling, label, 1, self.search.seed, self.limit, self.first,
            self.max_error_share,
        )  # fmt: skip

    def check(self, out: Path) -> None:
        """Refuse what `run` would refuse, as far as that can be known without a model.

        Raises:
            ConfigError: settings that cannot work, or a column that the scorer needs is missing.
            RunError: ``out`` holds something else, or was made with other settings.
        """
        self.search.check()
        problems = self.asked.problems_of(self.task)
        check_scorer_columns(self.scorer, list(problems[0].meta), self.task.name)
        RunFolder.check(out, self._config(), self._manifest(), resume=True)

    def run(
        self,
        engine: Engine,
        tokenizer: Any,
        out: Path,
        *,
        on_prompt: Callable[[Prompt], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SearchResult:
        """The result, with everything behind it in the run folder ``out``.

        Interrupted at any moment, the same call searches only for the problems that are missing,
        and ends with the same completions.

        Args:
            engine: holds the weights.
            tokenizer: the engine's.
            out: the run folder.
            on_prompt: called once with the first prompt as rendered.
            on_progress: called with the problems done and all.

        Raises:
            ConfigError: settings that cannot work.
            RunError: ``out`` holds something else, or was made with other settings.
            EngineError: as `stepmark.prm.search.search`.
            VerifierError: the scorer failed, or more error verdicts than allowed.
        """
        self.check(out)
        problems = self.asked.problems_of(self.task)
        prompts = prompts_of(problems, tokenizer, self.task, self.search.sampling, engine)
        if on_prompt:
            on_prompt(prompts[0])
        with RunFolder.create(out, self._config(), self._manifest(), resume=True) as folder:
            tell = on_progress or (lambda done, total: None)
            missing = self._missing(folder, prompts)
            tell(len(prompts) - len(missing), len(prompts))
            for start in range(0, len(missing), AT_ONCE):
                some = missing[start : start + AT_ONCE]
                for found in search(engine, tokenizer, self.scorer, some, self.search):
                    self._store(folder, found)
                self._graded(folder)
                tell(len(prompts) - len(missing) + start + len(some), len(prompts))
            return self._summed_up(folder, prompts)

    def _config(self) -> dict[str, Any]:
        prompt = asdict(self.task.prompt)
        searched = asdict(self.search)
        sampling = searched.pop("sampling")
        searched["step_end"] = self.search.step_ends(self.scorer)
        searched["aggregation"] = self.search.how(self.scorer)
        return {
            "kind": "eval",
            "model": self.model,
            "n": 1,
            "seed": searched.pop("seed"),
            "verifier": self.verifier.key,
            "max_error_share": self.max_error_share,
            "sampling": sampling,
            "search": searched | {"scorer": self.scorer.key},
            "data": {
                "task": self.task.name,
                "version": self.task.version,
                "split": self.task.split,
                "limit": self.limit,
                "first": self.first,
            },
            "prompt": prompt | {"hash": self.task.prompt.hash},
        }

    def _manifest(self) -> dict[str, Any]:
        task = self.task
        return build_manifest(
            config=self._config(),
            seeds={"completions": self.search.seed},
            data_hashes={task.name: task.data_hash},
            prompt_hash={task.prompt.name: task.prompt.hash},
            weights_hash=self.weights,
        )

    def _request(self, prompt: Prompt) -> str:
        return text_hash(f"{prompt.ids!r} {self.search!r} {self.model} {self.scorer.key}")

    def _missing(self, folder: RunFolder, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts whose completion is not chosen yet.

        Raises:
            RunError: a stored completion answers another prompt than today's.
        """
        stored = {sample.id: sample.request for sample in folder.samples.rows()}
        for prompt in prompts:
            was = stored.get(prompt.problem.id)
            if was is not None and was != self._request(prompt):
                raise RunError(
                    f"{str(folder.path)!r}: the completion of {prompt.problem.id!r} was searched "
                    "with another prompt or tokenizer than today's. Choose another --out."
                )
        return [prompt for prompt in prompts if prompt.problem.id not in stored]

    def _store(self, folder: RunFolder, found: Found) -> None:
        """All of a problem on the disk; its chosen completion last, which says that it is done."""
        store, request = _candidates(folder), self._request(found.prompt)
        rows = [self._sample(one, request) for one in found.candidates]
        pairs = zip(rows, found.candidates, strict=True)
        store.append(rows)
        store.append_scores(self.scorer.key, ((row.key, one.steps) for row, one in pairs))
        chosen = replace(self._sample(found.best, request), k=0)
        cost = {
            "id": chosen.id,
            "tokens": found.tokens,
            "rounds": found.rounds,
            "candidates": len(found.candidates),
            "chosen": found.best.rollout.index,
        }
        append_rows(folder.path / "searches.jsonl", [cost])
        folder.samples.append_scores(self.scorer.key, [(chosen.key, found.best.steps)])
        folder.samples.append([chosen])

    def _sample(self, one: Candidate, request: str) -> Sample:
        return Sample.from_rollout(one.rollout, policy=self.model, request=request)

    def _graded(self, folder: RunFolder) -> tuple[dict[Key, Verdict], dict[Key, Verdict]]:
        """The verdicts on what was chosen, and on all candidates."""
        share = self.max_error_share
        both = (folder.samples, _candidates(folder))
        chosen, every = (grade(s, self.verifier, max_error_share=share) for s in both)
        return chosen, every

    def _summed_up(self, folder: RunFolder, prompts: Sequence[Prompt]) -> SearchResult:
        chosen, every = self._graded(folder)
        samples = {sample.id: sample for sample in folder.samples.rows()}
        ids = [prompt.problem.id for prompt in prompts]
        words = about(self.task, self.verifier.key, self.asked)
        result = summarise(words, [(samples[id], chosen[samples[id].key]) for id in ids])
        costs = {row["id"]: row for row in read_rows(folder.path / "searches.jsonl")}
        whole = SearchResult(
            result,
            tuple(self._beside(_candidates(folder), every, ids)),
            sum(costs[id]["tokens"] for id in ids),
            sum(costs[id]["rounds"] for id in ids) / len(ids),
            sum(costs[id]["candidates"] for id in ids) / len(ids),
        )
        with publish(folder.path / "table.md") as part:
            text = table_text([result], [whole.beside])
            part.write_text(f"{text}  \n{_cost(whole)}\n", encoding="utf-8")
        write_json(folder.path / "summary.json", whole.to_row())
        return whole

    def _beside(
        self, store: SampleStore, verdicts: dict[Key, Verdict], ids: Sequence[str]
    ) -> Iterator[Measured]:
        """What else the candidates allow, all of a problem's together."""
        rows: dict[str, list[Sample]] = {id: [] for id in ids}
        for sample in store.rows():
            if sample.id in rows:
                rows[sample.id].append(sample)
        marked = [
            [(sample.to_item(), verdicts[sample.key]) for sample in row] for row in rows.values()
        ]
        scores, how = store.scores(self.scorer.key), self.search.how(self.scorer)
        problems = [
            Drawn(
                [float(verdict.correct is True) for _, verdict in pairs],
                classes=names,
                weights=[aggregate(scores[sample.key].scores, how) for sample in row],
            )
            for row, pairs, names in zip(
                rows.values(), marked, answer_classes(self.verifier, marked), strict=True
            )
        ]
        most = max(len(drawn.right) for drawn in problems)
        for name, method in BESIDE.items():
            values = [expected_at_k(one, method, len(one.right)).value for one in problems]
            found = mean_at_k([[min(1.0, value)] for value in values])
            is_vote = method in ("majority", "weighted")
            yield Measured(
                name, found.mean, found.interval.low, found.interval.high,
                found.se if len(values) > 1 else None, len(values), most,
                self.scorer.key if method == "weighted" else None,
                how if method == "weighted" else None, 0, self.verifier.key if is_vote else None,
            )  # fmt: skip


def _shape(search: SearchSettings) -> str:
    width = f"x{search.width}" if search.method != "best_of_n" else ""
    return f"{search.method} {search.n}{width}"


def _candidates(folder: RunFolder) -> SampleStore:
    return SampleStore(folder.path / "candidates")


def _cost(found: SearchResult) -> str:
    """What the search cost, in one line."""
    return (
        f"Sampled: {found.tokens:,} tokens, {found.tokens / found.result.n:.0f} a problem; "
        f"{found.candidates:.1f} candidates and {found.rounds:.1f} rounds a problem."
    )
