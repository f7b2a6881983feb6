"""What a run was made with: command, versions, machine, date."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import stepmark.verifiers
from stepmark.errors import SetupError

PACKAGES = ("stepmark", "sympy", "mpmath", "math-verify", "latex2sympy2_extended",
            "antlr4-python3-runtime", "python-flint", "pint", "pebble")  # fmt: skip
PEER = "math-verify"
PEER_VERSION = "0.9.0"
ROOT = Path(__file__).resolve().parents[1]


def about(words: Sequence[str], *, seed: int, rounds: int, quick: bool) -> dict[str, Any]:
    """The facts that a number needs beside it."""
    return {
        "command": " ".join(("python", "benchmarks/verifier.py", *words)),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": seed,
        "rounds": rounds,
        "quick": quick,
        "commit": _commit(),
        "sources": sources(),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def check_machine(peer: str) -> None:
    """Refuse a machine or an environment in which the figures would mean something else.

    Raises:
        SetupError: not Linux, or the peer is missing or of another version.
    """
    if not Path("/proc/self/task").is_dir():
        raise SetupError(
            f"This is {platform.system()}; the CPU time of workers is read from Linux's /proc. "
            f"Run the benchmark on Linux."
        )
    if peer == PEER and installed(PEER) != PEER_VERSION:
        raise SetupError(
            f"The peer is math-verify {PEER_VERSION}; installed is {installed(PEER) or 'none'}. "
            f"Run `make bench`, which installs it, or give --peer none to measure ours alone."
        )


def installed(name: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def sources() -> str:
    """A digest of the verifier's and the benchmark's source files."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in (Path(stepmark.verifiers.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _commit() -> str:
    """The checkout's commit, with a plus when files differ from it."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
