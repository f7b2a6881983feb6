"""The scripted engine that searches are tested with."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from stepmark.registry import load_file


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    return load_file(Path(__file__).with_name("scripted.py"))
