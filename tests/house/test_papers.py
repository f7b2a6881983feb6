"""The table of docs/papers.md is true: functions, tests and presets exist under these names."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/papers.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| equation")
]


def test_the_page_has_rows_of_five_cells() -> None:
    assert len(ROWS) > 20
    assert {len(row) for row in ROWS} <= {4, 5}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_function_test_and_preset_of_an_equation_exist(row: list[str]) -> None:
    name = row[2].strip("`")
    path = name if name.startswith("stepmark.") else f"stepmark.rl_backends.{name}"
    parts = path.split(".")
    split = next(n for n in range(len(parts), 0, -1) if _is_module(".".join(parts[:n])))
    found = import_module(".".join(parts[:split]))
    for part in parts[split:]:
        found = getattr(found, part)
    assert found.__doc__

    place, _, test = row[3].strip("`").partition("::")
    file = ROOT / place if "/" in place else ROOT / "tests/rl_backends" / place
    assert re.search(rf"^def {test}\(", file.read_text(), re.MULTILINE), f"{place} has no {test}"

    if len(row) == 5 and row[4].strip("`| "):
        preset = ROOT / f"src/stepmark/config/presets/{row[4].strip('`| ')}.toml"
        assert preset.is_file()


def _is_module(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_every_preset_of_a_backend_has_a_row() -> None:
    presets = {path.stem for path in (ROOT / "src/stepmark/config/presets").glob("*.toml")}
    shown = {row[4].strip("`| ") for row in ROWS if len(row) == 5}
    assert {name for name in presets - shown if not name.startswith("quickstart-")} == set()


def test_every_paper_that_a_backend_cites_has_a_row() -> None:
    cited = {
        paper
        for path in (ROOT / "rl_backends").glob("*.py")
        for paper in re.findall(r"arXiv:\d{4}\.\d{5}", path.read_text())
    }
    assert cited
    assert cited - set(re.findall(r"arXiv:\d{4}\.\d{5}", PAGE)) == set()
