"""Plain functions as verifiers: by name, in all four registrations, faults as verdicts."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import ConfigError, UnknownNameError
from stepmark.types import Item, Problem, Reason, Status, Verdict
from stepmark.verifiers import (
    MathVerifier,
    check_columns,
    close_workers,
    from_function,
    load_verifier,
    register,
    registry,
    remember,
    verify,
)

SOURCE = textwrap.dedent(
    """
    import os, time
    from stepmark.types import Verdict

    def units(completion, gold, unit="cm"):
        return completion.endswith(f"{gold} {unit}")

    def needs_level(completion, level):
        return level > 2

    def raising(completion, gold):
        raise KeyError("no such thing")

    def sleeping(completion, gold):
        time.sleep(60 if completion == "slow" else 0)
        return True

    def dying(completion, gold):
        if completion == "die":
            os._exit(9)
        return 1

    def exiting(completion):
        raise SystemExit(3)

    def heavy(completion):
        return Verdict.marked(1, "judged", made=lambda: 1)

    def printing(completion):
        print("NOISE")
        return True

    def where(completion):
        return Verdict.marked(1, "judged", pid=os.getpid())

    class Whole:
        key = "whole@1"
        columns = frozenset()
        def __init__(self, score=1.0):
            self.score = score
        def __call__(self, items):
            return [Verdict.marked(self.score, "judged") for _ in items]

    def factory(score=0.5):
        return Whole(score)
    """
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "checks.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return "checks.py"


def item(completion: str, gold: str | None = "3", **meta: Any) -> Item:
    return Item(Problem("1", "How long?", gold, "work", "t", meta), completion, "PROMPT How long?")


def always(completion: str, gold: str) -> bool:
    return completion == gold


def test_parameters_are_filled_by_name() -> None:
    seen: dict[str, Any] = {}

    def note(completion, gold, prompt, problem, meta, level, unit="m", *, task):  # type: ignore[no-untyped-def]
        seen.update(locals())
        return 1

    mark = from_function(note)
    assert mark.columns == {"level"}
    assert mark([item("3 m", level=4, other=1)])[0].correct
    del seen["seen"]
    assert seen == {
        "completion": "3 m",
        "gold": "3",
        "prompt": "PROMPT How long?",
        "problem": "How long?",
        "meta": {"level": 4, "other": 1},
        "level": 4,
        "unit": "m",
        "task": "t",
    }


def test_keyword_arguments_get_everything() -> None:
    seen: dict[str, Any] = {}

    def note(**everything: Any) -> None:
        seen.update(everything)

    assert from_function(note)([item("3", level=4)])[0].reason is Reason.DECLINED
    assert {"completion", "gold", "prompt", "problem", "meta", "level"} <= seen.keys()


@pytest.mark.parametrize(
    ("value", "score", "status"),
    [
        (True, 1, Status.OK),
        (False, 0, Status.OK),
        (0.25, 0.25, Status.OK),
        (None, None, Status.ABSTAIN),
        (Verdict.marked(0.5, "half"), 0.5, Status.OK),
        (1.5, None, Status.ERROR),
        (float("nan"), None, Status.ERROR),
        ("yes", None, Status.ERROR),
    ],
)
def test_what_comes_back_becomes_a_verdict(
    value: object, score: float | None, status: Status
) -> None:
    verdict = from_function(lambda completion: value)([item("3")])[0]
    assert (verdict.score, verdict.status) == (score, status)
    if status is Status.ERROR:
        assert repr(value) in verdict.detail["traceback"]


def test_a_raise_is_an_error_verdict_with_its_traceback(file: str) -> None:
    verdict = load_verifier(f"{file}:raising")([item("3")])[0]
    assert (verdict.status, verdict.score, verdict.gold) == (Status.ERROR, None, "3")
    assert "KeyError: 'no such thing'" in verdict.detail["traceback"]


@pytest.mark.parametrize(("name", "said"), [("exiting", "SystemExit"), ("heavy", "cannot leave")])
def test_an_exit_and_a_verdict_that_cannot_travel_are_errors_of_their_row(
    file: str, name: str, said: str
) -> None:
    verdict = load_verifier(f"{file}:{name}")([item("3")])[0]
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.VERIFIER_RAISED)
    assert said in verdict.detail["traceback"]


def test_what_a_function_prints_stays_out_of_standard_output(file: str) -> None:
    code = "from stepmark.verifiers import verify\n" + (
        f"print(verify('3', gold='3', verifier={file + ':printing'!r}).score)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr.split()) == (["1.0"], ["NOISE"])


def test_a_module_that_verifies_while_it_is_imported_starts_no_workers_in_workers(
    tmp_path: Path,
) -> None:
    (tmp_path / "eager.py").write_text(
        "from stepmark.verifiers import verify\n"
        "def loud(completion): return completion.isupper()\n"
        "print(verify('A', gold=None, verifier=loud).score)\n"
        "print(verify(r'\\boxed{\\sin^2 x+\\cos^2 x}', gold='1').score)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import eager"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["1.0", "1.0"]
    assert done.stderr.split() == ["1.0", "1.0"], "once in the worker, printed to stderr there"


def test_a_package_in_the_current_folder_is_found_and_may_import_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "local_checks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "same.py").write_text("def same(a, b): return a == b\n")
    (package / "mine.py").write_text(
        "from .same import same\ndef mark(completion, gold): return same(completion, gold)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    close_workers()  # workers have the current folder of when they started
    assert verify("3", gold="3", verifier="local_checks.mine:mark").correct
    with pytest.raises(ConfigError, match=r"with its package instead: local_checks\.mine:"):
        load_verifier("local_checks/mine.py:mark")


@pytest.mark.parametrize("value", ["no", -1, 0, True, "inf"])
def test_deadlines_are_seconds_above_0(file: str, value: object) -> None:
    with pytest.raises(ConfigError, match=r"timeout_s.*such as timeout_s=1"):
        load_verifier({"name": f"{file}:units", "timeout_s": value})


def test_a_file_without_a_function_is_told_how_to_name_one(file: str) -> None:
    with pytest.raises(ConfigError, match=r"Write checks\.py:FUNCTION"):
        load_verifier(file)


def test_a_missing_gold_abstains_and_so_does_a_row_without_the_column(file: str) -> None:
    assert from_function(always)([item("3", gold=None)])[0].reason is Reason.GOLD_MISSING
    rows = [item("x", level=3), item("x"), item("x", level=1)]
    scores = [v.score for v in load_verifier(f"{file}:needs_level")(rows)]
    assert scores == [1, None, 0]


def test_a_column_that_nothing_supplies_is_refused_up_front(file: str) -> None:
    mark = load_verifier(f"{file}:needs_level")
    check_columns(mark, ["level", "subject"])
    with pytest.raises(ConfigError, match=r"asks for 'level'.*Did you mean 'levels'"):
        check_columns(mark, ["levels", "subject"])


def test_files_run_in_a_worker_and_under_a_deadline(file: str) -> None:
    import os

    where = load_verifier(f"{file}:where")([item("3")])[0]
    assert where.detail["pid"] != os.getpid()
    mark = load_verifier(f"{file}:sleeping?timeout_s=0.3")
    verdicts = mark([item("fast"), item("slow"), item("fast")])
    assert [(v.score, v.reason) for v in verdicts] == [
        (1, Reason.JUDGED),
        (0, Reason.TOO_SLOW),
        (1, Reason.JUDGED),
    ]


def test_a_worker_that_dies_is_an_error_of_its_row_alone(file: str) -> None:
    verdicts = load_verifier(f"{file}:dying")([item("3"), item("die"), item("3")])
    assert [v.score for v in verdicts] == [1, None, 1]
    assert (verdicts[1].status, verdicts[1].reason) == (Status.ERROR, Reason.WORKER_LOST)


def test_settings_bind_parameters_and_unknown_ones_are_refused(file: str) -> None:
    assert verify("3 cm", gold="3", verifier=f"{file}:units").correct
    assert verify("3 mm", gold="3", verifier=f"{file}:units?unit=mm").correct
    assert verify("3 mm", gold="3", verifier={"name": f"{file}:units", "unit": "mm"}).correct
    with pytest.raises(ConfigError, match="Did you mean 'unit'"):
        load_verifier(f"{file}:units?unti=mm")


def test_classes_and_factories_are_called_with_the_settings(file: str) -> None:
    assert load_verifier(f"{file}:Whole?score=0.25")([item("3")])[0].score == 0.25
    assert load_verifier(f"{file}:factory")([item("3")])[0].score == 0.5
    with pytest.raises(ConfigError, match="Its settings: score"):
        load_verifier(f"{file}:Whole?scores=1")


def test_all_four_registrations_lead_to_the_same_function(file: str) -> None:
    @register("test-always")
    def decorated(completion: str, gold: str) -> bool:
        return always(completion, gold)

    remember("mine", f"{file}:units?unit=mm")
    assert "checks.py:units?unit=mm" in Path("stepmark.toml").read_text()
    for reference, completion in {
        "test-always": "3",
        "exact": "#### 3",
        "stepmark.verifiers.exact:exact": "#### 3",
        f"{file}:units": "3 cm",
        "mine": "3 mm",
        "mine?unit=km": "3 km",
    }.items():
        assert verify(completion, gold="3", verifier=reference).correct, reference
    assert decorated("3", "3")
    assert "math" in registry.names()


def test_functions_and_verifiers_pass_through() -> None:
    math = MathVerifier()
    assert load_verifier(math) is math
    assert load_verifier(always)([item("3")])[0].correct
    assert load_verifier(MathVerifier).key == "math@2"


def test_a_local_function_runs_here_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    mark = from_function(lambda completion: True, name="local")
    with caplog.at_level(logging.WARNING):
        mark([item("3")])
        mark([item("3"), item("4")])
    assert len(caplog.records) == 1
    assert "'local' cannot be imported by a worker" in caplog.text


def test_unknown_names_are_answered_with_the_nearest(file: str) -> None:
    remember("mine", f"{file}:units")
    with pytest.raises(
        UnknownNameError, match=r"Did you mean 'math'.*length, math, math-verify, mine"
    ):
        load_verifier("mth")
    with pytest.raises(UnknownNameError, match="Did you mean 'units'"):
        load_verifier(f"{file}:unit")
    with pytest.raises(ConfigError, match=r"There is no file 'absent\.py'"):
        load_verifier("absent.py:f")
    with pytest.raises(ConfigError, match="belongs to a registered verifier"):
        remember("math", f"{file}:units")
    Path("stepmark.toml").write_text("[verifiers\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_verifier("mine")


def test_the_key_changes_with_the_source_and_the_settings(file: str) -> None:
    keys = {load_verifier(f"{file}:{name}").key for name in ("units", "units?unit=mm", "raising")}
    assert len(keys) == 3
    assert all(key.partition("@")[0] in ("units", "raising") for key in keys)
