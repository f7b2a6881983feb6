"""Who says which steps of a completion are right: what a refresh of a reward model learns from.

``outcome``, ``rule`` and step scorers say it of what is in the run's store. ``mc`` and ``binary``
draw completions from prefixes with the policy as it is when the outer iteration ends, and keep
these roll-outs and the labels in the run's folder::

    reward_models/rollouts/                    samples and verdicts of all roll-outs
    reward_models/NAME/labels-0001.jsonl       labelled completions of the first outer iteration
    reward_models/NAME/labels-0001.json        what they took; written last

so that a refresh that was killed draws nothing twice, and labels are the same however often it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stepmark.config.refresh_table import GENERATING, RefreshTable
from stepmark.engines import token_offsets
from stepmark.errors import UnknownNameError
from stepmark.prm import labelled_steps, load_scorer, scorers, step_texts, step_token_ends
from stepmark.prm.annotation import AnnotationSettings, Annotator, ToAnnotate
from stepmark.prm.annotation.items import prompt_of
from stepmark.prm.formats import write_labelled_steps
from stepmark.prm.marking import joined
from stepmark.protocols import Engine, OutcomeVerifier, StepScorer
from stepmark.seeds import derive_seed
from stepmark.store import SampleStore, write_json
from stepmark.store.samples import Key, Sample
from stepmark.types import LabelledSteps, Sampling, StepItem, Verdict

from .scoring import ask

__all__ = ["Completer", "Fresh", "label_with", "labelling_scorer"]

KINDS = (*GENERATING, "rule", "outcome", "none")
"""Words that stand for an annotator; any other is the name of a step scorer."""

RULE = "arithmetic"
"""The step scorer that the annotator ``rule`` stands for."""


def labelling_scorer(annotator: str | None) -> StepScorer | None:
    """The step scorer whose scores are labels; None where the annotator is none.

    Raises:
        UnknownNameError: nothing is known under that name.
    """
    if annotator in (None, "outcome", *GENERATING):
        return None
    name = RULE if annotator == "rule" else annotator
    is_word = not set(name) & set(":/?") and not Path(name).exists()
    if is_word and name not in scorers.names():
        raise UnknownNameError.of("annotator", name, [*KINDS, *scorers.names()])
    return load_scorer(name)


def label_with(
    annotator: str,
    scorer: StepScorer | None,
    model: StepScorer,
    samples: Sequence[Sample],
    outcomes: Mapping[Key, float],
) -> list[LabelledSteps]:
    """Completions with what is known of their steps without drawing anything.

    Args:
        annotator: ``outcome``, ``rule``, or anything else for the scorer's word alone.
        scorer: from `labelling_scorer`; not needed for ``outcome``.
        model: the reward model, which says where steps are.
        samples: of the run.
        outcomes: scores of the first verifier, where it gave one.
    """
    items = [_item(model, sample) for sample in samples]
    said: list[tuple[float | None, ...]] = [(None,) * len(item.steps) for item in items]
    if scorer is not None:
        said = [tuple(row) for row in ask(scorer, items)]
    if annotator in ("outcome", "rule"):
        said = [
            (*row[:-1], _end(row[-1], outcomes.get(sample.key)))
            for row, sample in zip(said, samples, strict=True)
        ]
    return [
        LabelledSteps(
            item.problem,
            item.steps,
            row,
            kind="hard" if all(label in (None, 0, 1) for label in row) else "soft",
            source=annotator,
            final_correct=None if sample.key not in outcomes else outcomes[sample.key] == 1,
            meta=_about(sample),
        )
        for item, row, sample in zip(items, said, samples, strict=True)
    ]


def _end(said: float | None, outcome: float | None) -> float | None:
    """The label of the last step: the verifier's score; a rule that says it is wrong stands."""
    known = [label for label in (said, outcome) if label is not None]
    return None if outcome is None and said != 0 else min(known)


def _item(model: StepScorer, sample: Sample) -> StepItem:
    """The steps of a stored completion; one without words is one empty step, as in scoring."""
    text = sample.completion
    steps = step_texts(text, model.segment(text)) if text.strip() else ("",)
    return StepItem(sample.to_item().problem, steps)


class Fresh(NamedTuple):
    """The labelled completions of an outer iteration."""

    rows: list[LabelledSteps]
    metrics: Mapping[str, float]
    """What annotation took."""


