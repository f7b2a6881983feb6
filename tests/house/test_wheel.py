"""What pip installs is whole: built, installed alone, and at peace with its neighbours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("verifiers", "prm", "rl_backends", "evals")


def call(*command: str | Path, cwd: Path, **env: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**clean, **env},
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sdist and wheel, made by ``python -m build`` from a copy of the tracked files."""
    source = tmp_path_factory.mktemp("source") / "stepmark"
    files = call("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", out, cwd=source)
    return out


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty venv that holds the wheel and its base dependencies, and no torch."""
    venv = tmp_path_factory.mktemp("venv") / "v"
    call(sys.executable, "-m", "venv", venv, cwd=built)
    python = venv / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", next(built.glob("*.whl")), cwd=built)
    return python


def evaluate(python: Path, code: str, cwd: Path) -> object:
    return json.loads(call(python, "-c", f"import json\n{code}", cwd=cwd))


def test_the_wheel_holds_all_rooms_on_one_path(python: Path, tmp_path: Path) -> None:
    code = f"""
import importlib, stepmark
for room in ("verifiers", "prm"):
    importlib.import_module("stepmark." + room)
from pathlib import Path
home = Path(stepmark.__file__).parent
rooms = [(home / room / "__init__.py").is_file() for room in {ROOMS!r}]
print(json.dumps([len(stepmark.__path__), rooms, (home / "py.typed").is_file()]))
"""
    assert evaluate(python, code, tmp_path) == [1, [True] * 4, True]


def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    call("tar", "xzf", next(built.glob("*.tar.gz")), cwd=tmp_path)
    source = next(tmp_path.iterdir())
    call(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "again", cwd=source)
    import zipfile

    def names(folder: Path) -> set[str]:
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            return {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert names(built) == names(tmp_path / "again")


def test_verify_and_demo_work_without_torch(python: Path, tmp_path: Path) -> None:
    stepmark = python.with_name("stepmark")
    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        call(python, "-c", "import torch", cwd=tmp_path)
    row = json.loads(
        call(stepmark, "verify", r"so \boxed{\frac12}", "--gold", "0.5", "--json", cwd=tmp_path)
    )
    assert row["correct"] is True
    assert "stepmark" in call(stepmark, "--version", cwd=tmp_path)
    call(stepmark, "demo", cwd=tmp_path)


def test_a_missing_extra_ends_in_the_pip_line(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [python.with_name("stepmark"), "quickstart"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'stepmark[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_lives_beside_the_packages_named_verifiers_and_evals(
    python: Path, tmp_path: Path
) -> None:
    # Their dependencies are heavy and beside the point: what can collide is files and import names.
    call(python, "-m", "pip", "install", "-q", "--no-deps", "verifiers", "evals", cwd=tmp_path)
    code = """
import importlib.util, importlib.metadata as m
def files(name): return {str(f) for f in m.files(name)}
ours, theirs = files("stepmark"), files("verifiers") | files("evals")
import stepmark.verifiers
spec = {n: importlib.util.find_spec(n).origin for n in ("verifiers", "evals")}
own = "stepmark" in spec["verifiers"]
print(json.dumps([sorted(ours & theirs), own, stepmark.verifiers.__name__]))
"""
    assert evaluate(python, code, tmp_path) == [[], False, "stepmark.verifiers"]


@pytest.mark.parametrize("editable", [False, True], ids=["plain", "editable"])
def test_pip_install_from_a_checkout(python: Path, tmp_path: Path, editable: bool) -> None:
    venv = tmp_path / "v"
    call(sys.executable, "-m", "venv", "--system-site-packages", venv, cwd=tmp_path)
    flags = ["-e"] if editable else []
    inner = venv / "bin" / "python"
    call(inner, "-m", "pip", "install", "-q", "--no-deps", *flags, ROOT, cwd=tmp_path)
    # The base dependencies come from the first venv: only the packaging is tried here.
    site = call(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    ).strip()
    answer = call(venv / "bin" / "stepmark", "--version", cwd=tmp_path, PYTHONPATH=site)
    assert answer.startswith("stepmark ")
    code = f"import sys; sys.path.append({site!r}); import stepmark.prm as p; print(p.__file__)"
    where = call(inner, "-c", code, cwd=tmp_path)
    assert (str(ROOT) in where) == editable
