"""``stepmark quickstart``: the main job on the embedded task, from nothing to a page.

Every part is a run of its own in the job's folder: what is finished is never made twice, and what
was stopped goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Debug, Json, emit, out, say
from .quickstart_backends import PROBLEMS_PER_STEP, RUNS, Run, chosen, write_pairs

if TYPE_CHECKING:
    from stepmark.engines import TransformersEngine
    from stepmark.tasks import LoadedTask

    from .quickstart_page import Outcome

__all__ = ["quickstart"]

FULL_MINUTES = 10
"""Time that SFT and GRPO with the default number of steps stay below, on two cores."""

FEWEST_STEPS = 4
"""Of a run, however few the minutes: iterative GRPO has three parts."""

SAMPLES = 8
"""Completions per problem for mean@k."""


def quickstart(
    backends: Annotated[
        str, typer.Option(help="What to compare after SFT: grpo,ppo,dpo ..., or all.")
    ] = "grpo",
    out_: Annotated[
        Path, typer.Option("--out", help="Folder of the job; run again to continue in it.")
    ] = Path("runs/quickstart"),
    minutes: Annotated[
        float,
        typer.Option(
            min=0.5,
            max=FULL_MINUTES,
            help="Of SFT and one backend; less: fewer training steps in proportion.",
        ),
    ] = FULL_MINUTES,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify, train and evaluate on word problems made here, with a tiny Llama: SFT, then GRPO.

    Ends in a table with paired tests, a reward curve and twenty marked samples on one page. With
    --backends several are trained from the same SFT checkpoint and compared in that table.
    """
    from stepmark.errors import require

    from .demo import run_demo, show
    from .interrupt import same_command, stoppable

    runs = chosen(backends)
    require("torch", extra="train", purpose="The quickstart")
    require("matplotlib", extra="train", purpose="The quickstart")
    started = time.monotonic()
    with stoppable(same_command(out_)):
        if not as_json:
            say("Two verifiers on 200 embedded responses")
            show(run_demo(), None)
        outcome = _main_job(out_, runs, minutes / FULL_MINUTES)
    emit(outcome.to_row(), as_json, lambda: _tell(outcome, out_, time.monotonic() - started))


def _main_job(folder: Path, runs: Sequence[Run], scale: float) -> Outcome:
    """SFT and its evaluation, then each backend from there with its own."""
    parts = 2 + 2 * len(runs)
    say(f"1/{parts}  SFT: a Llama of 0.65 million parameters learns from demonstrations")
    sft = _train("quickstart-sft", folder / "sft", _base_model(folder / "base"), scale)
    say(f"2/{parts}  what SFT reached on 500 held-out problems")
    _evaluate("sft", sft, folder)
    for place, run in enumerate(runs):
        if place:
            _write_up(folder, runs)  # what is there by now: this one may be stopped
        say(f"{2 * place + 3}/{parts}  {run.name}: {run.what}")
        pairs = _pairs(sft, folder, run, scale) if run.from_pairs else None
        model = _train(run.preset, folder / run.name, sft, scale, pairs)
        say(f"{2 * place + 4}/{parts}  what {run.name} reached on the same problems")
        _evaluate(run.name, model, folder)
    return _write_up(folder, runs)


def _write_up(folder: Path, runs: Sequence[Run]) -> Outcome:
    """Page and table of all that is evaluated in the folder: these backends first, then others."""
    from .quickstart_page import Outcome, is_evaluated, write_page

    names = dict.fromkeys(run.name for run in (*runs, *RUNS))
    outcome = Outcome.read(folder, [name for name in names if is_evaluated(folder, name)])
    write_page(outcome, folder)
    return outcome


def _base_model(folder: Path) -> Path:
    """The tiny Llama before any training, on the disk."""
    from stepmark.store import publish
    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        tokenizer = arith_tokenizer()
        with publish(folder) as part, no_progress_bars():
            tiny_llama(tokenizer, seed=0).save_pretrained(part)
            tokenizer.save_pretrained(part)
    return folder


