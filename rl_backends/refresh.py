r"""Reward models that learn while the policy moves: DeepSeekMath (arXiv:2402.03300), section 4.1.4.

Algorithm 1 trains the reward model at the end of every outer iteration, on what the policy wrote in
it and on "10 % of historical data". The paper leaves open what that is a share of; here it is the
share of the mixture: :math:`h = f n / (1 - f)` earlier completions join :math:`n` fresh ones.

Nor does it say where labels come from. Two conventions are offered, both from the run's store:

* ``outcome``: the score of the first verifier labels the *last* step; of the steps before it
  nothing is known. No roll-outs are needed; the model learns which endings are right.
* the name of a step scorer labels every step: a rule checker, or another model.

A row without any label is left out. Rows are drawn by a seed that depends on the run's seed, the
iteration and the model alone, so that a resumed run refreshes exactly as the straight one did.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stepmark.errors import RunError
from stepmark.prm import step_texts
from stepmark.protocols import RewardModel, StepScorer
from stepmark.seeds import derive_seed
from stepmark.store.samples import Key, Sample, SampleStore
from stepmark.training.checkpoint import random_state, set_random_state
from stepmark.types import LabelledSteps, StepItem

from .annotating import labelling_scorer
from .reward import Reward
from .scoring import ask

__all__ = ["Refresher", "history_size"]

log = logging.getLogger(__name__)


def history_size(fresh: int, share: float, pool: int) -> int:
    """How many earlier rows join the fresh ones, so that they are that share of the mixture.

    Fewer where the pool holds fewer.

    >>> history_size(900, 0.1, 5000), history_size(900, 0.1, 40)
    (100, 40)
    """
    return min(round(share / (1 - share) * fresh), pool)


class Refresher:
    """Trains the reward models among the scorers between outer iterations.

    Args:
        reward: its scorers, its verifiers for the labels, and the settings of the refresh.
        store: the run's samples, verdicts and scores.
        seed: of the run.
    """

    def __init__(self, reward: Reward, store: SampleStore, seed: int) -> None:
        self.reward, self.store, self.seed, self.config = reward, store, seed, reward.refresh
        self.models = [s for s, _ in reward.scorers if isinstance(s, RewardModel)]
        names = [model.key.rpartition("@")[0] or model.key for model in self.models]
        self.names = [
            name if names.count(name) == 1 else f"{name}-{place + 1}"
            for place, name in enumerate(names)
        ]
        self.labeller = labelling_scorer(self.config.annotator) if self.models else None
        self.first = [model.key for model in self.models]
        self.done = 0
        self.outcomes: dict[Key, float] = {}

    def start(self, state: Mapping[str, Any] | None) -> None:
        """Put the models where a checkpoint has them; None is the start of a run.

        Raises:
            RunError: the run began with other reward models.
        """
        if state is None:
            return
        if list(state["first"]) != self.first:
            raise RunError(
                f"The run began with the reward models {list(state['first'])}, and the scorers "
                f"are now {self.first}. Resume with those it began with, or choose another --out."
            )
        self.done = int(state["done"])
        for model, own in zip(self.models, state["states"], strict=False):
            model.load(own)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of the models; None without any."""
        if not self.models:
            return None
        states = [dict(model.state()) for model in self.models] if self.done else []
        return {"first": self.first, "done": self.done, "states": states}

    def is_due(self, iteration: int) -> bool:
        """Whether the models have yet to learn from an outer iteration, counted from 0."""
        return bool(self.models) and self.config.annotator is not None and self.done <= iteration

    def refresh(self, iteration: int, steps: Sequence[int]) -> dict[str, float]:
        """Train every model on the completions of these steps and on some of earlier ones.

        Args:
            iteration: the outer iteration that ends, from 0.
            steps: those of the iteration; all steps before them are history.

        Returns:
            ``reward_model/<name>/<metric>`` of every model, with ``fresh_rows`` and
            ``history_rows``.

        Raises:
            RunError: a model raised, or its state is not made of plain values and tensors.
        """
        found: dict[str, float] = {}
        fresh, history = self._keys(steps)
        for model, name in zip(self.models, self.names, strict=True):
            metrics = self._one(model, name, iteration, fresh, history)
            found |= {f"reward_model/{name}/{key}": float(v) for key, v in metrics.items()}
            _check_plain(model.state(), name)
        self.done = iteration + 1
        return found

    def _one(
        self, model: RewardModel, name: str, iteration: int, fresh: list[Key], history: list[Key]
    ) -> dict[str, float]:
        config, share = self.config, self.config.history_share
        seed = derive_seed(self.seed, "refresh", iteration, name)
        most = None if config.token_budget is None else round(config.token_budget * (1 - share))
        rows = max(round(config.row_budget * (1 - share)), 1)
        new, used = self._labelled(model, self._draw(fresh, rows, most, derive_seed(seed, "fresh")))
        wanted = history_size(len(new), share, len(history))
        left = None if config.token_budget is None else config.token_budget - used
        drawn = self._draw(history, wanted, left, derive_seed(seed, "history"))
        old, _ = self._labelled(model, drawn)
        counts = {"fresh_rows": float(len(new)), "history_rows": float(len(old))}
        if not new:
            log.warning(
                "The reward model %s stays as it is after outer iteration %d: none of %d "
                "completions has a label.", name, iteration + 1, len(fresh),
            )  # fmt: skip
            return counts
        return {**_learn(model, name, new, old, share, seed), **counts}

    def _keys(self, steps: Sequence[int]) -> tuple[list[Key], list[Key]]:
        """Fresh and earlier completions that may have a label, in the order of their keys."""
        known: Iterable[Key] = self.store.keys()
        if self.config.annotator == "outcome":
            verdicts = self.store.verdicts(self.reward.keys[0])
            self.outcomes = {at: v.score for at, v in verdicts.items() if v.score is not None}
            known = (key for key in known if key in self.outcomes)
        ordered = sorted(known)
        own, first = set(steps), min(steps)
        return [k for k in ordered if k.step in own], [k for k in ordered if k.step < first]

    def _draw(self, keys: list[Key], rows: int, tokens: int | None, seed: int) -> list[Sample]:
        """At most so many rows and sampled tokens, drawn without replacement."""
        keys = list(keys)
        random.Random(seed).shuffle(keys)
        samples = {sample.key: sample for sample in self.store.chosen(keys[:rows])}
        drawn: list[Sample] = []
        used = 0
        for key in keys[:rows]:
            used += _tokens(samples[key])
            if tokens is not None and used > tokens:
                break
            drawn.append(samples[key])
        return drawn

    def _labelled(
        self, model: StepScorer, samples: Sequence[Sample]
    ) -> tuple[list[LabelledSteps], int]:
        """The rows with their labels, without those that have none, and their sampled tokens."""
        items = [_item(model, sample) for sample in samples]
        if self.labeller is not None:
            labels = ask(self.labeller, items)
        else:
            labels = [
                (*(None,) * (len(item.steps) - 1), self.outcomes[sample.key])
                for item, sample in zip(items, samples, strict=True)
            ]
        rows = [
            LabelledSteps(item.problem, item.steps, tuple(row))
            for item, row in zip(items, labels, strict=True)
        ]
        kept = [any(label is not None for label in row.labels) for row in rows]
        used = sum(_tokens(s) for s, keep in zip(samples, kept, strict=True) if keep)
        return [row for row, keep in zip(rows, kept, strict=True) if keep], used


