"""Training on one GPU, measured: models from a config with random weights, and TRL beside ours.

    benchmarks/gpu.sh          writes benchmarks/results.json and benchmarks/gpu.md
    benchmarks/gpu.sh --dry    tiny sizes on the CPU: does the script run

A step is one group of completions: generate, log-probs, loss, gradient, AdamW; float32 weights
under bfloat16 autocast. Wall seconds, the device synchronised.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from about import about, installed
from gpu_page import page
from gpu_trl import trl_steps
from tiny import make_texts, make_tokenizer, score
from transformers import Qwen2Config, Qwen2ForCausalLM

from stepmark.engines.transformers import TransformersEngine
from stepmark.errors import Error, SetupError
from stepmark.rl_backends import Grpo, GrpoConfig
from stepmark.rl_backends.advantages import group_advantages
from stepmark.rl_backends.update import Updater
from stepmark.rl_backends.window import Window
from stepmark.store import write_json
from stepmark.training import TrainingSample, token_logps
from stepmark.types import Problem, Prompt, Sampling

MODELS: dict[str, dict[str, int]] = {
    "0.5 B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
              "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936},
    "1.5 B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
              "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936},
}  # fmt: skip
TINY: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 600},
}  # fmt: skip
SIZES = {"prompt": 150, "sampled": 1000, "group": 16}
SMALL = {"prompt": 30, "sampled": 12, "group": 4}
ROUNDS = 2
RATE = 1e-6


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="benchmarks/results.json", help="the page goes beside it")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--minutes", type=float, default=9, help="no model is begun after that")
    chosen = parser.parse_args(arguments)
    try:
        results = _run(chosen)
    except Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(page(results))
    # What is left out of a dry run would be left out on a GPU as well.
    return int(chosen.dry and any("left_out" in row for row in results["rows"]))


def _run(chosen: argparse.Namespace) -> dict[str, Any]:
    if not chosen.dry and not torch.cuda.is_available():
        raise SetupError(
            f"torch {torch.__version__} finds no GPU here, and the figures would mean nothing. "
            "It needs a GPU and a torch built for it (make TORCH=torch==2.13.0 takes one from the "
            "index). Try the script with --dry."
        )
    device = torch.device("cpu" if chosen.dry else "cuda")
    started = time.monotonic()
    facts = about([], seed=0, rounds=ROUNDS, quick=chosen.dry)
    facts["command"] = "benchmarks/gpu.sh" + (" --dry" if chosen.dry else "")
    facts["device"] = "CPU" if chosen.dry else torch.cuda.get_device_name()
    names = ("stepmark", "torch", "transformers", "trl")
    facts["versions"] = {name: found for name in names if (found := installed(name))}
    results: dict[str, Any] = {"about": facts, "sizes": SMALL if chosen.dry else SIZES, "rows": []}
    for name, config in (TINY if chosen.dry else MODELS).items():
        if time.monotonic() - started > 60 * chosen.minutes / 2:
            results["rows"].append({"model": name, "side": "", "left_out": "no time was left"})
            continue
        results["rows"] += _model(name, config, results["sizes"], device)
        facts["wall_s"] = round(time.monotonic() - started, 1)
        if not chosen.dry:  # after each model: a run that is cut off keeps what it has
            _write(Path(chosen.out), results)
    return results


def _write(out: Path, results: dict[str, Any]) -> None:
    known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    write_json(out, {**known, "gpu": results})
    out.with_name("gpu.md").write_text(page(results), encoding="utf-8")


def _model(
    name: str, settings: dict[str, int], sizes: dict[str, int], device: torch.device
) -> list[dict[str, Any]]:
    """A row for each side; one that fails says why, and costs the others nothing."""
    config = Qwen2Config(**settings, tie_word_embeddings=True, max_position_embeddings=4096)  # type: ignore[arg-type]
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        "Stepmark": lambda: _ours(config, sizes, device)
    }
    if installed("trl"):
        sides["TRL"] = lambda: _trl(config, sizes, device)
    rows: list[dict[str, Any]] = []
    for side, measured in sides.items():
        try:
            rows.append({"model": name, "side": side, **measured()})
        except torch.OutOfMemoryError:
            rows.append({"model": name, "side": side, "left_out": "out of memory"})
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            print(f"{name}, {side}: {traceback.format_exc()}", file=sys.stderr)
            rows.append({"model": name, "side": side, "left_out": why})
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    return rows


def _make(config: Any, device: torch.device) -> Any:
    torch.manual_seed(0)
    with device:
        return Qwen2ForCausalLM(copy.deepcopy(config)).float().eval()


def _ours(config: Any, sizes: dict[str, int], device: torch.device) -> dict[str, Any]:
    model, tokenizer = _make(config, device), make_tokenizer()
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    tokenizer.eos_token = None
    text = make_texts(1, sizes["prompt"])[0]
    prompt = Prompt(Problem("bench/0", text, gold=""), tuple(tokenizer(text).input_ids), text)
    engine = TransformersEngine(model, tokenizer)
    backend = Grpo(GrpoConfig(beta=0.0, tokens_per_microbatch=1 << 15, log_entropy=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    updater = Updater(model, optimizer, backend, 1.0, 0)
    half = torch.autocast(device.type, dtype=torch.bfloat16)
    told: dict[str, list[float]] = {"generate_s": [], "update_s": []}
    samples: list[TrainingSample] = []
    for turn in range(1 + ROUNDS):
        start = _now(device)
        with half:
            sampling = Sampling(max_tokens=sizes["sampled"])
            [group] = engine.generate([prompt], sizes["group"], sampling, seed=turn)
        drawn = _now(device)
        samples = _samples(group.rollouts)
        with half:
            updater.update(Window(turn, samples))
        if turn:  # the first one warms up
            told["generate_s"].append(drawn - start)
            told["update_s"].append(_now(device) - drawn)
    found: dict[str, Any] = {key: min(times) for key, times in told.items()}
    found["peak_gib"] = _peak_gib(device)
    found |= _layouts(model, samples, device)
    return found | _totals(found, sizes)


def _samples(rollouts: Any) -> list[TrainingSample]:
    advantages = group_advantages([score(rollout.text) for rollout in rollouts])
    return [
        TrainingSample(
            rollout.prompt.ids,
            rollout.ids,
            old_logps=torch.tensor(rollout.logps),
            advantages=torch.full((len(rollout.ids),), float(advantage)),
        )
        for rollout, advantage in zip(rollouts, advantages, strict=True)
    ]


def _layouts(model: Any, samples: list[TrainingSample], device: torch.device) -> dict[str, Any]:
    """Forward and backward with a shared prompt and without; log-probs against float32."""
    found: dict[str, Any] = {}
    half = torch.autocast(device.type, dtype=torch.bfloat16)
    for layout in ("auto", "packed", "auto", "packed"):
        start = _now(device)
        with half:
            loss = token_logps(model, samples, layout=layout).logps_N.sum()
        loss.backward()
        model.zero_grad(set_to_none=True)
        found[f"{layout}_s"] = _now(device) - start
    few = [replace(one) for one in samples[:2]]
    with torch.no_grad():
        exact = token_logps(model, few).logps_N
        with half:
            gap = (token_logps(model, few).logps_N - exact).abs()
    return {**found, "gap_mean": float(gap.mean()), "gap_max": float(gap.max())}


def _trl(config: Any, sizes: dict[str, int], device: torch.device) -> dict[str, Any]:
    model, tokenizer = _make(config, device), make_tokenizer()
    texts = make_texts(32, sizes["prompt"])
    with tempfile.TemporaryDirectory() as out:
        found = trl_steps(model, tokenizer, texts, sizes, 1 + ROUNDS, out, lambda: _now(device))
    return {**found, "peak_gib": _peak_gib(device), **_totals(found, sizes)}


def _totals(found: dict[str, Any], sizes: dict[str, int]) -> dict[str, float]:
    whole = found["generate_s"] + found["update_s"]
    trained = sizes["group"] * sizes["sampled"]
    return {
        "step_s": whole,
        "tokens_per_s": trained / whole,
        "update_tokens_per_s": trained / found["update_s"],
    }


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak_gib(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None


if __name__ == "__main__":
    sys.exit(main())
