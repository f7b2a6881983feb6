r"""Reward models that learn while the policy moves: DeepSeekMath (arXiv:2402.03300), section 4.1.4.

Algorithm 1 trains the reward model at the end of every outer iteration, on what the policy wrote in
it and on "10 % of historical data". The paper leaves open what that is a share of; here it is the
share of the mixture: :math:`h = f n / (1 - f)` earlier completions join :math:`n` fresh ones.

Nor does it say where labels come from: `stepmark.rl_backends.annotating` offers roll-outs from
prefixes, the verifier's word on the last step, rules, and step scorers.

A row without any label is left out. Rows are drawn by a seed that depends on the run's seed, the
iteration and the model alone, so that a resumed run refreshes exactly as the straight one did.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stepmark.errors import GateFailed, RunError, Stopped
from stepmark.protocols import KeepsRows, RewardModel
from stepmark.seeds import derive_seed
from stepmark.store import write_json
from stepmark.store.samples import Key, Sample, SampleStore
from stepmark.training.checkpoint import random_state, set_random_state
from stepmark.types import LabelledSteps, Verdict

from .annotating import Completer, label_with, labelling_scorer
from .choosing import to_annotate
from .reward import Reward

__all__ = ["Refresher", "history_size"]

log = logging.getLogger(__name__)


def history_size(fresh: int, share: float, pool: int) -> int:
    """How many earlier rows join the fresh ones, so that they are that share of the mixture.

    Fewer where the pool holds fewer.

    >>> history_size(900, 0.1, 5000), history_size(900, 0.1, 40)
    (100, 40)
    """
    return min(round(share / (1 - share) * fresh), pool)


class Iteration(NamedTuple):
    """What an outer iteration leaves to learn from."""

    number: int
    """From 0."""
    fresh: list[Key]
    """Its completions that may have a label."""
    history: list[Key]
    """Those of earlier iterations."""
    verdicts: Mapping[Key, Verdict]
    """Of the first verifier."""

    @property
    def outcomes(self) -> dict[Key, float]:
        """Scores of the first verifier, where it gave one."""
        return {at: v.score for at, v in self.verdicts.items() if v.score is not None}


class Refresher:
    """Trains the reward models among the scorers between outer iterations.

    Args:
        reward: its scorers, its verifiers for the labels, and the settings of the refresh.
        store: the run's samples, verdicts and scores.
        seed: of the run.
        folder: ``reward_models`` of the run; for models that keep rows and versions there.
        completer: draws roll-outs, for the annotators ``mc`` and ``binary``.
    """

    def __init__(
        self,
        reward: Reward,
        store: SampleStore,
        seed: int,
        folder: Path | None = None,
        completer: Completer | None = None,
    ) -> None:
        self.reward, self.store, self.seed, self.config = reward, store, seed, reward.refresh
        self.folder, self.completer = folder, completer
        self.models = [s for s, _ in reward.scorers if isinstance(s, RewardModel)]
        names = [model.key.rpartition("@")[0] or model.key for model in self.models]
        self.names = [
            name if names.count(name) == 1 else f"{name}-{place + 1}"
            for place, name in enumerate(names)
        ]
        self.labeller = labelling_scorer(self.config.annotator) if self.models else None
        self.first = [model.key for model in self.models]
        self.done = 0
        self.rejected = [0 for _ in self.models]
        """Refreshes in a row that each model refused."""
        self.versions = [[{"from_step": 1, "key": key}] for key in self.first]
        """Of each model: which key scored the completions from which step on."""

    def start(self, state: Mapping[str, Any] | None) -> None:
        """Put the models where a checkpoint has them; None is the start of a run.

        Raises:
            RunError: the run began with other reward models, or a version of one is gone.
        """
        for model, name in zip(self.models, self.names, strict=True):
            if isinstance(model, KeepsRows) and self.folder is not None:
                model.settle(self.folder / name)
        if state is None:
            return
        if list(state["first"]) != self.first:
            raise RunError(
                f"The run began with the reward models {list(state['first'])}, and the scorers "
                f"are now {self.first}. Resume with those it began with, or choose another --out."
            )
        self.done = int(state["done"])
        self.rejected = list(state.get("rejected", self.rejected))
        self.versions = [[dict(one) for one in own] for own in state.get("versions", self.versions)]
        for model, own in zip(self.models, state["states"], strict=False):
            model.load(own)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of the models; None without any."""
        if not self.models:
            return None
        states = [dict(model.state()) for model in self.models] if self.done else []
        return {
            "first": self.first,
            "done": self.done,
            "states": states,
            "rejected": list(self.rejected),
            "versions": [[dict(one) for one in own] for own in self.versions],
        }

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
            ``history_rows``, and what annotation took where it drew roll-outs.

        Raises:
            RunError: a model raised, or its state is not made of plain values and tensors.
            Stopped: by a signal; what was drawn and learnt is kept.
        """
        found: dict[str, float] = {}
        work = self._iteration(iteration, steps)
        for place, (model, name) in enumerate(zip(self.models, self.names, strict=True)):
            metrics = self._one(model, name, work)
            found |= {f"reward_model/{name}/{key}": float(v) for key, v in metrics.items()}
            _check_plain(model.state(), name)
            if "accepted" in metrics:
                self.rejected[place] = 0 if metrics["accepted"] else self.rejected[place] + 1
            if model.key != self.versions[place][-1]["key"]:
                self.versions[place].append({"from_step": steps[-1] + 1, "key": model.key})
        self.done = iteration + 1
        if self.folder is not None:
            kept = dict(zip(self.names, self.versions, strict=True))
            write_json(self.folder / "versions.json", kept)
        return found

    def check_rejected(self) -> None:
        """Stop where a model refused as many refreshes in a row as are allowed.

        Raises:
            GateFailed: the run can be resumed.
        """
        most = self.config.max_rejected
        for name, count in zip(self.names, self.rejected, strict=True):
            if most is not None and count >= most:
                place = self.folder / name if self.folder is not None else name
                raise GateFailed(
                    f"{count} refreshes in a row of the reward model {name!r} were rejected, and "
                    f"reward.refresh.max_rejected is {most}; the model before them stays. Why is "
                    f"in {place}. Nothing is lost: resume, with "
                    "--set reward.refresh.max_rejected=none to go on whatever it says."
                )

    def _one(self, model: RewardModel, name: str, work: Iteration) -> dict[str, float]:
        config, share = self.config, self.config.history_share
        seed = derive_seed(self.seed, "refresh", work.number, name)
        if config.generates:
            new, old, took = self._drawn(model, name, work, seed)
        else:
            new, old, took = self._read(model, work, seed)
        counts = {"fresh_rows": float(len(new)), "history_rows": float(len(old)), **took}
        if not new:
            log.warning(
                "The reward model %s stays as it is after outer iteration %d: none of %d "
                "completions has a label.", name, work.number + 1, len(work.fresh),
            )  # fmt: skip
            return counts
        return {**_learn(model, name, new, old, share, seed), **counts}

    def _drawn(
        self, model: RewardModel, name: str, work: Iteration, seed: int
    ) -> tuple[list[LabelledSteps], list[LabelledSteps], Mapping[str, float]]:
        """Fresh rows, and a share of earlier ones for a model that keeps none, by roll-outs."""
        if self.completer is None:
            raise RunError(
                f"reward.refresh.annotator is {self.config.annotator!r}, which draws roll-outs, "
                "and there is nothing to draw them with: the backend does not sample. Set "
                'annotator = "outcome", or choose a backend that does.'
            )
        chosen = self._chosen(work, seed)
        budget = self.config.token_budget
        if budget is None:
            steps = {key.step for key in work.fresh}
            budget = sum(_tokens(s) for step in sorted(steps) for s in self.store.rows(step))
        share = budget // len(self.models)
        new, took = self.completer.fresh(model, name, work.number, chosen, work.verdicts, share)
        keeps = isinstance(model, KeepsRows)
        earlier = [] if keeps else self.completer.earlier(name, work.number, self.store)
        wanted = history_size(len(new), self.config.history_share, len(earlier))
        return new, random.Random(derive_seed(seed, "history")).sample(earlier, wanted), took

    def _read(
        self, model: RewardModel, work: Iteration, seed: int
    ) -> tuple[list[LabelledSteps], list[LabelledSteps], Mapping[str, float]]:
        """Fresh rows, and a share of earlier ones for a model that keeps none, from the store."""
        config, share = self.config, self.config.history_share
        budget = config.token_budget
        most = None if budget is None else round(budget * (1 - share))
        new, used = self._labelled(model, work, _within(self._chosen(work, seed), most))
        keys = [] if isinstance(model, KeepsRows) else list(work.history)
        wanted = history_size(len(new), share, len(keys))
        random.Random(derive_seed(seed, "history")).shuffle(keys)
        left = None if budget is None else budget - used
        old, _ = self._labelled(model, work, _within(self._samples(keys[:wanted]), left))
        return new, old, {}

    def _chosen(self, work: Iteration, seed: int) -> list[Sample]:
        """The completions of the iteration that labels are asked for, the most telling first."""
        config = self.config
        rows = max(round(config.row_budget * (1 - config.history_share)), 1)
        order = derive_seed(seed, "fresh")
        return self._samples(
            to_annotate(work.fresh, work.outcomes, config.max_annotated, order)[:rows]
        )

    def _iteration(self, number: int, steps: Sequence[int]) -> Iteration:
        """Fresh and earlier completions that may have a label, in the order of their keys."""
        known: Iterable[Key] = self.store.keys()
        keys = self.reward.keys
        verdicts = self.store.verdicts(keys[0]) if keys else {}
        if self.config.annotator == "outcome" or self.config.generates:
            known = (key for key in known if key in verdicts and verdicts[key].score is not None)
        ordered = sorted(known)
        own, first = set(steps), min(steps)
        return Iteration(
            number,
            [key for key in ordered if key.step in own],
            [key for key in ordered if key.step < first],
            verdicts,
        )

    def _samples(self, keys: Sequence[Key]) -> list[Sample]:
        """The completions of these keys, in their order."""
        samples = {sample.key: sample for sample in self.store.chosen(keys)}
        return [samples[key] for key in keys]

    def _labelled(
        self, model: RewardModel, work: Iteration, samples: Sequence[Sample]
    ) -> tuple[list[LabelledSteps], int]:
        """The rows with their labels, without those that have none, and their sampled tokens."""
        annotator = self.config.annotator or ""
        rows = label_with(annotator, self.labeller, model, samples, work.outcomes)
        kept = [any(label is not None for label in row.labels) for row in rows]
        used = sum(_tokens(s) for s, keep in zip(samples, kept, strict=True) if keep)
        return [row for row, keep in zip(rows, kept, strict=True) if keep], used


def _within(samples: Sequence[Sample], tokens: int | None) -> list[Sample]:
    """The first completions, as many as have so many sampled tokens together."""
    drawn: list[Sample] = []
    used = 0
    for sample in samples:
        used += _tokens(sample)
        if tokens is not None and used > tokens:
            break
        drawn.append(sample)
    return drawn


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
    except Stopped:
        raise
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
