"""Step models from folders and from the hub: a fresh head on a base, or one that was trained.

A head whose weights are missing is random and does not complain: here it is refused by name, but
where a fresh one is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from stepmark.engines.loading import check_place, device_of, load_tokenizer
from stepmark.errors import ConfigError, SetupError
from stepmark.seeds import derive_seed
from stepmark.training.quiet import no_progress_bars

from .model import HeadKind, StepModel, TwoTokens

__all__ = [
    "AnyHead",
    "Base",
    "Dtype",
    "base_model",
    "base_parts",
    "token_id",
    "trained_model",
    "trained_parts",
]

Dtype = Literal["float32", "bfloat16", "float16"]
AnyHead = HeadKind | Literal["reward"]
"""``reward``: one number for a whole solution, by ``AutoModelForSequenceClassification``."""
HEADS = ("score", "classifier")
NAMES = {0: "wrong", 1: "right"}


class Base(NamedTuple):
    """How a fresh step model is made of a causal language model."""

    place: str
    """Folder or hub id."""
    head: AnyHead = "classifier"
    wrong: str = "-"
    """For ``two_logits``: one token of the tokenizer, said of a wrong step."""
    right: str = "+"
    from_scratch: bool = False
    """Whether weights are drawn anew from the folder's config, and none are read."""
    initializer_range: float | None = None
    """Standard deviation of drawn weights; the config's own where None. Tiny models learn nothing
    at 0.02 in the time in which they learn all at 0.1."""
    seed: int = 0
    """Of the weights that are drawn."""


def base_model(base: Base, dtype: Dtype = "float32", device: str = "auto") -> StepModel:
    """A step model with a fresh head, ready to be trained; dropout is off.

    Args:
        base: the causal language model, and how it is read.
        dtype: of the weights; master weights in training are float32.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Raises:
        SetupError: there is no such folder, model, tokenizer or weight.
        ConfigError: the architecture has no such head, or a label is not one token.
    """
    model, tokenizer = base_parts(base, dtype, device)
    if base.head != "two_logits":
        return StepModel(model, tokenizer)
    two = TwoTokens(token_id(tokenizer, base.wrong), token_id(tokenizer, base.right))
    if two.wrong == two.right:
        raise ConfigError(
            f"The labels {base.wrong!r} and {base.right!r} are one and the same token of "
            f"{base.place!r}. Choose two that differ, such as '-' and '+'."
        )
    return StepModel(model, tokenizer, two)


def base_parts(base: Base, dtype: Dtype, device: str) -> tuple[Any, Any]:
    """A model with a fresh head, and its tokenizer; see `base_model`."""
    check_place(base.place)
    target, tokenizer = device_of(torch, device), load_tokenizer(base.place)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(base.seed, "weights"))
        model = _drawn(base) if base.from_scratch else _read(base, dtype)
    return _ready(model, tokenizer, dtype, target), tokenizer


def trained_model(
    place: str, head: HeadKind, tokens: TwoTokens | None, dtype: Dtype, device: str
) -> StepModel:
    """A step model whose head was trained; every weight must be in the files.

    Raises:
        SetupError: a weight is missing, its head above all, or the folder holds no model.
    """
    return StepModel(*trained_parts(place, head, dtype, device), tokens)


def trained_parts(place: str, head: AnyHead, dtype: Dtype, device: str) -> tuple[Any, Any]:
    """A model whose head was trained, and its tokenizer; see `trained_model`."""
    check_place(place)
    target, tokenizer = device_of(torch, device), load_tokenizer(place)
    model, missing = _from_files(place, _auto(head), dtype)
    if missing:
        verb = "rm" if head == "reward" else "prm"
        raise SetupError(
            f"The checkpoint {place!r} lacks the weights {', '.join(missing[:3])}, so they would "
            "be random, and with them every score. Take the folder of a trained reward model, or "
            f"train one on this base:\n    stepmark {verb} train --base {place} --data ROWS.jsonl"
        )
    return _ready(model, tokenizer, dtype, target), tokenizer


