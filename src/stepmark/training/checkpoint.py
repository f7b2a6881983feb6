"""Checkpoints: plain Hugging Face folders, and inside some of them what a run needs to continue.

A folder appears whole or not at all (it is written beside and renamed), and a list of hashes in it
tells a torn or altered one. Layout: the files of ``save_pretrained`` for model and tokenizer, and
``state/`` with ``training.pt``, ``hashes.json`` and, where there are such, ``reference.pt`` (once
it was refreshed), ``critic.pt``, ``reward_models.pt``, ``window.pt`` (inside of a step) and
``progress.pt`` (of a reward model's training). Where adapters learn, they lie in ``adapter/``:
beside the whole model with them merged, or, in a numbered checkpoint, alone.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stepmark.errors import RunError
from stepmark.store.files import file_hash, publish

from .adapter_files import FOLDER, load_adapter, save_adapter
from .fingerprint import fingerprint
from .lora import is_adapted, plain_weights
from .quiet import no_progress_bars

__all__ = [
    "Policy",
    "TrainingState",
    "fingerprint",
    "last_good",
    "load_state",
    "load_weights",
    "prune",
    "random_state",
    "save_checkpoint",
    "set_aside",
    "set_random_state",
    "step_folder",
    "write_policy",
]

log = logging.getLogger(__name__)

STATE = "state"

APART = ("reference", "critic", "reward_models", "window", "progress")
"""Parts of the state that may be absent or large: each has a file of its own."""


class Policy(NamedTuple):
    """A causal language model of transformers and its tokenizer."""

    model: Any
    tokenizer: Any


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything besides the policy's weights that the next step depends on."""

    step: int
    """Optimized steps so far; also the version of the policy."""
    optimizer: Mapping[str, Any]
    random: Mapping[str, Any] = field(default_factory=dict[str, Any])
    best: float | None = None
    """Highest value of the best metric so far."""
    best_step: int | None = None
    evaluated_at: int | None = None
    """Step of the newest held-out evaluation, so that a resumed run does not repeat it."""
    evaluation: Mapping[str, float] = field(default_factory=dict[str, float])
    first_policy: str = ""
    """`fingerprint` of the policy that the run began with: the reference is made from it."""
    reference: Mapping[str, Tensor] | None = None
    """Weights of the reference once it was refreshed; None while it is the first policy."""
    critic: Mapping[str, Any] | None = None
    """Weights and optimizer of the critic; None without one."""
    reward_models: Mapping[str, Any] | None = None
    """States of the reward models that learn during the run; None without any."""
    given_reference: str = ""
    """`fingerprint` of the reference that the run was given; empty without one."""
    window: Mapping[str, Any] | None = None
    """The step after ``step`` as far as it was learnt from; None between steps."""
    progress: Mapping[str, Any] | None = None
    """What another loop than that of RL goes by, in plain values and tensors; None there."""


def step_folder(checkpoints: Path, step: int, minibatches: int | None = None) -> Path:
    """Where the numbered checkpoint of a step lies: ``step-000012``.

    With minibatches, the one after so many of the next step: ``step-000012-0003``.
    """
    inside = "" if minibatches is None else f"-{minibatches:04d}"
    return checkpoints / f"step-{step:06d}{inside}"


def numbered(checkpoints: Path) -> list[Path]:
    """The numbered checkpoints, oldest first."""

    def place(folder: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in folder.name.split("-")[1:] if part.isdecimal())

    return sorted(checkpoints.glob("step-[0-9]*"), key=place)


def save_checkpoint(
    path: Path,
    policy: Policy,
    state: TrainingState | None = None,
    more: Callable[[Path], None] | None = None,
    *,
    whole: bool = True,
) -> None:
    """Publish a checkpoint; with a state a run can continue from it. Replaces one of that name.

    The folder loads with ``AutoModelForCausalLM.from_pretrained`` and ``AutoTokenizer``.

    Args:
        path: where it will lie.
        policy: model and tokenizer.
        state: of the run.
        more: puts further files into the folder before it is published.
        whole: False leaves out the model where only its adapters learn.
    """
    with publish(path, replace=True) as folder:
        folder.mkdir()
        write_policy(folder, policy, whole=whole)
        if more is not None:
            more(folder)
        if state is not None:
            _write_state(folder, state)


