"""``stepmark train --scorer CHECKPOINT``: a reward model of other tokens than the policy's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder

torch = pytest.importorskip("torch")

CHECKS = """
from pathlib import Path

def marks(completion):
    with Path("marked").open("a") as file:
        file.write(".")
    if Path("stop").exists() and len(Path("marked").read_text()) > 40:
        raise ValueError("stopped here")
    return float("1" in completion)
"""
SETS = (
    "rollout.group_size=4",
    "rollout.prompts_per_step=2",
    "rollout.max_tokens=12",
    "data.eval_limit=2",
    "algorithm.steps=6",
    "algorithm.learning_rate=1e-2",
    "algorithm.save_every=2",
    "reward.outcome=0",
)


def byte_tokenizer() -> object:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words |= {char: place + 3 for place, char in enumerate(alphabet)}
    inner = Tokenizer(models.BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def save_prm(folder: str, splitter: str) -> None:
    """A reward model with drawn weights over a tokenizer of bytes."""
    from stepmark.prm import Base, EncodingSettings, base_model, save_step_model
    from stepmark.prm.checkpoint import SelfTestRow, card_of
    from stepmark.tasks import tiny_llama

    tokenizer = byte_tokenizer()
    tiny_llama(tokenizer, seed=3, layers=1, width=32).save_pretrained("base")  # type: ignore[arg-type]
    tokenizer.save_pretrained("base")  # type: ignore[attr-defined]
    model = base_model(Base("base", initializer_range=0.5, from_scratch=True), device="cpu")
    card = card_of(
        model,
        encoding=EncodingSettings(splitter=splitter),
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
        save_prm("prm", "newline")


def train(*more: str, sets: tuple[str, ...] = (), single: str = "1") -> int:
    pairs = (*SETS, f"reward.largest_single_share={single}", *sets)
    given = [part for text in pairs for part in ("--set", text)]
    base = ("--model", "tiny", "--task", "arith?size=40", "--verifier", "checks.py:marks")
    return command.run(["train", *base, *more, *given])


def weights(folder: str) -> bytes:
    return Path(folder, "checkpoints/final/model.safetensors").read_bytes()


def test_process_rewards_of_a_checkpoint_train_a_policy_and_a_stopped_run_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train("--scorer", "prm?device=cpu", "--out", "a") == 0
    said = capsys.readouterr().err
    assert "steps per completion (from" in said
    run = RunFolder.open(Path("a"))
    (key,) = run.samples.score_keys()
    assert key.startswith("prm@")
    scores = run.samples.scores(key)
    assert len(scores) == 6 * 2 * 4
    samples = {sample.key: sample for sample in run.samples.rows()}
    for at, row in scores.items():
        assert row.ends[-1] == len(samples[at].ids or ()) - 1, "ends are those of the policy's ids"
        assert len(row.ends) == len(row.scores)
    means = {row["step"]: row["steps/score_mean"] for row in run.metrics() if row["step"]}
    assert set(means) == {1, 2, 3, 4, 5, 6}
    assert all(0 < mean < 1 for mean in means.values())
    first = Path("tiny/model.safetensors").read_bytes()
    assert weights("a") != first

    Path("marked").unlink()
    Path("stop").touch()
    assert train("--scorer", "prm?device=cpu", "--out", "b") == 2
    assert "stopped here" in capsys.readouterr().err
    assert 0 < RunFolder.open(Path("b")).metrics()[-1]["step"] < 6
    Path("stop").unlink()
    assert train("--scorer", "prm?device=cpu", "--out", "b", "--resume") == 0
    assert weights("b") == weights("a")
    assert RunFolder.open(Path("b")).samples.scores(key) == scores

    save_prm("prm", "blank_line")
    capsys.readouterr()
    assert train("--scorer", "prm?device=cpu", "--out", "b", "--resume") == 2
    assert f"hashes.weights.scorer 1 was '{key}' and is now 'prm@" in capsys.readouterr().err


def test_scores_are_those_of_the_texts_whatever_the_policy_s_tokens_are() -> None:
    from stepmark import StepItem
    from stepmark.prm import load_scorer, step_texts
    from stepmark.prm.marking import score_steps
    from stepmark.tasks import arith_tokenizer, load_task
    from stepmark.types import Prompt, Rollout

    scorer, arith = load_scorer("prm?device=cpu"), arith_tokenizer()
    assert scorer.model.tokenizer.get_vocab() != arith.get_vocab()  # type: ignore[attr-defined]
    problem = load_task("arith?size=4", "test").problems[0]
    text = "12 + 3 = 15\n15 * 2 = 30\nanswer: 30"
    ids = (*arith(text, add_special_tokens=False)["input_ids"], arith.eos_token_id)
    rollout = Rollout(Prompt(problem, (1,), ""), 0, ids, (0.0,) * len(ids), "stop", text, 0)
    (found,) = score_steps(scorer, [rollout], arith)
    steps = step_texts(text, scorer.segment(text))
    assert found.scores == scorer.score([StepItem(problem, steps)])[0].scores
    assert arith.decode(ids[: found.ends[0] + 1]) == "12 + 3 = 15\n"
    assert found.ends[-1] == len(ids) - 1
    assert len(set(found.scores)) == 3


def test_a_splitter_that_finds_one_step_is_found_at_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_prm("coarse", "blank_line")
    assert train("--scorer", "coarse", "--out", "c", single="0.5") == 2
    assert "Most of the first completions are one step" in capsys.readouterr().err


def test_the_scores_of_a_training_run_are_there_for_prm_score_and_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train("--out", "d", sets=("reward.outcome=1", "algorithm.steps=2")) == 0
    capsys.readouterr()
    assert command.run(["prm", "score", "d", "--scorer", "prm?device=cpu", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["solutions"], value["fresh"]) == (16, 16)
    run = RunFolder.open(Path("d"))
    samples = {sample.key: sample for sample in run.samples.rows()}
    for at, row in run.samples.scores(value["scorer"]).items():
        assert row.ends[-1] == len(samples[at].ids or ()) - 1


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ("tiny", "holds no prm.json"),
        ("nowhere/at-all", "neither a folder here nor to be had from the hub"),
        ("prm?devise=cpu", "Did you mean 'device'?"),
    ],
)
def test_what_is_no_reward_model_is_refused_before_the_policy_is_loaded(
    scorer: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--scorer", scorer, "--out", "e") == 2
    assert said in capsys.readouterr().err
    assert not Path("e").exists()
