"""What is written about a step, under TRL's names where it has one.

| metric | unit | healthy |
|---|---|---|
| `reward`, `rewards/<verifier>/mean` | reward; score in [0, 1] | rises |
| `reward_std` | reward, mean over groups of the sample deviation | above 0 |
| `frac_reward_zero_std` | share of groups that teach nothing | below 0.8 |
| `completions/mean_length` (`min`, `max`, `mean_terminated`) | tokens | steady |
| `completions/clipped_ratio` | share that ran out of tokens | below 0.2 |
| `verdicts/abstain_share`, `verdicts/error_share` | share of verdicts | 0 |
| `steps/mean_count` (`min_count`, `max_count`) | steps per completion | 2 or more, steady |
| `steps/single_share`, `steps/abstain_share` | share of completions; of steps | below 0.5; 0 |
| `steps/score_mean` | step score in [0, 1] | rises |
| `reward_model/<name>/...` | what a reward model says of its refresh | |
| `pairs`, `pairs/group_share` | pairs of the step; share of groups that gave one | above 0 |
| `pairs/skipped_step`, `rft/skipped_step` | 1 where nothing was learnt: no optimizer step | 0 |
| `rewards/chosen`, `rewards/rejected`, `rewards/margins` | beta nats, over the reference | rises |
| `rewards/accuracies` | share of pairs in the right order | above 0.5, rises |
| `logps/chosen`, `logps/rejected` | nats, sums over tokens | chosen does not fall far |
| `rft/kept`, `rft/group_share` | completions kept; share of groups with one | above 0 |
| `loss`, `loss/<term>` | its value is no sign of progress in RL | finite |
| `kl` | nats per token | below 1 |
| `entropy` | nats per token | falls slowly |
| `clip_ratio/low_mean`, `high_mean`, `region_mean` | share of tokens | below 0.2 |
| `ratio_mean` | mean importance ratio | near 1 |
| `policy/approxkl_avg` | nats, half the squared log-ratio to the sampler (PPO) | below 0.02 |
| `critic/explained_variance` | share of the returns' variance that was foreseen | up to 1 |
| `critic/values_mean`, `critic/returns_mean` | reward, mean over tokens | near each other |
| `val/clipfrac_avg` | share of tokens whose value the clip held | below 0.2 |
| `objective/kl` | nats per completion, as sampled | below 10 |
| `objective/non_score_reward`, `objective/rlhf_reward` | of the divergence; of all | |
| `weights_changed` | share of the learning bfloat16 weights that a step moved | above 0.1 |
| `grad_norm`, `critic/grad_norm` | before clipping | finite, steady |
| `learning_rate`, `num_tokens` | ; sampled tokens of the step | |
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from stepmark.types import Marked, Status

from .scoring import step_metrics

__all__ = ["Totals", "describe"]


def describe(groups: Sequence[tuple[Marked, ...]]) -> dict[str, float]:
    """Rewards, verdicts, lengths and step scores of a step's groups."""
    rows = [row for group in groups for row in group]
    lengths = [len(row.rollout.ids) for row in rows]
    ended = [len(row.rollout.ids) for row in rows if row.rollout.finish == "stop"]
    found = {
        "completions/mean_length": statistics.fmean(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/mean_terminated_length": statistics.fmean(ended) if ended else 0.0,
        "completions/clipped_ratio": 1 - len(ended) / len(rows),
        "num_tokens": float(sum(lengths)),
    }
    if not any(row.verdicts for row in rows):
        return found
    rewards = [row.reward for row in rows if row.reward is not None]
    deviations = [_deviation([row.reward for row in group]) for group in groups]
    if rewards:
        found["reward"] = statistics.fmean(rewards)
    found["reward_std"] = statistics.fmean(deviations)
    for key in rows[0].verdicts:
        scores = [row.verdicts[key].score for row in rows]
        marked = [score for score in scores if score is not None]
        if marked:
            found[f"rewards/{key}/mean"] = statistics.fmean(marked)
    verdicts = [verdict for row in rows for verdict in row.verdicts.values()]
    for status in (Status.ABSTAIN, Status.ERROR):
        share = sum(verdict.status is status for verdict in verdicts) / len(verdicts)
        found[f"verdicts/{status.value}_share"] = share
    return found | step_metrics(groups)


def _deviation(rewards: Sequence[float | None]) -> float:
    scored = [reward for reward in rewards if reward is not None]
    return statistics.stdev(scored) if len(scored) > 1 else 0.0


class Totals:
    """Numbers that add up over micro-batches, and are averaged over optimizer steps."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.updates = 0

    def add(self, numbers: Mapping[str, float]) -> None:
        """Add what one micro-batch or one optimizer step contributes."""
        for name, value in numbers.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """Per optimizer step; empty when there was none."""
        return (
            {name: value / self.updates for name, value in self.sums.items()}
            if self.updates
            else {}
        )
