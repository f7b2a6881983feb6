"""A run folder: settings, manifest, metrics, timings, samples and checkpoints of one run."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from stepmark.errors import RunError

from .files import append_rows, publish, read_rows, sweep, write_json
from .lock import Lock
from .samples import SampleStore

__all__ = ["RunFolder", "differing", "flatten"]

log = logging.getLogger(__name__)


class RunFolder:
    """One run on the disk; ``with`` holds its lock, and begins by removing what a kill left over.

    Reading needs no lock. Make one with `create` or `open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.samples = SampleStore(self.path / "samples")
        self.checkpoints = self.path / "checkpoints"
        self._lock = Lock(self.path / ".lock")

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        manifest: Mapping[str, Any],
        *,
        resume: bool = False,
        may_change: Collection[str] = (),
    ) -> Self:
        """A new run folder, complete or not there at all; with ``resume`` also an earlier one.

        Args:
            path: the run folder.
            config: the settings.
            manifest: from `build_manifest`.
            resume: continue the run that stands there, if one does.
            may_change: dotted keys that may differ from the earlier run; the new ones are written.

        Raises:
            RunError: something stands there and is not resumed, or it was made with other settings
                or other data, prompts or weights; the message names those that differ. Or settings
                are to be rewritten while another process holds the lock.
        """
        path = Path(path)
        if _is_taken(path):
            run = cls._earlier(path, resume=resume)
            run._refuse_changes(config, manifest, may_change)
            run._tell_packages(manifest)
            if run._changed(config, may_change):
                with run:
                    run._rewrite(config, manifest, may_change)
            return run
        with publish(path) as part:
            part.mkdir()
            (part / "config.toml").write_text(to_toml(config), encoding="utf-8")
            write_json(part / "manifest.json", manifest)
            (part / "checkpoints").mkdir()
        return cls(path)

    @classmethod
    def check(
        cls,
        path: Path,
        config: Mapping[str, Any],
        manifest: Mapping[str, Any],
        *,
        resume: bool = False,
        may_change: Collection[str] = (),
    ) -> None:
        """Refuse what `create` would refuse, before costly work; nothing is written.

        Hashes that are None in the manifest are not known yet and not compared.

        Raises:
            RunError: as `create` does.
        """
        path = Path(path)
        if _is_taken(path):
            run = cls._earlier(path, resume=resume)
            known = {key: value for key, value in manifest["hashes"].items() if value is not None}
            earlier = run.manifest().get("hashes", {})
            run._refuse_changes(config, {**manifest, "hashes": {**earlier, **known}}, may_change)
        _check_writable(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """An earlier run.

        Raises:
            RunError: there is no run in that folder.
        """
        path = Path(path)
        if not (path / "config.toml").is_file():
            raise RunError(
                f"{str(path)!r} is not a run folder: it holds no config.toml. "
                "Give the folder that --out named."
            )
        return cls(path)

    @classmethod
    def _earlier(cls, path: Path, *, resume: bool) -> Self:
        if not (path / "config.toml").is_file():
            raise RunError(
                f"{str(path)!r} exists and is not a run; nothing was written. "
                "Choose another folder for --out."
            )
        if not resume:
            raise RunError(
                f"{str(path)!r} already holds a run; nothing was written. "
                "Continue it with --resume, or choose another folder for --out."
            )
        return cls.open(path)

    def _changed(
        self, config: Mapping[str, Any], keys: Collection[str]
    ) -> dict[str, tuple[Any, Any]]:
        """Those of the keys whose values differ from the folder's, with both values."""
        both = differing(self.config(), tomllib.loads(to_toml(config)))
        return {key: values for key, values in both.items() if key in keys}

    def _rewrite(
        self, config: Mapping[str, Any], manifest: Mapping[str, Any], keys: Collection[str]
    ) -> None:
        """The new settings in place of the old ones; only under the lock."""
        for key, (old, new) in self._changed(config, keys).items():
            log.warning("%s: %s was %r and is now %r.", self.path, key, old, new)
        with publish(self.path / "config.toml", replace=True) as part:
            part.write_text(to_toml(config), encoding="utf-8")
        write_json(self.path / "manifest.json", manifest)

    def _refuse_changes(
        self,
        config: Mapping[str, Any],
        manifest: Mapping[str, Any],
        may_change: Collection[str] = (),
    ) -> None:
        changed = differing(self.config(), tomllib.loads(to_toml(config)))
        earlier = self.manifest()
        hashes = [{"hashes": found.get("hashes")} for found in (earlier, json_value(manifest))]
        changed |= differing(*hashes)
        changed = {key: both for key, both in changed.items() if key not in may_change}
        if changed:
            raise RunError(_refusal(self.path, changed))

    def _tell_packages(self, manifest: Mapping[str, Any]) -> None:
        earlier = self.manifest()
        for name, (old, new) in differing(
            earlier.get("packages", {}), json_value(manifest.get("packages", {}))
        ).items():
            log.warning("%s: resumed with %s %s; it was begun with %s.", self.path, name, new, old)

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._sweep()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _sweep(self) -> None:
        """Remove what a killed process left half-made of this run, at most one folder deep."""
        if os.access(self.path.parent, os.R_OK | os.W_OK):
            sweep(self.path.parent, self.path.name)
        inside = [place for place in self.path.iterdir() if place.is_dir()]
        for folder in (self.path, *(place for place in inside if not place.is_symlink())):
            if folder.exists():
                sweep(folder)

    def config(self) -> dict[str, Any]:
        """The settings in ``config.toml``; an absent optional reads ``"none"``."""
        return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))

    def manifest(self) -> dict[str, Any]:
        """What the run was made with."""
        return json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))

    def log_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Put a row of metrics at the end of ``metrics.jsonl``; never times."""
        append_rows(self.path / "metrics.jsonl", [{"step": step, **metrics}])

    def log_timings(self, step: int, timings: Mapping[str, Any]) -> None:
        """Put a row of times (in seconds) at the end of ``timings.jsonl``."""
        append_rows(self.path / "timings.jsonl", [{"step": step, **timings}])

    def metrics(self) -> list[dict[str, Any]]:
        """One row per step, in order: all that was logged for it, the later value winning."""
        return _by_step(read_rows(self.path / "metrics.jsonl"))

    def timings(self) -> list[dict[str, Any]]:
        """One row per step, in order, in seconds."""
        return _by_step(read_rows(self.path / "timings.jsonl"))


def _refusal(path: Path, changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Which settings differ, what to do, and where an earlier version may be the reason."""
    shown = "; ".join(_difference(name, *both) for name, both in list(changed.items())[:4])
    more = f"; and {len(changed) - 4} more" if len(changed) > 4 else ""
    reasons: list[str] = []
    if any(name.startswith("hashes.weights") for name in changed):
        reasons.append("weights that nobody changed have another name")
    if any(old is None and not name.startswith("hashes.") for name, (old, _) in changed.items()):
        reasons.append("a setting is missing")
    why = (
        f" (Where an earlier Stepmark began the run, {' and '.join(reasons)}: finish it with that "
        "one.)"
    )
    return (
        f"{str(path)!r} was made with other settings: {shown}{more}. Resume with the earlier ones, "
        f"or choose another folder for --out.{why if reasons else ''}"
    )


def _difference(name: str, old: Any, new: Any) -> str:
    if old is None and not name.startswith("hashes."):
        return f"{name} is {new!r} and is not among its settings"
    return f"{name} was {old!r} and is {'no setting now' if new is None else f'now {new!r}'}"


def _check_writable(path: Path) -> None:
    above = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise RunError(
            f"{str(path)!r} cannot be written: {str(above)!r} is no folder that this user may "
            "write in. Choose another folder for --out."
        )


def _is_taken(path: Path) -> bool:
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def to_toml(config: Mapping[str, Any]) -> str:
    """Settings as TOML; an absent optional is written ``"none"``.

    >>> print(to_toml({"seed": 0, "data": {"limit": None}}), end="")
    seed = 0
    <BLANKLINE>
    [data]
    limit = "none"
    """
    import tomli_w

    return tomli_w.dumps(_writable(config))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by dotted key.

    >>> flatten({"data": {"limit": 3}, "seed": 0})
    {'data.limit': 3, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, with both values; a missing one is None.

    >>> differing({"n": 1, "seed": 0}, {"n": 4, "seed": 0})
    {'n': (1, 4)}
    """
    one, two = flatten(old), flatten(new)
    return {
        key: (one.get(key), two.get(key))
        for key in dict.fromkeys((*one, *two))
        if one.get(key) != two.get(key)
    }


def json_value(value: Any) -> Any:
    """A value as it would be read back from JSON."""
    return json.loads(json.dumps(value, default=str))


def _writable(value: Any) -> Any:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return {str(key): _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_writable(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        merged.setdefault(row["step"], {}).update(row)
    return [merged[step] for step in sorted(merged)]
