"""One training in several processes: ``torchrun`` or ``accelerate launch`` starts them.

Every process holds the whole model and computes its share of each batch; gradients are added up,
so all of them take the same optimizer step. Who there is and how they talk is accelerate's and
torch's; here is what a training loop asks of it, and what cannot work is refused by name.

All of them must come to the same exchanges in the same order. One that gives up tells it in its
next exchange, so no other waits for it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from stepmark.errors import ConfigError, Error, RunError, SetupError, require

__all__ = [
    "Elsewhere",
    "Lost",
    "Processes",
    "check_launch",
    "check_share",
    "is_launched",
    "processes",
]

PATIENCE = timedelta(hours=1)
"""Longest wait for another process, such as for a large checkpoint that the first one writes. One
that ends is noticed at once, by its connections and by the launcher."""

FAREWELL_S = 0.5
"""How long a connection stays open after the last exchange: another process may still read it."""

BUCKET = 1 << 25
"""Numbers of gradients that are sent at once."""

HOW = "torchrun --nproc_per_node N --no-python stepmark ..."

OTHERS = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}
"""What a configuration of accelerate may ask for besides whole models in every process."""


class Elsewhere(Error):
    """Another process of this run gave up, and has said why."""

    def __init__(self, index: int, exit_code: int) -> None:
        super().__init__(index, exit_code)
        self.index = index
        self.exit_code = exit_code  # type: ignore[misc]  # per instance: that of the other one

    def __str__(self) -> str:
        return f"Process {self.index} of this run gave up; it says why."


class Lost(RunError):
    """Another process of this run ended without a word: killed, or its machine is gone."""


class Sent(NamedTuple):
    """What one process puts into an exchange."""

    value: Any
    exit_code: int | None = None
    """Set by one that gives up."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one training, seen from one of them; alone unless it was launched."""

    count: int = 1
    index: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other one."""
        return self.count == 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes, and speaks for all."""
        return self.index == 0

    def exchange(self, value: Any) -> list[Any]:
        """What all processes gave, by their number; all wait for the last one.

        Raises:
            Elsewhere: one of them gave up.
            Lost: one of them ended without a word.
        """
        if self.is_alone:
            return [value]
        found = self._gathered(Sent(value))
        for index, sent in enumerate(found):
            if sent.exit_code is not None:
                raise Elsewhere(index, sent.exit_code)
        return [sent.value for sent in found]

    def from_first(self, value: Any) -> Any:
        """What the first process gave."""
        return self.exchange(value if self.is_first else None)[0]

    def give_up(self, exit_code: int) -> int:
        """Tell the others that this one ends; the number of the first one that does."""
        if self.is_alone:
            return 0
        try:
            found = self._gathered(Sent(None, exit_code))
        except Lost:
            return self.index
        return next(index for index, sent in enumerate(found) if sent.exit_code is not None)

    def leave(self) -> None:
        """Close the connections, when all have come to an end; gloo's threads end with them."""
        if not self.is_alone:
            from accelerate import PartialState

            time.sleep(FAREWELL_S)
            PartialState().destroy_process_group()

    def agree(
        self, numbers: Mapping[str, float], stop: int | None
    ) -> tuple[dict[str, float], int | None]:
        """Numbers added up over all processes, and the first signal that one of them has got."""
        totals: dict[str, float] = {}
        signals: list[int] = []
        for some, signal in self.exchange((dict(numbers), stop)):
            signals += [] if signal is None else [signal]
            for name, number in some.items():
                totals[name] = totals.get(name, 0.0) + number
        return totals, signals[0] if signals else None

    def check_equal(self, value: str, what: str) -> None:
        """Refuse to go on where the processes have come to differ.

        Raises:
            RunError: they have.
        """
        found = self.exchange(value)
        other = next((n for n, one in enumerate(found) if one != found[0]), None)
        if other is not None:
            raise RunError(
                f"Process {other} has other {what} than process 0, so this is not one training. "
                "Give every machine the same files, packages and devices, and resume from the last "
                "checkpoint."
            )

    def divided(self, items: Sequence[Any], work: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """What the work gives for each item, in order; every process does a part of it."""
        if self.is_alone:
            return work(list(items))
        mine = list(work(list(items[self.index :: self.count])))
        found: list[Any] = [None] * len(items)
        for index, part in enumerate(self.exchange(mine)):
            found[index :: self.count] = part
        return found

    def add_gradients(self, weights: Sequence[Any]) -> None:
        """Make each gradient the sum of those of all processes; where none has one, none is made.

        Raises:
            Lost: one of them ended without a word.
        """
        if self.is_alone:
            return
        there = self.exchange([weight.grad is not None for weight in weights])
        touched = [w for w, *has in zip(weights, *there, strict=True) if any(has)]
        for bucket in _buckets(touched):
            self._add(bucket)

    def _add(self, weights: Sequence[Any]) -> None:
        import torch
        from accelerate.utils import reduce

        parts = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        flat = torch.cat([part.reshape(-1) for part in parts])
        total: Any = self._sent(lambda: reduce(flat, "sum"))
        for weight, part in zip(weights, total.split([w.numel() for w in weights]), strict=True):
            weight.grad = part.view_as(weight)

    def _gathered(self, sent: Sent) -> list[Sent]:
        from accelerate.utils import gather_object

        return self._sent(lambda: gather_object([sent]))

    def _sent(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except RuntimeError as error:  # gloo's and nccl's words for a connection that is gone
            said = next(iter(str(error).splitlines()), "").partition(". ")[0]
            raise Lost(
                f"Another process of this run was lost ({said:.200}). The run ends here. Resume it "
                "from its last checkpoint: the same command with --resume."
            ) from error


def is_launched() -> bool:
    """Whether a launcher started this process, as one of several or by mistake as the only one."""
    given = os.environ
    return _world() > 1 or "ACCELERATE_MIXED_PRECISION" in given


@functools.cache
def processes() -> Processes:
    """The processes of this run; the first call connects them.

    Raises:
        ConfigError: what was asked of the launcher cannot work here.
        RunError: the others cannot be reached.
    """
    check_launch(os.environ)
    if _world() == 1:
        return Processes()
    torch = require("torch", extra="train", purpose="Training in several processes")
    require("accelerate", extra="train", purpose="Training in several processes")
    from accelerate import PartialState

    has_gpus = torch.cuda.is_available() and not _is_true(os.environ, "ACCELERATE_USE_CPU")
    # Objects travel by gloo also between GPUs: an end is noticed at once, and nccl is left out.
    backend = "cuda:nccl,cpu:gloo" if has_gpus else "gloo"
    try:
        state = PartialState(cpu=not has_gpus, backend=backend, timeout=PATIENCE)
    except RuntimeError as error:
        first = next(iter(str(error).splitlines()), "")
        raise RunError(
            f"The {_world()} processes of this run do not reach each other: {first:.300} Start "
            f"all of them at once, with one launcher: {HOW}"
        ) from error
    return Processes(state.num_processes, state.process_index)


def check_launch(given: Mapping[str, str]) -> None:
    """Refuse what a launcher asks for and nothing here does.

    Args:
        given: the environment.

    Raises:
        ConfigError: it asks for sharded weights, another precision, or a compiler.
        SetupError: several processes were asked for, and one came.
    """
    for name, what in OTHERS.items():
        if _is_true(given, name):
            raise ConfigError(
                f"The configuration of accelerate asks for {what}, and reward models are trained "
                "with the whole model in every process. Leave it out: accelerate launch "
                '--multi_gpu; where memory is short, model.peft = "lora" and '
                "model.gradient_checkpointing = true."
            )
    precision = given.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision not in ("no", "bf16"):
        raise ConfigError(
            f"The configuration of accelerate asks for mixed_precision {precision!r}; matrix "
            "products run in float32 or bfloat16 here. Launch with --mixed_precision no, and set "
            'model.autocast = "bfloat16" or "none".'
        )
    compiler = given.get("ACCELERATE_DYNAMO_BACKEND", "NO")
    if compiler.upper() != "NO":
        raise ConfigError(
            f"The configuration of accelerate asks for dynamo_backend {compiler!r}; nothing is "
            "compiled here. Launch with --dynamo_backend no."
        )
    by_accelerate = "ACCELERATE_MIXED_PRECISION" in given
    if by_accelerate and "MASTER_ADDR" in given and "LOCAL_RANK" not in given:
        raise SetupError(
            "Several processes were asked for, and accelerate started one: without GPUs it does "
            f"so unless it is told --multi_gpu. Start them with torch's launcher:\n    {HOW}"
        )


def check_share(rows_per_step: int, device: str) -> None:
    """Refuse settings that several processes cannot divide; nothing where there is one.

    Raises:
        ConfigError: there are more processes than rows or GPUs, or they would share a device.
    """
    here = processes()
    if here.is_alone:
        return
    if here.count > rows_per_step:
        raise ConfigError(
            f"algorithm.rows_per_step is {rows_per_step} and {here.count} processes were launched: "
            "it is the batch of all together, and some would have no row. Set it to "
            f"{here.count} or more, or launch fewer."
        )
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"model.device is {device!r} and {here.count} processes were launched: each takes a "
            'device of its own. Set model.device = "auto" (a GPU each) or "cpu".'
        )
    gpus = torch.cuda.device_count()
    if device == "cpu" or (device == "auto" and not gpus):
        return
    if _is_true(os.environ, "ACCELERATE_USE_CPU"):
        raise ConfigError(
            f"model.device is {device!r}, which is a GPU here, and accelerate was told to use the "
            'CPU. Set model.device = "cpu", or launch with --multi_gpu.'
        )
    local = int(os.environ.get("LOCAL_WORLD_SIZE", here.count))
    if gpus and local > gpus:
        raise ConfigError(
            f"{local} processes were launched on a machine with {gpus} GPUs; each needs one. "
            f'Launch {gpus}, or set model.device = "cpu".'
        )


def _world() -> int:
    """How many processes a launcher says there are; clusters set WORLD_SIZE for other ends too."""
    given = os.environ
    return int(given.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in given else 1


def _is_true(given: Mapping[str, str], name: str) -> bool:
    return given.get(name, "").lower() in ("true", "1", "yes")


def _buckets(weights: Sequence[Any]) -> Iterator[list[Any]]:
    """Weights of one type and place together, as many as are sent at once."""
    bucket: list[Any] = []
    size, kind = 0, None
    for weight in weights:
        same = kind == (kind := (weight.dtype, weight.device))
        if bucket and (not same or size + weight.numel() > BUCKET):
            yield bucket
            bucket, size = [], 0
        bucket.append(weight)
        size += weight.numel()
    if bucket:
        yield bucket
