"""Our values of the oracle's cases about outer iterations: what the loop does, and when."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from stepmark.config.tables import RolloutTable
from stepmark.engines.transformers import TransformersEngine
from stepmark.prm import split_steps
from stepmark.rl_backends import Grpo, GrpoConfig, Reward
from stepmark.rl_backends.refresh import history_size
from stepmark.types import StepItem, StepScores

Case = Mapping[str, Any]

DESK = run_path(str(Path(__file__).with_name("conftest.py")))


class Diary:
    """What happened, in the oracle's words; it keeps count of iterations, steps and passes."""

    def __init__(self, steps_per_iteration: int) -> None:
        self.per_iteration = steps_per_iteration
        self.events: list[str] = []

    def count(self, what: str) -> int:
        return sum(event.startswith(what) for event in self.events)

    def write(self, what: str) -> None:
        step = self.count("sample") - (what != "sample")
        iteration, place = divmod(step, self.per_iteration)
        if what == "update":
            passes = self.count(f"update i={iteration} s={place}")
            self.events.append(f"update i={iteration} s={place} mu={passes}")
        elif what in ("sample", "score"):
            self.events.append(f"{what} i={iteration} s={place}")
        else:
            self.events.append(f"{what} i={self.count(what)}")


class Learner:
    """A reward model that only notes that it was asked to learn."""

    key = "learner@1"

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return split_steps(text)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        return [StepScores((0.5,) * len(item.steps), self.key) for item in items]

    def refresh(self, *_: Any, **__: Any) -> Mapping[str, float]:
        self.diary.write("reward_model.retrain")
        return {}

    def state(self) -> Mapping[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """It has nothing to load."""


def schedule(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    """A run of GRPO on the bandit, seen from its engine, verifier, optimizer and models."""
    diary = Diary(case["M"])

    class Watched(TransformersEngine):
        def generate(self, *given: Any, **named: Any) -> Any:
            diary.write("sample")
            return super().generate(*given, **named)

    class Marks(DESK["Arm"]):
        def __call__(self, items: Any) -> Any:
            if not diary.events[-1].startswith("score"):
                diary.write("score")
            return super().__call__(items)

    hook = register_optimizer_step_post_hook(lambda *_: diary.write("update"))
    try:
        with TemporaryDirectory() as place:
            run = DESK["Bandit"](Path(place) / "run")
            run.rollout = RolloutTable(group_size=4, prompts_per_step=2, max_tokens=2, seed=7)
            run.engine = Watched(run.policy.model, run.policy.tokenizer)
            reference = copy.deepcopy(run.policy.model)
            diary.write("ref<-policy")
            reference.register_load_state_dict_post_hook(lambda *_: diary.write("ref<-policy"))
            config = GrpoConfig(
                steps=case["I"] * case["M"], outer=case["I"], mu=case["mu"], save_every=None
            )
            scorers = ((Learner(diary), 0.0),)
            reward = Reward(((Marks(), 1.0),), scorers)
            run.train(Grpo(config), reference=reference, reward=reward)
    finally:
        hook.remove()
    return {
        "events": diary.events,
        "optimizer_steps": diary.count("update"),
        "generations": diary.count("sample"),
        "reference_refreshes": diary.count("ref"),
        "reward_model_updates": diary.count("reward_model"),
    }


def replay(case: Case, _: Mapping[str, Case]) -> dict[str, Any]:
    fresh, pool, share = case["new_examples"], case["history_pool"], case["fraction"]
    return {
        "share_of_the_mixture = f/(1-f) n": history_size(fresh, share, pool),
        "history_smaller_than_wanted (pool 40)": history_size(fresh, share, 40),
    }


CHECKS = {"iterative/schedule": schedule, "replay/fraction": replay}
