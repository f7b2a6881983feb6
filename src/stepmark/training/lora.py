r"""LoRA: matrices of a low rank beside frozen linear layers are what learns; needs peft.

.. math:: h = W x + \frac{\alpha}{r} B A x

Hu et al. (arXiv:2106.09685), eq. (3): ``W`` stays as it is, ``A`` and ``B`` learn, in float32, and
``B`` begins at zero. peft's layers are put into the model itself, which stays a model of
transformers: what samples, lays out rows and computes log-probs takes it like any other.

A frozen copy of an adapted model (the reference, what samples in self-play) and the body of a
critic share the frozen weights with it, tensor by tensor, and hold adapters of their own; a run
holds the model once. A copy that was made before anything was learnt has its adapters off.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from stepmark.config.peft_table import ALL_LINEAR, PeftTable
from stepmark.errors import ConfigError, did_you_mean, require
from stepmark.seeds import derive_seed

from .fingerprint import fingerprint_of

__all__ = [
    "Base",
    "adapt",
    "base_of",
    "check_policy",
    "copy_of",
    "frozen_copy",
    "is_adapted",
    "plain_weights",
    "put_adapters",
    "take_weights",
    "targets_of",
    "weights_of",
]

ADAPTER = "default"
"""Name of the adapter inside of peft."""


ODD = ("use_dora", "lora_bias", "bias", "modules_to_save", "target_parameters")
"""Options of peft that make more of a model learn than matrices beside linear layers."""


class Base(NamedTuple):
    """The model that adapters stand beside."""

    name: str
    """Folder or hub id."""
    fingerprint: str
    """`stepmark.training.fingerprint` of its weights."""


_bases: WeakKeyDictionary[nn.Module, Base] = WeakKeyDictionary()


def adapt(model: Any, table: PeftTable, *, seed: int = 0, base: str | None = None) -> Any:
    """The model with adapters in place; nothing else of it learns from now on.

    Args:
        model: a causal language model of transformers.
        table: rank, scale and layers.
        seed: of the run: ``A`` is drawn from it.
        base: what the model is called in checkpoints; its own name when None.

    Raises:
        ConfigError: the model has no such layers, or has adapters already.
        SetupError: peft is not installed.
    """
    require("peft", extra="peft", purpose="LoRA (model.peft)")
    from peft import LoraConfig

    if is_adapted(model):
        raise ConfigError(
            f"The {type(model).__name__} has adapters already, and model.peft asks for others. "
            "Give the model without them, or leave model.peft out."
        )
    targets = targets_of(model, table)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        base_model_name_or_path=_name_of(model) if base is None else base,
        r=table.rank,
        lora_alpha=table.alpha,  # type: ignore[arg-type]  # any number serves
        lora_dropout=table.dropout,
        target_modules=sorted(targets),
        fan_in_fan_out=not all(isinstance(layer, nn.Linear) for layer in targets.values()),
        bias="none",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "adapters"))
        return put_adapters(model, config)


def put_adapters(model: Any, config: Any) -> Any:
    """The model with the adapters of a peft config in place, in float32, ready to learn."""
    from peft import inject_adapter_in_model

    name, training = config.base_model_name_or_path or _name_of(model), model.training
    base = Base(name, fingerprint_of(model.named_parameters()))
    inject_adapter_in_model(config, model, ADAPTER)
    for weight in _adapter_weights(model).values():
        weight.data = weight.data.float()
    _bases[model] = base
    return model.train(training)


def check_policy(model: Any) -> None:
    """Refuse a wrapper of peft, and adapters that checkpoints could not hold.

    Raises:
        ConfigError: the message says what to give in its place.
    """
    if hasattr(model, "get_base_model"):
        raise ConfigError(
            f"The policy is a {type(model).__name__}, peft's wrapper; the loop takes the model in "
            "which the adapters lie. Give policy.get_base_model()."
        )
    for name, config in getattr(model, "peft_config", {}).items():
        odd = [key for key in ODD if getattr(config, key, None) not in (None, False, [], "none")]
        kind: str = config.peft_type.value
        if name != ADAPTER or kind != "LORA" or odd:
            raise ConfigError(
                f"The policy's adapters are {name!r}, of {kind} with "
                f"{', '.join(odd) or 'no options'}. The loop takes LoRA named {ADAPTER!r} without "
                f"{', '.join(ODD)}; model.peft makes it."
            )


def targets_of(model: Any, table: PeftTable) -> dict[str, nn.Module]:
    """The layers that get an adapter, by their names in the model.

    Raises:
        ConfigError: a name is that of no linear layer, or of an output head that is the embedding.
    """
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    kinds = (nn.Linear, Conv1D)
    linear: dict[str, nn.Module] = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)
    }
    body = {name: layer for name, layer in linear.items() if layer is not head}
    if table.target_modules == (ALL_LINEAR,):
        if not body:
            raise ConfigError(
                f"model.peft: a {type(model).__name__} has no linear layers that adapters could "
                "stand beside. Leave model.peft out."
            )
        return body
    chosen: dict[str, nn.Module] = {}
    for wanted in table.target_modules:
        found = {n: m for n, m in linear.items() if n == wanted or n.endswith(f".{wanted}")}
        if not found:
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError(
                f"model.peft.target_modules names {wanted!r}, and no linear layer of a "
                f"{type(model).__name__} is called that. {did_you_mean(wanted, known)} It has "
                f"{', '.join(known)}."
            )
        chosen |= found
    if head in chosen.values() and head.weight is model.get_input_embeddings().weight:
        raise ConfigError(
            "model.peft.target_modules names the output head, whose weights are those of the "
            "embedding in this model. Leave it out: all-linear does."
        )
    return chosen


def layers_of(module: nn.Module) -> dict[str, Any]:
    """The layers of peft in a module, by name; empty where it has none."""
    if "peft" not in sys.modules:
        return {}
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}


def is_adapted(module: nn.Module) -> bool:
    """Whether a module holds adapters: then only they are what it learns."""
    return bool(layers_of(module))


def copy_of(module: Any) -> Any:
    """A copy; of a module with adapters it shares the tensors that do not learn."""
    if not is_adapted(module):
        return copy.deepcopy(module)
    shared = [weight for weight in module.parameters() if not weight.requires_grad]
    return copy.deepcopy(module, {id(weight): weight for weight in shared})


def frozen_copy(model: Any) -> Any:
    """A copy that does not learn; adapters that change nothing yet are off in it."""
    made = copy_of(model)
    layers = layers_of(made).values()
    if layers and not any(bool(layer.lora_B[ADAPTER].weight.any()) for layer in layers):
        for layer in layers:
            layer.enable_adapters(False)
    return made.eval().requires_grad_(False)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint must keep of what learns: the whole state, or the part that is trained."""
    if not is_adapted(module):
        return module.state_dict()
    return {n: w.detach() for n, w in module.named_parameters() if w.requires_grad}


