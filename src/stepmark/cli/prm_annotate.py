"""``stepmark prm annotate``: step labels from roll-outs, for a run's completions or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepmark.errors import ConfigError, did_you_mean

from .console import Debug, Json, emit, err, grid, plain, progress, say, show, warn
from .interrupt import same_command, stoppable
from .prm_settings import settings_from

if TYPE_CHECKING:
    from stepmark.prm.annotation import AnnotationSettings, Cost
    from stepmark.prm.annotation.runs import Annotation
    from stepmark.prm.annotation.sources import Solutions
    from stepmark.protocols import OutcomeVerifier

__all__ = ["annotate"]

Place = Annotated[
    str,
    typer.Argument(metavar="RUN_OR_ROWS", help="A run folder, or rows: problem, gold and steps."),
]
Model = Annotated[str, typer.Option(help="The completer: folder or hub id.")]
Engine = Annotated[str, typer.Option(help="What draws completions.")]
Verifier = Annotated[str, typer.Option(help="Name, name?key=value, or file.py:function.")]
Method = Annotated[str, typer.Option(help="mc: every prefix; binary: search the first error.")]
N = Annotated[int, typer.Option("--n", help="Roll-outs per prefix, at most.")]
Labels = Annotated[str, typer.Option(help="hard: 0 and 1; soft: the share that gets there.")]
Temperature = Annotated[float, typer.Option(help="Of the roll-outs.")]
MaxTokens = Annotated[
    int | None, typer.Option(help="Tokens per roll-out, at most; else what the run had, or 256.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="So many solutions, by a fixed hash.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of labels and roll-outs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on in --out, if anything is there.")]
Prompt = Annotated[
    str, typer.Option(help="Of rows: prompt template, by name or TOML file; a run has its own.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Other settings, see docs/prm-annotation.md."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it takes; write nothing.")]

SHAPING = ("threshold", "early_stop", "chunk", "recheck", "include_last", "right", "skip_settled")
SAMPLING = ("top_p", "top_k", "stop")
RUNNING = ("budget", "at_once", "max_error_share")
KNOWN = (*SHAPING, "seed", *SAMPLING, "splitter", *RUNNING)


def annotate(
    place: Place,
    model: Model,
    engine: Engine = "transformers",
    verifier: Verifier = "math",
    method: Method = "mc",
    n: N = 8,
    labels: Labels = "hard",
    temperature: Temperature = 0.7,
    max_tokens: MaxTokens = None,
    limit: Limit = None,
    prompt: Prompt = "plain",
    settings: Sets = None,
    out_: Out = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> int:
    """Label steps by roll-outs (Math-Shepherd, OmegaPRM): rows for prm train; 3 if some have none.

    stepmark prm annotate EVAL_RUN --model MODEL --out labels
    """
    from stepmark.verifiers import close_workers, load_verifier

    given = _known(settings_from(settings or []))
    shaping = {"method": method, "rollouts": n, "labels": labels}
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    job = Job(place, model, engine, load_verifier(verifier), prompt, limit, given)
    job.shape(shaping, sampling)
    if dry_run:
        return job.estimate(as_json)
    from .wiring import next_run_folder

    target = out_ or next_run_folder("annotation")
    try:
        with stoppable(same_command(target, "--resume")):
            return job.run(target, resume=resume, as_json=as_json)
    finally:
        close_workers()


def _known(given: dict[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in KNOWN:
            raise ConfigError(
                f"--set {name!r}: there is no such setting. {did_you_mean(name, KNOWN)} Known: "
                f"{', '.join(KNOWN)}."
            )
    return given


@dataclass(slots=True)
class Job:
    """What the flags ask for."""

    place: str
    model: str
    engine: str
    verifier: OutcomeVerifier
    prompt: str
    limit: int | None
    given: dict[str, Any]
    settings: AnnotationSettings | None = None
    solutions: Solutions | None = None

    def shape(self, shaping: dict[str, Any], sampling: dict[str, Any]) -> None:
        """Read the settings and the solutions; refuse what cannot work before a model is loaded."""
        from stepmark.engines.checks import check_sampling
        from stepmark.engines.loading import load_tokenizer
        from stepmark.prm.annotation import AnnotationSettings
        from stepmark.types import Sampling

        from .engine import engine_class

        engine_class(self.engine, loads=True)
        sampling |= {name: self.given[name] for name in SAMPLING if name in self.given}
        sampling["max_tokens"] = sampling["max_tokens"] or self._earlier("max_tokens") or 256
        sampling["stop"] = tuple(sampling.get("stop") or self._earlier("stop") or ())
        shaping |= {name: self.given[name] for name in (*SHAPING, "seed") if name in self.given}
        self.settings = AnnotationSettings(**shaping, sampling=Sampling(**sampling))
        check_sampling(self.settings.sampling, self.settings.rollouts)
        tokenizer = load_tokenizer(self.model)
        self.solutions = self._solutions(tokenizer)
        found = self.solutions
        say(f"{self.place}: {len(found.items):,} solutions; verifier {self.verifier.key}")
        if found.rejects:
            warn(
                f"{sum(found.rejects.values()):,} solutions cannot be annotated. The first: "
                f"{found.first_reject}"
            )

    @property
    def is_run(self) -> bool:
        """Whether the solutions are those of a run folder."""
        return (Path(self.place) / "config.toml").is_file()

    def _earlier(self, name: str) -> Any:
        """What the run drew its completions with, or the template of the rows stops at."""
        if not self.is_run:
            from stepmark.tasks import prompt_named

            return prompt_named(self.prompt).stop if name == "stop" else None
        from stepmark.store import RunFolder

        config = RunFolder.open(Path(self.place)).config()
        return (config.get("sampling") or config.get("rollout") or {}).get(name)

    def _solutions(self, tokenizer: Any) -> Solutions:
        from stepmark.engines import render
        from stepmark.prm.annotation.sources import solutions_of_file, solutions_of_run
        from stepmark.store import RunFolder
        from stepmark.tasks import prompt_named

        splitter = str(self.given.get("splitter", "newline"))
        if self.is_run:
            folder, key = RunFolder.open(Path(self.place)), self.verifier.key
            return solutions_of_run(
                folder, tokenizer, verifier=key, splitter=splitter, limit=self.limit
            )
        template = prompt_named(self.prompt)
        return solutions_of_file(
            self.place,
            tokenizer,
            lambda problem: render(problem, tokenizer, template),
            splitter=splitter,
            limit=self.limit,
        )

    def estimate(self, as_json: bool) -> int:
        """Say what the annotation takes at most."""
        from stepmark.prm.annotation import upper_bound

        assert self.settings is not None
        assert self.solutions is not None
        most = upper_bound(self.solutions.items, self.settings)
        value = {
            "solutions": len(self.solutions.items),
            "steps": sum(len(item.steps) for item in self.solutions.items),
            "settings": self.settings.to_row(),
            "budget": self.given.get("budget"),
            "at_most": most._asdict(),
        }
        emit(value, as_json, lambda: _tell_estimate(value["solutions"], value["steps"], most))
        return 0

    def run(self, out: Path, *, resume: bool, as_json: bool) -> int:
        """Annotate into a run folder, and say what came of it."""
        from stepmark.evals import weights_hash
        from stepmark.prm.annotation import Annotator
        from stepmark.prm.annotation.runs import annotate_into
        from stepmark.store import RunFolder

        from .engine import engine_class

        assert self.settings is not None
        assert self.solutions is not None
        weights = weights_hash(self.model)
        config, manifest = self._config(), self._manifest(weights)
        RunFolder.check(out, config, manifest, resume=resume)
        say(f"the labels go to {out}")
        kind, engine_settings = engine_class(self.engine, loads=True)
        engine: Any = kind.load(self.model, **engine_settings)
        running = {name: self.given[name] for name in RUNNING if name in self.given}
        try:
            with (
                RunFolder.create(out, config, manifest, resume=resume) as folder,
                _shown(as_json) as tell,
            ):
                annotator = Annotator(
                    engine,
                    self.verifier,
                    self.settings,
                    completer=weights or self.model,
                    store=folder.samples,
                    **running,
                )
                found = annotate_into(folder, annotator, self.solutions.items, tell)
        finally:
            engine.close()
        value = found._asdict() | {"out": str(out), "rejects": dict(self.solutions.rejects)}
        emit(value, as_json, lambda: _tell(found, out))
        return self._exit_code(found)

    def _config(self) -> dict[str, Any]:
        assert self.settings is not None
        return {
            "kind": "annotation",
            "model": self.model,
            "source": self.place,
            "verifier": self.verifier.key,
            "prompt": "none" if self.is_run else self.prompt,
            "limit": self.limit,
            "splitter": self.given.get("splitter", "newline"),
            "running": {name: self.given.get(name) for name in RUNNING},
            "annotation": self.settings.to_row(),
        }

    def _manifest(self, weights: str | None) -> dict[str, Any]:
        from stepmark.store import build_manifest

        assert self.settings is not None
        assert self.solutions is not None
        return build_manifest(
            config=self._config(),
            seeds={"rollouts": self.settings.seed},
            data_hashes={Path(self.place).name: self.solutions.digest},
            weights_hash=weights,
        )

    def _exit_code(self, found: Annotation) -> int:
        """3 where solutions have no labels that should have some, which is said."""
        assert self.solutions is not None
        counts = found.counts["left_out"]
        wanted = {name: n for name, n in counts.items() if name not in ("settled", "right")}
        for reason, number in wanted.items():
            warn(f"{number:,} solutions were left out: {reason}; see left_out.jsonl.")
        return 3 if wanted or self.solutions.rejects else 0


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress with time left; where there is no terminal, a line for every tenth."""
    said = -1
    with progress(is_quiet=as_json) as bar:
        row = bar.add_task("annotating", total=None)

        def tell(done: int, total: int) -> None:
            nonlocal said
            bar.update(row, completed=done, total=total)
            tenth = 10 * done // max(total, 1)
            if not err.is_terminal and not as_json and tenth > said:
                said = tenth
                say(f"annotating: {done} of {total} solutions")

        yield tell


