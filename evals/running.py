"""An evaluation into a run folder: generate what is missing, mark it, sum up."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

from stepmark.errors import EngineError, RunError
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.store import Key, RunFolder, Sample, build_manifest, publish, text_hash, write_json
from stepmark.tasks.task import LoadedTask
from stepmark.types import Group, Prompt, Sampling, Verdict

from .grade import grade
from .policy import about, prompts_of
from .result import About, EvalResult, summarise
from .settings import Asked, EvalSettings
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
    resume: bool = False,
    weights: str | None = None,
    on_prompt: Callable[[Prompt], None] | None = None,
    on_progress: Progress | None = None,
    **asked: Unpack[Asked],
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
        resume: continue what is in ``out``, if anything is.
        weights: digest of the weights, see `weights_hash`.
        on_prompt: called once with the first prompt as rendered.
        on_progress: see `Progress`.
        **asked: other fields of `EvalSettings`, such as ``n``, ``seed`` and ``limit``.

    Raises:
        ConfigError: settings that cannot work.
        RunError: ``out`` holds something else, or was made with other settings, which are named.
        VerifierError: more error verdicts than allowed.
    """
    settings = EvalSettings(sampling, model, **asked)
    settings.check()
    prompts = prompts_of(settings.problems_of(task), tokenizer, task, sampling, engine)
    config = _config(task, verifier, settings)
    if on_prompt:
        on_prompt(prompts[0])
    manifest = _manifest(config, task, settings.seed, weights)
    words = about(task, verifier.key, settings)
    with RunFolder.create(
        out, config, manifest, resume=resume, may_change=_mended(out, verifier)
    ) as folder:
        return _evaluate(folder, engine, _Requests(prompts, settings), verifier, words, on_progress)


def check_run(
    task: LoadedTask,
    verifier: OutcomeVerifier,
    sampling: Sampling,
    *,
    out: Path,
    model: str,
    resume: bool = False,
    weights: str | None = None,
    **asked: Unpack[Asked],
) -> None:
    """Refuse what `run` would refuse, as far as that can be known without a model.

    Raises:
        ConfigError: settings that cannot work.
        RunError: ``out`` holds something else, or was made with other settings.
    """
    settings = EvalSettings(sampling, model, **asked)
    settings.check()
    settings.problems_of(task)
    config = _config(task, verifier, settings)
    manifest = _manifest(config, task, settings.seed, weights)
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
    requests: _Requests,
    verifier: OutcomeVerifier,
    words: About,
    on_progress: Progress | None,
) -> EvalResult:
    started = time.monotonic()
    fresh = _generate(folder, engine, requests, verifier, on_progress)
    share = requests.settings.max_error_share
    verdicts = grade(folder.samples, verifier, max_error_share=share)
    result = summarise(words, requests.paired(folder, verdicts))
    _publish(folder, result)
    took_s = time.monotonic() - started
    folder.log_timings(0, {"generation_and_marking_s": took_s, "completions": fresh})
    return result


def _publish(folder: RunFolder, result: EvalResult) -> None:
    with publish(folder.path / "table.md") as part:
        part.write_text(table_text([result]), encoding="utf-8")
    write_json(folder.path / "summary.json", result.to_row())


class _Requests:
    """What is to be generated, with the digest of each request."""

    def __init__(self, prompts: Sequence[Prompt], settings: EvalSettings) -> None:
        self.prompts, self.settings = prompts, settings
        said = f"{settings.sampling!r} {settings.seed} {settings.model}"
        self.digests = {
            prompt.problem.id: text_hash(f"{prompt.ids!r} {said}") for prompt in prompts
        }

    def paired(
        self, folder: RunFolder, verdicts: Mapping[Key, Verdict]
    ) -> list[tuple[Sample, Verdict]]:
        """Every completion with its verdict, in the order of the problems."""
        samples = {sample.key: sample for sample in folder.samples.rows()}
        n = self.settings.n
        keys = [Key(0, prompt.problem.id, k) for prompt in self.prompts for k in range(n)]
        return [(samples[key], verdicts[key]) for key in keys]

    def missing(self, folder: RunFolder) -> dict[str, set[int]]:
        """Problem id -> places in its group that the store lacks.

        Raises:
            RunError: a stored completion answers another prompt than today's.
        """
        wanted = {prompt.problem.id: set(range(self.settings.n)) for prompt in self.prompts}
        for sample in folder.samples.rows():
            if sample.request != self.digests.get(sample.id):
                raise RunError(
                    f"{str(folder.path)!r}: the completion of {sample.id!r} was asked for with "
                    "another prompt or tokenizer than today's. Choose another folder for --out."
                )
            wanted[sample.id].discard(sample.k)
        return {id: places for id, places in wanted.items() if places}


def _generate(
    folder: RunFolder,
    engine: Engine,
    requests: _Requests,
    verifier: OutcomeVerifier,
    on_progress: Progress | None,
) -> int:
    """Put every missing completion into the store; how many those were."""
    missing, settings = requests.missing(folder), requests.settings
    total = len(requests.prompts) * settings.n
    done = total - sum(map(len, missing.values()))
    already, pending = done, list[Sample]()
    known: Mapping[Key, Verdict] | None = None
    tell = on_progress or (lambda done, total: None)
    tell(done, total)
    todo = [prompt for prompt in requests.prompts if prompt.problem.id in missing]
    groups: Iterator[Group] = (
        engine.generate(todo, settings.n, settings.sampling, settings.seed) if todo else iter(())
    )
    for group in groups:
        id = group.prompt.problem.id
        samples = [
            Sample.from_rollout(rollout, policy=settings.model, request=requests.digests[id])
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
                max_error_share=settings.max_error_share,
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


def _config(task: LoadedTask, verifier: OutcomeVerifier, settings: EvalSettings) -> dict[str, Any]:
    prompt = asdict(task.prompt)
    return {
        "kind": "eval",
        "model": settings.model,
        "n": settings.n,
        "seed": settings.seed,
        "verifier": verifier.key,
        "max_error_share": settings.max_error_share,
        "sampling": asdict(settings.sampling),
        "data": {
            "task": task.name,
            "version": task.version,
            "split": task.split,
            "limit": settings.limit,
            "first": settings.first,
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
