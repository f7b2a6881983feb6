"""Where a step's completions come from: what stands for the engine, by the source of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepmark.config.tables import RolloutTable
from stepmark.errors import ConfigError
from stepmark.protocols import Engine
from stepmark.training.checkpoint import Policy
from stepmark.types import Marked, Sampling

from .backend import Backend, Source
from .demonstrations import Demonstrations
from .preference_data import PreferenceData
from .reward import Reward
from .self_play import SelfPlay

__all__ = ["Drawing", "drawing_of", "is_sampled", "sampled_part"]


class Drawing(NamedTuple):
    """What a step's groups are drawn with."""

    engine: Engine
    reward: Reward
    sampling: Sampling
    group_size: int
    """Completions per problem, those of the data set included."""
    temperature: float
    """Of the distribution whose log-probs are learnt and compared with the reference's."""


def is_sampled(source: Source) -> bool:
    """Whether the policy draws completions of its own."""
    return source in ("rollouts", "self-play")


def drawing_of(
    backend: Backend,
    policy: Policy,
    rollout: RolloutTable,
    stop_strings: Sequence[str] = (),
    engine: Engine | None = None,
    reward: Reward | None = None,
) -> Drawing:
    """Engine, reward, sampling and group size for a backend.

    Self-play needs no verifier: what it compares is known. Those it gets are recorded. A backend
    whose losses are likelihoods, not ratios to what sampled, says ``loss_temperature = 1.0``.

    Raises:
        ConfigError: the backend samples and there is no engine, or no verifier where it needs one.
        SetupError: the backend learns from texts and the tokenizer has no end token.
    """
    source, tokenizer = backend.source, policy.tokenizer
    own: float | None = getattr(backend, "loss_temperature", None)
    learnt = rollout.temperature if own is None else own
    sampling = Sampling(
        temperature=rollout.temperature if is_sampled(source) else 1.0,
        max_tokens=rollout.max_tokens,
        stop=tuple(stop_strings),
    )
    if source == "demonstrations":
        return Drawing(Demonstrations(tokenizer), Reward(), sampling, 1, 1.0)
    if source == "preferences":
        return Drawing(PreferenceData(tokenizer), Reward(), sampling, 2, 1.0)
    needs_marks = source == "rollouts"
    if engine is None or (needs_marks and (reward is None or not reward.terms)):
        raise ConfigError(
            f"The backend {backend.config.backend!r} learns from "
            f"{'marked' if needs_marks else 'sampled'} completions and got "
            f"{'no engine' if engine is None else 'no verifier'}. "
            f"Set rollout.engine{' and reward.verifiers' if needs_marks else ''}."
        )
    if source == "self-play":
        size = rollout.group_size + 1
        return Drawing(SelfPlay(engine, tokenizer), reward or Reward(), sampling, size, learnt)
    return Drawing(engine, reward or Reward(), sampling, rollout.group_size, learnt)


def sampled_part(source: Source, groups: Sequence[tuple[Marked, ...]]) -> list[tuple[Marked, ...]]:
    """The groups without the demonstrations of self-play: what metrics of the policy are about."""
    return [group[:-1] for group in groups] if source == "self-play" else list(groups)
