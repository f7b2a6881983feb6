"""Parts of a step in this process: rows of unequal length, rollouts, long groups, growth."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch
from tiny import Shape, make_model, make_samples, make_texts, make_tokenizer
from training_sides import in_turn, row

from stepmark.training import token_logps

SKEW = 1.92
"""Of the lengths of unequal completions: 2,854 real tokens in 5,216 padded ones."""


def _pass(model: Any, samples: list[Any], layout: str) -> Callable[[], float]:
    def run() -> float:
        start = time.process_time()
        token_logps(model, samples, layout=layout).logps_N.sum().backward()  # type: ignore[arg-type]
        used = time.process_time() - start
        model.zero_grad()
        return used

    return run


def ragged(shape: Shape, rounds: int) -> dict[str, Any]:
    """Completions of unequal length, nothing shared: real tokens a second over padded rows."""
    draw = random.Random(0)
    count, longest = shape["prompts"] * shape["group"], round(1.8 * shape["sampled"])
    lengths = [max(1, round(longest * (place / count) ** SKEW)) for place in range(1, count + 1)]
    draw.shuffle(lengths)
    alone = {**shape, "prompts": count, "group": 1}
    samples = make_samples(alone, lengths=lengths)
    real = sum(sample.length for sample in samples)
    padded = count * max(sample.length for sample in samples)
    model = make_model(shape)
    runs = {"ours": _pass(model, samples, "auto"), "peer": _pass(model, samples, "padded")}
    times = in_turn(runs, rounds)
    name = f"ragged rows, {real} real and {padded} padded tokens: forward + backward"
    return row(name, "CPU s", times["ours"], times["peer"], least=1.9)


def long_groups(shape: Shape, rounds: int) -> dict[str, Any]:
    """A group of long completions: rows that share their prompt beside plain packing."""
    samples, model = make_samples(shape), make_model(shape)
    runs = {"ours": _pass(model, samples, "auto"), "peer": _pass(model, samples, "packed")}
    times = in_turn(runs, rounds)
    name = (
        f"prompt {shape['prompt']}, completion {shape['sampled']}, group {shape['group']}: "
        "over plain packing"
    )
    return row(name, "CPU s", times["ours"], times["peer"], least=1.0)


def rollouts(shape: Shape, rounds: int) -> dict[str, Any]:
    """Completions drawn by the transformers engine, over `model.generate`."""
    from stepmark.engines.transformers import TransformersEngine
    from stepmark.types import Problem, Prompt, Sampling

    model, tokenizer = make_model(shape), make_tokenizer()
    texts = make_texts(shape["prompts"], shape["prompt"])
    prompts = [
        Prompt(Problem(f"bench/{n}", text, gold=""), tuple(tokenizer(text).input_ids), text)
        for n, text in enumerate(texts)
    ]
    ids = torch.tensor([prompt.ids for prompt in prompts for _ in range(shape["group"])])
    kept = shape["sampled"]
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    tokenizer.eos_token = None
    engine = TransformersEngine(model, tokenizer)

    def ours() -> float:
        start = time.process_time()
        groups = list(engine.generate(prompts, shape["group"], Sampling(max_tokens=kept), seed=0))
        used = time.process_time() - start
        assert sum(len(r.ids) for group in groups for r in group.rollouts) == len(ids) * kept
        return used

    def peer() -> float:
        start = time.process_time()
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, top_p=1.0,
            max_new_tokens=kept, pad_token_id=0,
        )  # fmt: skip
        used = time.process_time() - start
        assert made.shape[1] == ids.shape[1] + kept
        return used

    times = in_turn({"ours": ours, "peer": peer}, rounds)
    name = (
        f"rollouts, {shape['prompts']} prompts x {shape['group']}, prompt {shape['prompt']}: "
        "over model.generate"
    )
    return row(name, "CPU s", times["ours"], times["peer"], least=1.6)


def growth(shape: Shape, sizes: int) -> list[dict[str, Any]]:
    """CPU seconds of log-probs forward and backward as one size grows, the least of two.

    The first ``sizes`` sizes of each.
    """
    changes: list[tuple[str, list[dict[str, int]]]] = [
        ("problems", [{"prompts": n} for n in (1, 4, 16)]),
        ("group", [{"group": n} for n in (4, 16, 64)]),
        ("vocabulary", [{"vocabulary": n} for n in (512, 8192, 32768)]),
        ("completion length", [{"sampled": n} for n in (64, 256, 768, 1536)]),
    ]
    found: list[dict[str, Any]] = []
    for what, values in changes:
        for value in values[:sizes]:
            sized = {**shape, "prompts": 1, **value}
            run = _pass(make_model(sized), make_samples(sized), "auto")
            run()
            used = min(run(), run())
            tokens = sized["prompts"] * sized["group"] * sized["sampled"]
            size = next(iter(value.values()))
            found.append({"what": what, "size": size, "cpu_s": used, "tokens": tokens})
    return found
