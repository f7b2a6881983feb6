"""The smallest problem a policy can learn: say ``b``. A model of a few thousand weights knows it.

The words are a, b and c; a problem is a prompt of one or two of them, and whatever begins with its
gold, ``b``, is right. `marked_groups` are completions by hand, for backends of every source.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stepmark.rl_backends import Backend, Policy, Reward, train
from stepmark.training.forward import reference_logps
from stepmark.training.sample import TrainingSample
from stepmark.types import Item, Marked, Problem, Prompt, Rollout, Verdict

__all__ = ["BeginsWithGold", "chance_of_gold", "marked_groups", "tiny_policy", "train_on_bandit"]

WORDS = ("<eos>", "<unk>", "a", "b", "c")
PROMPTS = ("a", "b", "c", "a b", "b c", "c a")
ROLLOUTS = ("b c", "a", "b", "c c a")
"""Completions of one problem by hand: two right ones, two wrong ones, of different lengths."""


def tiny_policy(seed: int = 0) -> Policy:
    """A Llama of a few thousand weights and a tokenizer over the words and an end token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(
        models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>"
    )
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(LlamaForCausalLM(config).float().eval(), tokenizer)


class BeginsWithGold:
    """A verifier: full marks for a completion that begins with the gold."""

    key = "begins-with-gold@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item."""
        return [
            Verdict.marked(float(item.completion.startswith(str(item.problem.gold))), "judged")
            for item in items
        ]


def bandit_prompts(policy: Policy) -> list[Prompt]:
    """One prompt per problem; worked solution and preferences say the gold, too."""
    found: list[Prompt] = []
    for number, text in enumerate(PROMPTS):
        meta = {"chosen": "b c", "rejected": "a c" if number % 2 else "c"}
        problem = Problem(f"bandit/{number}", text, gold="b", solution="b c", meta=meta)
        found.append(Prompt(problem, tuple(policy.tokenizer(text)["input_ids"]), text))
    return found


def marked_groups(
    policy: Policy, source: str, *, is_scored: bool = True
) -> list[tuple[Marked, ...]]:
    """Groups as the loop hands them to a backend of this source, with the policy's log-probs.

    Args:
        policy: what the completions are taken to be drawn from.
        source: of the backend.
        is_scored: whether the verifier gave scores; else it abstained from all.
    """
    texts = {
        "demonstrations": ("b c",),
        "preferences": ("b c", "a c"),
        "self-play": ("a c", "c", "b c"),
    }.get(source, ROLLOUTS)
    verifier = BeginsWithGold()
    groups: list[tuple[Marked, ...]] = []
    for prompt in bandit_prompts(policy)[:3]:
        rollouts = [_rollout(policy, prompt, index, text) for index, text in enumerate(texts)]
        items = [Item(prompt.problem, rollout.text) for rollout in rollouts]
        verdicts = (
            verifier(items) if is_scored else [Verdict.abstained("gold_missing") for _ in items]
        )
        marked = [
            Marked(rollout, {verifier.key: verdict}, verdict.score)
            for rollout, verdict in zip(rollouts, verdicts, strict=True)
        ]
        groups.append(tuple(marked))
    return groups


def _rollout(policy: Policy, prompt: Prompt, index: int, text: str) -> Rollout:
    ids = (*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id)
    [logps] = reference_logps(policy.model, [TrainingSample(prompt.ids, ids)], 1.0, 1024)
    return Rollout(prompt, index, ids, tuple(logps.tolist()), "stop", text, seed=index)


@torch.no_grad()
def chance_of_gold(policy: Policy) -> float:
    """How likely the policy begins with the gold: the mean over the problems, from 0 to 1."""
    gold = WORDS.index("b")
    samples = [TrainingSample(prompt.ids, (gold,)) for prompt in bandit_prompts(policy)]
    logps = torch.cat(reference_logps(policy.model, samples, 1.0, 1024))
    return float(logps.exp().mean())


def train_on_bandit(backend: Backend, policy: Policy, folder: Path) -> list[dict[str, Any]]:
    """The metrics of a short run on the real loop; the policy is trained in place."""
    from stepmark.config.tables import RolloutTable
    from stepmark.engines.transformers import TransformersEngine
    from stepmark.store.run import RunFolder

    prompts = bandit_prompts(policy)
    rollout = RolloutTable(
        group_size=8, prompts_per_step=3, max_tokens=2 if backend.source == "rollouts" else 4
    )
    with RunFolder.create(folder, {"kind": "bandit"}, {}) as run:
        train(
            run,
            backend,
            policy,
            prompts=lambda step: prompts[:3] if step % 2 else prompts[3:],
            rollout=rollout,
            engine=TransformersEngine(policy.model, policy.tokenizer),
            reward=Reward(((BeginsWithGold(), 1.0),)),
        )
        return run.metrics()
