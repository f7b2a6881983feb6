"""The house keeps its walls: imports run down only, files and functions stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "stepmark"
ROOMS = ("verifiers", "prm", "rl_backends", "evals")

# Who may import whom, as in the design: a part may import itself and what stands in its set.
BASE = {"types", "protocols", "registry", "config", "errors", "seeds", "__init__"}
MIDDLE = BASE | {"tasks", "store", "statistics"}
UPPER = MIDDLE | {"report", "training", "engines"}
VERIFIERS = UPPER | {"verifiers", "testing"}
PRM = VERIFIERS | {"prm"}
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    **dict.fromkeys(("tasks", "store", "statistics"), MIDDLE),
    **dict.fromkeys(("report", "training", "engines"), UPPER),
    "verifiers": VERIFIERS - {"testing"},
    "prm": PRM,
    "rl_backends": PRM | {"rl_backends"},
    "evals": PRM | {"evals"},
    "testing": PRM | {"rl_backends", "evals"},
}
TOP = {"cli", "server", "adapters", "demo", "quickstart"}


def python_files() -> list[Path]:
    core = [
        path
        for path in CORE.rglob("*.py")
        if not (CORE / path.relative_to(CORE).parts[0]).is_symlink()
    ]
    rooms = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return sorted(core + rooms)


def part_of(path: Path) -> str:
    base = CORE if path.is_relative_to(CORE) else ROOT
    return path.relative_to(base).parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
            if node.module == "stepmark":
                names = [f"stepmark.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "stepmark":
                known = (
                    len(parts) > 1
                    and (CORE / parts[1]).exists() | (CORE / f"{parts[1]}.py").exists()
                )
                yield (parts[1] if known else "__init__"), node.lineno


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_down_only(path: Path) -> None:
    part = part_of(path)
    if part in TOP:
        return
    assert part in ALLOWED, f"{part} has no place in the table of layers"
    tree = ast.parse(path.read_text())
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports stepmark.{target}"
        for target, line in imported_parts(tree)
        if target not in ALLOWED[part] | {part}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_fit_a_reader(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400, (
        f"{path.relative_to(ROOT)} is over 400 lines: split it by noun"
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, (
                f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines"
            )


def test_each_room_is_linked_into_the_package() -> None:
    for room in ROOMS:
        link = CORE / room
        assert link.is_symlink(), f"src/stepmark/{room} must be a link to ../../{room}"
        assert link.resolve() == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_refuses_its_bare_name(room: str) -> None:
    source = (ROOT / room / "__init__.py").read_text()
    with pytest.raises(ImportError, match=f"stepmark.{room}"):
        exec(compile(source, f"{room}/__init__.py", "exec"), {"__name__": room})
