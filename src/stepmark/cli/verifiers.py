"""``stepmark verifiers``: which there are, what they take, whether one keeps the contract."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from .console import Debug, Json, emit, grid, out, plain, say, show

app = typer.Typer(no_args_is_help=True, help="Verifiers: list, show, check, remember your own.")

Ref = Annotated[str, typer.Argument(metavar="REF", help="Name, module:attr or file.py:attr.")]


@app.command("list")
def list_verifiers(as_json: Json = False, debug: Debug = False) -> None:
    """List the known verifiers: name, settings, what they do."""
    from stepmark.verifiers import verifiers

    rows = {
        name: describe(verifiers.load(name)) | {"from": entry.source}
        for name, entry in sorted(verifiers.entries().items())
    }

    def render() -> None:
        table = grid("verifier", "settings", "what it does", "from")
        for name, row in rows.items():
            table.add_row(
                f"[bold]{plain(name)}[/]",
                plain(_settings(row["settings"])),
                plain(row["doc"].partition("\n")[0]),
                f"[dim]{plain(row['from'])}[/]",
            )
        show(table)
        say("Your own: a function in a file, named file.py:function; see stepmark verifiers check.")

    emit(rows, as_json, render)


@app.command("show")
def show_verifier(reference: Ref, as_json: Json = False, debug: Debug = False) -> None:
    """Show what a verifier does, its settings and the columns that it asks for."""
    from stepmark.registry import Reference
    from stepmark.verifiers import load_verifier, verifiers

    parsed = Reference.parse(reference)
    judge = load_verifier(parsed)
    row = {"name": parsed.name, "key": judge.key, "columns": sorted(judge.columns)}
    row |= describe(verifiers.load(parsed.name))

    def render() -> None:
        table = grid()
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in (
            ("verifier", row["key"]),
            ("settings", _settings(row["settings"]) or "none"),
            ("columns", ", ".join(row["columns"]) or "none beyond completion and gold"),
        ):
            table.add_row(f"[bold]{name}[/]", plain(value))
        show(table)
        out.print()
        out.print(row["doc"] or "It has no docstring.", markup=False)

    emit(row, as_json, render)


def describe(target: Any) -> dict[str, Any]:
    """The docstring and the settings (name -> default) of what is registered."""
    doc = inspect.getdoc(target) or ""
    parameters = inspect.signature(target).parameters.values() if inspect.isclass(target) else ()
    settings = {
        item.name: None if item.default is item.empty else item.default
        for item in parameters
        if item.kind in (item.KEYWORD_ONLY, item.POSITIONAL_OR_KEYWORD)
    }
    return {"settings": settings, "doc": doc}


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
