"""GRPO of TRL with the reward of Stepmark, on the embedded task: a minute on a CPU, no download.

Run: python examples/trl_grpo.py   (beside Stepmark with [train] it needs: pip install 'trl>=1.6')
The model is tiny and knows nothing; put your own in its place.
"""

from __future__ import annotations

import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from stepmark.adapters.trl import reward
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama


def main() -> None:
    """Two steps on eight problems, eight completions each, and what was logged of the reward."""
    problems = load_task("arith", "train").problems[:8]
    columns = {
        "prompt": [problem.text for problem in problems],
        "answer": [problem.gold for problem in problems],
    }
    tokenizer = arith_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=tiny_llama(tokenizer, seed=0),
            processing_class=tokenizer,
            reward_funcs=[reward("math", gold="answer")],
            train_dataset=Dataset.from_dict(columns),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=64,
                num_generations=8,
                max_completion_length=16,
                max_steps=2,
                logging_steps=1,
                report_to="none",
                save_strategy="no",
                use_cpu=True,
                bf16=False,
            ),
        )
        trainer.train()
        for row in trainer.state.log_history[:2]:
            print({key: value for key, value in row.items() if key.startswith("rewards/")})


if __name__ == "__main__":
    main()
