"""The table of the GPU benchmark, written from its numbers and from nothing else."""

from __future__ import annotations

from typing import Any

HEADS = (
    "model", "side", "step, s", "generate, s", "update, s", "peak, GiB", "tokens/s, step",
    "tokens/s, update", "update, shared / plain, s", "bf16 log-prob gap, mean (max)",
)  # fmt: skip


def page(results: dict[str, Any]) -> str:
    """Markdown of one run."""
    about, sizes = results["about"], results["sizes"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    dry = " A dry run: these figures mean nothing." if about["quick"] else ""
    lines = [
        "# Training on one GPU, measured\n",
        f"`{about['command']}`, {about['date']}, commit {about['commit']}, seed {about['seed']}, "
        f"least of {about['rounds']} rounds, {about['wall_s']} s.{dry}\n{about['device']}; "
        f"Python {about['python']}; {versions}.\n\nOne prompt of {sizes['prompt']} tokens, "
        f"{sizes['group']} completions of {sizes['sampled']}; random weights, float32 under "
        "bfloat16 autocast, no reference model. Tokens are sampled ones.\n",
        f"| {' | '.join(HEADS)} |",
        f"|{'---|' * len(HEADS)}",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in results["rows"]]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if "left_out" in row:
        return (row["model"], row["side"], row["left_out"], *[""] * (len(HEADS) - 3))
    layouts = f"{row['auto_s']:.3f} / {row['packed_s']:.3f}" if "auto_s" in row else ""
    gap = f"{row['gap_mean']:.1e} ({row['gap_max']:.1e})" if "gap_mean" in row else ""
    peak = "" if row["peak_gib"] is None else f"{row['peak_gib']:.1f}"
    return (
        row["model"],
        row["side"],
        *(f"{row[key]:.2f}" for key in ("step_s", "generate_s", "update_s")),
        peak,
        f"{row['tokens_per_s']:,.0f}",
        f"{row['update_tokens_per_s']:,.0f}",
        layouts,
        gap,
    )
