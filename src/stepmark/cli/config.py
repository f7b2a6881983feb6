"""``stepmark config``: what the settings are, where they came from, their names elsewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Debug, Json, emit, grid, out, plain, say, show

if TYPE_CHECKING:
    from stepmark.config import Composed, RunConfig, Setting

app = typer.Typer(
    no_args_is_help=True, help="Settings: show them resolved, list them, find their names."
)

Preset = Annotated[
    str | None, typer.Option("--preset", help="Settings that Stepmark ships, by name.")
]
Files = Annotated[
    list[Path] | None, typer.Option("--config", help="TOML file; repeatable, the later one wins.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
]


@app.command("show")
def show_settings(
    preset: Preset = None,
    config: Files = None,
    sets: Sets = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print a file to keep and edit.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show every setting with its value and where it came from."""
    from stepmark.config import compose, settings_of

    composed = compose(config or [], sets or [], preset=preset)
    model = run_model(composed)
    check_all_but_missing(model, composed)
    rows = settings_of(model, composed)
    if toml:
        out.print(_as_toml(rows), end="", markup=False)
        return
    value = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
    emit(value, as_json, lambda: show_tree(rows))


@app.command()
def schema(
    backend: Annotated[str, typer.Option(help="Whose [algorithm] table to list.")] = "grpo",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List every setting: type, default, meaning. With --json: the JSON schema."""
    from stepmark.config import compose, settings_of

    model = run_model(compose(sets=[f'algorithm.backend="{backend}"']))
    emit(
        model.model_json_schema() if as_json else {},
        as_json,
        lambda: _show_schema(settings_of(model)),
    )


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="Print this one, with its sources.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the settings that Stepmark ships, or print one."""
    from stepmark.config.compose import preset_names, preset_text, read_preset

    if name is not None:
        text = preset_text(name)
        emit(
            read_preset(name) if as_json else {},
            as_json,
            lambda: out.print(text, end="", markup=False),
        )
        return
    first = {name: _opening(preset_text(name)) for name in preset_names()}

    def render() -> None:
        table = grid("preset", "what it is")
        for preset, line in first.items():
            table.add_row(f"[bold]{preset}[/]", plain(line))
        show(table)

    emit(first, as_json, render)


@app.command()
def aliases(
    name: Annotated[str | None, typer.Argument(help="A name from another library.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what settings of TRL, verl, OpenRLHF and lm-eval are called here."""
    from stepmark.config.aliases import PEERS, TABLE, alias_hint

    if name is not None:
        hint = alias_hint(name.lstrip("-").replace("-", "_"))
        answer = hint or f"No setting of {', '.join(PEERS)} known here is called {name!r}."
        emit({"name": name, "hint": hint or None}, as_json, lambda: out.print(answer, markup=False))
        return
    rows = {row.key: {peer: list(names) for peer, names in row.names().items()} for row in TABLE}

    def render() -> None:
        table = grid("stepmark", "elsewhere")
        for key, names in rows.items():
            elsewhere = (f"[dim]{p}:[/] {', '.join(names[p])}" for p in PEERS if names[p])
            table.add_row(f"[bold]{key}[/]", "; ".join(elsewhere))
        show(table)

    emit(rows, as_json, render)


def run_model(composed: Composed) -> type[RunConfig]:
    """The configuration class for the backend that a tree names; without torch, the shared part."""
    from stepmark.config import RunConfig, run_config

    name = composed.tree.get("algorithm", {}).get("backend", "grpo")
    if importlib.util.find_spec("torch") is None:
        say("note: torch is not installed, so [algorithm] is shown as given, without its defaults.")
        return RunConfig
    from stepmark.rl_backends.backend import backends

    return run_config(backends.load(str(name)).Config)


def check_all_but_missing(model: type[RunConfig], composed: Composed) -> None:
    """Refuse wrong settings, and let those that are still to be given pass.

    Raises:
        ConfigError: a setting is unknown or has a value that is not allowed.
    """
    from stepmark.config import RunConfig, validate

    tree: dict[str, Any] = dict(composed.tree)
    tree["model"] = {"policy": "still to be given"} | dict(tree.get("model", {}))
    if model is RunConfig:
        tree["algorithm"] = {}
    validate(model, tree, origin=composed.origin_of)


def show_tree(rows: list[Setting]) -> None:
    """The resolved tree, one table after the other; what was set by hand stands out."""
    table = grid()
    for column in ("key", "value", "from"):
        table.add_column(column, overflow="fold")
    last = ""
    for row in rows:
        head, _, key = row.key.partition(".")
        if head != last:
            table.add_row(*(["", "", ""] if last else []))
            table.add_row(f"[bold]\\[{head}][/]", "", "")
            last = head
        style = {"default": "dim", "must be set": "bold red"}.get(row.origin, "cyan")
        shown = "" if row.origin == "must be set" else _toml_value(row.value)
        table.add_row(f"  {key}", plain(shown), f"[{style}]{plain(row.origin)}[/]")
    show(table)


def _show_schema(rows: list[Setting]) -> None:
    from rich.padding import Padding

    for row in rows:
        default = "must be set" if row.origin == "must be set" else f"= {_toml_value(row.value)}"
        out.print(f"[bold]{row.key}[/] [cyan]{plain(row.type)}[/] {plain(default)}")
        meaning = Padding(plain(row.meaning.replace("``", "")), (0, 0, 0, 4), style="dim")
        out.print(meaning, soft_wrap=False)


def _toml_value(value: Any) -> str:
    from stepmark.config import to_toml

    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    return to_toml({"v": value}).partition("= ")[2].strip()


def _as_toml(rows: list[Setting]) -> str:
    from stepmark.config import to_toml

    tree: dict[str, Any] = {}
    for row in rows:
        *tables, key = row.key.split(".")
        value = "" if row.origin == "must be set" else row.value
        inner = tree
        for name in tables:
            inner = inner.setdefault(name, {})
        inner[key] = value
    return to_toml(tree)


def _opening(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)
