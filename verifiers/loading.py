"""From a reference to a verifier: a name, an import path, a file, or an object."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stepmark.errors import ConfigError, UnknownNameError, did_you_mean
from stepmark.protocols import OutcomeVerifier
from stepmark.registry import Reference

from .functions import DEADLINE_S, GIVEN, from_function, registry

__all__ = ["load_verifier", "register", "remember", "remembered"]

F = TypeVar("F", bound=Callable[..., Any])

FILE = "stepmark.toml"
FILES = re.compile(r"(?<=[(,*\s])[^\s(),*?&=]+\.py(?=:)")
"""Files that the parts of a combination name: ``all(checks.py:units, math)``."""


def register(name: str) -> Callable[[F], F]:
    """Decorator that makes a function or a class known as a verifier under a name.

    The name is known in this process; for all of them, name the file (``checks.py:shout``), use
    `remember`, or declare an entry point of the group ``stepmark.verifiers`` in a package.

    Raises:
        ConfigError: another object already has that name.

    >>> @register("shout")
    ... def shout(completion): return completion.isupper()
    >>> load_verifier("shout").columns
    frozenset()
    """
    return registry.register(name)


def load_verifier(
    reference: str | Mapping[str, Any] | Reference | Callable[..., Any] | OutcomeVerifier,
) -> OutcomeVerifier:
    """The verifier that a reference stands for.

    Args:
        reference: ``math``, ``math?units=require``, ``{name = "math", units = "require"}``,
            ``all(math, format)``, ``package.module:function``, ``file.py:function``, a name
            remembered in ``./stepmark.toml``, a function, a class, or a verifier.

    Raises:
        UnknownNameError: nothing is known under that name.
        ConfigError: a file or module fails to load, or a setting is not known.
    """
    if not isinstance(reference, str | Mapping | Reference):
        return _made(reference, Reference(getattr(reference, "__name__", "verifier")), None)
    wanted = Reference.parse(reference)
    name, settings, base = wanted.name, dict(wanted.settings), None
    known = remembered(Path())
    if name.endswith(".py"):
        raise ConfigError(
            f"{name!r} is a file, and a verifier is a function in it. "
            f"Write {name}:FUNCTION, such as {name}:my_verifier."
        )
    if ":" not in name and name not in registry.entries():
        if name not in known:
            names = {*registry.entries(), *known}
            raise UnknownNameError.of(
                "verifier", name, names, "Your own is named by file: checks.py:my_verifier."
            )
        inner = Reference.parse(known[name])
        name, settings, base = inner.name, {**inner.settings, **settings}, wanted.name
    origin = _absolute(name) if ":" in name else None
    return _made(registry.load(name), Reference(base or name.rpartition(":")[2], settings), origin)


def _absolute(name: str) -> str:
    place, _, attr = name.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{attr}" if place.endswith(".py") else name


def _made(target: Any, wanted: Reference, origin: str | None) -> OutcomeVerifier:
    """A verifier of what was loaded: a class or factory is called with the settings."""
    settings = dict(wanted.settings)
    if isinstance(target, type):
        return _checked(_call(target, settings, wanted), wanted)
    if isinstance(target, OutcomeVerifier):
        if settings:
            raise ConfigError(
                f"The verifier {wanted.name!r} is a finished object and takes no settings; got "
                f"{', '.join(settings)}. Name its class, or a function that makes one."
            )
        return target
    if not callable(target):
        raise ConfigError(
            f"{wanted.name!r} is {target!r:.80}, which is no verifier. "
            "A verifier is a function such as def f(completion, gold): ..., "
            "or a class with key, columns and __call__."
        )
    parameters = inspect.signature(target).parameters
    marks = any(name in GIVEN or p.kind is p.VAR_KEYWORD for name, p in parameters.items())
    if not marks:
        made = _call(target, settings, wanted)
        return (
            made if isinstance(made, OutcomeVerifier) else _made(made, Reference(wanted.name), None)
        )
    timeout_s = DEADLINE_S
    if "timeout_s" not in parameters:
        timeout_s = _deadline(settings.pop("timeout_s", DEADLINE_S), wanted.name)
    return from_function(target, wanted.name, origin=origin, settings=settings, timeout_s=timeout_s)


def _deadline(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise ConfigError(
            f"The setting timeout_s of the verifier {name!r} is {value!r}; it must be a number of "
            "seconds above 0 and at most 86400, such as timeout_s=1."
        )
    return float(value)


def _call(factory: Callable[..., Any], settings: dict[str, Any], wanted: Reference) -> Any:
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        known = list(inspect.signature(factory).parameters)
        unknown = next((name for name in settings if name not in known), "")
        said = [
            f"The verifier {wanted.name!r} with {settings}: {error}.",
            did_you_mean(unknown, known),
            f"Its settings: {', '.join(known) or 'none'}.",
        ]
        raise ConfigError(" ".join(filter(None, said))) from error
    return factory(**settings)


def _checked(made: Any, wanted: Reference) -> OutcomeVerifier:
    if isinstance(made, OutcomeVerifier):
        return made
    if callable(made):
        return from_function(made, wanted.name)
    raise ConfigError(
        f"{type(made).__name__!r} is no verifier: it lacks key, columns or __call__. "
        "Run `stepmark verifiers check` on it, or write a plain function instead."
    )


def remembered(folder: Path) -> dict[str, str]:
    """Names in the folder's ``stepmark.toml``, with file references made absolute.

    Raises:
        ConfigError: the file is not TOML, or its ``[verifiers]`` is no table of strings.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("verifiers", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}. Mend it, or remove it.") from error
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise ConfigError(f'{path}: [verifiers] must hold lines such as units = "checks.py:units".')
    return {name: _from_folder(value, path.resolve().parent) for name, value in table.items()}


def _from_folder(reference: str, folder: Path) -> str:
    return _refiled(reference, lambda place: str((folder / Path(place).expanduser()).resolve()))


def _refiled(reference: str, named: Callable[[str], str]) -> str:
    """A reference with its file, or those of its parts, named in another way."""
    if "of" in Reference.parse(reference).settings:
        return FILES.sub(lambda match: named(match.group()), reference)
    name, question, query = reference.partition("?")
    place, colon, attr = name.rpartition(":")
    if colon and place.endswith(".py"):
        name = f"{named(place)}:{attr}"
    return f"{name}{question}{query}"


def remember(name: str, reference: str, folder: Path | str = ".") -> Path:
    """Write a name for a verifier into the folder's ``stepmark.toml``; returns that file.

    Args:
        name: the short name; a letter, then letters, digits, ``-`` and ``_``.
        reference: ``file.py:function`` (a path from the current folder) or ``module:attr``.
        folder: where ``stepmark.toml`` stands or will stand.

    Raises:
        ConfigError: the name is taken by a registered verifier, or is no name.
        UnknownNameError: the reference leads to nothing.
    """
    import tomli_w

    if not name.replace("-", "_").isidentifier():
        raise ConfigError(
            f"{name!r} is no name for a verifier: use letters, digits, - and _, such as my-units."
        )
    if name in registry.entries():
        raise ConfigError(
            f"The name {name!r} belongs to a registered verifier; choose another one."
        )
    load_verifier(reference)
    path = Path(folder) / FILE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    tree = tomllib.loads(text)
    tree.setdefault("verifiers", {})[name] = _relative(reference, path.resolve().parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return path


def _relative(reference: str, folder: Path) -> str:
    def named(place: str) -> str:
        full = Path(place).expanduser().resolve()
        return full.relative_to(folder).as_posix() if full.is_relative_to(folder) else str(full)

    return _refiled(reference, named)
