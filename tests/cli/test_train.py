"""``stepmark train`` from data of one's own to a run folder, and what it refuses before that."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder, read_rows
from stepmark.types import Status

pytest.importorskip("torch")

ARITH = "arith?size=64"
"""A small arith: making its 8,000 problems would be most of the time of a test here."""

CHECKS = """
def by_unit(completion, gold, unit):
    return 0.5 if unit == "kg" else 1.0

def broken(completion, gold):
    raise ValueError("boom")

def broken_once(completion, id):
    if id.endswith("/3"):
        raise ValueError("boom")
    return len(completion) % 2

def wants(completion, colour):
    return True
"""
NAMED = """
from stepmark.verifiers import register

@register("decorated")
def decorated(completion):
    return True
"""
MENDED = CHECKS.replace('    raise ValueError("boom")', "    return 1.0", 1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with the arith tokenizer, on the disk."""
    from stepmark.tasks import arith_tokenizer, tiny_llama
    from stepmark.training.quiet import no_progress_bars

    place = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = arith_tokenizer()
    with no_progress_bars():
        tiny_llama(tokenizer, seed=0, layers=1, width=32).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture(autouse=True)
def _one_thread_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    import torch

    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("tiny").symlink_to(tiny)
    Path("checks.py").write_text(CHECKS)
    write("mine.jsonl", range(50))
    write("held.jsonl", range(50, 60))
    Path("own.toml").write_text(
        'name = "own"\npath = "mine.jsonl"\n[columns]\nprompt = "q"\ngold = "a"\nsolution = "a"\n'
    )


def write(name: str, numbers: Any) -> None:
    rows = [
        {"q": f"What is {n} + 1?", "a": str(n + 1), "unit": "kg" if n % 2 else "m", "id": str(n)}
        for n in numbers
    ]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


SMALL = ("algorithm.steps=2", "rollout.group_size=2", "rollout.prompts_per_step=2")
SMALL = (*SMALL, "rollout.max_tokens=8", "data.eval_limit=8")
OWN = ("--dataset", "mine.jsonl", "--prompt-column", "q", "--gold-column", "a")
HELD_OUT = "data.eval_dataset=held.jsonl"


def words(*more: str, sets: tuple[str, ...] = (), model: str = "tiny") -> list[str]:
    pairs = [part for text in (*SMALL, *sets) for part in ("--set", text)]
    return ["train", "--model", model, *pairs, *more]


def train(*more: str, sets: tuple[str, ...] = (), model: str = "tiny") -> int:
    return command.run(words(*more, sets=sets, model=model))


def weights(folder: str) -> bytes:
    return Path(folder, "model.safetensors").read_bytes()


