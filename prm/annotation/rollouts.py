"""Roll-outs from prefixes: drawn once, marked, and kept in a sample store where there is one.

The seed of a roll-out comes from the seed of the annotation, the problem, the tokens of the prefix
and the place of the roll-out, and from nothing else: neither the order of the work nor what was
stopped early, drawn before a kill or shared by other solutions changes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from stepmark.engines.stopping import cut, texts_of
from stepmark.errors import EngineError, VerifierError
from stepmark.protocols import Engine, OutcomeVerifier
from stepmark.seeds import derive_seed
from stepmark.store import Key, Sample, SampleStore, text_hash
from stepmark.types import Item, Prompt, Rollout, Status, Verdict

from .items import Prefix
from .settings import AnnotationSettings

__all__ = ["Drawn", "Rollouts"]

MARK_EVERY = 64
"""Roll-outs between two writes: what a stopped annotation draws again at most."""
ENOUGH = 16
"""Verdicts after which the share of errors means something."""


class Drawn(NamedTuple):
    """One roll-out."""

    outcome: bool | None
    """Whether it reached the answer; None without a verdict that has a score."""
    tokens: int
    """How many were sampled."""


class Rollouts:
    """All roll-outs of an annotation by prefix.

    Args:
        engine: draws them.
        verifier: marks the whole text, prefix and roll-out together.
        tokenizer: the completer's.
        settings: sampling and seed.
        completer: names the weights, such as a digest; other weights share nothing in the store.
        store: where they are kept; None: in memory.
        max_error_share: largest share of error verdicts, in [0, 1].
    """

    def __init__(
        self,
        engine: Engine,
        verifier: OutcomeVerifier,
        tokenizer: Any,
        settings: AnnotationSettings,
        *,
        completer: str = "",
        store: SampleStore | None = None,
        max_error_share: float = 0.1,
    ) -> None:
        self.engine, self.verifier, self.tokenizer = engine, verifier, tokenizer
        self.settings, self.completer, self.store = settings, completer, store
        self.max_error_share = max_error_share
        self.known: dict[str, dict[int, Drawn]] = defaultdict(dict)
        """By id in the store, then by place."""
        self.generated = 0
        """Tokens sampled by this process."""
        self.prefilled = 0
        """Tokens of prompts and prefixes that the engine read in this process: what it says itself
        (``tokens_read``), else all that it was sent."""
        self.marks = self.errors = 0
        if store is not None:
            self._restore(store)

    def of(self, prefix: Prefix, upto: int) -> tuple[Drawn, ...]:
        """The first so many roll-outs of a prefix, which were all drawn."""
        known = self.known[self._id(prefix)]
        return tuple(known[place] for place in range(upto))

    def draw(self, wanted: Iterable[tuple[Prefix, int]]) -> None:
        """Draw and mark what is lacking, in one call of the engine.

        Args:
            wanted: prefixes, each with how many roll-outs there are to be; one that comes twice
                is drawn once.

        Raises:
            EngineError: the engine gave fewer roll-outs than asked, or others; what it gave is
                kept.
            VerifierError: more error verdicts than allowed.
        """
        lacking: dict[str, tuple[Prefix, int]] = {}
        prompts: list[Prompt] = []
        for prefix, upto in wanted:
            known, name = self.known[self._id(prefix)], prefix.name
            names = {f"{name}.{place}": place for place in range(upto) if place not in known}
            text, ids = "", prefix.all_ids
            for id in [id for id in names if id not in lacking]:
                text = text or prefix.prompt.text + texts_of(self.tokenizer, [prefix.ids])[0]
                lacking[id] = prefix, names[id]
                prompts.append(Prompt(replace(prefix.prompt.problem, id=id), ids, text))
        if prompts:
            self._generate(prompts, lacking)

    def _generate(self, prompts: Sequence[Prompt], lacking: dict[str, tuple[Prefix, int]]) -> None:
        before, asked = getattr(self.engine, "tokens_read", None), len(lacking)
        pending: list[tuple[Prefix, int, Rollout]] = []
        try:
            for one in self._rollouts(prompts, lacking):
                pending.append(one)
                if len(pending) == MARK_EVERY:
                    self._keep(pending)
                    pending = []
        finally:
            self._keep(pending)
        read = getattr(self.engine, "tokens_read", None)
        sent = sum(len(prompt.ids) for prompt in prompts)
        self.prefilled += sent if before is None or read is None else read - before
        if lacking:
            raise EngineError(
                f"The engine returned {asked - len(lacking)} of {asked} roll-outs; the first that "
                f"is lacking is {next(iter(lacking))!r}. It must give one for every prompt; those "
                "that came are kept, and the same command goes on from them."
            )

    def _rollouts(
        self, prompts: Sequence[Prompt], lacking: dict[str, tuple[Prefix, int]]
    ) -> Iterator[tuple[Prefix, int, Rollout]]:
        """Each roll-out as it comes; it leaves what is lacking."""
        seed = derive_seed(self.settings.seed, "annotate")
        for group in self.engine.generate(prompts, 1, self.settings.sampling, seed):
            id = group.prompt.problem.id
            if id not in lacking or len(group.rollouts) != 1:
                why = "was not asked for" if id not in lacking else "asked for 1"
                raise EngineError(
                    f"The engine returned {len(group.rollouts)} roll-outs of {id!r} ({why}). It "
                    "must give each prompt one group of as many as asked; mend the engine."
                )
            yield *lacking.pop(id), group.rollouts[0]

    def _keep(self, drawn: Sequence[tuple[Prefix, int, Rollout]]) -> None:
        """Into the store first, then marked, then the verdicts into the store."""
        if not drawn:
            return
        texts = self._texts(drawn)
        samples = [
            self._sample(prefix, place, rollout, text)
            for (prefix, place, rollout), text in zip(drawn, texts, strict=True)
        ]
        if self.store is not None:
            self.store.append(samples)
        items = [
            Item(prefix.prompt.problem, text, prefix.prompt.text, len(prefix.ids + rollout.ids))
            for (prefix, _, rollout), text in zip(drawn, texts, strict=True)
        ]
        self.generated += sum(len(rollout.ids) for _, _, rollout in drawn)
        self._mark(samples, items)

    def _texts(self, drawn: Sequence[tuple[Prefix, int, Rollout]]) -> list[str]:
        """Prefix and roll-out decoded together, cut before a stop string of the roll-out."""
        wholes = texts_of(
            self.tokenizer, [prefix.ids + rollout.ids for prefix, _, rollout in drawn]
        )
        stops = self.settings.sampling.stop
        if not stops:
            return wholes
        heads = texts_of(self.tokenizer, [prefix.ids for prefix, _, _ in drawn])
        return [
            whole[: len(head)] + cut(whole[len(head) :], stops)
            for whole, head in zip(wholes, heads, strict=True)
        ]

    def _sample(self, prefix: Prefix, place: int, rollout: Rollout, text: str) -> Sample:
        problem = prefix.prompt.problem
        return Sample(
            id=self._id(prefix),
            k=place,
            step=0,
            problem=problem.text,
            prompt=prefix.prompt.text,
            completion=text,
            ids=rollout.ids,
            logps=rollout.logps,
            finish=rollout.finish,
            gold=problem.gold,
            meta={**problem.meta, "rollout": {"of": problem.id, "prefix_ids": list(prefix.ids)}},
            policy=self.completer,
            request=self._request(prefix),
        )

    def _mark(self, samples: Sequence[Sample], items: Sequence[Item]) -> None:
        verdicts = list(self.verifier(items))
        if self.store is not None:
            keys = [sample.key for sample in samples]
            self.store.append_verdicts(self.verifier.key, zip(keys, verdicts, strict=True))
        for sample, verdict in zip(samples, verdicts, strict=True):
            self._note(sample.key, len(sample.ids or ()), verdict)
        self._check_errors(verdicts)

    def _note(self, key: Key, tokens: int, verdict: Verdict) -> None:
        self.known[key.id][key.k] = Drawn(verdict.correct, tokens)
        self.marks += 1
        self.errors += verdict.status is Status.ERROR

    def _check_errors(self, verdicts: Sequence[Verdict]) -> None:
        if self.marks < ENOUGH or self.errors <= self.max_error_share * self.marks:
            return
        first = next((one for one in verdicts if one.status is Status.ERROR), None)
        trace = (first.detail.get("traceback") or first.reason) if first else "in an earlier batch"
        raise VerifierError(
            f"{self.errors} of {self.marks} verdicts of {self.verifier.key} are errors; a share of "
            f"{self.max_error_share:g} is allowed. Mend the verifier and run the same command "
            f"again. The first error:\n{trace}"
        )

    def _restore(self, store: SampleStore) -> None:
        """What an earlier process drew; what it had no time to mark is marked."""
        verdicts = store.verdicts(self.verifier.key)
        failed = sum(verdict.status is Status.ERROR for verdict in verdicts.values())
        if failed > self.max_error_share * len(verdicts):
            verdicts = {at: v for at, v in verdicts.items() if v.status is not Status.ERROR}
        unmarked: list[Sample] = []
        for sample in store.rows():
            if (verdict := verdicts.get(sample.key)) is not None:
                self._note(sample.key, len(sample.ids or ()), verdict)
            elif "rollout" in sample.meta:
                unmarked.append(sample)
        rest = iter(unmarked)
        while some := list(islice(rest, MARK_EVERY)):
            self._mark(some, [_item(sample) for sample in some])

    def _id(self, prefix: Prefix) -> str:
        """Of a prefix in the store: other weights, sampling or seeds have other roll-outs."""
        return f"{prefix.prompt.problem.id}#{self._request(prefix)}"

    def _request(self, prefix: Prefix) -> str:
        said = f"{self.settings.sampling!r} {self.settings.seed} {self.completer}"
        return text_hash(f"{prefix.all_ids!r} {said}")


def _item(sample: Sample) -> Item:
    """What the verifier is asked of a stored roll-out: the same as when it was drawn."""
    item = sample.to_item()
    about: dict[str, Any] = dict(sample.meta)
    rollout = about.pop("rollout")
    problem = replace(item.problem, id=rollout["of"], meta=about)
    tokens = len(rollout["prefix_ids"]) + len(sample.ids or ())
    return replace(item, problem=problem, tokens=tokens)
