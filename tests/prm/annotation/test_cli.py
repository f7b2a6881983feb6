"""``stepmark prm annotate``: runs and rows in, labels out, and how it is stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.prm import convert_file, labelled_steps
from stepmark.store import RunFolder, read_rows
from stepmark.tasks import arith_tokenizer

ENGINE = """
import os
from pathlib import Path
from transformers import AutoTokenizer
from stepmark.seeds import derive_seed
from stepmark.types import Group, Rollout


class Engine:
    # Writes "a + b = c" and the answer; right in two of three cases, by the seed of the completion.

    def __init__(self, tokenizer, die_after=0, lacks=0):
        self.tokenizer, self.die_after, self.lacks = tokenizer, die_after, lacks

    @classmethod
    def load(cls, model, die_after=0, lacks=0):
        return cls(AutoTokenizer.from_pretrained(model), die_after, lacks)

    def generate(self, prompts, n, sampling, seed):
        for prompt in prompts[: len(prompts) - self.lacks]:
            yield Group(prompt, tuple(self.one(prompt, k, seed) for k in range(n)))

    def one(self, prompt, k, seed):
        own = derive_seed(seed, prompt.problem.id, k)
        with Path("asked").open("a") as file:
            file.write(prompt.problem.id + "\\n")
        if self.die_after and len(Path("asked").read_text().splitlines()) > self.die_after:
            os.kill(os.getpid(), 9)
        gold = int(prompt.problem.gold) + (own % 3 == 0)
        text = f"{gold} + 1 = {gold + 1}\\n{gold + 1} - 1 = {gold}\\nanswer: {gold}"
        ids = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return Rollout(prompt, k, ids, (-0.5,) * len(ids), "stop", text, own)

    def close(self):
        pass