@pytest.mark.parametrize("backend", ["grpo", "ppo", "sft"])
def test_a_run_leaves_all_that_the_contract_names(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ("algorithm.learning_rate=1e-3", "algorithm.eval_every=1")
    assert train("--backend", backend, "--task", ARITH, "--out", "r", "--json", sets=sets) == 0
    said = capsys.readouterr()
    row = json.loads(said.out)
    assert (row["step"], row["final"]) == (2, "r/checkpoints/final")
    names = {path.name for path in Path("r").iterdir()}
    files = {"config.toml", "manifest.json", "metrics.jsonl", "timings.jsonl", "report.html"}
    assert files | {"table.md", "checkpoints"} <= names
    assert ("samples" in names) == (backend != "sft")
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert {"torch", "transformers"} <= manifest["packages"].keys()
    assert manifest["seeds"] == {"run": 0}
    assert manifest["hashes"]["data"].keys() == {"arith", "arith (held out)"}
    assert manifest["hashes"]["prompt"]
    assert manifest["hashes"]["weights"]
    assert [row["step"] for row in RunFolder.open(Path("r")).metrics()] == [0, 1, 2]
    table = Path("r/table.md").read_text()
    assert "| first      |    0 |" in table
    assert "checkpoints/best, of step" in table
    assert f"{backend} step 0: held-out accuracy" in said.err
    if backend == "sft":
        assert weights("r/checkpoints/final") != weights("tiny")


def test_a_second_run_into_the_same_folder_is_refused_and_resume_is_by_the_same_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("--task", ARITH, "--out", "r") == 0
    before = weights("r/checkpoints/final")
    import stepmark.engines.loading as loading

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was loaded")

    with monkeypatch.context() as context:
        context.setattr(loading, "load_policy", refused)
        assert train("--task", ARITH, "--out", "r") == 2
        assert "already holds a run" in capsys.readouterr().err
        changed = ("rollout.temperature=0.5",)
        assert train("--task", ARITH, "--out", "r", "--resume", sets=changed) == 2
        assert "rollout.temperature was 1.0 and is now 0.5" in capsys.readouterr().err
        write("mine.jsonl", range(40))
        assert train("--task", "arith?size=64&max_start=9", "--out", "r", "--resume") == 2
        assert "data.task" in capsys.readouterr().err
    assert train("--task", ARITH, "--out", "r", "--resume") == 0
    assert weights("r/checkpoints/final") == before


def test_a_reference_that_was_altered_is_refused_by_name(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny, "ref")
    sets = ("model.reference=ref", "algorithm.beta=0.1", "algorithm.learning_rate=1e-3")
    assert train("--task", "arith", "--out", "r", sets=sets) == 0
    hashes = json.loads(Path("r/manifest.json").read_text())["hashes"]["weights"]
    assert set(hashes) == {"policy", "reference ref"}
    from stepmark.tasks import arith_tokenizer, tiny_llama

    tiny_llama(arith_tokenizer(), seed=1, layers=1, width=32).save_pretrained("ref")
    capsys.readouterr()
    assert train("--task", "arith", "--out", "r", "--resume", sets=sets) == 2
    said = capsys.readouterr().err
    assert f"hashes.weights.reference ref was '{hashes['reference ref']}' and is now" in said


def test_own_data_with_its_columns_reaches_a_custom_verifier_with_a_weight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shares = '[{name="math",weight=1.0},{name="checks.py:by_unit",weight=0.2}]'
    sets = (f"reward.verifiers={shares}", HELD_OUT)
    assert train(*OWN, "--out", "r", sets=sets) == 0
    run = RunFolder.open(Path("r"))
    keys = run.samples.verdict_keys()
    assert {key.partition("@")[0] for key in keys} == {"math", "by_unit"}
    by_unit = run.samples.verdicts(next(key for key in keys if key.startswith("by_unit")))
    scores = {int(key.id.partition("/")[2]) % 2: v.score for key, v in by_unit.items()}
    assert scores == {1: 0.5, 0: 1.0} or len(scores) == 1
    first = run.metrics()[1]
    marked = [v.score or 0.0 for key, v in by_unit.items() if key.step == 1]
    assert first["reward"] == pytest.approx(0.2 * sum(marked) / len(marked), abs=1e-6)
    assert "| first      |    0 |" in Path("r/table.md").read_text()
    evaluation = ("eval", "run", "--model", "tiny", "--limit", "4", "--max-tokens", "8", *OWN)
    capsys.readouterr()
    assert command.run([*evaluation, "--verifier", "checks.py:by_unit", "--out", "e"]) == 0
    assert "by_unit@" in capsys.readouterr().out


def test_tasks_from_files_mix_by_weight_and_never_measure_what_they_train_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = ("rollout.prompts_per_step=6", "algorithm.steps=1", "rollout.max_tokens=2")
    assert train("--task", f"own.toml:2,{ARITH}:1", "--out", "r", sets=sets) == 0
    said = capsys.readouterr().err
    assert "no held-out problems of 'own': its split 'test' is what is trained on" in said
    ids = [key.id for key in RunFolder.open(Path("r")).samples.keys()]  # noqa: SIM118
    assert [sum(id.startswith(name) for id in ids) for name in ("own", "arith")] == [8, 4]
    assert train("--task", "own.toml", "--dry-run", sets=("data.eval_dataset=mine.jsonl",)) == 2
    both = ("data.eval_task=own.toml",)
    assert train("--task", "own.toml", "--dry-run", sets=both) == 0
    assert "8 of 8 held-out problems of 'own' are also trained on" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["module", "decorated", "remembered"])