def token_id(tokenizer: Any, text: str) -> int:
    """The id of a text that is one token, also where the tokenizer puts a blank before words.

    Raises:
        ConfigError: the text is several tokens, or none.
    """
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ConfigError(
            f"The label {text!r} is {len(ids)} tokens of this tokenizer ({list(ids)[:5]}); a label "
            "must be one. Choose another text, add it to the tokenizer as a special token, or "
            'take head = "classifier", which needs no tokens.'
        )
    return int(ids[0])


def _auto(head: AnyHead) -> tuple[Any, int | None]:
    """The class of transformers that holds a head, and how many numbers the head gives."""
    import transformers

    name, labels = {
        "two_logits": ("AutoModelForCausalLM", None),
        "classifier": ("AutoModelForTokenClassification", 2),
        "reward": ("AutoModelForSequenceClassification", 1),
    }[head]
    return getattr(transformers, name), labels


def _read(base: Base, dtype: str) -> Any:
    model, missing = _from_files(base.place, _auto(base.head), dtype)
    fresh = () if base.head == "two_logits" else HEADS
    lacking = [name for name in missing if not name.startswith(fresh or "\0")]
    if lacking:
        raise SetupError(
            f"The checkpoint {base.place!r} lacks the weights {', '.join(lacking[:3])}; they would "
            f"be random. Take a whole causal language model:\n    ls {base.place}"
        )
    return model


def _drawn(base: Base) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(base.place)
    if base.initializer_range is not None:
        config.initializer_range = base.initializer_range
    auto, labels = _auto(base.head)
    if labels is not None:
        config.num_labels = labels
    try:
        return auto.from_config(config)
    except ValueError as error:
        raise _no_head(base.place, error) from error


def _from_files(place: str, auto: tuple[Any, int | None], dtype: str) -> tuple[Any, list[str]]:
    from safetensors import SafetensorError

    kind, labels = auto
    given: dict[str, Any] = {} if labels is None else {"num_labels": labels}
    try:
        with no_progress_bars(Path(place).expanduser().is_dir()), _quiet_loading():
            model, report = kind.from_pretrained(
                place, dtype=getattr(torch, dtype), output_loading_info=True, **given
            )
    except ValueError as error:
        raise _no_head(place, error) from error
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SetupError(
            f"The model {place!r} cannot be loaded: {first} Give a folder written by "
            f"save_pretrained, or a name on the hub:\n    ls {place}"
        ) from error
    return model, sorted(report["missing_keys"])


def _no_head(place: str, error: Exception) -> ConfigError:
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return ConfigError(
        f"No head can be put on the model {place!r}: {first:.300} Another head may do: "
        'head = "two_logits" takes any causal language model.'
    )


def _quiet_loading() -> Any:
    """A fresh head is what was asked for: transformers' table of missing weights is not shown."""
    from transformers.utils import logging as told

    class Quiet:
        def __enter__(self) -> None:
            self.before = told.get_verbosity()
            told.set_verbosity_error()

        def __exit__(self, *_: object) -> None:
            told.set_verbosity(self.before)

    return Quiet()


def _ready(model: Any, tokenizer: Any, dtype: str, target: torch.device) -> Any:
    """On its device, in its type, dropout off, with names for labels and a token for padding."""
    dropouts: list[Any] = [one for one in model.modules() if isinstance(one, nn.Dropout)]
    for dropout in dropouts:
        dropout.p = 0.0
    if hasattr(model.config, "classifier_dropout"):
        model.config.classifier_dropout = 0.0
    if getattr(model.config, "num_labels", 0) == len(NAMES):
        model.config.id2label = dict(NAMES)
        model.config.label2id = {name: place for place, name in NAMES.items()}
    if model.config.pad_token_id is None:
        spare = tokenizer.pad_token_id
        model.config.pad_token_id = tokenizer.eos_token_id if spare is None else spare
    return model.to(target, getattr(torch, dtype)).eval()
