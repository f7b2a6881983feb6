"""What a step learns from: completions drawn and marked, or those that the store already holds.

Rollouts, verdicts and step scores are in the run's store before anything is learnt from them. A
resumed run takes a step's completions and what was said of them from there, when the same policy
drew them, and marks only what has no verdict or no score yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from stepmark.errors import EngineError
from stepmark.protocols import Engine
from stepmark.seeds import derive_seed
from stepmark.store.files import text_hash
from stepmark.store.samples import Key, Sample, SampleStore, ScoredSteps
from stepmark.types import Group, Marked, Prompt, Rollout, Sampling, Status, Verdict

from .clock import MarkingClock
from .reward import Reward

__all__ = ["Collector"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Marks:
    """What was said of the rollouts of one group: one entry per rollout in every list."""

    verdicts: dict[str, list[Verdict]] = field(default_factory=dict[str, list[Verdict]])
    """By verifier key."""
    steps: dict[str, list[ScoredSteps]] = field(default_factory=dict[str, list[ScoredSteps]])
    """By scorer key."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Draws and marks the groups of a step.

    Args:
        engine: what draws.
        reward: what marks; without verifiers nothing is stored and every reward is None.
        store: the run's samples.
        sampling: how completions are drawn.
        group_size: completions per problem.
        seed: of the run.
        stop: called between groups; it may raise to give up the step.
        tokenizer: the policy's; step scorers need it to find the tokens of their steps.
    """

    engine: Engine
    reward: Reward
    store: SampleStore
    sampling: Sampling
    group_size: int
    seed: int
    stop: Callable[[], None]
    tokenizer: Any = None
    clock: MarkingClock = field(default_factory=MarkingClock)

    def collect(
        self, step: int, prompts: Sequence[Prompt], policy: str, *, max_error_share: float
    ) -> list[tuple[Marked, ...]]:
        """The marked groups of a step, one per distinct problem, in the order of the prompts.

        Args:
            step: from 1.
            prompts: a problem that comes twice in one step counts once.
            policy: name of the weights that draw; stored rollouts of other weights are not used.
            max_error_share: stored error verdicts above this share are marked again.
        """
        distinct = list({prompt.problem.id: prompt for prompt in prompts}.values())
        if not self.reward.terms:
            groups = self._in_order(distinct, list(self._draw(step, distinct)))
            return [tuple(Marked(r, {}, None) for r in group.rollouts) for group in groups]
        groups = self._stored(step, distinct, policy)
        if groups is None:
            return self._fresh(step, distinct, policy)
        return self._again(step, groups, max_error_share)

    def _draw(self, step: int, prompts: Sequence[Prompt]):
        seed = derive_seed(self.seed, "rollout", step)
        for group in self.engine.generate(prompts, self.group_size, self.sampling, seed):
            self.stop()
            yield group

    def _fresh(self, step: int, prompts: list[Prompt], policy: str) -> list[tuple[Marked, ...]]:
        """Draw, and store what was drawn; a thread marks each group while the next ones are drawn.

        The marks are stored once all are there. When a scorer raises, the completions are kept.
        """
        marking: dict[str, Future[Marks]] = {}
        groups: list[Group] = []
        with ThreadPoolExecutor(1, "stepmark-marking") as pool:
            try:
                for group in self._draw(step, prompts):
                    groups.append(group)
                    timed = self.clock.timed(self._mark)
                    marking[group.prompt.problem.id] = pool.submit(timed, group.rollouts)
                groups = self._in_order(prompts, groups)
                self._store_samples(step, groups, policy)
                with self.clock.waiting():
                    marks = {
                        group.prompt.problem.id: marking[group.prompt.problem.id].result()
                        for group in groups
                    }
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for key in self.reward.keys:
            said = {id: mark.verdicts[key] for id, mark in marks.items()}
            self.store.append_verdicts(key, _rows(step, groups, said))
        for key in self.reward.scorer_keys:
            scored = {id: mark.steps[key] for id, mark in marks.items()}
            self.store.append_scores(key, _rows(step, groups, scored))
        return [self._marked(group, marks[group.prompt.problem.id]) for group in groups]

    def _store_samples(self, step: int, groups: Sequence[Group], policy: str) -> None:
        self.store.append(
            Sample.from_rollout(r, step=step, policy=policy, request=self._request(r.prompt, step))
            for group in groups
            for r in group.rollouts
        )

    def _mark(self, rollouts: Sequence[Rollout]) -> Marks:
        return Marks(
            {key: self.reward.mark(rollouts, key) for key in self.reward.keys},
            {
                key: self.reward.score(rollouts, key, self.tokenizer)
                for key in self.reward.scorer_keys
            },
        )

    def _marked(self, group: Group, marks: Marks) -> tuple[Marked, ...]:
        rows: list[Marked] = []
        for place, rollout in enumerate(group.rollouts):
            verdicts = {key: marks.verdicts[key][place] for key in self.reward.keys}
            steps = self.reward.steps({key: found[place] for key, found in marks.steps.items()})
            ends, scores = (None, None) if steps is None else steps
            ended = replace(rollout, step_ends=ends)
            rows.append(Marked(ended, verdicts, self.reward.total(verdicts), scores))
        return tuple(rows)

    def _in_order(self, prompts: list[Prompt], groups: list[Group]) -> list[Group]:
        found = {group.prompt.problem.id: group for group in groups}
        missing = [prompt.problem.id for prompt in prompts if prompt.problem.id not in found]
        if missing:
            raise EngineError(
                f"The engine returned {len(groups)} groups for {len(prompts)} prompts; the first "
                f"without one is {missing[0]!r}. Every prompt must have its group."
            )
        return [found[prompt.problem.id] for prompt in prompts]

    def _request(self, prompt: Prompt, step: int) -> str:
        return text_hash(f"{prompt.ids!r} {self.sampling!r} {self.seed} {step}")

    def _stored(self, step: int, prompts: list[Prompt], policy: str) -> list[Group] | None:
        """The step's groups in the store, when all are there and the same weights drew them."""
        rows = {sample.key: sample for sample in self.store.rows(step)}
        seed = derive_seed(self.seed, "rollout", step)
        groups: list[Group] = []
        for prompt in prompts:
            id, request = prompt.problem.id, self._request(prompt, step)
            rollouts: list[Rollout] = []
            for k in range(self.group_size):
                row = rows.get(Key(step, id, k))
                if row is None or row.policy != policy or row.request != request:
                    return None
                rollouts.append(_rollout(prompt, row, derive_seed(seed, id, k), step - 1))
            groups.append(Group(prompt, tuple(rollouts)))
        return groups

    def _again(
        self, step: int, groups: list[Group], max_error_share: float
    ) -> list[tuple[Marked, ...]]:
        """The stored groups with what is stored of them; only what has no mark is marked."""
        marks = {group.prompt.problem.id: Marks() for group in groups}
        for key, known in self._known_verdicts(step, max_error_share).items():
            append = partial(self.store.append_verdicts, key)
            mark = partial(self.reward.mark, key=key)
            for group, found in _completed(step, groups, known, mark, append):
                marks[group.prompt.problem.id].verdicts[key] = found
        for key in self.reward.scorer_keys:
            scored = {at: row for at, row in self.store.scores(key).items() if at.step == step}
            append = partial(self.store.append_scores, key)
            score = partial(self.reward.score, key=key, tokenizer=self.tokenizer)
            for group, found in _completed(step, groups, scored, score, append):
                marks[group.prompt.problem.id].steps[key] = found
        return [self._marked(group, marks[group.prompt.problem.id]) for group in groups]

    def _known_verdicts(self, step: int, max_error_share: float) -> dict[str, dict[Key, Verdict]]:
        """The stored verdicts of a step by verifier, without errors when those are too many."""
        stored = {
            key: {at: v for at, v in self.store.verdicts(key).items() if at.step == step}
            for key in self.reward.keys
        }
        # The share is that of `check_errors`: over all verifiers, so that a step that was let pass
        # keeps its verdicts.
        every = [verdict for known in stored.values() for verdict in known.values()]
        errors = sum(verdict.status is Status.ERROR for verdict in every)
        is_spoilt = errors > max_error_share * max(len(every), 1)
        kept = (Status.OK, Status.ABSTAIN) if is_spoilt else tuple(Status)
        return {
            key: {at: verdict for at, verdict in known.items() if verdict.status in kept}
            for key, known in stored.items()
        }


