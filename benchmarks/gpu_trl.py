"""TRL's side of the GPU benchmark: the same model, prompt length, group and tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tiny import score


def trl_steps(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    sizes: dict[str, int],
    steps: int,
    out: str,
    now: Callable[[], float],
) -> dict[str, float]:
    """Seconds of generating and of the rest of a GRPO step, the least after the first."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    borders: list[float] = []
    drawn: list[float] = []

    class Border(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if not borders:
                borders.append(now())

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            borders.append(now())

    on_gpu = next(model.parameters()).is_cuda
    config = GRPOConfig(
        output_dir=out, per_device_train_batch_size=sizes["group"],
        num_generations=sizes["group"], max_completion_length=sizes["sampled"],
        generation_kwargs={"min_new_tokens": sizes["sampled"]}, beta=0.0, max_steps=steps,
        learning_rate=1e-6, report_to="none", save_strategy="no", use_cpu=not on_gpu,
        bf16=on_gpu, gradient_checkpointing=False, disable_tqdm=True, seed=0,
    )  # fmt: skip
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **given: [score(text) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        callbacks=[Border()],
    )
    generate = trainer._generate

    def timed(*args: Any, **given: Any) -> Any:
        start = now()
        made = generate(*args, **given)
        drawn.append(now() - start)
        return made

    trainer._generate = timed
    trainer.train()
    wholes = [end - start for start, end in pairwise(borders)]
    rests = [whole - part for whole, part in zip(wholes, drawn, strict=False)]
    return {"generate_s": min(drawn[1:]), "update_s": min(rests[1:])}