@dataclass(frozen=True, slots=True)
class Completer:
    """Draws completions from prefixes and labels steps by them, within a budget of tokens.

    Args:
        engine: holds the policy.
        tokenizer: its own.
        verifier: the first one of the run.
        sampling: as the run draws.
        folder: ``reward_models`` of the run.
        table: annotator, roll-outs and budget.
        seed: of the run.
        weights: names what the engine holds now.
        forward: context of forward passes that learn nothing.
        max_error_share: largest share of error verdicts, in [0, 1].
    """

    engine: Engine
    tokenizer: Any
    verifier: OutcomeVerifier
    sampling: Sampling
    folder: Path
    table: RefreshTable
    seed: int
    weights: Callable[[], str]
    forward: Callable[[], AbstractContextManager[None]]
    max_error_share: float = 0.1

    def fresh(
        self,
        model: StepScorer,
        name: str,
        iteration: int,
        samples: Sequence[Sample],
        verdicts: Mapping[Key, Verdict],
        budget: int,
    ) -> Fresh:
        """The completions of an outer iteration with labels, as many as the budget allows.

        What was labelled before a kill is read, and roll-outs that were drawn are not drawn again.

        Args:
            model: says where steps are.
            name: of the model in the run.
            iteration: from 0.
            samples: those to annotate, the most telling first.
            verdicts: of the first verifier.
            budget: most tokens to generate.
        """
        place = self._place(name, iteration)
        if not place.with_suffix(".json").is_file():
            annotator = self._annotator(iteration, max(budget, 1))
            items = [
                _to_annotate(model, sample, self.tokenizer, verdicts.get(sample.key))
                for sample in samples
                if sample.completion.strip() and sample.finish != "length"
            ]
            with self.forward():
                rows = [one.row for one in annotator.annotate(items)]
            write_labelled_steps(place, rows)
            write_json(place.with_suffix(".json"), _spent(annotator, len(rows)))
        known = {sample.key: sample.to_item().problem for sample in samples}
        rows = [replace(row, problem=known[_key(row)]) for row in _rows(place)]
        return Fresh(rows, json.loads(place.with_suffix(".json").read_text(encoding="utf-8")))

    def earlier(self, name: str, iteration: int, store: SampleStore) -> list[LabelledSteps]:
        """The labelled completions of all outer iterations before one."""
        rows = [row for number in range(iteration) for row in _rows(self._place(name, number))]
        keys = [_key(row) for row in rows]
        samples = {sample.key: sample for sample in store.chosen(keys)}
        return [
            replace(row, problem=samples[key].to_item().problem)
            for row, key in zip(rows, keys, strict=True)
        ]

    def _place(self, name: str, iteration: int) -> Path:
        return self.folder / name / f"labels-{iteration + 1:04d}.jsonl"

    def _annotator(self, iteration: int, budget: int) -> Annotator:
        settings = AnnotationSettings(
            method="binary" if self.table.annotator == "binary" else "mc",
            rollouts=self.table.rollouts,
            sampling=self.sampling,
            seed=derive_seed(self.seed, "annotation", iteration),
        )
        return Annotator(
            self.engine,
            self.verifier,
            settings,
            tokenizer=self.tokenizer,
            completer=self.weights(),
            store=SampleStore(self.folder / "rollouts"),
            budget=budget,
            max_error_share=self.max_error_share,
        )


def _rows(place: Path) -> list[LabelledSteps]:
    """The labelled completions in a file; none where there is no file or nothing in it."""
    there = place.is_file() and place.stat().st_size > 0
    return [*labelled_steps(place)] if there else []


def _spent(annotator: Annotator, rows: int) -> dict[str, float]:
    """What an annotation took, as metrics."""
    spent = annotator.counts.spent
    found = {
        "annotated": rows,
        "annotation/rollouts": spent.rollouts,
        "annotation/tokens": spent.generated,
        "annotation/beyond_budget": annotator.counts.left_out["budget"],
    }
    return {name: float(number) for name, number in found.items()}


def _about(sample: Sample) -> dict[str, Any]:
    """Which completion a row labels, and who wrote it."""
    finish = sample.finish or "stop"
    return {"step": sample.step, "k": sample.k, "finish": finish, "policy": sample.policy}


def _key(row: LabelledSteps) -> Key:
    """Of the completion that a row labels."""
    return Key(int(row.meta["step"]), row.problem.id, int(row.meta["k"]))


def _to_annotate(
    model: StepScorer, sample: Sample, tokenizer: Any, verdict: Verdict | None
) -> ToAnnotate:
    """A completion with steps where the model sees them, on its sampled ids."""
    text, ids = sample.completion, sample.ids or ()
    offsets = token_offsets(tokenizer, ids, text)
    spans = joined(model.segment(text), offsets)
    return ToAnnotate(
        key=f"{sample.step}/{sample.id}/{sample.k}",
        prompt=prompt_of(sample, tokenizer),
        ids=ids,
        text=text,
        steps=step_texts(text, spans),
        ends=step_token_ends(spans, offsets),
        verdict=verdict,
        finish=sample.finish or "stop",
        meta=_about(sample),
    )
