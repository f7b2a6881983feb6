"""Rejection-sampling fine-tuning as a pure module: which completions it keeps."""

from __future__ import annotations

import pytest
import torch

from stepmark.rl_backends import Models, Rft, RftConfig, backends
from stepmark.training.forward import TokenOut
from stepmark.types import Finish, Marked, Problem, Prompt, Rollout, Verdict

PROMPT = Prompt(Problem("p", "which?", gold="b"), (1, 2, 3), "which?")


def row(index: int, text: str, score: float | None = 1.0, finish: Finish = "stop") -> Marked:
    ids = (*range(1, len(text.split()) + 1), 0)
    verdict = Verdict.abstained("declined") if score is None else Verdict.marked(score, "judged")
    rollout = Rollout(PROMPT, index, ids, (-1.0,) * len(ids), finish, text, 0)
    return Marked(rollout, {"arm@1": verdict}, score)


def kept(*rows: Marked, **given) -> list[int]:
    """Places of the rows that are learnt from."""
    lengths = [
        len(sample.ids) for sample in Rft(RftConfig(**given)).prepare([rows], Models()).samples
    ]
    return [length - 2 for length in lengths]


A, B, C = "a", "a b", "a b c"


def test_only_right_completions_are_kept() -> None:
    assert kept(row(0, A), row(1, B, 0.0), row(2, C, None)) == [0]
    assert kept(row(0, A, 0.5), row(1, B, 0.4), threshold=0.5) == [0]


def test_the_same_text_is_kept_once_and_at_most_k_of_a_problem() -> None:
    assert kept(row(0, A), row(1, "a\n"), row(2, B), row(3, C)) == [0, 1, 2]
    assert kept(row(0, A), row(1, A), row(2, B), row(3, C), keep_per_problem=2) == [0, 1]


def test_a_completion_without_its_end_is_not_kept() -> None:
    assert kept(row(0, A, finish="length"), row(1, B)) == [1]


def test_nothing_right_is_nothing_to_learn_and_is_said() -> None:
    prepared = Rft().prepare([(row(0, A, 0.0), row(1, B, 0.0))], Models())
    assert not prepared.samples
    assert prepared.metrics["rft/skipped_step"] == 1
    assert prepared.metrics["frac_reward_zero_std"] == 1


def test_the_loss_is_the_likelihood_of_what_was_kept() -> None:
    backend = Rft(RftConfig(aggregation="sequence-mean"))
    samples = backend.prepare([(row(0, A), row(1, C), row(2, B, 0.0))], Models()).samples
    logps = torch.arange(6.0).neg().requires_grad_()
    lengths = tuple(len(sample.ids) for sample in samples)
    out = TokenOut(logps, None, lengths)
    loss = backend.losses(out, samples, backend.weights(samples)).terms["nll"]
    # Two completions of 2 and 4 tokens: the mean over both of their means over tokens.
    assert loss.item() == pytest.approx(((0 + 1) / 2 + (2 + 3 + 4 + 5) / 4) / 2)


def test_offline_needs_the_first_policy_and_online_does_not() -> None:
    assert Rft().needs == {"first-policy"}
    assert not Rft(RftConfig(online=True)).needs
    assert backends.load("rft") is Rft
    assert all(field.description for field in RftConfig.model_fields.values())
