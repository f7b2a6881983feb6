"""``stepmark train --scorer CHECKPOINT`` with ``outer``: a reward model that learns on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

torch = pytest.importorskip("torch")

CHECKS = """
from pathlib import Path

def marks(completion):
    with Path("marked").open("a") as file:
        file.write(".")
    if Path("stop").exists() and len(Path("marked").read_text()) > int(Path("stop").read_text()):
        raise ValueError("stopped here")
    return float("1" in completion)

def all_right(steps):
    return [1.0] * len(steps)
"""
SETS = (
    "rollout.group_size=4",
    "rollout.prompts_per_step=8",
    "rollout.max_tokens=12",
    "data.eval_limit=2",
    "algorithm.steps=4",
    "algorithm.outer=2",
    "algorithm.learning_rate=1e-2",
    "algorithm.save_every=1",
    "reward.outcome=0",
    "reward.largest_single_share=1",
    "reward.refresh.annotator=checks.py:all_right",
    "reward.refresh.gate=any",
    "reward.refresh.learning.learning_rate=3e-3",
    "reward.refresh.learning.rows_per_step=16",
)


def save_prm(folder: str) -> None:
    """A reward model with drawn weights over the policy's tokenizer."""
    from stepmark.prm import Base, EncodingSettings, base_model, save_step_model
    from stepmark.prm.checkpoint import SelfTestRow, card_of

    model = base_model(Base("tiny", initializer_range=0.5, from_scratch=True), device="cpu")
    card = card_of(
        model,
        encoding=EncodingSettings(splitter="newline", max_tokens=256),
        self_test=(SelfTestRow(problem="1 + 1?", steps=("1 + 1 = 2", "answer: 2")),),
    )
    save_step_model(folder, model, card)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    Path("checks.py").write_text(CHECKS)
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained("tiny")
        tokenizer.save_pretrained("tiny")
        save_prm("prm")


def train(*more: str, sets: tuple[str, ...] = (), scorer: str = "prm?device=cpu") -> int:
    given = [part for text in (*SETS, *sets) for part in ("--set", text)]
    base = ("--model", "tiny", "--task", "arith?size=40", "--verifier", "checks.py:marks")
    return command.run(["train", *base, "--scorer", scorer, *more, *given])


def weights(folder: str) -> bytes:
    return Path(folder, "checkpoints/final/model.safetensors").read_bytes()


def rows_of(folder: str) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in RunFolder.open(Path(folder)).metrics()}


def test_a_checkpoint_learns_between_outer_iterations_and_its_versions_are_on_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from stepmark.prm.replay import ReplayBuffer

    first = Path("prm/model.safetensors").read_bytes()
    assert train("--out", "a") == 0, capsys.readouterr().err
    rows = rows_of("a")
    assert {step: row.get("reward_model/prm/accepted") for step, row in rows.items()} == {
        0: None, 1: None, 2: 1.0, 3: None, 4: 1.0,
    }  # fmt: skip
    assert rows[4]["reward_model/prm/replayed_rows"] > 0
    buffer = ReplayBuffer("a/reward_models/prm")
    assert buffer.rounds() == [1, 2]
    assert len(buffer.entries(round=1)) < len(buffer.entries())
    assert buffer.records(buffer.entries())[0].provenance.annotator.kind == "checks.py:all_right"
    versions = json.loads(Path("a/reward_models/versions.json").read_text())["prm"]
    # The second refresh may keep the weights it began with: those were best on held-out rows.
    assert [row["from_step"] for row in versions] in ([1, 3], [1, 3, 5])
    keys = [row["key"] for row in versions]
    assert len(set(keys)) == len(keys)
    samples = RunFolder.open(Path("a")).samples
    scored = {key: {at.step for at in samples.scores(key)} for key in samples.score_keys()}
    assert scored == {keys[0]: {1, 2}, keys[1]: {3, 4}}, "what learnt last has scored nothing"
    assert Path("prm/model.safetensors").read_bytes() == first
    state = torch.load("a/checkpoints/final/state/reward_models.pt", weights_only=True)
    assert state["states"][0]["version"] == 2
    assert Path("a/checkpoints/final/state/reward_models.pt").stat().st_size < 10_000


