"""Every setting of a configuration as one row: key, value, where it came from, what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .compose import Composed
from .validate import models_in

__all__ = ["Setting", "settings_of"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the tree."""

    key: str
    """Dotted, such as ``rollout.group_size``."""
    value: Any
    """Plain TOML values; None where the setting is absent or must still be given."""
    origin: str
    """Preset, file, flag, ``default``, or ``must be set``."""
    meaning: str = ""
    """What the field's docstring says, on one line."""
    type: str = ""
    """For people: ``int``, ``str | none``, ..."""


def settings_of(model: type[BaseModel], composed: Composed | None = None) -> list[Setting]:
    """All settings of a model, those of a tree with where they came from, the rest as defaults.

    Required settings that the tree lacks are listed as ``must be set``, so that an unfinished
    configuration can be shown too. The tree is taken as it is: `validate` it before.
    """
    known = composed or Composed()
    return list(_walk(model, known.tree, known, "", composed is None))


def _walk(
    model: type[BaseModel],
    tree: Mapping[str, Any],
    composed: Composed,
    prefix: str,
    is_schema: bool = False,
) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        given = tree.get(name)
        if field.annotation is BaseModel:
            yield from _unmodelled(given or {}, composed, key)
            continue
        inner = _table(field)
        if inner is not None and not isinstance(given, str):
            yield from _walk(inner, given or {}, composed, f"{key}.", is_schema)
            continue
        optional = _optional_table(field)
        if optional is not None and given not in (None, False, "none"):
            inside = given if isinstance(given, Mapping) else {}
            yield from _walk(optional, inside, composed, f"{key}.")
            continue
        default = field.get_default(call_default_factory=True, validated_data={})
        missing = default is PydanticUndefined
        value = given if name in tree else (None if missing else _plain(default))
        origin = "must be set" if missing and name not in tree else composed.origin_of(key)
        meaning = " ".join((field.description or "").split())
        yield Setting(key, value, origin, meaning, _type_name(field))
        if optional is not None and is_schema:
            yield from _walk(optional, {}, composed, f"{key}.", is_schema)
    for name in tree:
        if name not in model.model_fields:
            yield from _unmodelled(tree[name], composed, f"{prefix}{name}")


def _unmodelled(value: Any, composed: Composed, key: str) -> Iterator[Setting]:
    """Leaves that the model does not describe: a backend's settings, where torch is absent."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _unmodelled(inner, composed, f"{key}.{name}")
    else:
        yield Setting(key, value, composed.origin_of(key))


def _table(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _optional_table(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a table that may be absent; given by a word, it has its defaults."""
    if get_origin(field.annotation) not in (Union, UnionType):
        return None
    return next(models_in(field.annotation), None)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True) or value.model_dump()
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value


def _type_name(field: FieldInfo) -> str:
    if _optional_table(field) is not None:
        return "table | none"
    if any(models_in(field.annotation)):
        return "list of tables"
    return _words(field.annotation)


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "none"
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return " | ".join(repr(value) for value in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_words(argument) for argument in arguments)
    if origin in (tuple, list):
        return f"list of {_words(arguments[0])}"
    if origin in (dict, Mapping):
        return "table"
    return getattr(annotation, "__name__", str(annotation))