"""
ROWS = [
    {"id": "a", "problem": "Zoe has 1 coin.", "gold": "2", "steps": ["1 + 1 = 2", "answer: 2"]},
    {"id": "b", "problem": "Zoe has 2 coins.", "gold": "4", "completion": "2 + 2 = 5\nanswer: 5"},
    {"id": "c", "problem": "Zoe has 3.", "gold": "6", "steps": ["3 + 3 = 6"] * 4 + ["answer: 7"]},
]


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    arith_tokenizer().save_pretrained("m")
    Path("own.py").write_text(ENGINE)
    write("rows.jsonl", ROWS)


def write(name: str, rows: Sequence[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def annotate(*given: str, engine: str = "own.py:Engine", place: str = "rows.jsonl") -> int:
    flags = ["--model", "m", "--engine", engine, *given]
    return command.run(["prm", "annotate", place, *flags])


def evaluate() -> None:
    flags = ["--model", "m", "--task", "arith", "--limit", "6", "--n", "3", "--out", "run"]
    given = ["eval", "run", *flags, "--temperature", "1", "--engine", "own.py:Engine"]
    assert command.run(given) == 0


def asked() -> int:
    return len(Path("asked").read_text().splitlines()) if Path("asked").exists() else 0


def test_a_run_is_annotated_and_its_roll_outs_can_be_looked_at_and_marked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate()
    capsys.readouterr()
    assert annotate("--out", "labels", "--json", place="run") == 0
    value = json.loads(capsys.readouterr().out)
    counts = value["counts"]
    assert (counts["solutions"], value["shepherd"], value["unsaid"]) == (18, 18, 0)
    rows = list(labelled_steps("labels/rows.jsonl"))
    judged = RunFolder.open(Path("run")).samples.verdicts("math@2")
    for row in rows:
        step, _, rest = row.meta["key"].partition("/")
        id, _, k = rest.rpartition("/")
        assert row.labels[-1] == judged[int(step), id, int(k)].score  # type: ignore[index]
        assert len(row.steps) == 3
        assert row.problem.gold is not None
    assert counts["ratio"] > 1
    store = RunFolder.open(Path("labels")).samples
    samples = list(store.rows())
    assert len(samples) == counts["spent"]["rollouts"] == len(store.verdicts("math@2"))
    assert {sample.completion.splitlines()[-1][:7] for sample in samples} == {"answer:"}
    assert command.run(["eval", "regrade", "labels", "--out", "again"]) == 0


def test_the_published_layout_is_read_back_with_the_same_labels() -> None:
    assert annotate("--out", "labels", "--labels", "soft") == 0
    found = convert_file("labels/math-shepherd.jsonl", "back.jsonl")
    assert (found.format, found.rows) == ("math-shepherd", 3)
    for one, back in zip(
        labelled_steps("labels/rows.jsonl"), labelled_steps("back.jsonl"), strict=True
    ):
        assert (back.labels, back.kind) == (one.labels, "soft")
        assert back.problem.text == one.problem.text
        assert [step.partition(": ")[2] for step in back.steps] == list(one.steps)


@pytest.mark.parametrize("method", ["mc", "binary"])
def test_killed_and_resumed_ends_with_the_bytes_of_a_straight_run(method: str) -> None:
    evaluate()
    Path("asked").unlink()
    flags = ["--method", method, "--set", "at_once=3"]
    assert annotate("--out", "straight", *flags, place="run") == 0
    total = asked()
    Path("asked").unlink()
    words = ["prm", "annotate", "run", "--model", "m", "--out", "killed", *flags]
    words += ["--engine", f"own.py:Engine?die_after={total // 2}"]
    code = "import sys; from stepmark.cli.app import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, check=False, env=os.environ
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with Path("killed/rows.jsonl").open("a") as file:
        file.write('{"torn')
    assert annotate("--out", "killed", *flags, place="run") == 2
    assert annotate("--out", "killed", "--resume", *flags, place="run") == 0
    for name in ("rows.jsonl", "math-shepherd.jsonl"):
        assert Path("killed", name).read_bytes() == Path("straight", name).read_bytes()
    drawn = asked()
    assert annotate("--out", "killed", "--resume", *flags, place="run") == 0
    assert asked() == drawn


def test_a_dry_run_says_what_it_takes_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert annotate("--dry-run", "--json", "--n", "4", "--max-tokens", "10") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["solutions"], value["steps"]) == (3, 9)
    most = value["at_most"]
    assert (most["rollouts"], most["generated"]) == (6 * 4, 6 * 4 * 10)
    assert not Path("labels").exists()
    assert asked() == 0
    assert annotate("--out", "labels", "--n", "4", "--max-tokens", "10", "--json") == 0
    spent = json.loads(capsys.readouterr().out)["counts"]["spent"]
    assert all(spent[name] <= most[name] for name in most)


def test_rows_that_cannot_be_annotated_are_counted_and_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = [{"problem": "1?", "steps": ["1"]}, {"problem": "1?", "gold": "1", "steps": [" "]}]
    write("rows.jsonl", [*ROWS, *bad])
    assert annotate("--out", "labels", "--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["rejects"] == {"no_gold": 1, "no_steps": 1}
    assert "line 4: no_gold" in said.err


def test_what_a_budget_leaves_out_is_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-tokens", "10", "--n", "2", "--set", "budget=25"]
    assert annotate("--out", "labels", *flags, "--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["counts"]["left_out"] == {"budget": 2}
    assert [row["reason"] for row in read_rows(Path("labels/left_out.jsonl"))] == ["budget"] * 2
    assert "2 solutions were left out: budget" in said.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--method", "tree"], "method is 'tree'; it is one of: mc, binary"),
        (["--method", "binary", "--labels", "soft"], "Set labels to 'hard', or method to 'mc'"),
        (["--temperature", "0"], "n is 8 at temperature 0"),
        (["--set", "rolouts=2"], "there is no such setting"),
        (["--set", "threshhold=0.5"], "Did you mean 'threshold'?"),
        (["--n", "0"], "n is 0; it must be 1 or more"),
        (["--set", "splitter=words"], "no step splitter named 'words'"),
        (["--prompt", "plane"], "no prompt named 'plane'. Did you mean 'plain'?"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert annotate("--out", "labels", *given) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("labels").exists()


def test_other_settings_are_refused_on_resume_and_missing_roll_outs_keep_what_came(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert annotate("--out", "labels", engine="own.py:Engine?lacks=1") == 2
    assert "It must give one for every prompt" in " ".join(capsys.readouterr().err.split())
    drawn = asked()
    assert annotate("--out", "labels", "--resume", "--n", "4") == 2
    assert "annotation.rollouts was 8 and is now 4" in " ".join(capsys.readouterr().err.split())
    assert annotate("--out", "labels", "--resume") == 0
    names = Path("asked").read_text().split()
    assert len(names) == len(set(names)) > drawn


def test_the_ids_of_another_tokenizer_are_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate()
    store = Path("run/samples/samples-00000.jsonl")
    rows = [json.loads(line) for line in store.read_text().splitlines()]
    write(str(store), [row | {"ids": row["ids"][::-1]} for row in rows])
    assert annotate("--out", "labels", place="run") == 2
    assert "Annotate with a model of the same tokenizer" in " ".join(
        capsys.readouterr().err.split()
    )
