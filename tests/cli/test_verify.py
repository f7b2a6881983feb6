"""``stepmark verify COMPLETION``: one verdict, its exit code, and how it was decided."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

OWN = '''
def has_unit(completion, gold, unit):
    """Right when the unit is named."""
    return unit in completion

def raises(completion):
    raise ValueError("broken on purpose")

def declines(completion):
    return None

def half(completion):
    return 0.5
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "checks.py"
    path.write_text(OWN)
    return str(path)


def row(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["verify", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("completion", "gold", "line"),
    [
        (r"So \boxed{\frac{7}{2}}.", "3 1/2", r"correct  found \frac{7}{2}  gold 3 1/2  equal"),
        ("The answer is 19.", "18", "wrong  found 19  gold 18  different"),
        ("I do not know.", "18", "wrong  gold 18  no_answer"),
        ("#### [/]", "18", "wrong  found [/]  gold 18  unreadable"),
    ],
)
def test_a_verdict_is_one_line_and_exits_0_whether_right_or_wrong(
    completion: str, gold: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", completion, "--gold", gold]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"{line}\n", "")


def test_json_is_the_verdict_row_with_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    said = row(capsys, "The answer is 18.", "--gold", "18")
    assert said["verifier"] == "math@2"
    assert (said["correct"], said["score"], said["status"], said["reason"]) == (
        True,
        1.0,
        "ok",
        "equal",
    )
    assert (said["extracted"], said["gold"]) == ("18", "18")


def test_a_dash_reads_the_completion_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("so\nthe answer is 4\n"))
    assert row(capsys, "-", "--gold", "4")["correct"]


def test_explain_shows_both_sides_as_read_and_what_decided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [r"So \boxed{\frac{7}{2}}.", "--gold", "3 1/2", "--explain"]
    assert run(["verify", *arguments]) == 0
    lines = [line.split(maxsplit=1)[0] for line in capsys.readouterr().out.splitlines()[1:]]
    words = "verifier completion found found found gold gold normal decided reason time"
    assert lines == words.split()
    told = row(capsys, *arguments)["explained"]
    assert told["found by"] == "boxed: the last complete box"
    assert told["normal form"] == "7/2 on both sides"
    assert told["decided by"].startswith("normal form: ")


@pytest.mark.parametrize(
    ("completion", "gold", "said"),
    [
        ("I do not know.", "18", {"found": "nothing", "gold means": "18"}),
        (r"\boxed{(x+1)^2}", "x^2", {"normal form": "x^2 + 2*x + 1 against x^2"}),
        (r"\boxed{\frac{}{2}}", "2", {"found means": "nothing that can be read"}),
        (r"\boxed{9^{9^{9^9}}}", "2", {"decided by": "a bound: a power"}),
    ],
)
def test_what_there_is_to_explain_depends_on_the_verdict(
    completion: str, gold: str, said: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = row(capsys, completion, "--gold", gold, "--explain")["explained"]
    assert {name: told[name] for name in said} == said
    assert ("found by" in told) == (told["found"] != "nothing")


def test_settings_reach_the_verifier(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("The answer is 4.", "--gold", "4", "--verifier")
    strict = row(capsys, *given, "math?strict=true")
    assert strict["reason"] == "no_answer"
    assert strict["verifier"] != row(capsys, *given, "math")["verifier"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), 'stepmark verify "The answer is 18." --gold 18'),
        (("The answer is 4.",), "Add it: --gold 18"),
        (("4", "--gold", "4", "--verifier", "mat"), "Did you mean 'math'?"),
        (("4", "--gold", "4", "--verifier", "math?unit=x"), "Did you mean 'units'?"),
        (("4", "--gold", "4", "--verifier", "absent.py:f"), "There is no file 'absent.py'"),
        (("4", "--gold", "4", "--column", "unit"), "NAME=VALUE"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_do(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_gold_that_cannot_be_read_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    said = row(capsys, "The answer is 4.", "--gold", r"\frac{", code=2)
    assert (said["status"], said["score"], said["reason"]) == ("abstain", None, "gold_unreadable")


def test_a_function_in_a_file_is_a_verifier_with_columns(
    own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("--verifier", f"{own}:has_unit")
    assert row(capsys, "4 cm", "--gold", "4", *named, "--column", "unit=cm")["correct"]
    assert not row(capsys, "4 cm", "--gold", "4", *named, "--column", "unit=kg")["correct"]
    assert run(["verify", "4 cm", "--gold", "4", *named]) == 2
    assert "--column unit=VALUE" in capsys.readouterr().err
    assert run(["verify", "4 cm", "--verifier", f"{own}:half"]) == 0
    assert capsys.readouterr().out == "0.5 of 1  judged\n"


def test_what_raises_or_declines_is_no_verdict_and_says_why(
    own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "4", "--verifier", f"{own}:raises"]) == 2
    assert "ValueError: broken on purpose" in capsys.readouterr().out
    assert row(capsys, "4", "--verifier", f"{own}:declines", code=2)["reason"] == "declined"


def test_text_of_a_model_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "\x1b[31m \\boxed{\x1b[2J5}", "--gold", "5", "--explain"]) == 0
    assert "\x1b[2J" not in capsys.readouterr().out