def _train(
    preset: str, folder: Path, model: Path, scale: float, dataset: Path | None = None
) -> Path:
    """The checkpoint with the best held-out accuracy."""
    from stepmark.config import Flag, compose
    from stepmark.config.compose import read_preset

    from .plan import make_plan
    from .train import write_reports
    from .watch import Watch
    from .wiring import start

    settings = read_preset(preset)["algorithm"]
    flags = {"model.policy": Flag("quickstart", str(model))}
    if dataset is not None:
        flags["data.dataset"] = Flag("quickstart", str(dataset))
    if scale < 1:
        steps = _fewer(settings["steps"], scale)
        flags["algorithm.steps"] = Flag("--minutes", steps)
        for key in ("warmup_steps", "critic_warmup_steps"):
            if key in settings:
                warmup = min(settings[key], steps // 4)
                flags[f"algorithm.{key}"] = Flag("--minutes", warmup)
    plan = make_plan(compose([], [], flags, preset=preset))
    with Watch(preset.removeprefix("quickstart-")) as watch:
        result = start(plan, folder, resume=folder.exists(), on_event=watch)
    write_reports(folder, preset)
    return result.best or result.final


def _fewer(steps: int, scale: float) -> int:
    return max(FEWEST_STEPS, round(steps * scale))


def _pairs(sft: Path, folder: Path, run: Run, scale: float) -> Path:
    """Preferences between the SFT model's own completions, on as many problems as others see."""
    from stepmark.config.compose import read_preset
    from stepmark.evals import weights_hash

    settings = read_preset(run.preset)
    problems = _fewer(settings["algorithm"]["steps"], scale) * PROBLEMS_PER_STEP
    engine = _engine(sft)
    try:
        return write_pairs(engine, weights_hash(sft), problems, folder)
    finally:
        engine.close()


def _engine(model: Path) -> TransformersEngine:
    from stepmark.engines import TransformersEngine

    return TransformersEngine.load(model)


def _evaluate(name: str, model: Path, folder: Path) -> None:
    """Greedy, and ``SAMPLES`` completions per problem, on the problems of the table."""
    from stepmark.evals import run, weights_hash
    from stepmark.tasks import load_task
    from stepmark.types import Sampling
    from stepmark.verifiers import load_verifier

    task: LoadedTask = load_task("arith", "test")
    engine = _engine(model)
    for place, temperature, n in (("eval", 0.0, 1), ("sampled", 1.0, SAMPLES)):
        out_folder = folder / f"{place}-{name}"
        result = run(
            engine,
            engine.tokenizer,
            task,
            load_verifier("math"),
            Sampling(temperature=temperature, max_tokens=64),
            out=out_folder,
            model=name,
            n=n,
            resume=out_folder.exists(),
            weights=weights_hash(model),
        )
        bounds = f"[{result.low:.1%}, {result.high:.1%}]"
        say(f"     {name} {result.name}: {result.accuracy:.1%} {bounds}")
    engine.close()


def _tell(outcome: Outcome, folder: Path, seconds: float) -> None:
    out.print()
    out.print(outcome.text(), markup=False)
    out.print(f"\nDone in {seconds / 60:.1f} minutes. Where things are:", markup=False)
    names = [row.name for row in outcome.rows[1:]]
    places = [("page", "report.html"), ("table", "table.md")]
    places += [(f"model: {name}", f"{name}/checkpoints/best") for name in ("sft", *names)]
    places += [("completions, verdicts", f"eval-{outcome.best}/samples")]
    for what, place in places:
        out.print(f"  {what:<23}{folder / place}", markup=False)
    out.print("Next:", markup=False)
    for command in (
        f"stepmark eval compare {folder}/eval-{outcome.best} {folder}/eval-sft",
        f"stepmark eval show {folder}/eval-{outcome.best} --wrong",
        f"stepmark train --preset quickstart-grpo --set algorithm.steps=60 \\\n"
        f"    --model {folder}/sft/checkpoints/best",
        "stepmark train --preset deepseekmath --task gsm8k --model YOUR_MODEL --dry-run",
    ):
        out.print(f"  {command}", markup=False)
