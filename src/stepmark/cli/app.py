"""The table of verbs, and what happens to their errors."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from typing import Any

import typer
from typer import rich_utils

from stepmark import __version__
from stepmark.errors import Error

from .console import err
from .launched import is_first, wait_silently

__all__ = ["app", "main"]

UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The root of wrong command lines; newer typer carries its own copy of click, so ask typer."""

app = typer.Typer(
    name="stepmark",
    help="Marks the answer, and marks every step: verify, train, evaluate.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"stepmark {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None: ...


def _add_verbs() -> None:
    from . import config, demo, evaluate, export, prm, quickstart, rm, train, verifiers, verify

    app.command("demo")(demo.demo)
    app.command("quickstart")(quickstart.quickstart)
    app.command("verify")(verify.verify)
    app.add_typer(verifiers.app, name="verifiers")
    app.command("train")(train.train)
    app.add_typer(prm.app, name="prm")
    app.add_typer(rm.app, name="rm")
    app.add_typer(evaluate.app, name="eval")
    app.add_typer(config.app, name="config")
    app.add_typer(export.app, name="export")


_add_verbs()


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit with the code of the contract (0, 1, 2, 3, 130, 143)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Terminals that cannot show a sign (ASCII, Windows code pages) get a question mark.
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(given))


def run(arguments: list[str]) -> int:
    """The exit code of a command line; what it has to say is printed."""
    debug = "--debug" in arguments or bool(os.environ.get("STEPMARK_DEBUG"))
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="stepmark", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except UsageProblem as error:
        if is_first():
            _show_usage(error, "--json" in arguments)
        else:
            wait_silently()
        return 2
    except (typer.Abort, KeyboardInterrupt):
        err.print("stopped")
        return 130
    except BrokenPipeError:
        # The reader of a pipe went away (`stepmark ... | head`): not an error worth a traceback,
        # neither here nor when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Error as error:
        if debug:
            traceback.print_exc()
        _show(error, "--json" in arguments)
        return error.exit_code


def _show_usage(error: Any, as_json: bool) -> None:
    """A wrong command line: usage, what is wrong, what another library's flag is called here."""
    from stepmark.config import ALIASES, alias_hint

    option = str(getattr(error, "option_name", None) or "").lstrip("-").replace("-", "_")
    if hint := alias_hint(option):
        key = ALIASES[option]
        how = "" if " " in key else f" Give it as --set {key}=VALUE."
        error.message = f"{error.message.rstrip('.')}. {hint}{how}"
    if as_json and error.__class__.__name__ != "NoArgsIsHelpError":
        _emit_error(error.__class__.__name__, error.format_message())
    else:
        rich_utils.rich_format_error(error)


def _emit_error(kind: str, message: str) -> None:
    row = {"error": {"type": kind, "message": message}}
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def _show(error: Error, as_json: bool) -> None:
    if as_json:
        _emit_error(type(error).__name__, str(error))
    else:
        if not str(error).startswith(kind := type(error).__name__):  # "Stopped after step ..."
            err.print(f"[bold red]{kind}:[/] ", end="")
        err.print(str(error), markup=False)