def test_a_run_that_was_stopped_inside_of_a_refresh_goes_on_with_the_version_it_had(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mc = ("reward.refresh.annotator=mc", "reward.refresh.rollouts=2")
    assert train("--out", "a", sets=mc) == 0, capsys.readouterr().err
    Path("marked").unlink()
    Path("stop").write_text("75")  # 66 completions were marked before the first roll-out
    assert train("--out", "b", sets=mc) == 2
    assert "stopped here" in capsys.readouterr().err
    Path("stop").unlink()
    assert train("--out", "b", "--resume", sets=mc) == 0, capsys.readouterr().err
    assert weights("b") == weights("a")
    assert rows_of("b") == rows_of("a")
    versions = [Path(run, "reward_models/versions.json").read_text() for run in "ab"]
    assert versions[0] == versions[1]


def test_rejected_refreshes_keep_the_old_version_are_counted_and_stop_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    strict = ("reward.refresh.gate=rise", "algorithm.steps=6", "algorithm.outer=3")
    most = "reward.refresh.max_rejected="
    assert train("--out", "r", sets=(*strict, f"{most}2")) == 1
    said = capsys.readouterr().err
    assert "2 refreshes in a row of the reward model 'prm' were rejected" in said
    rows = rows_of("r")
    assert max(rows) == 4
    assert rows[2]["reward_model/prm/accepted"] == rows[4]["reward_model/prm/accepted"] == 0
    assert len(RunFolder.open(Path("r")).samples.score_keys()) == 1
    assert Path("r/reward_models/prm/rounds/2/rejected.json").is_file()
    assert train("--out", "r", "--resume", sets=(*strict, f"{most}none")) == 0
    assert max(rows_of("r")) == 6
    assert train("--out", "s", sets=(*strict, f"{most}none")) == 0
    assert weights("r") == weights("s")


def test_the_estimate_of_a_dry_run_is_never_below_what_is_spent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mc = ("reward.refresh.annotator=binary", "reward.refresh.rollouts=1")
    assert train("--dry-run", sets=mc) == 0
    said = capsys.readouterr().err
    assert "at most 64 of 64 completions annotated by binary" in said
    assert "at most 768 tokens generated beside at most 768 sampled" in said
    assert train("--dry-run", "--json", sets=mc) == 0
    cost = json.loads(capsys.readouterr().out)["reward.refresh.estimate"]["value"]
    assert train("--out", "a", sets=mc) == 0, capsys.readouterr().err
    spent = [
        row["reward_model/prm/annotation/tokens"]
        for step, row in rows_of("a").items()
        if step in (2, 4)
    ]
    assert 0 < max(spent) <= cost["tokens"]


@pytest.mark.parametrize(
    ("scorer", "sets", "said"),
    [
        ("arith-steps", ("reward.refresh.annotator=mc",), "nothing would learn from its labels"),
        ("prm", ("reward.refresh.annotator=mc", "algorithm.outer=1"), "algorithm.outer: 1"),
        ("prm", ("reward.refresh.annotator=mcc",), "Did you mean 'mc'?"),
        (
            "prm",
            ("reward.refresh.annotator=mc", "reward.refresh.token_budget=95"),
            "Raise it to 96 or more",
        ),
        ("gone/prm", (), "'gone/prm'"),
        ("prm", ("reward.refresh.first_rows=gone.jsonl",), "gone.jsonl"),
        ("prm", ("reward.refresh.learning.tokens_per_microbatch=64",), "Set it to 256 or more"),
    ],
)
def test_what_cannot_learn_is_refused_before_a_model_is_loaded(
    scorer: str, sets: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--out", "x", sets=sets, scorer=scorer) == 2
    assert said in capsys.readouterr().err
    assert not Path("x").exists()


def test_a_version_that_is_gone_is_named_when_a_run_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import shutil

    assert train("--out", "a", sets=("algorithm.steps=2",)) == 0
    shutil.rmtree("a/reward_models/prm/rounds/2")
    assert train("--out", "a", "--resume", sets=("algorithm.steps=2",)) == 2
    said = capsys.readouterr().err
    assert "The run scored with version" in said


def test_scores_of_a_refreshed_version_can_be_moved_to_where_those_before_it_lay() -> None:
    from stepmark.config.refresh_table import RefreshTable
    from stepmark.prm import PrmScorer
    from stepmark.prm.replay import Rescale
    from stepmark.protocols import KeepsRows, RewardModel
    from stepmark.rl_backends.trained_scorer import TrainedScorer
    from stepmark.types import Problem, StepItem

    items = [StepItem(Problem("p", "1 + 1?", "2"), ("1 + 1 = 2", "answer: 2"))]
    model = TrainedScorer(PrmScorer("prm", device="cpu"), RefreshTable())
    assert isinstance(model, RewardModel)
    assert isinstance(model, KeepsRows)
    (plain,) = model.score(items)
    assert plain.scorer == model.key == model.first.key
    model.scales = (Rescale(0.5, 0.1, 0.4, 0.2), Rescale(0.4, 0.2, 0.3, 0.2))
    (moved,) = model.score(items)
    expected = [0.5 + (score + 0.1 - 0.4) / 2 for score in plain.scores if score is not None]
    assert moved.scores == pytest.approx([min(max(score, 0.0), 1.0) for score in expected])
    assert moved.scorer == model.key != plain.scorer
    again = TrainedScorer(PrmScorer("prm", device="cpu"), RefreshTable())
    again.load(model.state())
    assert again.score(items) == [moved]
