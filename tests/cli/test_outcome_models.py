"""Outcome reward models from ``rm train`` to scores, best of k, and rewards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.prm import load_scorer
from stepmark.store import RunFolder, read_rows
from stepmark.types import Problem, StepItem

torch = pytest.importorskip("torch")

FAKE = Path(__file__).parents[1] / "evals" / "fake_engine.py"
ENGINE = """
from pathlib import Path
from stepmark.registry import load_file

fake = load_file(Path({fake!r}))


def answer(problem, k, seed):
    right = seed % 3
    return f"First, {{seed % 7}} = {{seed % 7}}.\\nThe answer is {{problem.gold if right else 1}}"


class Engine(fake.FakeEngine):
    tokenizer = fake.FakeTokenizer()

    @classmethod
    def load(cls, model, **settings):
        return cls(answer, **settings)
"""
CHECKS = """
import json
from pathlib import Path

def zero(completion):
    return 0.0

def told(completion, problem):
    return json.loads(Path("told.json").read_text()).get(problem + completion, 0.0)
"""
ROWS: list[dict[str, Any]] = [
    {"problem": "1 + 1?", "steps": ["1 + 1 = 2", "answer: 2"]},
    {"problem": "1 + 1?", "completion": "1 + 1 = 2\n\nanswer: 2"},
    {"problem": "2 + 2?", "completion": "so " * 120},
]
SETS = (
    "rollout.group_size=4",
    "rollout.prompts_per_step=2",
    "rollout.max_tokens=12",
    "data.eval_limit=2",
    "algorithm.steps=2",
    "algorithm.learning_rate=1e-2",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy ``tiny``, and ``orm``: a run of ``rm train`` on rows of its own."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    words = {"<pad>": 0, "<s>": 1, "</s>": 2}
    words |= {c: i + 3 for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(BPE(vocab=words, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    of_bytes: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    with no_progress_bars():
        for name, tokenizer, seed in (("tiny", arith_tokenizer(), 0), ("base", of_bytes, 3)):
            tiny_llama(tokenizer, seed=seed, layers=1, width=32).save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
    rows = [
        {"problem": f"{n} + 1?", "steps": ["so", f"answer: {n + right}"], "final_correct": right}
        for n in range(12)
        for right in (True, False)
    ]
    for row in rows:
        row["labels"] = [None, None]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = ("algorithm.steps=2", "algorithm.rows_per_step=4", "encoding.max_tokens=300")
    given = [part for text in (*sets, "model.device=cpu") for part in ("--set", text)]
    words_ = ["--base", str(folder / "base"), "--data", str(data), "--out", str(folder / "orm")]
    assert command.run(["rm", "train", *words_, *given]) == 0
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("tiny", "orm", "base"):
        Path(name).symlink_to(models / name)
    shutil.copy(models / "data.jsonl", "data.jsonl")
    Path("own.py").write_text(ENGINE.format(fake=str(FAKE)))
    Path("checks.py").write_text(CHECKS)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


ORM = "orm/checkpoints/final?device=cpu"


def test_a_file_gets_a_score_per_solution(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["prm", "score", "rows.jsonl", "--scorer", ORM, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["solutions"], value["steps"], value["unscored"]) == (3, 3, 1)
    assert value["aggregation"] == "last"
    one, two, three = read_rows(Path("rows.scored.jsonl"))
    assert one["step_scores"] == [None, one["score"]]
    assert two["step_scores"] == [two["score"]]
    assert one["score"] == two["score"]
    assert 0 < one["score"] < 1
    assert (three["step_scores"], three["score"]) == ([None], None), "longer than max_tokens"
    assert value["mean"] == pytest.approx(one["score"])
    assert command.run(["prm", "score", "rows.jsonl", "--scorer", ORM, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == value | {"fresh": 0}


def test_the_best_of_k_is_chosen_by_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "m", "--task", "arith", "--limit", "6", "--n", "4", "--out", "r"]
    given = [*arguments, "--temperature", "1", "--engine", "own.py:Engine"]
    assert command.run(["eval", "run", *given]) == 0
    assert command.run(["prm", "score", "r", "--scorer", ORM]) == 0
    store = RunFolder.open(Path("r")).samples
    (key,) = store.score_keys()
    assert key.startswith("orm@")
    scorer = load_scorer(ORM)
    for sample in store.rows():
        item = StepItem(sample.to_item().problem, (sample.completion,))
        (alone,) = scorer.score([item])
        assert store.scores(key)[sample.key].scores == pytest.approx(alone.scores, abs=1e-5)
    capsys.readouterr()
    assert command.run(["eval", "table", "r", "--json", "--metrics", "bon@4:orm:last"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][-1]
    best: dict[str, tuple[float, bool]] = {}
    verdicts = store.verdicts("math@2")
    for at, scored in store.scores(key).items():
        rank = scored.scores[0] or 0.0
        best[at.id] = max(best.get(at.id, (0.0, False)), (rank, verdicts[at].correct is True))
    assert row["accuracy"] == pytest.approx(sum(right for _, right in best.values()) / 6)


def train(out: str, *more: str, sets: tuple[str, ...] = ()) -> int:
    given = [part for text in (*SETS, *sets) for part in ("--set", text)]
    base = ("--model", "tiny", "--task", "arith?size=40", "--out", out)
    return command.run(["train", *base, *more, *given])


def weights(folder: str) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(Path(folder, "checkpoints/final/model.safetensors"))


@pytest.mark.parametrize("backend", ["grpo", "ppo"])
def test_its_reward_is_an_outcome_reward(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--backend", backend)
    scored = ("--scorer", ORM, "--verifier", "checks.py:zero")
    assert train("a", *base, *scored, sets=("reward.outcome=0",)) == 0
    said = capsys.readouterr().err
    assert "steps per completion" not in said
    store = RunFolder.open(Path("a")).samples
    (key,) = store.score_keys()
    rows, scores = list(store.rows()), store.scores(key)
    assert len(rows) == 2 * 2 * 4
    for sample in rows:
        assert scores[sample.key].ends == (len(sample.ids or ()) - 1,)
    told = {s.to_item().problem.text + s.completion: scores[s.key].scores[0] for s in rows}
    assert len(set(told.values())) > 4
    Path("told.json").write_text(json.dumps(told))
    assert train("b", *base, "--verifier", "checks.py:told") == 0
    one, two = weights("a"), weights("b")
    start = weights_of_the_policy()
    assert any(not torch.equal(one[name], start[name]) for name in one), "something was learnt"
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


def weights_of_the_policy() -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(Path("tiny/model.safetensors"))


def test_a_run_that_its_model_cannot_score_does_not_begin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = shutil.copytree("orm/checkpoints/final", "short")
    card = Path(copy, "prm.json")
    card.write_text(json.dumps(json.loads(card.read_text()) | {"self_test": []}))
    text = card.read_text().replace('"max_tokens": 300', '"max_tokens": 40')
    card.write_text(text)
    assert train("d", "--scorer", "short?device=cpu", sets=("reward.outcome=0",)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "None of the first 8 completions has a score" in said


def test_beside_a_scorer_of_steps_it_is_refused_with_what_to_do() -> None:
    from stepmark.rl_backends.scoring import combined
    from stepmark.store.samples import ScoredSteps

    one, two = ScoredSteps((1, 3), (1.0, 0.0)), ScoredSteps((3,), (0.5,))
    with pytest.raises(ValueError, match=r"an outcome reward model has one step, the whole"):
        combined({"a@1": (1.0, one), "orm@1": (1.0, two)})


def test_a_run_is_not_resumed_with_another_center(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = ("reward.outcome=0",)
    zero = ("--verifier", "checks.py:zero")
    assert train("c", *zero, "--scorer", ORM, sets=sets) == 0
    capsys.readouterr()
    assert train("c", *zero, "--scorer", f"{ORM}&center=1", "--resume", sets=sets) == 2
    assert "orm" in capsys.readouterr().err


def test_a_score_depends_on_the_texts_alone() -> None:
    scorer = load_scorer(ORM)
    found = scorer.score([StepItem(Problem("p", "1 + 1?", "2"), ("answer: 2",))])
    assert found == scorer.score([StepItem(Problem("q", "1 + 1?", None), ("answer: 2",))])


def solutions() -> str:
    rows = [
        {"problem": f"{n} + 2?", "completion": f"answer: {n + 2 * right}", "final_correct": right}
        for n in range(9)
        for right in (True, False)
    ]
    Path("solutions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "solutions.jsonl"


def test_an_evaluation_tells_what_a_model_is_worth(capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", solutions(), "--data", "data.jsonl")
    assert command.run(["rm", "eval", ORM, "arithmetic", *data, "--json"]) == 0
    own, rule, trained, _ = json.loads(capsys.readouterr().out)["results"]
    assert (own["solutions"], own["problems"], own["right"], own["unscored"]) == (18, 9, 9, 0)
    assert own["scorer"].startswith("orm@")
    assert (own["trained_on"], trained["trained_on"], rule["trained_on"]) == (0, 22, None)
    assert rule["figures"][0]["value"] == 0.5, "there is nothing to calculate in them"
    assert [row["k"] for row in own["best_of"]] == [2]
    assert command.run(["rm", "eval", ORM, "arithmetic", *data]) == 0
    said = capsys.readouterr()
    assert "18 solutions of 9 problems, 9 right" in said.out
    assert "was trained on the problems of 22 of these 24 solutions" in said.err


def test_an_evaluation_is_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("rm", "eval", "arithmetic", "--data", solutions(), "--json")
    assert command.run([*given, "--min-auroc", "0.5"]) == 0
    capsys.readouterr()
    assert command.run([*given, "--min-auroc", "0.6"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["gate"]["missed"] == ["arithmetic on solutions.jsonl"]
    assert "below --min-auroc 0.6" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere/at-all", "--data", "data.jsonl"), "neither a folder here nor"),
        (("orm", "--data", "data.jsonl"), "such as orm/checkpoints/final"),
        ((ORM, "--data", "data.jsonl", "--aggregation", "mn"), "Did you mean 'min'"),
        ((ORM, "--data", "nowhere.jsonl"), "There is no file 'nowhere.jsonl'"),
        ((ORM, "--data", "unknown.jsonl"), "holds no solution of which it is known"),
        ((ORM, "--data", "rows.jsonl"), "line 1"),
        (("arith-steps", "--data", "data.jsonl"), "needs the column 'moves'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"problem": "a", "completion": "b", "final_correct": None}
    Path("unknown.jsonl").write_text(json.dumps(row) + "\n")
    assert command.run(["rm", "eval", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_first_errors_are_not_asked_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"problem": "1 + 1?", "steps": ["1 + 1 = 3", "so 3"], "labels": [0, None]}
    Path("steps.jsonl").write_text(json.dumps(row) + "\n")
    assert command.run(["prm", "eval", ORM, "--data", "steps.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "is an outcome reward model, which scores whole solutions" in said
    assert "stepmark rm eval orm/checkpoints/final --data ROWS.jsonl" in said


def test_a_model_is_trained_on_solutions_without_labels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = ("algorithm.steps=1", "encoding.max_tokens=96", "model.device=cpu")
    given = [part for text in sets for part in ("--set", text)]
    words = ("--base", "base", "--data", solutions(), "--out", "plain")
    assert command.run(["rm", "train", *words, *given, "--json"]) == 0
    card = json.loads(Path("plain/checkpoints/final/prm.json").read_text())
    assert (card["kind"], card["trained_on"][0]["rows"]) == ("outcome", 18)


def test_a_run_of_a_reward_model_has_no_completions(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["prm", "score", "orm", "--scorer", ORM]) == 2
    assert "it holds no completions to score" in capsys.readouterr().err
