"""A run that was stopped goes on: each finished stage is kept until the results are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepmark.store import write_json


class Stages:
    """What a run has finished.

    Args:
        path: where finished stages are kept.
        key: what they depend on; stages kept under another key are measured again.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.found: dict[str, Any] = {}
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or one that was cut off: measured again
            return
        if isinstance(kept, dict) and kept.get("key") == key:
            self.found = kept["stages"]

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        """The stage's result: kept from before, or measured now and kept."""
        if name not in self.found:
            self.found[name] = measure()
            write_json(self.path, {"key": self.key, "stages": self.found})
        return self.found[name]

    def finish(self) -> None:
        """Forget the stages: the results are written."""
        self.path.unlink(missing_ok=True)