def _completed(
    step: int,
    groups: Sequence[Group],
    known: dict[Key, T],
    make: Callable[[Sequence[Rollout]], Sequence[T]],
    append: Callable[[list[tuple[Key, T]]], None],
) -> Iterator[tuple[Group, list[T]]]:
    """Every group with what is known of its rollouts; what is not is made, and stored first."""
    for group in groups:
        id = group.prompt.problem.id
        lacking = [r for r in group.rollouts if Key(step, id, r.index) not in known]
        if lacking:
            made = zip(lacking, make(lacking), strict=True)
            new = [(Key(step, id, rollout.index), row) for rollout, row in made]
            append(new)
            known |= dict(new)
        yield group, [known[Key(step, id, r.index)] for r in group.rollouts]


def _rows(
    step: int, groups: Sequence[Group], said: Mapping[str, Sequence[T]]
) -> list[tuple[Key, T]]:
    """What was said of each rollout, by problem id, under the keys of the store."""
    return [
        (Key(step, group.prompt.problem.id, rollout.index), row)
        for group in groups
        for rollout, row in zip(group.rollouts, said[group.prompt.problem.id], strict=True)
    ]


def _rollout(prompt: Prompt, row: Sample, seed: int, version: int) -> Rollout:
    return Rollout(
        prompt=prompt,
        index=row.k,
        ids=row.ids or (),
        logps=row.logps or (),
        finish=row.finish or "stop",
        text=row.completion,
        seed=seed,
        policy_version=version,
    )
