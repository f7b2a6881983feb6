"""``stepmark verifiers``: which there are, what they take, whether one keeps the contract."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from stepmark.errors import Error
from stepmark.report.text import visible

from .console import Debug, Json, emit, grid, out, plain, say, show

app = typer.Typer(no_args_is_help=True, help="Verifiers: list, show, check, remember your own.")

Ref = Annotated[str, typer.Argument(metavar="REF", help="Name, module:attr or file.py:attr.")]


@app.command("list")
def list_verifiers(as_json: Json = False, debug: Debug = False) -> None:
    """List the known verifiers: name, settings, what they do, where they come from."""
    from stepmark.verifiers import registry, remembered

    sources = {name: f"./stepmark.toml: {ref}" for name, ref in remembered(Path()).items()}
    sources |= {name: entry.source for name, entry in registry.entries().items()}
    rows: dict[str, dict[str, Any]] = {
        name: _row(name) | {"from": sources[name]} for name in sorted(sources)
    }

    def render() -> None:
        for name, row in rows.items():
            settings = _settings(row["settings"])
            takes = f"  [cyan]{plain(settings)}[/]" if settings else ""
            out.print(f"[bold]{plain(name)}[/]{takes}")
            out.print(f"    {plain(row.get('error') or row['doc'].partition(chr(10))[0])}")
            out.print(f"    [dim]from {plain(row['from'])}[/]")
        say("Your own: a function in a file, named file.py:function; 'add' gives it a short name.")

    emit(rows, as_json, render)


@app.command("show")
def show_verifier(reference: Ref, as_json: Json = False, debug: Debug = False) -> None:
    """Show what a verifier does, its settings and the columns that it asks for."""
    from stepmark.verifiers import load_verifier

    judge = load_verifier(reference)
    row = {"key": judge.key, "columns": sorted(judge.columns)} | describe(judge)

    def render() -> None:
        table = grid()
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        needs = ", ".join(row["columns"]) or "none but the completion and what it has a default for"
        for name, value in (
            ("key", row["key"]),
            ("settings", _settings(row["settings"]) or "none"),
            ("columns", needs),
        ):
            table.add_row(f"[bold]{name}[/]", plain(value))
        show(table)
        out.print()
        out.print(row["doc"] or "It has no docstring.", markup=False)

    emit(row, as_json, render)


@app.command("check")
def check(reference: Ref, as_json: Json = False, debug: Debug = False) -> int:
    """Test a verifier against the contract; exits 1 when it breaks a promise."""
    from stepmark.testing import check_verifier

    report = check_verifier(reference, strict=False)

    def render() -> None:
        for law in report.checks:
            word = "[green]kept  [/]" if law.passed else "[bold red]broken[/]"
            out.print(f"{word} {plain(law.name)}")
            if not law.passed:
                out.print(f"       {plain(visible(law.seen))}")
        broken = sum(not law.passed for law in report.checks)
        kept = f"keeps the contract: {len(report.checks)} promises"
        verdict = f"breaks {broken} of {len(report.checks)} promises" if broken else kept
        out.print(f"{plain(report.key)} {verdict}.")

    laws = [{"law": law.name, "kept": law.passed, "seen": law.seen} for law in report.checks]
    emit({"key": report.key, "kept": report.passed, "laws": laws}, as_json, render)
    return 0 if report.passed else 1


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The short name.")],
    reference: Ref,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remember a verifier under a short name, in ./stepmark.toml."""
    from stepmark.verifiers import load_verifier, remember

    path = remember(name, reference)
    judge = load_verifier(name)
    given = "".join(f" --column {column}=VALUE" for column in sorted(judge.columns))
    emit(
        {"name": name, "reference": reference, "file": str(path), "key": judge.key},
        as_json,
        lambda: out.print(
            f"{path}: {name} is {reference} now. Try it:\n"
            f'    stepmark verify "The answer is 18." --gold 18 --verifier {name}{given}',
            markup=False,
        ),
    )


def describe(judge: Any) -> dict[str, Any]:
    """The docstring of a verifier, or of its class, and its settings with their defaults."""
    function = getattr(judge, "function", None)
    if function is not None:
        optional = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not parameter.empty
        }
        return {"settings": optional, "doc": inspect.getdoc(function) or ""}
    kind = judge if isinstance(judge, type) else type(judge)
    parameters = inspect.signature(kind).parameters.values()
    named = (
        item for item in parameters if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)
    )
    settings = {item.name: None if item.default is item.empty else item.default for item in named}
    return {"settings": settings, "doc": inspect.getdoc(kind) or ""}


def _row(name: str) -> dict[str, Any]:
    """What `describe` says; a verifier of another package that cannot be loaded says why."""
    from stepmark.verifiers import load_verifier, registry

    try:
        target = registry.load(name) if name in registry.entries() else None
        return describe(target if isinstance(target, type) else load_verifier(name))
    except Error as error:
        return {"settings": {}, "doc": "", "error": str(error)}


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_spelled(value)}" for name, value in settings.items())


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
