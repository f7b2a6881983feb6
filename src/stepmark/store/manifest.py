"""What a run was made with: versions, seeds, revision and hashes, and no times."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import stepmark

from .files import rows_hash

__all__ = ["build_manifest"]

PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "tokenizers",
    "safetensors",
    "vllm",
    "peft",
    "numpy",
    "scipy",
    "sympy",
    "pydantic",
)


def build_manifest(
    *,
    config: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
    data_hashes: Mapping[str, str] | None = None,
    prompt_hash: str | Mapping[str, str] | None = None,
    weights_hash: str | Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Versions, seeds, git revision, platform and hashes: equal for equal runs, so without times.

    Args:
        config: the settings; their digest is kept, they themselves stand in ``config.toml``.
        seeds: every seed of the run by what it seeds.
        data_hashes: digest of the normalised rows by data set.
        prompt_hash: digest of the prompt template, or of several by name.
        weights_hash: digest of the weights, or of several by name.
    """
    return {
        "stepmark": stepmark.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "git": _revision(),
        "seeds": dict(seeds or {}),
        "config_hash": rows_hash([dict(config or {})]),
        "hashes": {"data": dict(data_hashes or {}), "prompt": prompt_hash, "weights": weights_hash},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, Any] | None:
    """Revision of the checkout that Stepmark runs from; None for an installed package."""
    root = Path(stepmark.__file__).resolve().parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return None
    return {"revision": head, "modified": bool(_git(root, "status", "--porcelain", "-uno"))}


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
