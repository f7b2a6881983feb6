"""What GRPO's options make of marked groups: advantages of tokens, and which groups are learnt."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from stepmark.rl_backends.backend import Models
from stepmark.rl_backends.grpo import Grpo, GrpoConfig
from stepmark.rl_backends.process import process_advantages
from stepmark.rl_backends.resample import drawn_further
from stepmark.types import Marked, Problem, Prompt, Rollout, Verdict


def marked(
    reward: float | None,
    *,
    size: int = 4,
    scores: tuple[float, ...] | None = None,
    ends: tuple[int, ...] | None = None,
    id: str = "p",
    verdicts: dict[str, Verdict] | None = None,
) -> Marked:
    prompt = Prompt(Problem(id, "?", "1"), (1,), "?")
    ids, logps = tuple(range(size)), (-1.0,) * size
    rollout = Rollout(prompt, 0, ids, logps, "stop", "x", 0, step_ends=ends)
    return Marked(rollout, verdicts or {}, reward, scores)


def advantages(group: tuple[Marked, ...], models: Models, **settings) -> list[list[float]]:
    prepared = Grpo(GrpoConfig(beta=0.0, **settings)).prepare([group], models)
    return [sample.advantages.tolist() for sample in prepared.samples]


STEPS = (
    marked(1.0, scores=(1.0, 1.0), ends=(1, 3)),
    marked(0.0, size=3, scores=(1.0, 0.0), ends=(0, 2)),
)


def test_process_supervision_gives_each_token_the_sum_of_the_steps_that_end_behind_it() -> None:
    found = advantages(STEPS, Models(outcome=0.0, process=1.0))
    wanted = process_advantages([[1.0, 1.0], [1.0, 0.0]], [[1, 3], [0, 2]], [4, 3])
    assert found == [pytest.approx(row) for row in wanted]
    assert found[0][0] == found[0][1] != found[0][2]


def test_one_step_per_completion_is_outcome_supervision() -> None:
    group = (marked(1.0, scores=(1.0,), ends=(3,)), marked(0.0, scores=(0.0,), ends=(3,)))
    assert advantages(group, Models(outcome=0.0, process=1.0)) == advantages(group, Models())


def test_outcome_and_process_add_up_by_their_weights() -> None:
    outcome = advantages(STEPS, Models())
    process = advantages(STEPS, Models(outcome=0.0, process=1.0))
    mixed = advantages(STEPS, Models(outcome=2.0, process=0.5))
    for row, whole, steps in zip(mixed, outcome, process, strict=True):
        assert row == pytest.approx([2 * a + 0.5 * b for a, b in zip(whole, steps, strict=True)])


def test_a_group_is_flat_only_when_neither_outcomes_nor_rewarded_steps_differ() -> None:
    group = (
        marked(1.0, scores=(1.0, 1.0), ends=(1, 3)),
        marked(1.0, scores=(0.0, 1.0), ends=(1, 3)),
    )
    backend = Grpo(GrpoConfig(beta=0.0, flat_groups="drop"))
    assert backend.prepare([group], Models()).samples == []
    assert len(backend.prepare([group], Models(process=1.0)).samples) == 2


def test_leave_one_out_without_deviation_is_the_reward_over_the_mean_of_the_others() -> None:
    group = (marked(1.0), marked(0.0), marked(0.5))
    found = advantages(group, Models(), baseline="leave-one-out", scale="none")
    assert [row[0] for row in found] == pytest.approx([0.75, -0.75, 0.0])


def test_the_batch_deviation_is_one_for_all_groups() -> None:
    groups = [(marked(1.0), marked(0.0)), (marked(0.6), marked(0.4))]
    prepared = Grpo(GrpoConfig(beta=0.0, scale_over="batch")).prepare(groups, Models())
    first, _, third, _ = (float(sample.advantages[0]) for sample in prepared.samples)
    assert first / third == pytest.approx(5.0)


def test_decoupled_rewards_count_by_weight_whatever_their_spread() -> None:
    def row(a: float, b: float) -> Marked:
        verdicts = {"a@1": Verdict.marked(a, "judged"), "b@1": Verdict.marked(b, "judged")}
        return marked(a + b, verdicts=verdicts)

    models = Models(verifiers={"a@1": 1.0, "b@1": 1.0})
    group = (row(1.0, 0.0), row(0.0, 0.1), row(1.0, 0.1), row(0.0, 0.0))
    found = [row[0] for row in advantages(group, models, rewards="decoupled")]
    assert found[:2] == pytest.approx([0.0, 0.0], abs=1e-4)
    assert found[2] == pytest.approx(-found[3])
    assert found[2] > 1
    summed = [row[0] for row in advantages(group, models)]
    assert summed[0] > 0.5
    assert summed[1] < -0.5


def test_kl_in_the_reward_lowers_what_strayed_from_the_reference() -> None:
    def reference(samples):
        return [torch.full((4,), -1.0 - 0.5 * place) for place, _ in enumerate(samples)]

    config = GrpoConfig(beta=0.1, kl="k1", kl_in="reward", scale="none")
    prepared = Grpo(config).prepare([(marked(1.0), marked(1.0))], Models(reference))
    # The second completion is likelier under the policy than under the reference by 0.5 nats per
    # token: 4 tokens, beta 0.1, so 0.2 less reward.
    assert [float(s.advantages[0]) for s in prepared.samples] == pytest.approx([0.1, -0.1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl": "k1"}, "kl_in"),
        ({"scale_over": "batch", "scale": "none"}, "nothing is divided"),
        ({"rewards": "decoupled", "baseline": "leave-one-out"}, "decoupled"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(settings, message) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoConfig(**settings)


def test_further_problems_are_drawn_until_enough_groups_teach_something() -> None:
    def prompts(step: int) -> list[Prompt]:
        return [Prompt(Problem(f"{step}/{n}", "?", "1"), (1,), "?") for n in range(2)]

    asked: list[str] = []

    def draw(found):
        asked.extend(prompt.problem.id for prompt in found)
        # Only problems of the second further step differ in their rewards.
        return [
            (marked(1.0, id=p.problem.id), marked(float(p.problem.id[0] != "6"), id=p.problem.id))
            for p in found
        ]

    backend = Grpo(GrpoConfig(beta=0.0, steps=4, flat_groups="resample", resample_rounds=3))
    models = Models(step=1, groups=2)
    groups = drawn_further(backend, draw(prompts(1)), prompts, draw, models)
    assert asked == ["1/0", "1/1", "5/0", "5/1", "6/0", "6/1"]
    prepared = backend.prepare(groups, models)
    assert {sample.group for sample in prepared.samples} == {4, 5}


def test_resampling_stops_at_its_budget() -> None:
    flat = [(marked(1.0), marked(1.0))]
    backend = Grpo(GrpoConfig(beta=0.0, flat_groups="resample", resample_rounds=2))
    rounds: list[int] = []

    def prompts(step: int) -> list[Prompt]:
        rounds.append(step)
        return [Prompt(Problem(f"q{step}", "?", "1"), (1,), "?")]

    groups = drawn_further(backend, flat, prompts, lambda _: flat, Models(step=2, groups=1))
    assert rounds == [103, 104]
    assert len(groups) == 3
    assert backend.prepare(groups, Models(groups=1)).samples == []
