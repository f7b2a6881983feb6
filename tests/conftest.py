"""What every test can rely on: no network, one torch thread per worker, skips that are seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are shared and noisy: time is measured in benchmarks, never here. In CI the examples are
# the same each time, so that a red run is about the change; everywhere else they are fresh.
settings.register_profile("stepmark", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("stepmark")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With STEPMARK_NO_SKIPS=1 (as .ci/run sets it), a skipped test fails the run."""
    if os.environ.get("STEPMARK_NO_SKIPS") == "1" and skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("STEPMARK_NO_SKIPS") == "1" and skipped:
        terminalreporter.section("skipped, and STEPMARK_NO_SKIPS=1 forbids it")
        for line in skipped:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of public data sets (GSM8K, MATH, recorded responses), from STEPMARK_DATA."""
    place = os.environ.get("STEPMARK_DATA")
    if not place or not Path(place).is_dir():
        pytest.skip("set STEPMARK_DATA to the folder of data sets that .ci/run uses")
    return Path(place)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, as examples/get_smollm2.py makes it; its place is STEPMARK_SMOLLM2."""
    place = os.environ.get("STEPMARK_SMOLLM2")
    if not place or not (Path(place) / "model.safetensors").is_file():
        pytest.skip("set STEPMARK_SMOLLM2 to a folder made by examples/get_smollm2.py")
    return Path(place)
