"""Two steps of a real trainer of TRL on a tiny random model, and what it did, as one JSON line.

Run by test_trl_slow.py with the Python of a venv that holds TRL, from a folder with checks.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

GROUP = 4
GOLDS = ["4", "7", None, "10"]


def build_model(folder: Path) -> None:
    """A two-layer Llama with a byte tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    table = {"<pad>": 0, "<eos>": 1, **{letter: id + 2 for id, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=table, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(table),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def rows(shape: str) -> Any:
    """Four problems, one without a gold, as texts or as messages."""
    from datasets import Dataset

    questions = [f"What is {number} + {number}?" for number in range(len(GOLDS))]
    prompts: list[Any] = questions
    if shape == "messages":
        prompts = [[{"role": "user", "content": question}] for question in questions]
    return Dataset.from_dict({"prompt": prompts, "solution": GOLDS, "unit": ["cm"] * len(GOLDS)})


def trained(shape: str, rewards: list[Any], trainer: str = "GRPO", **settings: Any) -> Any:
    """The trainer after two steps, every problem in each."""
    import trl

    config = getattr(trl, f"{trainer}Config")(
        output_dir="run",
        per_device_train_batch_size=GROUP * len(GOLDS),
        num_generations=GROUP,
        max_completion_length=6,
        beta=0.0,
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        seed=0,
        **settings,
    )
    made = getattr(trl, f"{trainer}Trainer")(
        model="model", reward_funcs=rewards, args=config, train_dataset=rows(shape)
    )
    made.train()
    return made


def told(trainer: Any) -> dict[str, Any]:
    """What a trainer logged: rewards and advantages of every completion, and the metrics."""
    logs = trainer._logs
    return {
        "completion": list(logs["completion"])[:1],
        "rewards": {name: list(values) for name, values in logs["rewards"].items()},
        "advantages": list(logs["advantages"]),
        "extra": {name: list(values) for name, values in logs["extra"].items()},
        "metrics": [row for row in trainer.state.log_history if "reward" in row],
        "steps": trainer.state.global_step,
    }


def refusal(rewards: list[Any]) -> str:
    """The error of a run with rewards that cannot work."""
    try:
        trained("text", rewards)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def constant(completions: list[Any], **columns: Any) -> list[float]:
    """A second reward function that scores everything."""
    return [0.5] * len(completions)


def plain(completions: list[Any], **columns: Any) -> list[float | None]:
    """A reward function without us: the second of each group has no score, the first is right."""
    return [(1.0, None, 0.0, 0.0)[index % GROUP] for index in range(len(completions))]


def main() -> None:
    """Everything in one process: importing TRL takes longer than training."""
    from stepmark.adapters.trl import async_reward, reward

    build_model(Path("model"))
    some = reward("checks.py:some", gold="solution")
    result = {
        "text": told(trained("text", [some])),
        "messages": told(trained("messages", [some])),
        "async": told(trained("text", [async_reward("checks.py:some", gold="solution")])),
        "two_plain": told(trained("text", [plain, constant])),
        "two_refused": refusal([some, constant]),
        "two_accepted": told(
            trained("text", [reward("checks.py:some", abstain_score=0.0), constant])
        ),
        "two_normalised": told(
            trained("text", [some, constant], multi_objective_aggregation="normalize_then_sum")
        ),
        "rloo": told(trained("text", [some], "RLOO", normalize_advantages=False)),
        "math": told(trained("messages", [reward("math")])),
        "no_gold": refusal([reward("math", gold="answer")]),
        "no_column": refusal([reward("checks.py:asks", gold="solution")]),
    }
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
