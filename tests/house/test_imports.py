"""What an import costs: the base stays light, and a room loads alone."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "sympy", "datasets", "matplotlib", "scipy", "pandas")
LIGHT_LINES = (
    "import stepmark",
    "import stepmark.verifiers",
    "import stepmark.prm",
    "import stepmark.config",
    "import stepmark.tasks",
    "from stepmark.cli.app import run; run(['--help'])",
    "from stepmark.cli.app import run; run(['verifiers', 'list'])",
)


@pytest.mark.parametrize("line", LIGHT_LINES)
def test_nothing_heavy_is_loaded(line: str) -> None:
    found = f"[name for name in {HEAVY!r} if name in sys.modules]"
    code = f"{line}\nimport sys, json\nprint('\\n' + json.dumps({found}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        timeout=60,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


PUBLIC = (
    "stepmark",
    "stepmark.verifiers",
    "stepmark.prm",
    "stepmark.rl_backends",
    "stepmark.evals",
    "stepmark.tasks",
    "stepmark.store",
    "stepmark.statistics",
    "stepmark.engines",
    "stepmark.training",
    "stepmark.report",
    "stepmark.config",
    "stepmark.testing",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    exported = module.__all__
    for public in exported:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{public} has no docstring"
