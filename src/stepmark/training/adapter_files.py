"""Adapters on the disk: a folder that peft loads, with a note of the model they stand beside.

``adapter_config.json`` and ``adapter_model.safetensors`` are peft's; ``base.json`` names the base
model and the fingerprint of its weights, so that adapters are never put beside others unnoticed.
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

from stepmark.errors import RunError, SetupError, require
from stepmark.store.files import write_json

from .lora import ADAPTER, base_of, is_adapted, layers_of, put_adapters, weights_of

__all__ = [
    "FOLDER",
    "adapter_in",
    "base_name_in",
    "check_base",
    "describe",
    "load_adapter",
    "merge_adapter",
    "restore_adapter",
    "save_adapter",
]

FOLDER = "adapter"
"""Where a checkpoint keeps its adapters."""

BASE = "base.json"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."
"""What peft's files have in front of every name."""


def save_adapter(model: Any, folder: Path) -> None:
    """Write a model's adapters; ``peft.PeftModel.from_pretrained(base, folder)`` reads them."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir()
    config = copy.copy(model.peft_config[ADAPTER])
    config.inference_mode = True
    config.save_pretrained(str(folder))
    weights = get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)
    rows = {f"{PREFIX}{name}": weight.contiguous() for name, weight in weights.items()}
    save_file(rows, str(folder / WEIGHTS), metadata={"format": "pt"})
    write_json(folder / BASE, base_of(model)._asdict())


def load_adapter(model: Any, folder: Path) -> None:
    """Give a model with adapters those of a folder, bit for bit.

    Raises:
        RunError: the adapters were trained beside other weights than the model's.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    check_base(model, folder)
    rows = load_file(str(folder / WEIGHTS))
    weights = {name.removeprefix(PREFIX): weight for name, weight in rows.items()}
    found = set_peft_model_state_dict(model, weights, adapter_name=ADAPTER)
    if found.unexpected_keys:
        raise RunError(
            f"The adapters in {folder} do not fit the model: it has no {found.unexpected_keys[0]}. "
            "Use the settings of [model.peft] that they were trained with."
        )


def restore_adapter(model: Any, folder: Path) -> Any:
    """A plain model with the adapters of a folder in place, ready to learn further.

    Raises:
        RunError: the adapters were trained beside other weights than the model's.
        SetupError: peft is not installed.
    """
    require("peft", extra="peft", purpose="A checkpoint with adapters")
    from peft import LoraConfig

    config: Any = LoraConfig.from_pretrained(str(folder))
    config.inference_mode = False
    put_adapters(model, config)
    load_adapter(model, folder)
    return model


def merge_adapter(model: Any, folder: Path) -> Any:
    """A plain model with the adapters of a folder added to its weights; peft's own will do."""
    require("peft", extra="peft", purpose="A checkpoint with adapters")
    from peft import PeftModel

    with warnings.catch_warnings():  # peft asks models for a name that newer releases renamed
        warnings.simplefilter("ignore", FutureWarning)
        adapted: Any = PeftModel.from_pretrained(model, str(folder))
    return adapted.merge_and_unload()


def adapter_in(place: Path) -> Path | None:
    """The folder of adapters at a place that holds no whole model; None where there is none."""
    if (place / "config.json").is_file():
        return None
    return next((one for one in (place, place / FOLDER) if (one / CONFIG).is_file()), None)


def base_name_in(folder: Path) -> str:
    """What a folder of adapters says that they stand beside.

    Raises:
        SetupError: it does not say.
    """
    name = json.loads((folder / CONFIG).read_text()).get("base_model_name_or_path")
    if not name:
        raise SetupError(
            f"{str(folder)!r} holds adapters and does not say of which model. Write its folder or "
            f"hub name into the file as base_model_name_or_path:\n    ls {folder / CONFIG}"
        )
    return str(name)


def describe(model: Any) -> dict[str, str] | None:
    """What the adapters of a model are, for people; None where it has none."""
    if not is_adapted(model):
        return None
    config, base = model.peft_config[ADAPTER], base_of(model)
    layers = sorted({name.rpartition(".")[2] for name in layers_of(model)})
    learnt = sum(weight.numel() for weight in weights_of(model).values())
    whole = sum(weight.numel() for weight in model.parameters()) - learnt
    return {
        "base": base.name,
        "fingerprint": base.fingerprint,
        "rank": str(config.r),
        "alpha": f"{config.lora_alpha:g}",
        "layers": ", ".join(layers),
        "share": f"{learnt:,}, where the model has {whole:,}",
    }


def check_base(model: Any, place: Path) -> None:
    """Refuse adapters in a checkpoint, or in a folder, that were trained beside other weights.

    Raises:
        RunError: the message names the base model.
    """
    folder = place / FOLDER if (place / FOLDER).is_dir() else place
    if not (is_adapted(model) and (folder / BASE).is_file()):
        return
    known: dict[str, str] = json.loads((folder / BASE).read_text())
    here = base_of(model)
    if known["fingerprint"] != here.fingerprint:
        raise RunError(
            f"The adapters in {folder} belong to the base model {known['name']!r} with fingerprint "
            f"{known['fingerprint']}; the weights of {here.name!r} have {here.fingerprint}. They "
            "were altered since: restore them, or begin a run with another --out. (Adapters saved "
            "by a Stepmark whose fingerprints depended on the number of threads are refused too.)"
        )
