"""From files, overrides and flags to one tree in which every leaf knows where it came from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from stepmark.errors import ConfigError, UnknownNameError, did_you_mean
from stepmark.registry import toml_value

from .aliases import RENAMED, alias_hint

__all__ = [
    "TABLES",
    "Composed",
    "Flag",
    "compose",
    "preset_names",
    "preset_text",
    "read_preset",
    "to_toml",
]

TABLES = ("model", "data", "rollout", "reward", "algorithm")
"""The five tables of a run's configuration."""


class Flag(NamedTuple):
    """A flag of a verb: its name as typed, and the value given (None: not given)."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Composed:
    """A tree of settings, and where each leaf came from."""

    tree: dict[str, Any] = field(default_factory=dict[str, Any])
    origin: dict[str, str] = field(default_factory=dict[str, str])
    """Dotted key -> ``preset NAME``, a file, ``--set``, or a flag such as ``--model``."""

    def origin_of(self, key: str) -> str:
        """Where the value of a dotted key came from; ``default`` when nothing set it."""
        while key:
            if key in self.origin:
                return self.origin[key]
            key = key.rpartition(".")[0]
        return "default"


def compose(
    files: Sequence[Path] = (),
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    tables: Sequence[str] = TABLES,
) -> Composed:
    """Settings from a preset, files left to right, ``--set`` and flags; the later one wins.

    Tables are merged key by key at every depth; lists and values are replaced whole.

    Args:
        files: TOML files.
        sets: ``a.b=value`` each; the value is TOML where it is TOML and plain text otherwise.
        flags: dotted key -> value, or a `Flag` whose name is not that of the key; None values
            were not given and are left out.
        preset: name of a TOML file that Stepmark ships.
        tables: the top-level tables that may be set.

    Raises:
        ConfigError: a file is missing or not TOML, an override has no ``=``, or names a table
            that does not exist.
        UnknownNameError: there is no such preset.
    """
    composed = Composed()
    if preset is not None:
        _add(composed, read_preset(preset), f"preset {preset}", tables)
    for path in files:
        _add(composed, read_file(path), str(path), tables)
    for text in sets:
        _add(composed, _override(text), "--set", tables)
    for key, given in (flags or {}).items():
        flag = given if isinstance(given, Flag) else Flag(f"--{key.rpartition('.')[2]}", given)
        if flag.value is not None:
            _add(composed, _nest(key, flag.value), flag.name, tables)
    return composed


def read_file(path: Path) -> dict[str, Any]:
    """The settings in one TOML file.

    Raises:
        ConfigError: the file is missing, not UTF-8, or not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no configuration file {str(path)!r}. Give a TOML file, "
            "or a preset by name: --preset NAME (stepmark config presets lists them)."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} cannot be read as a TOML file: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{str(path)!r} is not valid TOML: {error}. "
            'Text values need quotation marks: policy = "path/to/model".'
        ) from error


def preset_names() -> list[str]:
    """Names of the settings that Stepmark ships, sorted."""
    places = package_files("stepmark.config").joinpath("presets").iterdir()
    return sorted(
        place.name.removesuffix(".toml") for place in places if place.name.endswith(".toml")
    )


def preset_text(name: str) -> str:
    """The TOML text of a preset, with the paper section beside each value.

    Raises:
        UnknownNameError: there is no such preset.
    """
    if name not in preset_names():
        hint = (
            "A file of your own is given with --config FILE." if "." in name or "/" in name else ""
        )
        raise UnknownNameError.of("preset", name, preset_names(), hint)
    place = package_files("stepmark.config").joinpath("presets", f"{name}.toml")
    return place.read_text(encoding="utf-8")


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset.

    Raises:
        UnknownNameError: there is no such preset.
    """
    return tomllib.loads(preset_text(name))


def to_toml(tree: Mapping[str, Any]) -> str:
    """The tree as TOML text; an absent optional is written ``"none"``, which `validate` reads back.

    >>> print(to_toml({"data": {"task": ("gsm8k",), "weights": None}}), end="")
    [data]
    task = [
        "gsm8k",
    ]
    weights = "none"
    """
    return tomli_w.dumps(_plain(tree))


def _plain(value: Any) -> Any:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def _override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(
            f"--set {text!r} sets nothing. Overrides are written table.key=value, "
            "such as --set rollout.group_size=8."
        )
    return _nest(key, toml_value(value.strip()))


def _nest(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _add(composed: Composed, layer: Mapping[str, Any], source: str, tables: Sequence[str]) -> None:
    for name, value in layer.items():
        if name not in tables:
            raise ConfigError(_unknown_table(name, value, source, tables))
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{name!r} from {source} is a table, and {value!r} is no table. "
                f"Set one of its keys: {name}.KEY=VALUE (stepmark config schema lists them)."
            )
    _merge(composed, composed.tree, _renamed(layer, source), "", source)


def _renamed(layer: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, Any]:
    """The layer with settings under the names that they have now."""
    found: dict[str, Any] = {}
    for name, value in layer.items():
        key = f"{prefix}{name}"
        now = RENAMED.get(key, key).rpartition(".")[2]
        if now != name and now in layer:
            raise ConfigError(
                f"{key} and {RENAMED[key]} are both set (from {source}); the first is the earlier "
                f"name of the second. Keep {RENAMED[key]}."
            )
        is_table = isinstance(value, Mapping)
        found[now] = _renamed(value, source, f"{key}.") if is_table else value
    return found


def _unknown_table(name: str, value: Any, source: str, tables: Sequence[str]) -> str:
    if hint := alias_hint(name):
        return f"There is no table {name!r} (from {source}). {hint}"
    what = f"There is no table {name!r} (from {source})."
    allowed = f"The tables are {', '.join(tables)}; a key is written table.key."
    return " ".join(part for part in (what, did_you_mean(name, tables), allowed) if part)


def _merge(
    composed: Composed, tree: dict[str, Any], layer: Mapping[str, Any], prefix: str, source: str
) -> None:
    for name, value in layer.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            if not isinstance(tree.get(name), dict):
                tree[name] = {}
                composed.origin.pop(key, None)
            _merge(composed, tree[name], value, f"{key}.", source)
            continue
        for old in [known for known in composed.origin if known.startswith(f"{key}.")]:
            del composed.origin[old]
        tree[name] = list(value) if isinstance(value, tuple) else value
        composed.origin[key] = source