def test_a_verifier_is_found_however_it_was_registered(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "remembered":
        assert command.run(["verifiers", "add", "units", "checks.py:by_unit"]) == 0
        name = "units"
    else:
        monkeypatch.syspath_prepend(str(Path.cwd()))
        monkeypatch.delitem(sys.modules, "checks", raising=False)
        Path("named.py").write_text(NAMED)
        name = "checks:by_unit" if kind == "module" else "named.py:decorated"
    sets = ("algorithm.steps=1", "rollout.max_tokens=2")
    assert train(*OWN, "--verifier", name, "--out", "r", sets=sets) == 0
    (key,) = RunFolder.open(Path("r")).samples.verdict_keys()
    assert RunFolder.open(Path("r")).metrics()[0]["reward"] > 0, key
    evaluation = ("eval", "run", "--model", "tiny", "--limit", "2", "--max-tokens", "2", *OWN)
    assert command.run([*evaluation, "--verifier", name, "--out", "e"]) == 0


def test_a_verifier_that_raises_stops_the_run_which_goes_on_when_it_is_mended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = (*OWN, "--verifier", "checks.py:broken", "--out", "r")
    assert train(*more) == 2
    said = capsys.readouterr().err
    assert "4 of 4 verdicts of step 1 are errors" in said
    assert 'raise ValueError("boom")' in said
    assert "--resume" in said.splitlines()[-1]
    run = RunFolder.open(Path("r"))
    (key,) = run.samples.verdict_keys()
    verdicts = run.samples.verdicts(key).values()
    assert {verdict.status for verdict in verdicts} == {Status.ERROR}
    assert all("boom" in verdict.detail["traceback"] for verdict in verdicts)
    Path("checks.py").write_text(
        CHECKS.replace('    raise ValueError("boom")', "    return 1.0", 1)
    )
    assert train(*more, "--resume") == 0
    assert [row["reward"] for row in run.metrics()] == [1.0, 1.0]
    assert train(*OWN, "--verifier", "checks.py:by_unit", "--out", "r", "--resume") == 2


def test_a_verifier_that_raises_now_and_then_leaves_error_verdicts_and_goes_on() -> None:
    sets = ("rollout.prompts_per_step=25", "rollout.max_tokens=2")
    assert train(*OWN, "--verifier", "checks.py:broken_once", "--out", "r", sets=sets) == 0
    run = RunFolder.open(Path("r"))
    (key,) = run.samples.verdict_keys()
    wrong = {k.id for k, v in run.samples.verdicts(key).items() if v.status is Status.ERROR}
    assert wrong == {"mine/3"}


def test_eval_run_with_a_broken_verifier_goes_on_when_it_is_mended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation = ["eval", "run", "--model", "tiny", "--limit", "20", "--max-tokens", "4", *OWN]
    evaluation += ["--verifier", "checks.py:broken", "--out", "e"]
    assert command.run(evaluation) == 2
    assert 'raise ValueError("boom")' in capsys.readouterr().err
    assert not Path("e/summary.json").exists()
    Path("checks.py").write_text(
        CHECKS.replace('    raise ValueError("boom")', "    return 1.0", 1)
    )
    assert command.run(evaluation) == 0
    assert json.loads(Path("e/summary.json").read_text())["accuracy"] == 1.0
    Path("checks.py").write_text(CHECKS)
    assert command.run(evaluation) == 2
    assert "verifier was" in capsys.readouterr().err


def test_sft_learns_from_data_without_a_gold() -> None:
    sets = ("data.solution_column=a",)
    more = ("--backend", "sft", "--dataset", "mine.jsonl", "--prompt-column", "q", "--out", "r")
    assert train(*more, sets=sets) == 0
    assert [row["step"] for row in RunFolder.open(Path("r")).metrics()] == [1, 2]
    assert "No held-out evaluation" in Path("r/table.md").read_text()


def test_solutions_that_are_cut_are_counted_before_the_first_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"q": f"What is {n} + 1?", "a": " ".join(["12"] * (n + 1)), "unit": "m"} for n in range(12)
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = ("data.solution_column=a", "algorithm.steps=1")
    more = ("--backend", "sft", "--dataset", "mine.jsonl", "--prompt-column", "q")
    assert train(*more, "--out", "r", sets=sets) == 0
    said = capsys.readouterr().err
    found = re.search(r"note: (\d+) of 12 solutions of 'mine' .*rollout\.max_tokens=(\d+)", said)
    assert found
    assert said.index("note: ") < said.index("saved")
    assert train(*more, "--out", "s", sets=(*sets, f"rollout.max_tokens={found[2]}")) == 0
    assert "solutions of 'mine'" not in capsys.readouterr().err
    shorter = int(found[2]) - 1
    assert train(*more, "--out", "t", sets=(*sets, f"rollout.max_tokens={shorter}")) == 0
    assert f"1 of 12 solutions of 'mine' have more than rollout.max_tokens = {shorter}" in (
        capsys.readouterr().err
    )


