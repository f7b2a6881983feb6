"""What verl makes of an exported file, by verl's own loader and workers, as one JSON line.

Run by test_verl_slow.py with the Python of a venv that holds verl; its arguments are the lines that
``stepmark export verl`` shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ANSWERS = ["5 cm", "5 m", "?", "1 cm", r"\sqrt{25} cm"]
GOLDS = ["5", "5", "5", None, "5"]


def build_tokenizer(folder: Path) -> Any:
    """A byte tokenizer, saved: verl's workers load theirs from a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    table = {"<pad>": 0, "<eos>": 1, **{letter: id + 2 for id, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=table, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", padding_side="left"
    )
    fast.save_pretrained(folder)
    return fast


def composed(lines: list[str]) -> Any:
    """The configuration of verl's PPO trainer with the given lines on its command line."""
    import verl
    from hydra import compose, initialize_config_dir

    folder = Path(verl.__file__).parent / "trainer" / "config"
    model = [f"actor_rollout_ref.model.{key}=tokenizer" for key in ("path", "tokenizer_path")]
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", [*lines, "reward.num_workers=1", *model])


def batch(tokenizer: Any) -> Any:
    """Responses as verl holds them after a rollout: padded ids, and the columns of the data."""
    import numpy as np
    import torch
    from verl import DataProto

    width = max(len(tokenizer(text)["input_ids"]) for text in ANSWERS)
    ids = [tokenizer(text)["input_ids"] for text in ANSWERS]
    responses = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * (1 + len(row)) + [0] * (width - len(row)) for row in ids])
    prompts = torch.ones(len(ids), 1, dtype=torch.long)
    columns = {
        "data_source": ["lengths"] * len(ids),
        "reward_model": [{"style": "rule", "ground_truth": gold} for gold in GOLDS],
        "extra_info": [{"unit": "cm"} for _ in ids],
    }
    return DataProto.from_dict(
        tensors={"prompts": prompts, "responses": responses, "attention_mask": mask},
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )


def with_loader(config: Any) -> list[Any]:
    """What the function says that verl's loader makes of the file, called from threads."""
    from verl.trainer.ppo.reward import get_custom_reward_fn

    score = get_custom_reward_fn(config)

    def one(pair: tuple[str, str | None]) -> Any:
        given = {"solution_str": pair[0], "ground_truth": pair[1], "extra_info": {"unit": "cm"}}
        return score(data_source="lengths", **given)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, zip(ANSWERS, GOLDS, strict=True)))


def with_manager(config: Any, tokenizer: Any, data: Any) -> list[Any]:
    """What verl's reward manager says of each response, in this process."""
    from verl.trainer.ppo.reward import load_reward_manager

    manager = load_reward_manager(config, tokenizer)

    async def every() -> list[Any]:
        return [await manager.run_single(data[i : i + 1]) for i in range(len(data))]

    return manager.loop.run_until_complete(every())


def with_ray(config: Any, data: Any) -> dict[str, Any]:
    """What verl's reward workers say of the batch: Ray actors, as in training."""
    import ray
    from verl.experimental.reward_loop import RewardLoopManager

    ray.init(num_cpus=1, include_dashboard=False, configure_logging=False)
    try:
        said = RewardLoopManager(config).compute_rm_score(data)
        keys = said.meta_info["reward_extra_keys"]
        return {
            "rm_scores": said.batch["rm_scores"].sum(-1).tolist(),
            "extra": {key: said.non_tensor_batch[key].tolist() for key in keys},
        }
    finally:
        ray.shutdown()


def advantages(scores: list[float]) -> list[float]:
    """The advantages of one group by verl's GRPO."""
    import numpy as np
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    one_token = torch.ones(len(scores), 1)
    group = np.array(["problem"] * len(scores))
    found, _ = compute_grpo_outcome_advantage(torch.tensor(scores)[:, None], one_token, group)
    return found[:, 0].tolist()


def main() -> None:
    """Loader, manager and Ray workers, one after the other."""
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    tokenizer = build_tokenizer(Path("tokenizer"))
    config, data = composed(sys.argv[1:]), batch(tokenizer)
    asyncio.set_event_loop(asyncio.new_event_loop())
    result: dict[str, Any] = {"lines": [line.split("=")[0] for line in sys.argv[1:]]}
    result["loader"] = with_loader(config)
    result["manager"] = with_manager(config, tokenizer, data)
    result["ray"] = with_ray(config, data)
    result["one_missing"] = advantages([1.0, 0.0, 0.0, 0.0])
    result["left_out"] = advantages([1.0, 0.0, 0.0])
    result["all_missing"] = advantages([0.0, 0.0, 0.0, 0.0])
    extra = result["ray"]["extra"]
    uids = [f"problem {index}" for index in range(len(ANSWERS))]
    result["validation"] = process_validation_metrics(["lengths"] * len(uids), uids, extra)
    sys.stdout.write("\n" + json.dumps(result, default=float) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main()
