"""Beams that grow by one step: ids in, ids out, whatever the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from stepmark.engines.stopping import cut, texts_of
from stepmark.errors import EngineError
from stepmark.protocols import Engine
from stepmark.types import Group, Prompt, Rollout, Sampling

__all__ = ["ROOT", "Asked", "Beam", "Grower"]

MOST_BLANKS = 8
"""Steps without words, one after another, after which a beam counts as cut off."""


@dataclass(frozen=True, slots=True)
class Beam:
    """The beginning of a completion, or all of it."""

    ids: tuple[int, ...] = ()
    """The sampled tokens, those of its steps one after another."""
    logps: tuple[float, ...] = ()
    text: str = ""
    """Without what stands behind the last end of a step, while the beam goes on."""
    state: Literal["open", "stop", "length"] = "open"
    """It goes on, ended by itself, or was cut off."""
    version: int = 0
    """Of the weights that drew its last step."""


ROOT = Beam()
"""Where all beams of a problem begin."""


class Asked(NamedTuple):
    """A beam that is to be continued."""

    prompt: Prompt
    beam: Beam
    name: str
    """Tells this place in the search from all others of the problem: its samples' seeds come from
    it."""


class Grower:
    """Continues beams by samples of one step.

    Args:
        engine: draws; it must stop at stop strings and return as many samples as were asked for.
        tokenizer: the engine's.
        sampling: ``max_tokens`` bounds the whole completion, ``stop`` ends it.
        step_ends: texts that end a step.
        seed: of all that is drawn.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        sampling: Sampling,
        step_ends: tuple[str, ...],
        seed: int,
    ) -> None:
        self.engine, self.tokenizer, self.seed = engine, tokenizer, seed
        self.sampling, self.step_ends = sampling, step_ends

    def grow(self, asked: Sequence[Asked], width: int) -> tuple[list[list[Beam]], list[int]]:
        """For each beam its ``width`` continuations, and how many tokens were sampled for them.

        A continuation without words (a blank line) goes on until it has some, so that no beam can
        stand still; after `MOST_BLANKS` such steps it counts as cut off.

        Raises:
            EngineError: the engine returned fewer samples than asked, or did not stop at a step.
        """
        children, tokens = self._sampled(asked, width)
        for again in range(MOST_BLANKS):
            places = [
                (at, index)
                for at, row in enumerate(children)
                for index, child in enumerate(row)
                if _is_blank(asked[at].beam, child)
            ]
            if not places:
                break
            parents = [
                Asked(one.prompt, children[at][index], f"{one.name}.{index}.{again}")
                for at, index in places
                for one in [asked[at]]
            ]
            grown, more = self._sampled(parents, 1)
            for (at, index), [child], spent in zip(places, grown, more, strict=True):
                children[at][index] = child
                tokens[at] += spent
        cut_off = [
            [replace(c, state="length") if _is_blank(one.beam, c) else c for c in row]
            for one, row in zip(asked, children, strict=True)
        ]
        return cut_off, tokens

    def _sampled(self, asked: Sequence[Asked], width: int) -> tuple[list[list[Beam]], list[int]]:
        prompts = [_continued(one) for one in asked]
        groups: dict[str, Group] = {}
        for places, room in self._batches(asked, prompts):
            step = replace(
                self.sampling, max_tokens=room, stop=(*self.step_ends, *self.sampling.stop)
            )
            batch = [prompts[at] for at in places]
            for group in self.engine.generate(batch, width, step, self.seed):
                groups[group.prompt.problem.id] = group
        children: list[list[Beam]] = []
        tokens: list[int] = []
        for one, prompt in zip(asked, prompts, strict=True):
            found = groups.get(prompt.problem.id)
            rollouts = found.rollouts if found else ()
            if len(rollouts) != width:
                raise EngineError(
                    f"The engine returned {len(rollouts)} of {width} samples of a step of "
                    f"{one.prompt.problem.id!r}. Every prompt must have its group, whole; "
                    "mend the engine, or take another by --engine."
                )
            children.append([self._child(one, rollout) for rollout in rollouts])
            tokens.append(sum(len(rollout.ids) for rollout in rollouts))
        return children, tokens

    def _batches(
        self, asked: Sequence[Asked], prompts: Sequence[Prompt]
    ) -> Iterator[tuple[list[int], int]]:
        """Beams that are sampled together, with the tokens that each may take.

        All together where the model has room for the most; else those that have as many left.
        """
        left = [self.sampling.max_tokens - len(one.beam.ids) for one in asked]
        limit = getattr(self.engine, "max_length", None)
        most = max(left)
        if limit is None or all(len(prompt.ids) + most <= limit for prompt in prompts):
            yield list(range(len(asked))), most
            return
        for room in sorted(set(left)):
            yield [at for at, own in enumerate(left) if own == room], room

    def _child(self, asked: Asked, rollout: Rollout) -> Beam:
        """A beam with one more step; what it sampled beyond its room is not kept."""
        parent = asked.beam
        room = self.sampling.max_tokens - len(parent.ids)
        new = rollout.ids[:room]
        ids = (*parent.ids, *new)
        before, piece, whole = texts_of(self.tokenizer, [new[:-1], new, ids])
        if any(end in before for end in self.step_ends):
            raise EngineError(
                f"The engine went on after the end of a step of {asked.prompt.problem.id!r}: "
                f"{before!r:.80}. It must stop at the texts in Sampling.stop, here "
                f"{self.step_ends}; mend it, or take another by --engine."
            )
        is_cut = len(new) < len(rollout.ids) or rollout.finish == "length"
        is_step = any(end in piece for end in self.step_ends)
        is_over = any(stop in whole for stop in self.sampling.stop)
        state: Literal["open", "stop", "length"] = "stop"
        if not is_over and is_step and len(new) < room:
            state, whole = "open", whole[: _end_of_steps(whole, self.step_ends)]
        elif not is_over and (is_cut or is_step):
            state = "length"
        text = cut(whole, self.sampling.stop)
        logps = (*parent.logps, *rollout.logps[:room])
        return Beam(ids, logps, text, state, rollout.policy_version)


def _continued(one: Asked) -> Prompt:
    """The prompt that a beam goes on from; its id makes seeds of its own."""
    problem = replace(one.prompt.problem, id=f"{one.prompt.problem.id}#{one.name}")
    return Prompt(problem, (*one.prompt.ids, *one.beam.ids), one.prompt.text + one.beam.text)


def _is_blank(parent: Beam, child: Beam) -> bool:
    return child.state == "open" and not child.text[len(parent.text) :].strip()


def _end_of_steps(text: str, ends: Sequence[str]) -> int:
    """Where the last whole step of a text ends."""
    return max(place + len(end) for end in ends if (place := text.rfind(end)) >= 0)
