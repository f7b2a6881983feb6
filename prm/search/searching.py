"""Search over steps, led by a step scorer: beams, or trees of their own, with any engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from stepmark.errors import EngineError, VerifierError
from stepmark.prm.aggregation import rank_of
from stepmark.prm.marking import answers, steps_of
from stepmark.protocols import Engine, StepScorer
from stepmark.seeds import derive_seed
from stepmark.store.samples import ScoredSteps
from stepmark.types import Finish, Prompt, Rollout, StepItem

from .growing import ROOT, Asked, Beam, Grower
from .settings import SearchSettings

__all__ = ["Candidate", "Found", "beam_search", "search"]


class Candidate(NamedTuple):
    """A completion that a search ended with."""

    rollout: Rollout
    """Its ids are the sampled ones. ``index`` is its place, 0 the best; of ``best_of_n``, its place
    among the samples."""
    steps: ScoredSteps
    """Where its steps end, and their scores."""
    rank: float | None
    """What it is ordered by, see `stepmark.prm.aggregation.rank_of`; None: a step has no score."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found for one problem."""

    prompt: Prompt
    candidates: tuple[Candidate, ...]
    """The best first. Of a search, those that ended by themselves stand before those that were cut
    off, which have no final result."""
    tokens: int
    """All that were sampled, those of beams that were dropped included."""
    rounds: int
    """Steps that the search went."""

    @property
    def best(self) -> Candidate:
        """The completion that was chosen."""
        return self.candidates[0]


def search(
    engine: Engine,
    tokenizer: Any,
    scorer: StepScorer,
    prompts: Sequence[Prompt],
    settings: SearchSettings,
) -> list[Found]:
    """The completions of each prompt that a search ends with, the best first.

    ``beam`` is the beam search of Snell et al. (arXiv:2408.03314), ``dvts`` its division into trees
    by Beeching et al. (2024): n first steps are sampled; of those that go on, without duplicates of
    a text, the best n / width by the score of their beginning are continued by ``width`` samples
    each, until n have ended. Those that ended are set aside and ranked, and the best n of them
    stay. A tree of ``dvts`` does the same with ``width`` in place of n. Beams that are open when
    ``max_steps`` or the budget is reached, or that have no tokens left, are candidates that were
    cut off.

    All prompts go forward together, and none depends on the others. A sample's seed comes from the
    seed, the problem, and its place in the search (tree, round, beam, index).

    Args:
        engine: draws.
        tokenizer: the engine's.
        scorer: says where steps are, and how good.
        prompts: of different problems.
        settings: see `SearchSettings`.

    Raises:
        ConfigError: settings that cannot work.
        UnknownNameError: a method or an aggregation that there is not.
        EngineError: fewer samples than asked, or no stop at the end of a step.
        DataError: the scorer does not give one score in [0, 1], or None, per step.
        VerifierError: the scorer raised, or failed on some beams.
    """
    settings.check()
    if not prompts:
        return []
    if settings.method == "best_of_n":
        return _whole(engine, tokenizer, scorer, prompts, settings)
    ends = settings.step_ends(scorer)
    grower = Grower(engine, tokenizer, settings.sampling, ends, settings.seed)
    tasks = [_Task(prompt, settings) for prompt in prompts]
    for depth in range(settings.max_steps):
        going = [(task, tree) for task in tasks for tree in task.going()]
        if not going:
            break
        _round(going, depth, grower, scorer, settings)
    return [task.found() for task in tasks]


def beam_search(
    engine: Engine,
    tokenizer: Any,
    scorer: StepScorer,
    prompts: Sequence[Prompt],
    settings: SearchSettings | None = None,
) -> list[Found]:
    """`search` by beams, whatever the method in the settings."""
    return search(
        engine, tokenizer, scorer, prompts, replace(settings or SearchSettings(), method="beam")
    )


class _Scored(NamedTuple):
    beam: Beam
    steps: ScoredSteps
    rank: float | None


def _order(one: _Scored) -> float:
    return math.inf if one.rank is None else -one.rank


@dataclass(slots=True)
class _Tree:
    """The beams of a problem that compete with each other."""

    name: str
    quota: int
    """Beams that end before the tree is done."""
    keep: int
    """Beams that go on after a round."""
    open: list[_Scored] = field(default_factory=list["_Scored"])
    ended: list[_Scored] = field(default_factory=list["_Scored"])
    is_begun: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_begun and (not self.open or len(self.ended) >= self.quota)

    def take(self, children: Iterable[_Scored]) -> None:
        """Set aside what has ended; of the rest, each text once, keep the best."""
        self.is_begun = True
        going: dict[str, _Scored] = {}
        for child in children:
            if child.beam.state == "open":
                going.setdefault(child.beam.text, child)
            else:
                self.ended.append(child)
        self.open = sorted(going.values(), key=_order)[: self.keep]

    def left(self) -> list[_Scored]:
        """All candidates: where the tree was not done, also what was still open."""
        cut_off = [] if self.is_done else self.open
        return [*self.ended, *(one._replace(beam=_cut_off(one.beam)) for one in cut_off)]


def _cut_off(beam: Beam) -> Beam:
    return replace(beam, state="length")


