"""An evaluation into a run folder: generate what is missing, mark it, sum up."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepmark.errors import ConfigError, EngineError, RunError
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.store import Key, RunFolder, Sample, build_manifest, publish, text_hash, write_json
from stepmark.tasks.selection import take
from stepmark.tasks.task import LoadedTask
from stepmark.types import Group, Prompt, Sampling, Verdict

from .grade import grade
from .policy import about, prompts_of
from .result import About, EvalResult, summarise
from .table import table_text

__all__ = ["Progress", "check_run", "run", "weights_hash"]

Progress = Callable[[int, int], None]
"""Called with the completions there are and those there will be."""

MARK_EVERY = 64
"""Completions between two rounds of marking: a verifier that raises is found early."""

EDGE_BYTES = 2**20


def run(
    engine: Engine,
    tokenizer: Any,
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    out: Path,
    model: str,
    n: int = 1,
    seed: int = 0,
    limit: int | None = None,
    first: int | None = None,
    max_error_share: float = 0.1,
    resume: bool = False,
    weights: str | None = None,
    on_prompt: Callable[[Prompt], None] | None = None,
    on_progress: Progress | None = None,
) -> EvalResult:
    """The result of a model on a task, with everything behind it in the run folder ``out``.

    Every completion is on the disk before it is marked. Interrupted at any moment, the same call
    with ``resume`` makes only what is missing, and ends with the same files.

    Args:
        engine: holds the weights.
        tokenizer: the model's.
        task: the problems and their prompt template.
        verifier: what marks.
        sampling: temperature 0 is greedy.
        out: the run folder.
        model: name or path, for the table and the settings.
        n: completions per problem.
        seed: of the completions.
        limit: so many problems, sampled by a hash of their ids.
        first: the first so many problems instead.
        max_error_share: largest share of error verdicts, in [0, 1].
        resume: continue what is in ``out``, if anything is.
        weights: digest of the weights, see `weights_hash`.
        on_prompt: called once with the first prompt as rendered.
        on_progress: see `Progress`.

    Raises:
        ConfigError: settings that cannot work.
        RunError: ``out`` holds something else, or was made with other settings, which are named.
        VerifierError: more error verdicts than allowed.
    """
    _check(n, sampling)
    problems = take(task.problems, limit, first)
    prompts = prompts_of(problems, tokenizer, task, sampling, engine)
    config = _config(task, verifier, sampling, model, n, seed, limit, first, max_error_share)
    if on_prompt:
        on_prompt(prompts[0])
    manifest = _manifest(config, task, seed, weights)
    words = about(task, verifier.key, sampling, seed, model)
    asked = _Asked(prompts, sampling, n, seed, model)
    with RunFolder.create(
        out, config, manifest, resume=resume, may_change=_mended(out, verifier)
    ) as folder:
        return _evaluate(folder, engine, asked, verifier, words, max_error_share, on_progress)


def check_run(
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    out: Path,
    model: str,
    n: int = 1,
    seed: int = 0,
    limit: int | None = None,
    first: int | None = None,
    max_error_share: float = 0.1,
    resume: bool = False,
    weights: str | None = None,
) -> None:
    """Refuse what `run` would refuse, as far as that can be known without a model.

    Raises:
        ConfigError: settings that cannot work.
        RunError: ``out`` holds something else, or was made with other settings.
    """
    _check(n, sampling)
    take(task.problems, limit, first)
    config = _config(task, verifier, sampling, model, n, seed, limit, first, max_error_share)
    manifest = _manifest(config, task, seed, weights)
    RunFolder.check(out, config, manifest, resume=resume, may_change=_mended(out, verifier))


def _mended(out: Path, verifier: OutcomeVerifier) -> tuple[str, ...]:
    """The settings that a run may go on without: an unfinished one outlives its verifier's defects.

    The key of a function changes with its source. All completions are marked by the new one.
    """
    if (out / "summary.json").exists() or not (out / "config.toml").is_file():
        return ()
    earlier = str(RunFolder.open(out).config().get("verifier", ""))
    is_same = earlier.partition("@")[0] == verifier.key.partition("@")[0]
    return ("verifier",) if is_same else ()


def _evaluate(
    folder: RunFolder,
    engine: Engine,
    asked: _Asked,
    verifier: OutcomeVerifier,
    words: About,
    max_error_share: float,
    on_progress: Progress | None,
) -> EvalResult:
    started = time.monotonic()
    fresh = _generate(folder, engine, asked, verifier, max_error_share, on_progress)
    verdicts = grade(folder.samples, verifier, max_error_share=max_error_share)
    result = summarise(words, asked.paired(folder, verdicts))
    _publish(folder, result)
    took_s = time.monotonic() - started
    folder.log_timings(0, {"generation_and_marking_s": took_s, "completions": fresh})
    return result


def _publish(folder: RunFolder, result: EvalResult) -> None:
    with publish(folder.path / "table.md") as part:
        part.write_text(table_text([result]), encoding="utf-8")
    write_json(folder.path / "summary.json", result.to_row())


class _Asked:
    """What is to be generated, with the digest of each request."""

    def __init__(
        self, prompts: Sequence[Prompt], sampling: Sampling, n: int, seed: int, model: str
    ) -> None:
        self.prompts, self.sampling, self.n, self.seed, self.model = (
            prompts,
            sampling,
            n,
            seed,
            model,
        )
        self.requests = {
            prompt.problem.id: text_hash(f"{prompt.ids!r} {sampling!r} {seed} {model}")
            for prompt in prompts
        }

    def paired(
        self, folder: RunFolder, verdicts: Mapping[Key, Verdict]
    ) -> list[tuple[Sample, Verdict]]:
        """Every completion with its verdict, in the order of the problems."""
        samples = {sample.key: sample for sample in folder.samples.rows()}
        keys = [Key(0, prompt.problem.id, k) for prompt in self.prompts for k in range(self.n)]
        return [(samples[key], verdicts[key]) for key in keys]

    def missing(self, folder: RunFolder) -> dict[str, set[int]]:
        """Problem id -> places in its group that the store lacks.

        Raises:
            RunError: a stored completion answers another prompt than today's.
        """
        wanted = {prompt.problem.id: set(range(self.n)) for prompt in self.prompts}
        for sample in folder.samples.rows():
            if sample.request != self.requests.get(sample.id):
                raise RunError(
                    f"{str(folder.path)!r}: the completion of {sample.id!r} was asked for with "
                    "another prompt or tokenizer than today's. Choose another folder for --out."
                )
            wanted[sample.id].discard(sample.k)
        return {id: places for id, places in wanted.items() if places}


def _generate(
    folder: RunFolder,
    engine: Engine,
    asked: _Asked,
    verifier: OutcomeVerifier,
    max_error_share: float,
    on_progress: Progress | None,
) -> int:
    """Put every missing completion into the store; how many those were."""
    missing = asked.missing(folder)
    total = len(asked.prompts) * asked.n
    done = total - sum(map(len, missing.values()))
    already, pending = done, list[Sample]()
    known: Mapping[Key, Verdict] | None = None
    tell = on_progress or (lambda done, total: None)
    tell(done, total)
    todo = [prompt for prompt in asked.prompts if prompt.problem.id in missing]
    groups: Iterator[Group] = (
        engine.generate(todo, asked.n, asked.sampling, asked.seed) if todo else iter(())
    )
    for group in groups:
        id = group.prompt.problem.id
        samples = [
            Sample.from_rollout(rollout, policy=asked.model, request=asked.requests[id])
            for rollout in group.rollouts
            if rollout.index in missing[id]
        ]
        folder.samples.append(samples)
        missing[id] -= {sample.k for sample in samples}
        done += len(samples)
        pending += samples
        tell(done, total)
        if len(pending) >= MARK_EVERY:
            known = grade(
                folder.samples,
                verifier,
                max_error_share=max_error_share,
                samples=pending,
                known=known,
            )
            pending.clear()
    if done != total:
        lost = next(id for id, places in missing.items() if places)
        raise EngineError(
            f"The engine returned {done} of {total} completions; the first problem without all of "
            f"its own is {lost!r}. Every prompt must have its group."
        )
    return done - already


def _check(n: int, sampling: Sampling) -> None:
    if n < 1:
        raise ConfigError(f"n is {n}; it is the number of completions per problem, at least 1.")
    if n > 1 and sampling.temperature == 0:
        raise ConfigError(
            f"n is {n} at temperature 0: all completions of a problem would be the same. "
            "Set --temperature (0.7 is usual), or --n 1."
        )


def _config(
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    model: str,
    n: int,
    seed: int,
    limit: int | None,
    first: int | None,
    max_error_share: float,
) -> dict[str, Any]:
    prompt = asdict(task.prompt)
    return {
        "kind": "eval",
        "model": model,
        "n": n,
        "seed": seed,
        "verifier": verifier.key,
        "max_error_share": max_error_share,
        "sampling": asdict(sampling),
        "data": {
            "task": task.name,
            "version": task.version,
            "split": task.split,
            "limit": limit,
            "first": first,
        },
        "prompt": prompt | {"hash": task.prompt.hash},
    }


def _manifest(
    config: Mapping[str, Any], task: LoadedTask, seed: int, weights: str | None
) -> dict[str, Any]:
    return build_manifest(
        config=config,
        seeds={"completions": seed},
        data_hashes={task.name: task.data_hash},
        prompt_hash={task.prompt.name: task.prompt.hash},
        weights_hash=weights,
    )


def weights_hash(folder: str | Path) -> str | None:
    """Sixteen hexadecimal digits for the weights in a folder; None when it is no folder.

    Names, sizes and the first and last MiB of every file count: two checkpoints of one run differ
    in them, and a model of any size takes milliseconds. It is no proof against forgery.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=8)
    kinds = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja")
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in kinds:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(EDGE_BYTES))
                file.seek(max(0, size - EDGE_BYTES))
                digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()