def _tell_estimate(solutions: int, steps: int, most: Cost) -> None:
    table = grid()
    for name, value in (
        ("solutions", f"{solutions:,}, with {steps:,} steps"),
        ("roll-outs", f"{most.rollouts:,} at most"),
        ("tokens", f"{most.generated:,} sampled and {most.prefilled:,} read at most"),
    ):
        table.add_row(f"[bold]{name}[/]", plain(value))
    show(table)
    say("Early stopping and shared prefixes stay well below; --set budget=TOKENS is a limit.")


def _tell(found: Annotation, out: Path) -> None:
    counts = found.counts
    spent, naive, ratio = counts["spent"], counts["naive"], counts["ratio"]
    labels = ", ".join(f"{number:,} {name}" for name, number in counts["labels"].items())
    unsaid = f" ({found.unsaid:,} that it cannot say)" if found.unsaid else ""
    rows: list[tuple[str, str]] = [
        ("labelled", f"{counts['solutions']:,} solutions: {out / 'rows.jsonl'}"),
        ("labels", labels),
        ("Math-Shepherd", f"{found.shepherd:,} rows{unsaid}: {out / 'math-shepherd.jsonl'}"),
        (
            "roll-outs",
            f"{spent['rollouts']:,}, {spent['generated']:,} tokens sampled, "
            f"{spent['prefilled']:,} read",
        ),
    ]
    if ratio is not None:
        total = naive["generated"] + naive["prefilled"]
        rows.append(("a naive loop", f"{total:,} tokens, {ratio:.1f} times as many"))
    table = grid()
    for name, value in rows:
        table.add_row(f"[bold]{name}[/]", plain(value))
    show(table)
    say(f"Train on them: stepmark prm train --data {out / 'rows.jsonl'} --base MODEL")
