"""A tree of settings -> the model it must fit, or one message that says what is wrong and where."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from stepmark.errors import ConfigError, did_you_mean

from .aliases import RENAMED, alias_hint

__all__ = ["annotation_at", "models_in", "read_absent", "validate"]

Model = TypeVar("Model", bound=BaseModel)

SHOWN = 3
"""Problems that one message lists."""


def validate(
    model: type[Model],
    tree: Mapping[str, Any],
    *,
    origin: Callable[[str], str] | None = None,
    prefix: str = "",
) -> Model:
    """The settings as an instance of a model.

    ``"none"`` means absent where a field may be absent, and stays text elsewhere.

    Args:
        model: pydantic model with ``extra="forbid"``.
        tree: the settings, such as `Composed.tree`.
        origin: dotted key -> where its value came from, such as `Composed.origin_of`.
        prefix: dotted place of the tree in the whole configuration, for messages.

    Raises:
        ConfigError: up to three problems, each with the key, the value seen and its source, what
            is allowed, and the name that was probably meant.
    """
    try:
        return model.model_validate(read_absent(model, tree))
    except ValidationError as error:
        found = _innermost(error.errors())
        lines = [_sentence(model, problem, origin, prefix) for problem in found]
    shown = list(dict.fromkeys(lines))
    if len(shown) > SHOWN:
        shown[SHOWN - 1 :] = [f"... and {len(shown) - SHOWN + 1} more problems in the settings."]
    raise ConfigError("\n".join(shown))


def _innermost(problems: Sequence[Any]) -> list[Any]:
    """Without those that only follow from one deeper down; settings not set come last."""
    outer = {problem["loc"][:n] for problem in problems for n in range(len(problem["loc"]))}
    kept = [problem for problem in problems if problem["loc"] not in outer or not problem["loc"]]
    return sorted(kept, key=lambda problem: problem["type"] == "missing")


def read_absent(model: type[BaseModel], tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with ``"none"`` as None wherever the model's field may be None.

    A required table that is missing becomes an empty one, so that errors name its keys.
    """
    read = dict(tree)
    for name, field in model.model_fields.items():
        value = read.get(name)
        inner = field.annotation
        if value == "none" and _may_be_absent(inner):
            read[name] = None
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            if isinstance(value, Mapping):
                read[name] = read_absent(inner, value)
            elif name not in read and field.is_required():
                read[name] = read_absent(inner, {})
    return read


def _may_be_absent(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return type(None) in get_args(annotation)
    return annotation is None


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models that an annotation holds, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def annotation_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that holds the last part of a path."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = next(models_in(model.model_fields[part].annotation), model)
    return model


def _sentence(
    model: type[BaseModel],
    problem: Mapping[str, Any],
    origin: Callable[[str], str] | None,
    prefix: str,
) -> str:
    path: tuple[int | str, ...] = problem["loc"]
    named = [part for part in path if not (isinstance(part, str) and "[" in part)]
    key = ".".join([*([prefix] if prefix else []), *map(str, named)])
    owner = annotation_at(model, path[:-1])
    table = key.rpartition(".")[0]
    if problem["type"] == "extra_forbidden":
        return _unknown_key(owner, key, table, problem["input"])
    if problem["type"] == "missing":
        return _missing(owner, key, table)
    if problem["type"] == "value_error":
        return f"{problem['ctx']['error']}".rstrip(".") + "."
    source = origin(key) if origin else "default"
    where = "" if source == "default" else f" (from {source})"
    return f"{key} is {_short(problem['input'])}{where}. {_allowed(problem)}"


def _unknown_key(owner: type[BaseModel], key: str, table: str, value: Any) -> str:
    name = key.rpartition(".")[2]
    what = f"There is no setting {key!r}."
    if hint := alias_hint(name):
        return f"{what} {hint}"
    listed = f"{f'[{table}] has' if table else 'Known:'} {', '.join(owner.model_fields)}."
    earlier = {old: now for old, now in RENAMED.items() if old.rpartition(".")[0] == table}
    near = did_you_mean(name, [*owner.model_fields, *(old.rpartition(".")[2] for old in earlier)])
    if table:
        near = near.replace("mean '", f"mean '{table}.")
    for old, now in earlier.items():
        near = near.replace(f"'{old}'", f"'{now}'")
    return f"{what} {near or f'It was given as {_short(value)}.'} {listed}"


def _missing(owner: type[BaseModel], key: str, table: str) -> str:
    name = key.rpartition(".")[2]
    field = owner.model_fields.get(name)
    doc = " ".join((field.description or "").split()) if field else ""
    meaning = f" {doc.split('. ')[0].rstrip('.')}." if doc else ""
    place = f"in [{table}] of a file" if table else "in a file"
    return f"{key} is not set.{meaning} Set it with --set {key}=VALUE, or {place}."


def _allowed(problem: Mapping[str, Any]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    plain = {
        "greater_than": "It must be greater than {gt}.",
        "greater_than_equal": "It must be {ge} or more.",
        "less_than": "It must be less than {lt}.",
        "less_than_equal": "It must be {le} or less.",
        "finite_number": "It must be a finite number.",
        "literal_error": "It must be one of {expected}.",
        "too_short": "It must have {min_length} or more entries.",
        "string_too_short": "It must not be empty.",
    }
    if kind in plain:
        return plain[kind].format(**{name: _number(value) for name, value in context.items()})
    nouns = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "string": "text",
        "tuple": "a list",
        "list": "a list",
        "model": "a table",
        "dict": "a table",
        "mapping": "a table",
    }
    noun = nouns.get(kind.partition("_")[0])
    return f"It must be {noun}." if noun else f"{problem['msg']}."


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
