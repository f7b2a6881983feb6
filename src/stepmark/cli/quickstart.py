"""``stepmark quickstart``: the main job on the embedded task, from nothing to a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Debug, Json, emit, out, say

if TYPE_CHECKING:
    from stepmark.tasks import LoadedTask

    from .quickstart_page import Outcome

__all__ = ["quickstart"]

FULL_MINUTES = 10
"""Time that the default number of steps stays below, on two cores."""

SAMPLES = 8
"""Completions per problem for mean@k."""


def quickstart(
    out_: Annotated[
        Path, typer.Option("--out", help="Folder of the job; run again to continue in it.")
    ] = Path("runs/quickstart"),
    minutes: Annotated[
        float,
        typer.Option(
            min=0.5, max=FULL_MINUTES, help="Shorter: fewer training steps in proportion."
        ),
    ] = FULL_MINUTES,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify, train and evaluate: SFT, then GRPO, on word problems made here, with a tiny Llama.

    Ends in a table with a paired test, a reward curve and twenty marked samples on one page.
    """
    from stepmark.errors import require

    from .demo import run_demo, show
    from .interrupt import same_command, stoppable

    require("torch", extra="train", purpose="The quickstart")
    require("matplotlib", extra="train", purpose="The quickstart")
    started = time.monotonic()
    with stoppable(same_command(out_)):
        if not as_json:
            say("1/5  two verifiers on 200 embedded responses")
            show(run_demo(), None)
        outcome = _main_job(out_, minutes / FULL_MINUTES)
    emit(outcome.to_row(), as_json, lambda: _tell(outcome, out_, time.monotonic() - started))


def _main_job(folder: Path, scale: float) -> Outcome:
    """SFT, evaluation, GRPO, evaluation; each part is a run of its own and is not made twice."""
    from stepmark.evals import compare

    from .quickstart_page import Outcome, write_page

    say("2/5  SFT: a Llama with 0.65 million parameters learns from demonstrations in two styles")
    sft = _train("quickstart-sft", folder / "sft", _base_model(folder / "base"), scale)
    say("3/5  what SFT reached on 500 held-out problems")
    _evaluate("sft", sft, folder)
    say("4/5  GRPO: 32 problems x 8 completions a step; the reward is the verifier's score")
    grpo = _train("quickstart-grpo", folder / "grpo", sft, scale)
    say("5/5  what GRPO reached on the same problems")
    _evaluate("grpo", grpo, folder)
    outcome = Outcome.read(folder, compare(folder / "eval-grpo", folder / "eval-sft"))
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


def _train(preset: str, folder: Path, model: Path, scale: float) -> Path:
    """The checkpoint with the best held-out accuracy."""
    from stepmark.config import Flag, compose
    from stepmark.config.compose import read_preset

    from .plan import make_plan
    from .train import write_reports
    from .watch import Watch
    from .wiring import start

    settings = read_preset(preset)["algorithm"]
    flags = {"model.policy": Flag("quickstart", str(model))}
    if scale < 1:
        steps = max(2, round(settings["steps"] * scale))
        flags["algorithm.steps"] = Flag("--minutes", steps)
        warmup = min(settings.get("warmup_steps", 0), steps // 4)
        flags["algorithm.warmup_steps"] = Flag("--minutes", warmup)
    plan = make_plan(compose([], [], flags, preset=preset))
    with Watch(preset.removeprefix("quickstart-")) as watch:
        result = start(plan, folder, resume=folder.exists(), on_event=watch)
    write_reports(folder, preset)
    return result.best or result.final


def _evaluate(name: str, model: Path, folder: Path) -> None:
    """Greedy, and ``SAMPLES`` completions per problem, on the problems of the table."""
    from stepmark.engines import TransformersEngine
    from stepmark.evals import run, weights_hash
    from stepmark.tasks import load_task
    from stepmark.types import Sampling
    from stepmark.verifiers import load_verifier

    task: LoadedTask = load_task("arith", "test")
    engine = TransformersEngine.load(model)
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
    out.print(outcome.table(), markup=False)
    out.print(str(outcome.paired), markup=False)
    out.print(outcome.caveat, markup=False)
    out.print(f"\nDone in {seconds / 60:.1f} minutes. Where things are:", markup=False)
    for what, place in (
        ("page", "report.html"),
        ("table", "table.md"),
        ("model after SFT", "sft/checkpoints/best"),
        ("model after GRPO", "grpo/checkpoints/best"),
        ("completions and verdicts", "eval-grpo/samples"),
    ):
        out.print(f"  {what:<26}{folder / place}", markup=False)
    out.print("Next:", markup=False)
    for command in (
        f"stepmark eval compare {folder}/eval-grpo {folder}/eval-sft",
        f"stepmark eval show {folder}/eval-grpo --wrong",
        f"stepmark train --preset quickstart-grpo --model {folder}/sft/checkpoints/best "
        "--set algorithm.steps=60",
        "stepmark train --preset deepseekmath --task gsm8k --model YOUR_MODEL --dry-run",
    ):
        out.print(f"  {command}", markup=False)