def write_policy(folder: Path, policy: Policy, *, whole: bool = True, merged: bool = True) -> None:
    """Model and tokenizer into a folder that is there, as Hugging Face lays them out.

    Args:
        folder: has no files of these names.
        policy: its adapters, where it has any, go into ``adapter/``.
        whole: False leaves out the model where only its adapters learn.
        merged: whether the model has its adapters added, or is the base that they stand beside.
    """
    adapted = is_adapted(policy.model)
    if adapted:
        save_adapter(policy.model, folder / FOLDER)
    if whole or not adapted:
        weights = plain_weights(policy.model, merged=merged) if adapted else None
        with no_progress_bars():
            policy.model.save_pretrained(folder, state_dict=weights)
    policy.tokenizer.save_pretrained(folder)


def _write_state(folder: Path, state: TrainingState) -> None:
    inside = folder / STATE
    inside.mkdir()
    row = {name: getattr(state, name) for name in TrainingState.__dataclass_fields__}
    for name in ("random", "optimizer", "evaluation"):
        row[name] = dict(row[name])
    apart = {name: row.pop(name) for name in APART}
    torch.save(row, inside / "training.pt")
    for name, part in apart.items():
        if part is not None:
            torch.save(dict(part), inside / f"{name}.pt")
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    hashes = {name: file_hash(folder / name) for name in names}
    (inside / "hashes.json").write_text(json.dumps(hashes, indent=1))


def fault(folder: Path) -> str | None:
    """What is wrong with a resumable checkpoint, or None when it is whole."""
    listed = folder / STATE / "hashes.json"
    try:
        hashes: dict[str, str] = json.loads(listed.read_text())
    except (OSError, ValueError) as error:
        return f"its list of hashes cannot be read ({type(error).__name__})"
    for name, value in hashes.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if file_hash(folder / name) != value:
            return f"{name} is not what was written"
    return None


def last_good(checkpoints: Path) -> Path | None:
    """The newest whole checkpoint to continue from; damaged ones are reported by name and passed.

    Raises:
        RunError: there are checkpoints, and none is whole.
    """
    found = [*numbered(checkpoints), checkpoints / "final"]
    candidates = [folder for folder in reversed(found) if folder.is_dir()]
    refused: list[str] = []
    for folder in candidates:
        problem = fault(folder)
        if problem is None:
            return folder
        refused.append(folder.name)
        log.warning("The checkpoint %s is refused: %s. Trying the one before it.", folder, problem)
    if refused:
        raise RunError(
            f"No checkpoint in {checkpoints} is whole (refused: {', '.join(refused)}). "
            "Start again with another --out, or restore one of these folders."
        )
    return None


def load_state(folder: Path) -> TrainingState:
    """The state in a checkpoint that `last_good` returned."""
    row: dict[str, Any] = torch.load(folder / STATE / "training.pt", weights_only=True)
    files = {name: folder / STATE / f"{name}.pt" for name in APART}
    there = {name: file for name, file in files.items() if file.is_file()}
    apart = {name: torch.load(file, weights_only=True) for name, file in there.items()}
    return TrainingState(**row, **apart)


def load_weights(model: Any, folder: Path) -> None:
    """Copy the weights of a checkpoint into a model of the same architecture.

    Raises:
        RunError: adapters that stand beside other weights than the model's.
    """
    if is_adapted(model):
        load_adapter(model, folder / FOLDER)
        return
    with no_progress_bars():
        saved = type(model).from_pretrained(folder, dtype=model.dtype, local_files_only=True)
    model.load_state_dict(saved.state_dict())


def set_aside(checkpoints: Path, good: Path) -> None:
    """Rename the checkpoints that `last_good` passed over, so that `prune` does not count them.

    Args:
        checkpoints: of a run that is locked.
        good: what `last_good` returned.
    """
    if good not in (places := numbered(checkpoints)):
        return
    for folder in places[places.index(good) + 1 :]:
        target = folder.with_name(f"damaged-{folder.name}")
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)


def prune(checkpoints: Path, keep: int) -> None:
    """Remove all numbered checkpoints but the newest ``keep``."""
    for folder in numbered(checkpoints)[:-keep]:
        shutil.rmtree(folder)


def random_state() -> dict[str, Any]:
    """The state of all random generators of this process, in plain values and tensors."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy_state = (
        str(kind),
        [int(key) for key in keys],
        int(position),
        int(has_gauss),
        float(gauss),
    )
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": random.getstate(),
        "numpy": numpy_state,
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put the generators back to what `random_state` saw."""
    random.setstate(state["python"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
