"""An outcome reward model that has learnt: from ``rm train`` to the best of k of a run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command

torch = pytest.importorskip("torch")

FAKE = Path(__file__).parents[1] / "evals" / "fake_engine.py"
ENGINE = """
from pathlib import Path
from stepmark.registry import load_file

fake = load_file(Path({fake!r}))


def answer(problem, k, seed):
    if seed % 2:
        return f"I counted {{seed % 7}} times.\\nSurely the answer is {{problem.gold}}"
    return f"I counted {{seed % 7}} times.\\nPerhaps the answer is 1"


class Engine(fake.FakeEngine):
    tokenizer = fake.FakeTokenizer()

    @classmethod
    def load(cls, model, **settings):
        return cls(answer, **settings)
"""


def base(folder: str) -> None:
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    from stepmark.tasks import tiny_llama

    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words |= {c: i + 3 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tiny_llama(tokenizer, seed=3, layers=1, width=32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def rows(count: int, start: int) -> list[dict[str, Any]]:
    """Right solutions say *surely*, wrong ones *perhaps*."""
    draw = random.Random(start)
    return [
        {
            "problem": f"How many are {n} and {n % 9}?",
            "completion": f"I counted {draw.randrange(7)} times.\n"
            f"{'Surely' if right else 'Perhaps'} the answer is {draw.randrange(20)}",
            "final_correct": right,
        }
        for n in range(start, start + count)
        for right in (True, False) * 2
    ]


def put(name: str, values: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(value) + "\n" for value in values))
    return name


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["pointwise", "pairwise"])
def test_a_model_that_has_learnt_chooses_right_solutions(
    objective: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    base("base")
    Path("own.py").write_text(ENGINE.format(fake=str(FAKE)))
    words = ["--base", "base", "--data", put("train.jsonl", rows(120, 0)), "--out", "orm"]
    sets = (
        "encoding.max_tokens=320", "algorithm.tokens_per_microbatch=2048", "algorithm.steps=60",
        "algorithm.rows_per_step=16", "algorithm.learning_rate=3e-3", "algorithm.eval_every=30",
        "model.device=cpu",
    )  # fmt: skip
    given = [part for text in sets for part in ("--set", text)]
    assert command.run(["rm", "train", *words, "--objective", objective, *given]) == 0
    orm = "orm/checkpoints/final?device=cpu"
    capsys.readouterr()
    held_out = put("held_out.jsonl", rows(40, 1000))
    assert command.run(["rm", "eval", orm, "--data", held_out, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    values = {one["name"]: one["value"] for one in found["figures"]}
    assert values["auroc"] > 0.95
    assert values["pair_accuracy"] > 0.95
    assert (found["trained_on"], found["unscored"]) == (0, 0)
    four = found["best_of"][-1]
    assert four["mean"] == 0.5
    assert four["best"]["value"] > 0.95

    arguments = ["--model", "m", "--task", "arith", "--limit", "20", "--n", "4", "--out", "r"]
    run = ["eval", "run", *arguments, "--temperature", "1", "--engine", "own.py:Engine"]
    assert command.run(run) == 0
    assert command.run(["prm", "score", "r", "--scorer", orm]) == 0
    capsys.readouterr()
    metrics = "mean@4,pass@4,bon@4:orm:last"
    assert command.run(["eval", "table", "r", "--json", "--metrics", metrics]) == 0
    found = json.loads(capsys.readouterr().out)["rows"][-3:]
    mean, bound, best = (row["accuracy"] for row in found)
    assert mean < 0.7
    assert best > mean + 0.2
    assert best > bound - 0.05
