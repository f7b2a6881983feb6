"""``stepmark export``: a verifier as a file that another library's trainer loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stepmark.protocols import OutcomeVerifier

from .console import Debug, Json, emit, out, say

app = typer.Typer(no_args_is_help=True, help="A verifier as a reward file for verl or TRL.")

Ref = Annotated[
    str, typer.Option("--verifier", metavar="REF", help="Name, module:attr or file.py:attr.")
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The Python file to write.")]


@app.command("verl")
def export_verl(
    verifier: Ref,
    out_path: Out,
    abstain_score: Annotated[
        float, typer.Option(help="The score where the gold or the verifier fails.")
    ] = 0.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a compute_score file for verl, and show the lines of its configuration."""
    from stepmark.adapters.files import verl_file, write_file
    from stepmark.adapters.verl import Scorer

    judge = Scorer(verifier, abstain_score=abstain_score).mark.verifier
    write_file(verl_file(verifier, out_path, abstain_score), out_path)
    lines = {
        "reward.custom_reward_function.path": str(out_path.expanduser().resolve()),
        "reward.custom_reward_function.name": "compute_score",
    }

    def render() -> None:
        say(f"{out_path}: {judge.key} as compute_score. Add to verl's command line:")
        for key, value in lines.items():
            out.print(f"{key}={value}", markup=False)
        if judge.columns:
            say(f"The verifier reads from extra_info: {', '.join(sorted(judge.columns))}.")
        say(f"Where there is no score, verl gets {abstain_score:g} and verdict_scored=0.")

    emit(_row(judge, out_path) | {"config": lines}, as_json, render)


@app.command("trl")
def export_trl(
    verifier: Ref,
    out_path: Out,
    gold: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the gold; else guessed.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a file with a reward function for TRL, and show how to name it."""
    from stepmark.adapters.files import trl_file, write_file
    from stepmark.adapters.trl import reward

    judge = reward(verifier, gold=gold).mark.verifier
    write_file(trl_file(verifier, out_path, gold), out_path)
    name = f"{out_path.stem}.reward_func"

    def render() -> None:
        say(f"{out_path}: {judge.key} as a reward function. In the folder of that file:")
        out.print(f"trl grpo --reward_funcs {name}", markup=False)
        if judge.columns:
            say(f"The verifier reads the columns: {', '.join(sorted(judge.columns))}.")

    emit(_row(judge, out_path) | {"reward_funcs": name}, as_json, render)


def _row(judge: OutcomeVerifier, path: Path) -> dict[str, Any]:
    return {"file": str(path), "verifier": judge.key, "columns": sorted(judge.columns)}
