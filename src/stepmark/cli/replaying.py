"""``stepmark train --replay-batch FILE``: what stopped a run, and which sample it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import emit, grid, out, plain, say, show

if TYPE_CHECKING:
    from stepmark.rl_backends.replay import One, Replay, ReplayBatch

__all__ = ["replay_file"]

SHOWN = 8
"""Samples in the table: the worst ones."""


def replay_file(file: Path, as_json: bool) -> None:
    """Loss and gradient norm of a kept minibatch, and its samples with the worst one first.

    Raises:
        DataError: the file is no kept minibatch.
    """
    from stepmark.errors import require

    require("torch", extra="train", purpose="Replaying a minibatch")
    from stepmark.engines import load_policy
    from stepmark.rl_backends.replay import load_replay, replay, updater_of

    batch = load_replay(file)
    say(
        f"step {batch.step}, epoch {batch.epoch + 1}, {len(batch.samples)} samples, backend "
        f"{batch.backend}; the run stopped because {batch.what} was {batch.value:g}"
    )
    model, tokenizer = load_policy(str(batch.folder), batch.dtype)
    found = replay(updater_of(batch, model), batch)
    emit(_row(batch, found), as_json, lambda: _tell(found, tokenizer))


def _row(batch: ReplayBatch, found: Replay) -> dict[str, Any]:
    return {
        "step": batch.step,
        "epoch": batch.epoch,
        "stopped_by": {"metric": batch.what, "value": batch.value},
        "numbers": dict(found.numbers),
        "worst": found.worst,
        "broken": found.broken,
        "samples": [
            {
                "place": place,
                "group": one.samples[0].group,
                "tokens": sum(len(sample.ids) for sample in one.samples),
                "loss": one.loss,
                "grad_norm": one.grad_norm,
            }
            for place, one in enumerate(found.ones)
        ],
    }


def _tell(found: Replay, tokenizer: Any) -> None:
    from stepmark.report.text import shorten, visible

    numbers = grid("number", "value")
    for name, value in sorted(found.numbers.items()):
        numbers.add_row(plain(name), f"{value:.9g}")
    show(numbers)
    out.print()
    table = grid("sample", "group", "tokens", "loss", "gradient norm", "largest values in it")
    order = sorted(range(len(found.ones)), key=lambda place: -found.ones[place].size)
    for place in order[:SHOWN]:
        one = found.ones[place]
        tokens = sum(len(sample.ids) for sample in one.samples)
        cells = (place, one.samples[0].group, tokens, f"{one.loss:.6g}", f"{one.grad_norm:.6g}")
        table.add_row(*map(str, cells), _largest(one))
    show(table)
    worst = found.ones[found.worst]
    if found.broken == len(found.ones) > 1:
        out.print(
            "No sample gives a finite number by itself: the weights are broken already, or the "
            "backend is. Take a checkpoint from before this step.",
            markup=False,
        )
        return
    out.print(f"\nThe worst sample is {found.worst}:", markup=False)
    for sample in worst.samples:
        text = tokenizer.decode([*sample.prompt_ids, *sample.ids])
        out.print(visible(shorten(text, 1500)), markup=False)


def _largest(one: One) -> str:
    """The largest size of each kind of number that the sample brings along."""
    found: list[str] = []
    for name in ("old_logps", "ref_logps", "advantages", "values", "returns"):
        rows = [getattr(s, name) for s in one.samples if getattr(s, name) is not None]
        if rows:
            found.append(f"{name} {max(float(row.abs().max()) for row in rows):.3g}")
    return ", ".join(found)
