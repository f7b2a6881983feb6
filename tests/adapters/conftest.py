"""The Pythons of the peers' venvs, and how a script is run there: outside of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def run_with_peer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a script of this folder beside checks.py with a peer's venv; what its last line says."""

    def run_script(
        peer: str, script: str, *arguments: str, parse: Callable[[str], Any] = json.loads
    ) -> dict[str, Any]:
        python = ROOT / f".venv-{peer}" / "bin" / "python"
        if not (python.parent.parent / ".ready").is_file():
            pytest.skip(f"run `make .venv-{peer}/.ready` first, as `make test-slow` does")
        desk = tmp_path_factory.mktemp(peer)
        (desk / "checks.py").write_text((HERE / "checks.py").read_text())
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [str(python), str(HERE / script), *arguments],
            cwd=desk,
            capture_output=True,
            text=True,
            env={**clean, "PYTHONSAFEPATH": "1", "RAY_USAGE_STATS_ENABLED": "0"},
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return parse(done.stdout.strip().splitlines()[-1])

    return run_script
