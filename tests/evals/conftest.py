"""The fakes that evaluations are tested with."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from stepmark.protocols import OutcomeVerifier
from stepmark.registry import load_file


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    return load_file(Path(__file__).with_name("fake_engine.py"))


@pytest.fixture(scope="session")
def math() -> OutcomeVerifier:
    from stepmark.verifiers import load_verifier

    return load_verifier("math")