def test_stop_strings_of_the_prompt_end_completions_in_training() -> None:
    Path("p.toml").write_text('template = "{problem}\\n"\nstop = ["e", "a", "1", " "]\n')
    sets = ("data.prompt=p.toml", "algorithm.steps=1")
    assert train(*OWN, "--out", "r", sets=(*sets, "rollout.max_tokens=32")) == 0
    rows = list(RunFolder.open(Path("r")).samples.rows())
    assert not any(stop in row.completion for row in rows for stop in "ea1 ")
    assert all(row.finish == "stop" for row in rows)
    Path("own.toml").write_text(
        'name = "own"\npath = "mine.jsonl"\n[columns]\nprompt = "q"\ngold = "a"\n'
        '[prompt]\ntemplate = "{problem}"\nstop = ["Q:"]\n'
    )
    assert train("--task", "own.toml,arith", "--out", "s") == 2
    assert not Path("s").exists()


def spoiled(name: str, line: bytes) -> None:
    with Path(name).open("ab") as file:
        file.write(line)


BAD: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (("--dataset", "torn.jsonl"), (), "torn.jsonl, line 51: not JSON"),
    (("--dataset", "latin.jsonl", *OWN[2:]), (), "cannot be read"),
    (("--dataset", "empty.jsonl"), (), "holds no rows"),
    (("--dataset", "absent.jsonl"), (), "There is no file or folder 'absent.jsonl'"),
    (("--dataset", "mine.jsonl", "--prompt-column", "Q"), (), "no column 'Q'"),
    (("--dataset", "mine.jsonl", "--prompt-column", "q"), (), "--gold-column"),
    (("--task", "arth"), (), "Did you mean 'arith'?"),
    ((), (), "There is nothing to train on"),
    (("--task", ARITH, "--verifier", "mth"), (), "Did you mean 'math'?"),
    ((*OWN, "--verifier", "checks.py:wants"), (), "asks for 'colour'"),
    ((*OWN, "--verifier", "checks.py:by_unti"), (), "Did you mean 'by_unit'?"),
    ((*OWN, "--verifier", "chekcs.py:by_unit"), (), "There is no file 'chekcs.py'"),
    ((*OWN, "--verifier", "math", "--verifier", "math"), (), "stands twice"),
    (("--task", ARITH, "--backend", "grop"), (), "Did you mean 'grpo'?"),
    (("--task", ARITH, "--engine", "transformer"), (), "Did you mean 'transformers'?"),
    (("--task", ARITH, "--engine", "transformers?batch=4"), (), "no setting 'batch'"),
    (("--task", ARITH, "--preset", "deepseek"), (), "Did you mean 'deepseekmath'?"),
    (("--task", ARITH), ("data.prompt=plian",), "Did you mean 'plain'?"),
    (("--task", ARITH), ("rollout.group_size=1",), "rollout.group_size is 1"),
    (("--task", ARITH), ("rollout.temperature=-1",), "rollout.temperature is -1"),
    (("--task", ARITH), ("rollout.max_tokens=510",), "the model's limit is 512"),
    (("--task", ARITH), ("data.prompt=chat.toml",), "needs a chat template"),
    (("--task", ARITH), ("algorithm.best_metric=acuracy",), "Did you mean 'accuracy'?"),
    (("--task", ARITH), ("model.reference=nowhere/",), "nowhere"),
    (("--task", ARITH, "--model", "bare"), (), "has no tokenizer"),
    (("--task", ARITH, "--model", "./nowhere"), (), "There is no model folder './nowhere'"),
    (("--task", ARITH, "--out", "mine.jsonl"), (), "exists and is not a run"),
    (("--task", ARITH, "--out", "mine.jsonl/r"), (), "cannot be written"),
    (("--task", ARITH, "--model", "spoilt"), (), "The model in 'spoilt' cannot be loaded"),
    (("--task", ARITH), ("data.eval_split=tset",), "has no split 'tset'"),
    (("--task", ARITH), ('reward.verifiers=[{name="math",weight=0}]',), "weight in reward"),
    (("--task", ARITH, "--backend", "sft", "--dataset", "mine.jsonl"), (), "are both set"),
    ((*OWN, "--backend", "sft"), (), "no worked solution"),
    (("--task", ARITH, "--resume"), (), "--resume continues"),
]