class _Task:
    """The search for one problem."""

    def __init__(self, prompt: Prompt, settings: SearchSettings) -> None:
        self.prompt, self.settings = prompt, settings
        is_one = settings.method == "beam"
        count = 1 if is_one else settings.n // settings.width
        quota = settings.n if is_one else settings.width
        self.trees = [_Tree(str(at), quota, quota // settings.width) for at in range(count)]
        self.tokens = self.rounds = 0

    def going(self) -> list[_Tree]:
        budget = self.settings.token_budget
        if budget is not None and self.tokens >= budget:
            return []
        return [tree for tree in self.trees if not tree.is_done]

    def found(self) -> Found:
        every = [one for tree in self.trees for one in tree.left()]
        every.sort(key=lambda one: (one.beam.state != "stop", _order(one)))
        candidates = [
            Candidate(_rollout(self.prompt, one.beam, place, self.settings.seed), *one[1:])
            for place, one in enumerate(every[: self.settings.n])
        ]
        return Found(self.prompt, tuple(candidates), self.tokens, self.rounds)


def _rollout(prompt: Prompt, beam: Beam, place: int, seed: int) -> Rollout:
    finish: Finish = "length" if beam.state == "length" else "stop"
    own = derive_seed(seed, "search", prompt.problem.id)
    return Rollout(
        prompt, place, beam.ids, beam.logps, finish, beam.text, own, policy_version=beam.version
    )


def _round(
    going: Sequence[tuple[_Task, _Tree]],
    depth: int,
    grower: Grower,
    scorer: StepScorer,
    settings: SearchSettings,
) -> None:
    """One more step for all that goes on."""
    asked: list[tuple[_Task, _Tree, Asked]] = []
    for task, tree in going:
        beams = [one.beam for one in tree.open] if tree.is_begun else [ROOT]
        for place, beam in enumerate(beams):
            asked.append((task, tree, Asked(task.prompt, beam, f"{tree.name}.{depth}.{place}")))
    width = settings.width if depth else going[0][1].quota
    children, tokens = grower.grow([one for _, _, one in asked], width)
    flat = [
        (one.prompt, child)
        for (_, _, one), row in zip(asked, children, strict=True)
        for child in row
    ]
    scored = iter(_scores(scorer, flat, grower.tokenizer, settings.how(scorer)))
    of_tree: dict[int, list[_Scored]] = {}
    for (task, tree, _), row, spent in zip(asked, children, tokens, strict=True):
        task.tokens += spent
        of_tree.setdefault(id(tree), []).extend(next(scored) for _ in row)
    for task, tree in going:
        tree.take(of_tree[id(tree)])
        task.rounds = depth + 1


def _scores(
    scorer: StepScorer, beams: Sequence[tuple[Prompt, Beam]], tokenizer: Any, how: str
) -> Iterator[_Scored]:
    """The score of each beginning; one without words has 0."""
    rollouts = [_rollout(prompt, beam, 0, 0) for prompt, beam in beams]
    rows = [steps_of(scorer, rollout, tokenizer) for rollout in rollouts]
    asked = [at for at, row in enumerate(rows) if any(row.texts)]
    items = [StepItem(beams[at][0].problem, rows[at].texts) for at in asked]
    given = dict(zip(asked, answers(scorer, items), strict=True))
    failed = [at for at, row in given.items() if row.failed]
    if failed:
        raise VerifierError(
            f"The scorer {scorer.key!r} failed on {len(failed)} of {len(asked)} beams, the first "
            f"one of {beams[failed[0]][0].problem.id!r}: a search cannot choose without scores. "
            "What was finished is kept; run the same command again to go on."
        )
    for at, (row, (_, beam)) in enumerate(zip(rows, beams, strict=True)):
        scores = given[at].scores if at in given else (0.0,) * len(row.ends)
        yield _Scored(beam, ScoredSteps(row.ends, scores), rank_of(scores, how))


def _whole(
    engine: Engine,
    tokenizer: Any,
    scorer: StepScorer,
    prompts: Sequence[Prompt],
    settings: SearchSettings,
) -> list[Found]:
    """Whole completions of each prompt, n of them: those of an evaluation with the same seed."""
    groups = {
        group.prompt.problem.id: group
        for group in engine.generate(prompts, settings.n, settings.sampling, settings.seed)
    }
    found: list[Found] = []
    for prompt in prompts:
        group = groups.get(prompt.problem.id)
        rollouts = group.rollouts if group else ()
        if len(rollouts) != settings.n:
            raise EngineError(
                f"The engine returned {len(rollouts)} of {settings.n} completions of "
                f"{prompt.problem.id!r}. Every prompt must have its group, whole; mend the engine, "
                "or take another by --engine."
            )
        beams = [(prompt, _as_beam(rollout)) for rollout in rollouts]
        scored = list(_scores(scorer, beams, tokenizer, settings.how(scorer)))
        order = sorted(range(settings.n), key=lambda at: _order(scored[at]))
        candidates = tuple(Candidate(rollouts[at], *scored[at][1:]) for at in order)
        tokens = sum(len(rollout.ids) for rollout in rollouts)
        found.append(Found(prompt, candidates, tokens, 1))
    return found


def _as_beam(rollout: Rollout) -> Beam:
    return Beam(rollout.ids, rollout.logps, rollout.text, rollout.finish, rollout.policy_version)