def _item(model: StepScorer, sample: Sample) -> StepItem:
    """The steps of a stored completion; one without words is one empty step, as in scoring."""
    text = sample.completion
    steps = step_texts(text, model.segment(text)) if text.strip() else ("",)
    return StepItem(sample.to_item().problem, steps)


def _tokens(sample: Sample) -> int:
    return len(sample.ids or ())


def _learn(
    model: RewardModel,
    name: str,
    fresh: Sequence[LabelledSteps],
    history: Sequence[LabelledSteps],
    share: float,
    seed: int,
) -> dict[str, float]:
    """The model's own metrics; the random generators of the process are lent and given back."""
    before = random_state()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return dict(model.refresh(fresh, history, share, seed))
    except Exception as error:
        raise RunError(
            f"The reward model {name!r} raised while it learnt from {len(fresh)} fresh and "
            f"{len(history)} earlier completions. Mend it, then resume. The error:\n"
            f"{traceback.format_exc()}"
        ) from error
    finally:
        set_random_state(before)


def _check_plain(value: Any, name: str) -> None:
    """Refuse a state that a checkpoint could write and not read again."""
    if isinstance(value, Mapping):
        inner: list[Any] = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif value is None or isinstance(value, bool | int | float | str | bytes | torch.Tensor):
        return
    else:
        raise RunError(
            f"The state of the reward model {name!r} holds a {type(value).__name__}; a checkpoint "
            "holds numbers, texts, lists, tables and tensors only. Return those from state()."
        )
    for part in inner:
        _check_plain(part, name)