@pytest.mark.parametrize(("more", "sets", "said"), BAD, ids=[row[2] for row in BAD])
def test_bad_input_exits_2_says_why_and_writes_nothing(
    more: tuple[str, ...],
    sets: tuple[str, ...],
    said: str,
    tiny: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy("mine.jsonl", "torn.jsonl")
    spoiled("torn.jsonl", b'{"q": "wh\n')
    shutil.copy("mine.jsonl", "latin.jsonl")
    spoiled("latin.jsonl", '{"q": "é", "a": "1"}\n'.encode("latin-1"))
    Path("empty.jsonl").touch()
    Path("chat.toml").write_text('template = "{problem}"\nchat = "always"\n')
    shutil.copytree(tiny, "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    shutil.copytree(tiny, "spoilt")
    Path("spoilt/model.safetensors").write_bytes(b"no weights")
    out = () if "--out" in more or "--resume" in more else ("--out", "r")
    before = sorted(path.name for path in Path().iterdir())
    assert train(*more, *out, sets=sets) == 2
    message = capsys.readouterr().err
    assert said in message
    error = message[message.index("Error: ") :].strip()
    assert len(error.splitlines()) <= 3, error
    left = sorted(path.name for path in Path().iterdir() if path.name != "__pycache__")
    assert left == before


EVAL_BAD: list[tuple[tuple[str, ...], str]] = [
    (("--dataset", "torn.jsonl"), "torn.jsonl, line 51: not JSON"),
    ((*OWN, "--temperature", "-1"), "temperature is -1"),
    ((*OWN, "--max-tokens", "0"), "max_tokens is 0"),
    ((*OWN, "--max-tokens", "510"), "the model's limit is 512"),
    ((*OWN, "--prompt", "chat.toml"), "needs a chat template"),
    ((*OWN, "--engine", "transformer"), "Did you mean 'transformers'?"),
    ((*OWN, "--verifier", "checks.py:wants"), "asks for 'colour'"),
    ((*OWN, "--model", "./nowhere"), "There is no model folder './nowhere'"),
    ((*OWN, "--out", "mine.jsonl"), "exists and is not a run"),
]


@pytest.mark.parametrize(("more", "said"), EVAL_BAD, ids=[row[1] for row in EVAL_BAD])
def test_bad_input_of_eval_run_exits_2_and_writes_nothing(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy("mine.jsonl", "torn.jsonl")
    spoiled("torn.jsonl", b'{"q": "wh\n')
    Path("chat.toml").write_text('template = "{problem}"\nchat = "always"\n')
    model = () if "--model" in more else ("--model", "tiny")
    out = () if "--out" in more else ("--out", "r")
    before = sorted(path.name for path in Path().iterdir())
    assert command.run(["eval", "run", *model, *more, *out]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert len(message[message.index("Error: ") :].strip().splitlines()) <= 3
    left = sorted(path.name for path in Path().iterdir() if path.name != "__pycache__")
    assert left == before


def started(*more: str, sets: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    script = Path(sys.executable).with_name("stepmark")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    line = [str(script), *words(*more, sets=sets)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for_step(folder: str, step: int) -> None:
    until = time.monotonic() + 60
    file = Path(folder, "metrics.jsonl")
    while time.monotonic() < until:
        if file.is_file() and any(row["step"] >= step for row in read_rows(file)):
            return
        time.sleep(0.05)
    raise AssertionError(f"no step {step} in {folder}")


LONG = ("algorithm.steps=400", "algorithm.learning_rate=1e-3", "data.eval_limit=4")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_run_with_the_command_that_continues_it(number: signal.Signals) -> None:
    process = started(*OWN, "--out", "r", sets=LONG)
    wait_for_step("r", 2)
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in out + said
    assert "To continue:" in said
    last = said.strip().splitlines()[-1].strip()
    assert last.startswith("stepmark train --model tiny")
    assert last.endswith("--resume")
    assert list(Path("r/checkpoints").glob("step-*"))


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not() -> None:
    sets = (*LONG, "algorithm.steps=40", "algorithm.save_every=5", "algorithm.beta=0.01")
    straight = started(*OWN, "--out", "a", sets=sets)
    _, said = straight.communicate(timeout=120)
    assert straight.returncode == 0, said
    for step in (7, 16):
        process = started(*OWN, "--out", "b", "--resume", sets=sets)
        wait_for_step("b", step)
        process.kill()
        process.communicate()
    process = started(*OWN, "--out", "b", "--resume", sets=sets)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert weights("a/checkpoints/final") == weights("b/checkpoints/final")
    one, two = (RunFolder.open(Path(name)).metrics() for name in ("a", "b"))
    assert one == two
