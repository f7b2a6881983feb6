"""The gradient coefficients of docs/paradigm.md by autograd: -d(loss) by each token's log-prob."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from stepmark.rl_backends import (
    Dpo,
    DpoConfig,
    Grpo,
    GrpoConfig,
    Models,
    OnlineDpo,
    OnlineDpoConfig,
    Ppo,
    PpoConfig,
    Rft,
    RftConfig,
    Sft,
    SftConfig,
    Spin,
    SpinConfig,
)
from stepmark.training.forward import TokenOut
from stepmark.training.sample import TrainingSample
from stepmark.types import Marked, Problem, Prompt, Rollout, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "paradigm.md"
PROMPT = Prompt(Problem("p", "q", gold="b", solution="b"), (1, 2), "q")
BETA = 0.3


class Said(NamedTuple):
    """A completion with its log-probs under the policy that sampled, and what was said of it."""

    logps: tuple[float, ...]
    score: float
    ends: tuple[int, ...] = ()
    steps: tuple[float, ...] = ()


SAID = (
    Said((-0.2, -1.5, -0.7, -0.1), 1.0, (1, 3), (0.9, 1.0)),
    Said((-2.0, -0.4), 0.0, (1,), (0.1,)),
    Said((-0.9, -0.3, -1.1), 1.0, (0, 2), (0.2, 0.8)),
)
MARKED = tuple(
    Marked(
        Rollout(
            PROMPT,
            place,
            tuple(range(10 * place, 10 * place + len(said.logps))),
            said.logps,
            "stop",
            f"text {place}",
            0,
            step_ends=said.ends,
        ),
        {"arm@1": Verdict.marked(said.score, "judged")},
        said.score,
        said.steps,
    )
    for place, said in enumerate(SAID)
)


def references(samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
    return [torch.linspace(-1.6, -0.2, len(sample.ids)) for sample in samples]


def values(samples: Sequence[TrainingSample]) -> list[torch.Tensor]:
    return [torch.linspace(0.1, 0.7, len(sample.ids)) for sample in samples]


def logps_of(sample: TrainingSample) -> tuple[float, ...]:
    return next(row.rollout.logps for row in MARKED if row.rollout.ids == sample.ids)


def coefficients(
    backend: Any, rows: Sequence[Marked], **models: Any
) -> list[tuple[TrainingSample, torch.Tensor]]:
    """Each sample with the gradient of -loss by the log-prob of each of its tokens."""
    own = Models(reference_logps=references, values=values, verifiers={"arm@1": 1.0}, **models)
    samples = backend.prepare([tuple(rows)], own).samples
    leaves = [torch.tensor(logps_of(sample)).requires_grad_() for sample in samples]
    lengths = tuple(len(sample.ids) for sample in samples)
    out = TokenOut(
        torch.cat(leaves),
        torch.ones(sum(lengths)),
        lengths,
        values_N=torch.cat(values(samples)) if isinstance(backend, Ppo) else None,
    )
    terms = backend.losses(out, samples, backend.weights(samples)).terms.values()
    (-torch.stack(list(terms)).sum()).backward()
    return [(sample, leaf.grad) for sample, leaf in zip(samples, leaves, strict=True)]


def mean_per_token(backend: Any, rows: Sequence[Marked], **models: Any) -> list[list[float]]:
    """The coefficients where each completion counts alike: eq. (5)'s 1/|o| is taken out."""
    found = coefficients(backend, rows, **models)
    return [(grad * len(grad) * len(found)).tolist() for _, grad in found]


def close(found: Sequence[Sequence[float]], said: Sequence[Sequence[float]]) -> bool:
    for mine, theirs in zip(found, said, strict=True):
        assert list(mine) == pytest.approx(list(theirs), abs=1e-5)
    return bool(found)


def sft() -> bool:
    backend = Sft(SftConfig(aggregation="sequence-mean"))
    return close(mean_per_token(backend, MARKED[:1]), [[1.0] * 4])


def rft(online: bool) -> bool:
    backend = Rft(RftConfig(online=online, aggregation="sequence-mean"))
    kept = {sample.ids: grad for sample, grad in coefficients(backend, MARKED)}
    assert MARKED[1].rollout.ids not in kept, "wrong: its coefficient is 0"
    return close(
        [(grad * len(grad) * 2).tolist() for grad in kept.values()], [[1.0] * 4, [1.0] * 3]
    )


