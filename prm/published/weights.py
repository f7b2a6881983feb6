"""Weights of a checkpoint by their names: into transformers' architecture, and into our head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stepmark.engines.loading import device_of, load_tokenizer
from stepmark.errors import SetupError
from stepmark.prm.loading import token_id
from stepmark.prm.model import StepModel, TwoTokens
from stepmark.training.quiet import no_progress_bars

__all__ = ["Headed", "causal_step_model", "headed_step_model"]


class Headed(nn.Module):
    """A body of transformers under a head of ours that gives two logits, wrong and right."""

    def __init__(self, body: Any, score: nn.Module) -> None:
        super().__init__()
        self.base_model = body
        self.score = score
        self.config = body.config

    @property
    def device(self) -> torch.device:
        """Where its weights lie."""
        return next(self.parameters()).device


def causal_step_model(folder: Path, wrong: str, right: str, dtype: str, device: str) -> StepModel:
    """A causal language model of which two logits are compared.

    Raises:
        SetupError: a weight is missing, or one is there that the architecture does not have.
        ConfigError: a label is not one token.
    """
    from transformers import AutoModelForCausalLM

    target, tokenizer = device_of(torch, device), load_tokenizer(str(folder))
    tokens = TwoTokens(token_id(tokenizer, wrong), token_id(tokenizer, right))
    model = _read(folder, AutoModelForCausalLM, dtype, heads=(), unused=())
    return StepModel(_ready(model, target), tokenizer, tokens)


def headed_step_model(
    folder: Path,
    head: nn.Module,
    prefix: str,
    dtype: str,
    device: str,
    unused: tuple[str, ...] = (),
) -> StepModel:
    """A body with a head of ours, whose weights are those of the checkpoint below ``prefix``.

    Args:
        folder: of the checkpoint.
        head: its weights are replaced.
        prefix: of the names of the head's weights in the files, such as ``score.``.
        dtype: of the weights.
        device: where they go.
        unused: prefixes of weights that are in the files and that scores do not need.

    Raises:
        SetupError: a weight is missing, has another shape, or is not known.
    """
    from transformers import AutoModel

    target, tokenizer = device_of(torch, device), load_tokenizer(str(folder))
    body = _read(folder, AutoModel, dtype, heads=(prefix,), unused=unused)
    found = _tensors(folder, prefix)
    _fill(folder, head, {name.removeprefix(prefix): value for name, value in found.items()}, prefix)
    model = Headed(body, head.to(getattr(torch, dtype)))
    return StepModel(_ready(model, target), tokenizer)


def _read(
    folder: Path, auto: Any, dtype: str, heads: tuple[str, ...], unused: tuple[str, ...]
) -> Any:
    from safetensors import SafetensorError
    from transformers.utils import logging as told

    before = told.get_verbosity()
    told.set_verbosity_error()  # what is missing or not known is refused below, by name
    try:
        with no_progress_bars():
            model, report = auto.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                trust_remote_code=False,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SetupError(
            f"The model in {str(folder)!r} cannot be loaded: {first:.300} Look at its files:\n"
            f"    ls {folder}"
        ) from error
    finally:
        told.set_verbosity(before)
    missing = sorted(report["missing_keys"])
    strange = sorted(n for n in report["unexpected_keys"] if not n.startswith((*heads, *unused)))
    _refuse(folder, missing, strange)
    return model


def _fill(folder: Path, head: nn.Module, found: Mapping[str, Tensor], prefix: str) -> None:
    wanted = dict(head.state_dict())
    missing = sorted(prefix + name for name in wanted.keys() - found.keys())
    strange = sorted(prefix + name for name in found.keys() - wanted.keys())
    _refuse(folder, missing, strange)
    for name, value in found.items():
        if value.shape != wanted[name].shape:
            raise SetupError(
                f"The weight {prefix + name} in {str(folder)!r} has the shape "
                f"{tuple(value.shape)} and must have {tuple(wanted[name].shape)}: it is of another "
                f"head. Choose the adapter that fits this model:\n    ls {folder}"
            )
    head.load_state_dict(dict(found))


def _refuse(folder: Path, missing: list[str], strange: list[str]) -> None:
    for what, names in (("lacks", missing), ("holds, and this adapter does not know,", strange)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise SetupError(
                f"The checkpoint {str(folder)!r} {what} the weights {', '.join(names[:3])}{more}; "
                "its scores would be others than its authors'. Choose the adapter that fits this "
                f"model:\n    ls {folder}"
            )


def _tensors(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, from all files of weights in a folder."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    whole = sorted(folder.glob("*.safetensors"))
    for path in whole:
        with safe_open(path, framework="pt") as file:
            found |= {n: file.get_tensor(n) for n in file.keys() if n.startswith(prefix)}  # noqa: SIM118
    if whole:
        return found
    for path in _pickles(folder, prefix):
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        found |= {name: value for name, value in held.items() if name.startswith(prefix)}
    return found


def _pickles(folder: Path, prefix: str) -> list[Path]:
    """The ``.bin`` files that hold such tensors: those that an index names, or all."""
    index = folder / "pytorch_model.bin.index.json"
    if not index.is_file():
        return sorted(folder.glob("*.bin"))
    names: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return sorted({folder / file for name, file in names.items() if name.startswith(prefix)})


def _ready(model: Any, target: torch.device) -> Any:
    dropouts: list[Any] = [one for one in model.modules() if isinstance(one, nn.Dropout)]
    for dropout in dropouts:
        dropout.p = 0.0
    return model.to(target).eval()
