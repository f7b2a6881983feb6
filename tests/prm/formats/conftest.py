"""Reading rows of a format, and files of them, in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepmark.prm.formats import Conversion, LeftOut, Repairs, convert_file, load_format
from stepmark.types import LabelledSteps

Read = Callable[..., list[LabelledSteps]]
Convert = Callable[..., "Converted"]


class Converted:
    """A conversion with its three files read back."""

    def __init__(self, found: Conversion, out: Path) -> None:
        self.found = found
        self.rows = _rows(out)
        rejects = out.with_name("rows.rejects.jsonl")
        self.rejects = _rows(rejects) if rejects.exists() else []
        self.manifest = json.loads(out.with_name("rows.manifest.json").read_text())


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def read() -> Read:
    """The solutions that a format finds in one row."""

    def reading(name: str, row: Mapping[str, Any], **settings: Any) -> list[LabelledSteps]:
        found = load_format(name, **settings).read(row)
        return [one for one in found if not isinstance(one, LeftOut)]

    return reading


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    """A conversion of rows (or raw lines) that are written to a file first."""

    def converting(
        rows: Sequence[Mapping[str, Any] | str],
        name: str | None = None,
        repairs: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Converted:
        source, out = tmp_path / "source.jsonl", tmp_path / "rows.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        source.write_text("".join(line + "\n" for line in lines))
        made = Repairs(**repairs) if repairs else None
        found = convert_file(str(source), out, name, repairs=made, **settings)
        return Converted(found, out)

    return converting
