from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from stepmark.cli.watch import Watch, numbers_of, sample_panel
from stepmark.types import Marked, Problem, Prompt, Rollout, Verdict

pytest.importorskip("torch")

from stepmark.rl_backends import Evaluated, Saved, Started, StepDone

HOSTILE = "so far\n\x1b]0;owned\x07\x1b[2J\x1b[31m[bold]red[/bold] \u202e the answer is\r 4"
METRICS = {"reward": 0.5, "kl": 0.0012, "grad_norm": 0.25, "frac_reward_zero_std": 0.25}


def marked(text: str = HOSTILE) -> Marked:
    prompt = Prompt(Problem("own/\x1b[1m1", "What is \x1b[5m2 + 2?", gold="4"), (1,), "p")
    rollout = Rollout(prompt, 0, (1, 2), (-0.1, -0.2), "stop", text, seed=1)
    verdict = Verdict.marked(1.0, "equal", extracted="\x1b[7m4", gold="4")
    return Marked(rollout, {"math@2": verdict}, 1.0)


def console(*, is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100, height=30)


def shown(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def follow(console: Console) -> str:
    with Watch("grpo", every=1, console=console) as watch:
        for event in (
            Started(0, 2),
            Evaluated(0, 2, {"accuracy": 0.25}, True),
            StepDone(1, 2, METRICS, marked()),
            Saved(1, Path("r/checkpoints/step-000001")),
            StepDone(2, 2, METRICS, None),
            Evaluated(2, 2, {"accuracy": 0.5}, True),
        ):
            watch(event)
    return shown(console)


def test_plain_lines_hold_the_numbers_that_matter_and_no_escape_sequence() -> None:
    said = follow(console(is_terminal=False))
    assert "\x1b" not in said
    first = "reward 0.500, KL 0.0012 nats, gradient 0.25, flat groups 25%, under a minute left"
    assert f"grpo step 1 of 2: {first}\n" in said
    assert "grpo step 2: held-out accuracy 50.0%, the best so far\n" in said
    assert "grpo step 1: saved r/checkpoints/step-000001\n" in said


def test_the_live_view_shows_progress_numbers_and_the_last_sample_with_its_marks() -> None:
    said = follow(console(is_terminal=True))
    for part in ("2/2", "left", "0.500", "50.0% (step 2)", "What is", "math@2: right", "gold 4"):
        assert part in said, part


def test_what_a_model_wrote_sends_no_escape_sequence_to_the_terminal() -> None:
    plain = Console(file=io.StringIO(), force_terminal=False, width=100, color_system=None)
    plain.print(sample_panel(marked(), 1))
    said = shown(plain)
    assert "<U+001B>]0;owned<U+0007>" in said
    assert "[bold]red[/bold]" in said
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said)
    live = follow(console(is_terminal=True))
    assert not {"\x1b]0;", "\x1b[2J", "\x1b[7m", "\x1b[5m"} & {
        live[i : i + 4] for i in range(len(live))
    }


def test_a_long_completion_is_shown_by_its_last_lines() -> None:
    plain = Console(file=io.StringIO(), force_terminal=False, width=100)
    plain.print(sample_panel(marked("\n".join(f"line {n}" for n in range(99))), 1, lines=4))
    said = shown(plain)
    assert "line 98" in said
    assert "line 1 " not in said
    assert len(said.splitlines()) == 2 + 1 + 4 + 1


def test_the_loss_is_shown_only_where_there_is_no_reward() -> None:
    assert numbers_of({"loss": 0.5}) == [("loss", "0.500")]
    assert numbers_of({"loss": 0.5, "reward": 1.0}) == [("reward", "1.000")]