def log_ratio(row: Marked) -> float:
    """log π/π_ref of a whole completion."""
    ids = row.rollout.ids
    (reference,) = references([TrainingSample(PROMPT.ids, ids)])
    return sum(row.rollout.logps) - float(reference.double().sum())


def preference(backend: Any, rows: Sequence[Marked], pairs: Sequence[tuple[int, int]]) -> bool:
    """±β σ(−β h) on every token of a pair, divided by the number of pairs."""
    found = coefficients(backend, rows)
    said: list[list[float]] = []
    for better, worse in pairs:
        h = log_ratio(MARKED[better]) - log_ratio(MARKED[worse])
        push = BETA * torch.sigmoid(torch.tensor(-BETA * h)).item() / len(pairs)
        said += [[push] * len(SAID[better].logps), [-push] * len(SAID[worse].logps)]
    assert [sample.is_chosen for sample, _ in found] == [True, False] * len(pairs)
    return close([grad.tolist() for _, grad in found], said)


def ppo() -> bool:
    """A(t) with λ = γ = 1: the rewards from t on, less the value; the score on the last token."""
    backend = Ppo(PpoConfig(beta=BETA, whiten=False, aggregation="sequence-mean"))
    said: list[list[float]] = []
    for row in MARKED:
        sample = TrainingSample(PROMPT.ids, row.rollout.ids)
        (reference,), (value,) = references([sample]), values([sample])
        rewards = -BETA * (torch.tensor(row.rollout.logps) - reference)
        rewards[-1] += row.reward
        said.append((rewards.flip(0).cumsum(0).flip(0) - value).tolist())
    return close(mean_per_token(backend, MARKED), said)


def with_divergence(advantages: Sequence[Sequence[float]]) -> list[list[float]]:
    """A + β (π_ref/π − 1)."""
    rows: list[list[float]] = []
    for row, advantage in zip(MARKED, advantages, strict=True):
        (reference,) = references([TrainingSample(PROMPT.ids, row.rollout.ids)])
        pull = BETA * ((reference - torch.tensor(row.rollout.logps)).exp() - 1)
        rows.append((torch.tensor(advantage) + pull).tolist())
    return rows


def grpo_outcome() -> bool:
    scores = [said.score for said in SAID]
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores) + 1e-6
    advantages = [[(said.score - mean) / deviation] * len(said.logps) for said in SAID]
    return close(mean_per_token(Grpo(GrpoConfig(beta=BETA)), MARKED), with_divergence(advantages))


def grpo_process() -> bool:
    """Step scores pooled over the group; a token gets those of steps that end at it or later."""
    pool = [score for said in SAID for score in said.steps]
    mean, deviation = statistics.fmean(pool), statistics.stdev(pool) + 1e-6
    advantages = [
        [
            sum(
                (score - mean) / deviation
                for score, end in zip(said.steps, said.ends, strict=True)
                if end >= token
            )
            for token in range(len(said.logps))
        ]
        for said in SAID
    ]
    found = mean_per_token(Grpo(GrpoConfig(beta=BETA)), MARKED, outcome=0.0, process=1.0)
    return close(found, with_divergence(advantages))


ROWS: dict[str, Callable[[], bool]] = {
    "SFT": sft,
    "RFT": lambda: rft(online=False),
    "online RFT": lambda: rft(online=True),
    "DPO": lambda: preference(Dpo(DpoConfig(beta=BETA)), MARKED[:2], [(0, 1)]),
    "online DPO": lambda: preference(
        OnlineDpo(OnlineDpoConfig(beta=BETA)), MARKED, [(0, 1), (2, 1)]
    ),
    "SPIN": lambda: preference(Spin(SpinConfig(beta=BETA)), MARKED, [(2, 0), (2, 1)]),
    "PPO": ppo,
    "GRPO, outcome": grpo_outcome,
    "GRPO, process": grpo_process,
}


@pytest.mark.parametrize("method", ROWS)
def test_autograd_gives_the_coefficient_of_the_table(method: str) -> None:
    assert ROWS[method]()


def test_every_row_of_the_table_is_checked_and_names_a_backend() -> None:
    from stepmark.rl_backends import backends

    cells = [line.split("|")[1:3] for line in PAGE.read_text().splitlines() if line[:2] == "| "]
    table = {method.strip(): names for method, names in cells[1:]}
    assert list(table) == list(ROWS)
    for names in table.values():
        assert re.findall(r"`([\w-]+)`", names)[0] in backends.names()
