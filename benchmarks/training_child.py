"""One side of a training benchmark in a process of its own: a line in, a JSON line out.

    python training_child.py step ours|trl FOLDER SHAPE    one whole GRPO step for each line read
    python training_child.py memory ours|naive|trl FOLDER SHAPE    peak memory of one pass

CPU seconds of this process and its descendants, one thread.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", WANDB_MODE="disabled")

import torch
from tiny import Shape, make_samples, make_texts, score
from transformers import AutoModelForCausalLM, AutoTokenizer

BETA = 0.04
RATE = 1e-6


class Gate:
    """Tells what a step cost, and waits until the next one is asked for."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self.facts: dict[str, Any] = {}
        self.started: float | None = None

    def wait(self) -> None:
        """At the border between two steps."""
        told = {"cpu_s": None if self.started is None else time.process_time() - self.started}
        print(json.dumps({**told, "parts": self.parts, **self.facts}), flush=True)
        if not sys.stdin.readline().strip():
            sys.exit(0)
        self.parts.clear()
        self.started = time.process_time()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose CPU time is noted under that name."""

        def wrapped(*args: Any, **given: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **given)
            finally:
                self.parts[name] += time.process_time() - start

        return wrapped


class Marks:
    """A verifier in this process."""

    key = "marks@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Any) -> list[Any]:
        from stepmark.types import Verdict

        return [Verdict.marked(score(item.completion), "judged") for item in items]


def ours(folder: Path, shape: Shape, gate: Gate) -> None:
    """The loop of stepmark as `stepmark train` runs it."""
    from stepmark.config.tables import RolloutTable
    from stepmark.engines.transformers import TransformersEngine
    from stepmark.rl_backends import (
        Grpo,
        GrpoConfig,
        Policy,
        Reward,
        collect,
        loop,
        preparation,
        update,
    )
    from stepmark.store.run import RunFolder
    from stepmark.types import Problem, Prompt

    model, tokenizer = _load(folder)
    # No completion ends early, as with TRL's min_new_tokens: nothing is an end token.
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    tokenizer.eos_token = None
    prompts = [
        Prompt(Problem(f"bench/{n}", text, gold=""), tuple(tokenizer(text).input_ids), text)
        for n, text in enumerate(make_texts(256, shape["prompt"]))
    ]

    def of_step(step: int) -> list[Prompt]:
        gate.wait()
        first = step * shape["prompts"] % (len(prompts) - shape["prompts"])
        return prompts[first : first + shape["prompts"]]

    preparation.reference_logps = gate.timed("reference", preparation.reference_logps)
    update.Updater.update = gate.timed("update", update.Updater.update)
    collect.Collector.collect = gate.timed("generate", collect.Collector.collect)
    config = GrpoConfig(
        steps=1000, learning_rate=RATE, beta=BETA, save_every=None, tokens_per_microbatch=1 << 16
    )
    table = RolloutTable(
        group_size=shape["group"], prompts_per_step=shape["prompts"], max_tokens=shape["sampled"]
    )
    with tempfile.TemporaryDirectory() as out:
        loop.train(
            RunFolder(Path(out)),
            Grpo(config),
            Policy(model, tokenizer),
            prompts=of_step,
            rollout=table,
            engine=TransformersEngine(model, tokenizer),
            reward=Reward(((Marks(), 1.0),)),
        )


def trl(folder: Path, shape: Shape, gate: Gate) -> None:
    """TRL's GRPOTrainer on the same model, prompts, group and tokens."""
    from transformers import TrainerCallback

    class Border(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if gate.started is None:
                gate.wait()

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            gate.wait()

    with tempfile.TemporaryDirectory() as out:
        trainer = _trainer(folder, shape, out, [Border()])
        trainer._generate = gate.timed("generate", trainer._generate)
        logps = trainer._get_per_token_logps_and_entropies

        def noted(model: Any, *args: Any, **given: Any) -> Any:
            if torch.is_grad_enabled():
                return logps(model, *args, **given)
            return gate.timed("reference", logps)(model, *args, **given)

        trainer._get_per_token_logps_and_entropies = noted
        compute = trainer._compute_loss

        def compared(model: Any, inputs: Any) -> Any:
            if not gate.facts:
                other = _moved(inputs, shape["vocabulary"])
                with torch.no_grad():
                    theirs = float(compute(model, other))
                gate.facts |= {"loss": theirs, "our_loss": _our_loss(model, other)}
            return compute(model, inputs)

        trainer._compute_loss = compared
        trainer.train()


def _moved(inputs: Any, vocabulary: int) -> Any:
    """The same batch, with numbers under which the loss depends on each log-prob of the model.

    Advantages do not sum to zero; old and reference log-probs lie about those of a uniform choice.
    """
    noise = torch.Generator().manual_seed(0)
    tokens, rows = inputs["ref_per_token_logps"].shape, inputs["advantages"].shape
    return {
        **inputs,
        "advantages": torch.randn(rows, generator=noise) + 0.5,
        "old_per_token_logps": 0.2 * torch.randn(tokens, generator=noise) - math.log(vocabulary),
        "ref_per_token_logps": 0.3 * torch.randn(tokens, generator=noise) - math.log(vocabulary),
    }


@torch.no_grad()
def _our_loss(model: Any, inputs: Any) -> float:
    """Our loss of TRL's own batch: its tokens, advantages, old and reference log-probs."""
    from stepmark.rl_backends import Grpo, GrpoConfig
    from stepmark.training import TrainingSample, token_logps

    rows = zip(
        *(inputs[name] for name in ("prompt_ids", "prompt_mask", "completion_ids")),
        inputs["completion_mask"], inputs["advantages"], inputs["old_per_token_logps"],
        inputs["ref_per_token_logps"], strict=True,
    )  # fmt: skip
    samples = [
        TrainingSample(
            tuple(prompt[kept.bool()].tolist()),
            tuple(ids[mask.bool()].tolist()),
            place,
            old_logps=old[mask.bool()].float(),
            ref_logps=references[mask.bool()].float(),
            advantages=advantage.expand(int(mask.sum())).float(),
        )
        for place, (prompt, kept, ids, mask, advantage, old, references) in enumerate(rows)
    ]
    out = token_logps(model, samples)
    backend = Grpo(GrpoConfig(beta=BETA))
    return float(sum(backend.losses(out, samples, backend.weights(samples)).terms.values()))


def _trainer(folder: Path, shape: Shape, out: str, callbacks: list[Any]) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=out,
        per_device_train_batch_size=shape["prompts"] * shape["group"],
        num_generations=shape["group"],
        max_completion_length=shape["sampled"],
        generation_kwargs={"min_new_tokens": shape["sampled"]},
        beta=BETA,
        loss_type="grpo",
        use_bias_correction_kl=False,  # eq. (4) of DeepSeekMath, as ours
        max_steps=1000,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=0,
    )
    return GRPOTrainer(
        model=str(folder),
        reward_funcs=lambda completions, **given: [score(text) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": make_texts(256, shape["prompt"])}),
        callbacks=callbacks,
    )


def memory(mode: str, folder: Path, shape: Shape) -> None:
    """Peak memory of log-probs forward and backward, over the model's own."""
    run = _passes(mode, folder, shape)
    run(True)  # what is loaded and made once is no part of it
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory_mb("VmRSS")
    start = time.process_time()
    checksum = run(False)
    used = time.process_time() - start
    told = {"peak_mb": _memory_mb("VmHWM") - before, "cpu_s": used, "sum": checksum}
    print(json.dumps(told), flush=True)


def _passes(mode: str, folder: Path, shape: Shape) -> Callable[[bool], float]:
    from stepmark.training import token_logps

    trainer = _trainer(folder, shape, tempfile.mkdtemp(), []) if mode == "trl" else None
    model = _load(folder)[0] if trainer is None else trainer.model

    def run(is_warming: bool) -> float:
        samples = make_samples(shape)
        samples = samples[:1] if is_warming else samples
        ids = torch.tensor([[*one.prompt_ids, *one.ids] for one in samples])
        kept = shape["sampled"]
        if mode == "ours":
            logps = token_logps(model, samples, with_entropy=True).logps_N
        elif trainer is not None:
            logps = trainer._get_per_token_logps_and_entropies(
                model, ids, torch.ones_like(ids), kept, compute_entropy=True
            )[0]
        else:
            every = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[:, :-1], -1)
            logps = every.gather(-1, ids[:, 1:, None])[:, -kept:, 0]
        logps.sum().backward()
        model.zero_grad()
        return float(logps.detach().sum())

    return run


def _memory_mb(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def _load(folder: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def main() -> None:
    torch.set_num_threads(1)
    what, side, folder, shape = sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
    if what == "memory":
        memory(side, folder, shape)
    else:
        {"ours": ours, "trl": trl}[side](folder, shape, Gate())


if __name__ == "__main__":
    main()
