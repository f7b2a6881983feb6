"""What is annotated: a solution as token ids, with the tokens in which its steps end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from stepmark.engines import token_offsets
from stepmark.engines.specials import hidden, ids_of
from stepmark.engines.stopping import texts_of
from stepmark.errors import DataError
from stepmark.prm.marking import joined
from stepmark.prm.steps import split_steps, step_texts, step_token_ends
from stepmark.store import Sample, text_hash
from stepmark.types import Finish, LabelledSteps, Prompt, Verdict

__all__ = ["Prefix", "ToAnnotate", "from_sample", "from_steps", "prompt_of"]


@dataclass(frozen=True, slots=True)
class ToAnnotate:
    """A solution whose steps are to be labelled."""

    key: str
    """Names the solution among all that are annotated, such as ``0/arith/train/7/3``."""
    prompt: Prompt
    """As the completer sees it."""
    ids: tuple[int, ...]
    """The tokens of the solution."""
    text: str
    """What they stand for."""
    steps: tuple[str, ...]
    """The texts of the steps, as the labelled row will hold them."""
    ends: tuple[int, ...]
    """Index of the last token of each step, rising; the last one is the last token."""
    verdict: Verdict | None = None
    """What the verifier said of the whole solution; None: it is asked."""
    finish: Finish = "stop"
    """``length``: the last step was cut off, and is not labelled."""
    root: tuple[int, int] | None = None
    """Right completions of the problem and all that were marked, where that is known."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What goes into the meta of the labelled row."""

    def __post_init__(self) -> None:
        rising = all(one < two for one, two in pairwise((-1, *self.ends)))
        if len(self.steps) != len(self.ends) or not rising or self.ends[-1:] >= (len(self.ids),):
            raise DataError(
                f"The solution {self.key!r} has {len(self.steps)} steps that end in the tokens "
                f"{list(self.ends)[:8]} of {len(self.ids)}; there must be one rising end a step, "
                "within the tokens. stepmark.prm.annotation.from_sample finds them."
            )

    def prefix(self, steps: int) -> Prefix:
        """The solution up to and with so many steps; 0 is the bare prompt."""
        end = self.ends[steps - 1] + 1 if steps else 0
        return Prefix(self.prompt, self.ids[:end])


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prompt and the first tokens of a solution: what roll-outs go on from."""

    prompt: Prompt
    ids: tuple[int, ...]
    """The tokens behind the prompt."""

    @property
    def all_ids(self) -> tuple[int, ...]:
        """What the model reads."""
        return self.prompt.ids + self.ids

    @property
    def name(self) -> str:
        """Problem and a digest of the tokens: equal prefixes of a problem's solutions share it."""
        return f"{self.prompt.problem.id}#{text_hash(repr(self.all_ids))}"


def from_sample(
    sample: Sample,
    tokenizer: Any,
    *,
    splitter: str = "newline",
    verdict: Verdict | None = None,
    root: tuple[int, int] | None = None,
) -> ToAnnotate:
    """A completion of a run as something to annotate; its sampled ids are taken as they are.

    Only a sample without ids is tokenised, from its text. The prompt's ids are made of its rendered
    text, as `stepmark.engines.render` made them.

    Args:
        sample: of a sample store.
        tokenizer: the policy's.
        splitter: how the text is divided, see `stepmark.prm.SPLITTERS`.
        verdict: what the verifier said of it, where that is known.
        root: right completions of the problem, and all.

    Raises:
        DataError: it has no words, or its ids are those of another tokenizer.
    """
    text = sample.completion
    if not text.strip():
        raise DataError(
            f"The completion {sample.k} of {sample.id!r} has no words, so it has no steps. "
            "Leave it out."
        )
    ids = sample.ids or tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not texts_of(tokenizer, [ids])[0].startswith(text):
        raise DataError(
            f"The tokens of completion {sample.k} of {sample.id!r} do not read as its text with "
            "this tokenizer; another one wrote them. Annotate with a model of the same tokenizer, "
            "or give a file of rows with problem, gold and steps."
        )
    offsets = token_offsets(tokenizer, ids, text)
    spans = joined(split_steps(text, splitter), offsets)
    return ToAnnotate(
        key=f"{sample.step}/{sample.id}/{sample.k}",
        prompt=prompt_of(sample, tokenizer),
        ids=tuple(ids),
        text=text,
        steps=step_texts(text, spans),
        ends=step_token_ends(spans, offsets),
        verdict=verdict,
        finish=sample.finish or "stop",
        root=root,
        meta={"k": sample.k, "step": sample.step, "policy": sample.policy},
    )


def from_steps(
    row: LabelledSteps, prompt: Prompt, tokenizer: Any, *, key: str = "", between: str = "\n"
) -> ToAnnotate:
    """A solution of which only the texts of the steps are known, through the tokenizer.

    Args:
        row: its labels are not looked at.
        prompt: of its problem, see `stepmark.engines.render`.
        tokenizer: the completer's.
        key: the solution's name; its problem's id by default.
        between: what stands between two steps.

    Raises:
        ConfigError: the tokenizer has no token that starts in one of the steps.
    """
    text = between.join(row.steps)
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    starts = [0]
    for step in row.steps[:-1]:
        starts.append(starts[-1] + len(step) + len(between))
    spans = list(pairwise([*starts, len(text)]))
    return ToAnnotate(
        key=key or row.problem.id,
        prompt=prompt,
        ids=ids,
        text=text,
        steps=row.steps,
        ends=step_token_ends(spans, token_offsets(tokenizer, ids, text)),
        meta=row.meta,
    )


def prompt_of(sample: Sample, tokenizer: Any) -> Prompt:
    """The prompt of a stored completion, with the ids of its rendered text.

    Special tokens that the problem spells out are text, as they were when it was rendered.
    """
    problem = sample.to_item().problem
    masked, words = hidden(problem.text, tokenizer, sample.prompt)
    text = sample.prompt.replace(problem.text, masked) if words else sample.prompt
    return Prompt(problem, tuple(ids_of(text, words, tokenizer)), sample.prompt)