def take_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a module what `weights_of` of another one returned; adapters that were off go on."""
    layers = layers_of(module).values()
    if not layers:
        module.load_state_dict(weights)
        return
    learns = any(weight.requires_grad for weight in module.parameters())
    for layer in layers:
        layer.enable_adapters(True)
    if not learns:
        module.requires_grad_(False)
    lacking = _adapter_weights(module).keys() - weights.keys()
    unknown = module.load_state_dict(weights, strict=False).unexpected_keys
    if lacking or unknown:
        raise KeyError(f"adapters lack {sorted(lacking)[:2]} or are unknown: {unknown[:2]}")


def plain_weights(model: Any, *, merged: bool = True) -> dict[str, Tensor]:
    """The state under the names that it has without adapters.

    Args:
        model: with adapters.
        merged: with their update added, computed in float32 and rounded to the type of the
            weights; else the weights of the base, as they were loaded.
    """
    layers = layers_of(model)
    plain: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        owner, inside, rest = key.rpartition(".base_layer.")
        if inside:
            layer = layers[owner]
            is_added = merged and rest == "weight" and not layer.disable_adapters
            plain[f"{owner}.{rest}"] = _with_update(layer) if is_added else value
        elif not any(key.startswith(f"{name}.lora_") for name in _parents(key, layers)):
            plain[key] = value
    return plain


def _parents(key: str, layers: Mapping[str, Any]) -> list[str]:
    parts = key.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts)))
    return [name for name in above if name in layers]


@torch.no_grad()
def _with_update(layer: Any) -> Tensor:
    weight: Tensor = layer.get_base_layer().weight
    whole = weight.float() + layer.get_delta_weight(ADAPTER).float()
    return whole.to(weight.dtype).cpu()  # one layer at a time on the device


def _adapter_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    mine = [f"{name}.lora_" for name in layers_of(module)]
    starts = tuple(mine)
    return {name: weight for name, weight in module.named_parameters() if name.startswith(starts)}


def base_of(model: Any) -> Base:
    """The model that the adapters stand beside; worked out once, as it never changes."""
    if model not in _bases:
        frozen = plain_weights(model, merged=False)
        names = {name for name, _ in model.named_parameters()}
        kept = {k: w for k, w in frozen.items() if k in names or _wrapped(k) in names}
        _bases[model] = Base(_name_of(model), fingerprint_of(kept.items()))
    return _bases[model]


def _wrapped(key: str) -> str:
    owner, _, rest = key.rpartition(".")
    return f"{owner}.base_layer.{rest}"


def _name_of(model: Any) -> str:
    return str(getattr(model, "name_or_path", "") or type(model).__name__)
