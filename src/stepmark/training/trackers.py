"""A run's metrics sent to TensorBoard, trackio or Weights & Biases, through accelerate's trackers.

``metrics.jsonl`` is written by every run; what is here comes on top, under the same names. A
tracker that fails on the way is left out with one warning: a network that is down ends no run.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from stepmark.errors import ConfigError, SetupError, did_you_mean, require
from stepmark.registry import Registry

__all__ = ["TRACKERS", "Trackers", "check_trackers"]

log = logging.getLogger(__name__)

TRACKERS = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
"""The names in ``algorithm.trackers``, and the package that each one needs."""

PROJECT = "stepmark"
"""Under which trackio and wandb collect runs; the run itself bears the name of its folder."""

own_trackers: Registry[type[Any]] = Registry("tracker", "stepmark.trackers")


def check_trackers(names: Collection[str]) -> None:
    """Refuse trackers that cannot work here, before anything is loaded.

    Args:
        names: those of `TRACKERS`, or ``module:class`` and ``file.py:class`` of accelerate's
            ``GeneralTracker`` classes.

    Raises:
        ConfigError: no tracker is called that, or the class is not one of accelerate's.
        SetupError: its package is not installed; the message ends in the pip line.
    """
    for name in names:
        if ":" in name:
            _own_class(name)
        elif name not in TRACKERS:
            raise ConfigError(
                f"algorithm.trackers names {name!r}, which is no tracker. "
                f"{did_you_mean(name, TRACKERS)} Known: {', '.join(TRACKERS)}; a class of yours is "
                "named file.py:Class. metrics.jsonl is written in any case."
            )
        elif importlib.util.find_spec(TRACKERS[name]) is None:
            raise SetupError(
                f"algorithm.trackers names {name!r}, and the package {TRACKERS[name]!r} is not "
                f"installed. Install it, or leave the tracker out (metrics.jsonl is always "
                f"written):\n    pip install {TRACKERS[name]}"
            )


def _own_class(name: str) -> Any:
    require("accelerate", extra="train", purpose="A tracker")
    from accelerate.tracking import GeneralTracker

    kind = own_trackers.load(name)
    if not (isinstance(kind, type) and issubclass(kind, GeneralTracker)):
        raise ConfigError(
            f"algorithm.trackers names {name!r}, which is a {type(kind).__name__} and no class "
            "made from accelerate.tracking.GeneralTracker. Derive it from that class."
        )
    return kind


class Trackers:
    """The trackers of one run; ``with`` starts and ends them.

    Args:
        names: as `check_trackers` takes them.
        run: the run folder; TensorBoard's files go into ``tensorboard/`` there.
        settings: of the run, flat: they are shown beside its curves.
    """

    def __init__(
        self, names: Collection[str], run: Path, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.names, self.run = tuple(dict.fromkeys(names)), Path(run)
        self.settings = {key: _plain(value) for key, value in (settings or {}).items()}
        self.running: dict[str, Any] = {}

    def __enter__(self) -> Self:
        check_trackers(self.names)
        if self.names:
            from accelerate import PartialState

            PartialState()  # accelerate's trackers write to its log, which asks for the process
        for name in self.names:
            self._try(name, lambda name=name: self._start(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, tracker in list(self.running.items()):
            self._try(name, tracker.finish)
        self.running.clear()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send a row of metrics of a step, under the names they have in ``metrics.jsonl``."""
        for name, tracker in list(self.running.items()):
            self._try(name, lambda tracker=tracker: tracker.log(dict(metrics), step=step))

    def _start(self, name: str) -> None:
        tracker = self._make(name)
        tracker.start()
        self.running[name] = tracker
        tracker.store_init_configuration(dict(self.settings))

    def _make(self, name: str) -> Any:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        title = self.run.absolute().name
        if ":" in name:
            kind = _own_class(name)
            place = {"logging_dir": self.run} if kind.requires_logging_directory else {}
            return kind(title, **place)
        kind = LOGGER_TYPE_TO_CLASS[name]
        if name == "tensorboard":
            return kind("tensorboard", logging_dir=self.run)
        if name == "wandb":
            return kind(PROJECT, name=title, dir=str(self.run))
        return kind(PROJECT, name=title, resume="allow")

    def _try(self, name: str, action: Any) -> None:
        """Do it; what a tracker raises is told once, and that tracker is left out from then on."""
        try:
            action()
        except Exception as error:
            self.running.pop(name, None)
            first = next(iter(str(error).splitlines()), "")
            log.warning(
                "The tracker %s is left out from here on: %s: %s. The run goes on, and "
                "metrics.jsonl has every number.",
                name,
                type(error).__name__,
                first,
            )


def _plain(value: Any) -> bool | int | float | str:
    """A setting as every tracker takes it; an absent one reads ``none``."""
    if value is None:
        return "none"
    return value if isinstance(value, bool | int | float | str) else str(value)
