"""A policy from a folder or the hub, with errors that say what is missing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepmark.errors import ConfigError, SetupError, require
from stepmark.training.quiet import no_progress_bars

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["check_place", "device_of", "load_policy", "load_tokenizer"]

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "float16")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_policy(
    path_or_hub: str | Path, dtype: str = "float32", device: str = "auto"
) -> tuple[PreTrainedModel, Any]:
    """The causal model in eval mode, and its tokenizer.

    Dropout is set to 0: a policy is sampled without it, and log-probs in training must be those
    of the sampler.

    Args:
        path_or_hub: a folder written by ``save_pretrained``, or the name of a model on the hub; a
            folder with adapters of peft gives their base model with them added.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.

    Raises:
        SetupError: there is no such folder, model, tokenizer or weight; the hub cannot be reached;
            the ``train`` extra is not installed.
        ConfigError: an unknown dtype or device.
    """
    place = str(path_or_hub)
    torch = require("torch", extra="train", purpose="Loading a model")
    require("transformers", extra="train", purpose="Loading a model")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; allowed are {', '.join(DTYPES)}.")
    target = device_of(torch, device)
    from stepmark.training.adapter_files import adapter_in, base_name_in, merge_adapter

    check_place(place)
    tokenizer = load_tokenizer(place)
    adapters = adapter_in(Path(place).expanduser())
    model = _model(place if adapters is None else base_name_in(adapters), getattr(torch, dtype))
    model = model if adapters is None else merge_adapter(model, adapters)
    dropouts: list[Any] = [one for one in model.modules() if isinstance(one, torch.nn.Dropout)]
    for dropout in dropouts:
        dropout.p = 0.0
    log.debug("loaded %s in %s on %s", place, dtype, target)
    return model.to(target).eval(), tokenizer


def device_of(torch: Any, device: str) -> Any:
    """The torch device of that name; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: it cannot be used here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise ConfigError(
            f"The device {device!r} cannot be used here: {why}. Choose auto, cpu, cuda or mps."
        ) from error
    return target


def check_place(place: str) -> None:
    """Say what is wrong with a folder before transformers guesses that it is a hub name.

    Raises:
        SetupError: there is no such folder, or it holds no model or no tokenizer.
    """
    from stepmark.training.adapter_files import adapter_in

    folder = Path(place).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and adapter_in(folder) is None:
            found = ", ".join(sorted(path.name for path in folder.iterdir())[:6]) or "nothing"
            raise SetupError(
                f"{place!r} holds no config.json (found: {found}); a model is a folder written by "
                "save_pretrained. Name the checkpoint folder itself:\n    ls "
                f"{place}"
            )
        if not any((folder / name).is_file() for name in TOKENIZER_FILES):
            raise SetupError(
                f"The checkpoint {place!r} has no tokenizer ({TOKENIZER_FILES[0]} or the like). "
                "Save the tokenizer that it was trained with beside the weights:\n"
                f'    python -c "from transformers import AutoTokenizer as T; '
                f"T.from_pretrained('BASE_MODEL').save_pretrained('{place}')\""
            )
    elif folder.exists() or place.startswith((".", "/", "~")) or place.count("/") > 1:
        raise SetupError(
            f"There is no model folder {place!r}; a model is a folder written by "
            f"save_pretrained, or a hub name such as Qwen/Qwen2.5-0.5B. Look for it:\n"
            f"    ls {Path(place).parent}"
        )


def load_tokenizer(place: str) -> Any:
    """The tokenizer of a folder or hub name.

    Raises:
        SetupError: there is none that can be loaded.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        raise _cannot_load("tokenizer", place, error) from error


def _model(place: str, dtype: Any) -> PreTrainedModel:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with no_progress_bars(Path(place).expanduser().is_dir()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place, dtype=dtype, output_loading_info=True
            )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise _cannot_load("model", place, error) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise SetupError(
            f"The checkpoint {place!r} lacks {len(missing)} weights ({', '.join(missing[:3])}...). "
            "They would be random. Take the checkpoint of a whole causal language model:\n"
            f"    ls {place}"
        )
    return model


def _cannot_load(what: str, place: str, error: Exception) -> SetupError:
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if Path(place).expanduser().is_dir():
        return SetupError(
            f"The {what} in {place!r} cannot be loaded: {first} Write it again with "
            f"save_pretrained, or look at its files:\n    ls {place}"
        )
    return SetupError(
        f"The {what} {place!r} is neither a folder here nor to be had from the hub: {first} "
        f"Check the name and the network, or download it once:\n    hf download {place}"
    )
