"""On what and of which code a row was made."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def about(root: Path) -> dict[str, str]:
    """Machine, versions and commit; ``+`` behind the commit where files were changed since."""
    import torch

    cores, threads = os.cpu_count(), torch.get_num_threads()
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    machine = f"{platform.machine()}, {cores} cores, {threads} thread{'s' * (threads > 1)}, {where}"
    commit = _git(root, "rev-parse", "--short", "HEAD") or "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", *ROOMS)
    return {
        "machine": f"{machine}, torch {torch.__version__}",
        "commit": commit + "+" * bool(changed),
    }


ROOMS = ("verifiers", "prm", "rl_backends", "evals")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip()
