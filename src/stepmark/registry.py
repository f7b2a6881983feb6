"""Names for pluggable parts, and how a name on a command line becomes an object.

Four ways to register, all equal: the decorator, an entry point of an installed package,
``module:attr``, ``file.py:attr``. A reference may carry settings: ``math?units=require``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from stepmark.errors import ConfigError, UnknownNameError

__all__ = ["Entry", "Reference", "Registry", "load_file"]

T = TypeVar("T")

FORMULA = re.compile(r"\s*([A-Za-z][\w-]*)\(")
"""A name with its parts in brackets: ``all(math, format)``."""
FILE_MODULE = "stepmark_file_"
"""How the names of modules from files begin; a digest of path and content follows."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A name with settings, as typed on a command line or written in a config."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def parse(cls, text: str | Mapping[str, Any] | Reference) -> Reference:
        """The reference that a string or a table means.

        A string is ``name?key=value&key=value``; values are read as TOML where they are TOML and
        as plain strings otherwise. A table is ``{name = "math", units = "require"}``. What stands
        in brackets after a name is the list ``of`` its parts, each a reference: ``all(math,
        format?one_box=true)`` is ``{name = "all", of = ["math", "format?one_box=true"]}``.

        Raises:
            ConfigError: no name, a setting without ``=``, or a bracket that is not closed.

        >>> Reference.parse("math?units=require&digits=4")
        Reference(name='math', settings={'units': 'require', 'digits': 4})
        >>> str(Reference.parse("first(choice, all(math?strict=true, format))"))
        'first(choice, all(math?strict=true, format))'
        """
        if isinstance(text, Reference):
            return text
        if isinstance(text, str):
            name, parts, query = _taken_apart(text)
            pairs = [pair.partition("=") for pair in query.split("&") if pair]
            if bad := next((key for key, equals, _ in pairs if not equals or not key), None):
                raise ConfigError(
                    f"The setting {bad!r} in {text!r} has no value. "
                    "Settings are written name?key=value&key=value."
                )
            settings = {key: toml_value(value) for key, _, value in pairs}
            settings |= {} if parts is None else {"of": parts}
        else:
            settings = dict(text)
            name = settings.pop("name", "")
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"{text!r} names nothing. Write a name such as 'math', or a table with name = ...."
            )
        return cls(name, settings)

    def __str__(self) -> str:
        settings, parts = dict(self.settings), self.settings.get("of")
        inside = isinstance(parts, list) and all(isinstance(part, str) for part in parts)
        name = f"{self.name}({', '.join(settings.pop('of'))})" if inside else self.name
        query = "&".join(f"{key}={_spelled(value)}" for key, value in settings.items())
        return f"{name}?{query}" if query else name


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _taken_apart(text: str) -> tuple[str, list[str] | None, str]:
    """The name, the parts in brackets after it (None without brackets), and the settings."""
    head = FORMULA.match(text)
    if head is None:
        name, _, query = text.partition("?")
        return name, None, query
    depth, quote, start, parts = 0, "", head.end(), list[str]()
    for index in range(head.end(), len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char in ",)" and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
            if char == ")":
                break
    else:
        raise ConfigError(
            f"The bracket in {text!r} is not closed. Write name(part, part), "
            "such as all(math, format)."
        )
    rest = text[start:].strip()
    if rest and not rest.startswith("?"):
        raise ConfigError(f"After the bracket of {text!r} stands {rest!r}; only ?key=value may.")
    return head.group(1), [part for part in parts if part], rest[1:]


def toml_value(text: str) -> Any:
    """The value that a piece of TOML means, or the text itself where it is none.

    >>> toml_value("4"), toml_value("true"), toml_value("[1, 2]"), toml_value("require")
    (4, True, [1, 2], 'require')
    """
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered name: where it comes from, and how to load it."""

    name: str
    source: str
    """For people: a module path, or the distribution that brings it."""
    load: Callable[[], Any]


class Registry(Generic[T]):
    """The known parts of one kind; a value, made once per kind beside its protocol.

    Args:
        kind: the word for messages, such as ``verifier``.
        group: the entry-point group, such as ``stepmark.verifiers``.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._registered: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that makes the object known under a name in this process.

        Raises:
            ConfigError: another object already has that name.
        """

        def add(target: T) -> T:
            where = _origin(target)
            known = self._registered.get(name)
            if known is not None and known.source != where:
                raise ConfigError(
                    f"The {self.kind} name {name!r} is taken by {known.source}; "
                    f"{where} must register under another one."
                )
            self._registered[name] = Entry(name, where, lambda: target)
            return target

        return add

    def entries(self) -> dict[str, Entry]:
        """All known names, decorated ones before those of installed packages."""
        found: dict[str, Entry] = {}
        for point in entry_points(group=self.group):
            found[point.name] = Entry(point.name, _source(point), point.load)
        return found | self._registered

    def names(self) -> list[str]:
        """The known names, sorted."""
        return sorted(self.entries())

    def load(self, name: str) -> T:
        """The object that a name, ``module:attr`` or ``file.py:attr`` stands for.

        Raises:
            UnknownNameError: nothing is known under that name, or it lacks the attribute.
            ConfigError: the file or module exists and fails to load.
        """
        if ":" in name:
            return _attribute(name, self.kind)
        entries = self.entries()
        if name not in entries:
            hint = "" if entries else "Stepmark is not installed here: run pip install -e ."
            raise UnknownNameError.of(self.kind, name, entries, hint or _file_hint(self.kind))
        entry = entries[name]
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The {self.kind} {name!r} from {entry.source} cannot be loaded: {error}. "
                "Mend or uninstall that package, or choose another name."
            ) from error


def _origin(target: Any) -> str:
    """Where an object was defined; a file that was edited and loaded again is the same place."""
    module = getattr(target, "__module__", "?")
    if module.startswith(FILE_MODULE):
        module = getattr(sys.modules.get(module), "__file__", None) or module
    return f"{module}:{getattr(target, '__qualname__', '?')}"


def _file_hint(kind: str) -> str:
    return f"Your own {kind} is named by file, such as checks.py:my_{kind}."


def _source(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _attribute(name: str, kind: str) -> Any:
    place, _, attr = name.rpartition(":")
    module = load_file(Path(place)) if place.endswith(".py") else _module(place, kind)
    if not hasattr(module, attr):
        public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise UnknownNameError.of(f"{kind} in {place}", attr, public)
    return getattr(module, attr)


def _module(name: str, kind: str) -> ModuleType:
    top = name.partition(".")[0]
    here = (Path(top).is_dir() or Path(f"{top}.py").is_file()) and top.isidentifier()
    if here and importlib.machinery.PathFinder.find_spec(top) is None:
        sys.path.append(str(Path.cwd()))  # last: what is installed is never hidden
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnknownNameError(
            f"There is no module {name!r} to take a {kind} from ({error}). "
            "Install it, or name a file: path/to/file.py:function."
        ) from error


def load_file(path: Path) -> ModuleType:
    """The module in a Python file, loaded once per path and content.

    Raises:
        ConfigError: the file is missing or raises while it is loaded.
    """
    full = path.expanduser().resolve()
    if not full.is_file():
        raise ConfigError(
            f"There is no file {str(path)!r} (looked for {full}). "
            "Give a path from the current folder, or an absolute one."
        )
    digest = hashlib.blake2b(str(full).encode() + full.read_bytes(), digest_size=6).hexdigest()
    name = f"{FILE_MODULE}{full.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file that can be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        remedy = "Mend the file, then try again."
        if "relative import" in str(error):
            remedy = f"Name it with its package instead: {full.parent.name}.{full.stem}:attribute."
        raise ConfigError(
            f"{str(path)!r} raises while it is loaded: {type(error).__name__}: {error}. {remedy}"
        ) from error
    return module
