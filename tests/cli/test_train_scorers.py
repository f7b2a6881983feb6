"""``stepmark train --scorer``: process rewards from a command line to the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

pytest.importorskip("torch")

SCORERS = """
import re

def lines(steps):
    return [float("=" in step) for step in steps]

class Words:
    "Every word is a step; it learns which words end well."
    columns = frozenset()
    def __init__(self):
        self.known = {}
    @property
    def key(self):
        return f"words@{len(self.known)}"
    def segment(self, text):
        starts = [found.start() for found in re.finditer(r"[^0-9]|[0-9]", text)]
        return tuple(zip(starts, [*starts[1:], len(text)]))
    def score(self, items):
        from stepmark.types import StepScores
        return [
            StepScores(tuple(self.known.get(step, 0.5) for step in item.steps), self.key)
            for item in items
        ]
    def refresh(self, fresh, history, history_share, seed):
        for row in (*history, *fresh):
            for step, label in zip(row.steps, row.labels):
                if label is not None:
                    self.known[step] = label
        return {"known": len(self.known)}
    def state(self):
        return {"known": dict(self.known)}
    def load(self, state):
        self.known = dict(state["known"])
"""
TASK = "arith?size=40"
SETS = (
    "rollout.group_size=4",
    "rollout.prompts_per_step=2",
    "rollout.max_tokens=12",
    "data.eval_limit=4",
    "algorithm.steps=4",
    "algorithm.outer=2",
    "algorithm.beta=0",
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained("tiny")
    tokenizer.save_pretrained("tiny")
    Path("scorers.py").write_text(SCORERS)
    Path("mine.jsonl").write_text('{"q": "1 + 1?", "a": "2"}\n' * 3)


def train(*more: str, sets: tuple[str, ...] = ()) -> int:
    pairs = [part for text in (*SETS, *sets) for part in ("--set", text)]
    return command.run(["train", "--model", "tiny", "--out", "r", *pairs, *more])


def test_a_reward_model_named_by_file_scores_learns_and_is_saved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train("--task", TASK, "--scorer", "scorers.py:Words") == 0
    said = capsys.readouterr().err
    assert "steps per completion (from" in said
    assert "reward models learnt; reward_model/words/known" in said
    run = RunFolder.open(Path("r"))
    assert len(run.samples.score_keys()) == 2, "before it learnt, and after"
    rows = {row["step"]: row for row in run.metrics()}
    assert rows[2]["reward_model/words/fresh_rows"] == 2 * 2 * 4
    assert rows[4]["reward_model/words/history_rows"] == 2
    assert rows[4]["steps/mean_count"] > 1
    assert train("--task", TASK, "--scorer", "scorers.py:Words", "--resume") == 0


@pytest.mark.parametrize(
    ("more", "sets", "said"),
    [
        (("--scorer", "arith-stps"), (), "Did you mean 'arith-steps'?"),
        (("--scorer", "arith-steps", "--scorer", "arith-steps"), (), "stands twice"),
        ((), ("reward.outcome=0",), "reward.outcome is 0 and no steps are rewarded"),
        (
            ("--scorer", "arith-steps"),
            ("reward.outcome=0", "reward.process=0"),
            "reward.process: 0",
        ),
        (
            ("--scorer", "scorers.py:Words"),
            ("reward.refresh.labels=arith-stps",),
            "Did you mean 'arith-steps'?",
        ),
        (("--scorer", "scorers.py:line"), (), "Did you mean 'lines'?"),
    ],
)
def test_bad_scorers_are_refused_before_a_model_is_loaded(
    more: tuple[str, ...], sets: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--task", TASK, *more, sets=sets) == 2
    message = capsys.readouterr().err
    assert said in message
    assert len(message[message.index("Error: ") :].strip().splitlines()) <= 3
    assert not Path("r").exists()


def test_data_without_the_scorer_s_column_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--dataset", "mine.jsonl", "--prompt-column", "q", "--gold-column", "a")
    assert train(*own, "--scorer", "arith-steps") == 2
    assert "needs the column 'moves'" in capsys.readouterr().err
    assert not Path("r").exists()


def test_the_resolved_tree_shows_where_the_scorers_came_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--task", TASK, "--scorer", "arith-steps", "--dry-run", "--json")
    assert train(*more, sets=("reward.verifiers=[{name='math', weight=0}]",)) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["reward.scorers"] == {"value": ["arith-steps"], "origin": "--scorer"}
    assert tree["reward.process"]["value"] == 1.0
