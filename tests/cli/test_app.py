"""The command: help, wrong words, exit codes, and errors for people and for machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepmark
from stepmark.cli import app as command
from stepmark.errors import GateFailed, Partial, RunError, Stopped


def in_process(*arguments: str) -> int:
    return command.run(list(arguments))


def console_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("stepmark")
    return subprocess.run(
        [script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "80", **environment},
    )


def test_the_console_script_shows_help_and_version() -> None:
    shown = console_script("--help")
    assert shown.returncode == 0
    assert "verify" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert console_script("--version").stdout == f"stepmark {stepmark.__version__}\n"


@pytest.mark.parametrize("verb", [(), ("config",), ("verifiers",)])
def test_a_verb_without_words_shows_its_help_and_exits_2(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(*verb) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("vrify",), "Did you mean 'verify'?"),
        (("config", "shw"), "Did you mean 'show'?"),
        (("config", "show", "--presett", "x"), "--preset"),
        (("config", "show", "--num_generations", "8"), "--set rollout.group_size=VALUE"),
        (("config", "show", "--kl-loss-coef", "8"), "algorithm.beta"),
    ],
)
def test_wrong_words_exit_2_and_say_what_was_meant(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in " ".join(said.err.replace("│", " ").split())


def test_errors_are_one_json_object_where_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert in_process("config", "show", "--set", "rolout.x=1", "--json") == 2
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert error["type"] == "ConfigError"
    assert "Did you mean 'rollout'?" in error["message"]
    assert said.err == ""
    assert in_process("config", "show", "--presett", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "NoSuchOption"


def test_errors_are_short_and_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("config", "show", "--set", "x") == 2
    said = capsys.readouterr().err
    assert said.startswith("ConfigError: --set 'x' sets nothing.")
    assert "Traceback" not in said
    assert in_process("config", "show", "--set", "x", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (KeyboardInterrupt(), 130),
        (RunError("locked"), 2),
        (GateFailed("below the gate"), 1),
        (Partial("3 rows could not be read"), 3),
        (Stopped("stopped; resume with --resume", 15), 143),
    ],
)
def test_exit_codes_are_those_of_the_contract(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(**_: object) -> None:
        raise raised

    verbs = command.typer.main.get_command(command.app)
    verbs.callback = None
    monkeypatch.setattr(verbs.commands["config"].commands["presets"], "callback", stop)  # type: ignore[attr-defined]
    monkeypatch.setattr(command.typer.main, "get_command", lambda _: verbs)
    assert in_process("config", "presets") == code


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    script = Path(sys.executable).with_name("stepmark")
    line = f"set -o pipefail; {script} config aliases | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_starts_without_anything_heavy() -> None:
    code = (
        "import sys; from stepmark.cli.app import run; run(['--help'])\n"
        "heavy = {'torch', 'transformers', 'sympy', 'numpy', 'datasets', 'pandas', 'matplotlib'}\n"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, heavy_modules(done)


def heavy_modules(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode() + done.stderr.decode()
