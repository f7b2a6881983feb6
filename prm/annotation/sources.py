"""Solutions to annotate from where they are: the completions of a run, or the rows of a file."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepmark.errors import ConfigError, DataError
from stepmark.prm.formats.cells import optional_text
from stepmark.prm.formats.rejects import Rejected
from stepmark.prm.formats.rows import problem_id
from stepmark.prm.formats.source import Source
from stepmark.prm.steps import split_steps, step_texts
from stepmark.store import RunFolder, rows_hash
from stepmark.types import LabelledSteps, Problem, Prompt, Verdict

from .items import ToAnnotate, from_sample, from_steps

__all__ = ["Solutions", "solutions_of_file", "solutions_of_run"]

TEXTS = ("completion", "response", "output", "solution")
"""Columns of a row that may hold a solution which is not divided yet."""
OURS = ("id", "problem_id", "problem", "gold", "steps", "labels", "kind", "origin", "meta", *TEXTS)


@dataclass(slots=True)
class Solutions:
    """What there is to annotate."""

    items: list[ToAnnotate] = field(default_factory=list[ToAnnotate])
    digest: str = ""
    """Changes with any solution and their order."""
    rejects: Counter[str] = field(default_factory=Counter[str])
    """Solutions that cannot be annotated, by reason."""
    first_reject: str = ""

    def reject(self, reason: str, detail: str) -> None:
        """Count one that cannot be annotated."""
        self.rejects[reason] += 1
        self.first_reject = self.first_reject or detail

    def limited(self, limit: int | None) -> Solutions:
        """So many of them, by a fixed hash of their names; in their own order."""
        if limit is None or limit >= len(self.items):
            return self
        ranked = sorted(self.items, key=lambda item: hashlib.blake2b(item.key.encode()).digest())
        chosen = {item.key for item in ranked[:limit]}
        self.items = [item for item in self.items if item.key in chosen]
        return self

    def sealed(self, place: str) -> Solutions:
        """The same with its digest.

        Raises:
            DataError: there is nothing to annotate, or two solutions share a name.
        """
        twice = [key for key, n in Counter(item.key for item in self.items).items() if n > 1]
        if twice:
            raise DataError(
                f"{place}: two solutions are called {twice[0]!r}; each needs a name of its own. "
                "Give the rows different ids."
            )
        if not self.items:
            why = f" The first that cannot be annotated: {self.first_reject}" * bool(self.rejects)
            raise DataError(f"{place} holds no solution that can be annotated.{why}")
        self.digest = rows_hash(
            {"key": item.key, "prompt": item.prompt.ids, "ids": item.ids, "ends": item.ends}
            for item in self.items
        )
        return self


def solutions_of_run(
    folder: RunFolder,
    tokenizer: Any,
    *,
    verifier: str = "",
    splitter: str = "newline",
    limit: int | None = None,
) -> Solutions:
    """The completions of a run, with their sampled ids and what the verifier said of them.

    Args:
        folder: of ``eval run`` or ``train``.
        tokenizer: the completer's: that of the policy.
        verifier: key of the one whose stored verdicts are taken.
        splitter: see `stepmark.prm.SPLITTERS`.
        limit: so many of them, by a fixed hash.

    Raises:
        DataError: none of them can be annotated.
    """
    store, found = folder.samples, Solutions()
    verdicts = store.verdicts(verifier) if verifier else {}
    roots: dict[tuple[int, str], list[Verdict]] = defaultdict(list)
    for key, verdict in verdicts.items():
        roots[key.step, key.id].append(verdict)
    for sample in store.rows():
        known = [v.correct for v in roots[sample.step, sample.id] if v.correct is not None]
        try:
            item = from_sample(
                sample,
                tokenizer,
                splitter=splitter,
                verdict=verdicts.get(sample.key),
                root=(sum(known), len(known)) if known else None,
            )
        except (DataError, ConfigError) as why:
            found.reject("unusable", str(why))
        else:
            found.items.append(item)
    return found.limited(limit).sealed(str(folder.path))


def solutions_of_file(
    place: str,
    tokenizer: Any,
    prompt_of: Callable[[Problem], Prompt],
    *,
    splitter: str = "newline",
    limit: int | None = None,
) -> Solutions:
    """The solutions in the rows of a file, through the tokenizer.

    A row holds ``problem``, ``gold`` and either ``steps`` or a solution in one text
    (``completion``, ``response``, ``output``, ``solution``), which is divided. Labels that it has
    are not looked at; other columns are there for the verifier.

    Args:
        place: JSON lines, parquet, csv, a JSON list or a hub id.
        tokenizer: the completer's.
        prompt_of: the prompt of a problem, see `stepmark.engines.render`.
        splitter: see `stepmark.prm.SPLITTERS`.
        limit: so many of them, by a fixed hash.

    Raises:
        DataError: the file cannot be read, or holds nothing that can be annotated.
    """
    found = Solutions()
    for line, row in Source(place).rows():
        try:
            if isinstance(row, Rejected):
                raise row
            labelled = _labelled(row, splitter)
            prompt = prompt_of(labelled.problem)
            key = f"{line}/{labelled.problem.id}"
            found.items.append(from_steps(labelled, prompt, tokenizer, key=key))
        except (Rejected, DataError, ConfigError) as why:
            reason = why.reason if isinstance(why, Rejected) else "unusable"
            found.reject(reason, f"line {line}: {why}")
    return found.limited(limit).sealed(place)


def _labelled(row: Mapping[str, Any], splitter: str) -> LabelledSteps:
    text = row.get("problem")
    if not isinstance(text, str) or not text.strip():
        raise Rejected("column", "it has no text in the column problem")
    gold = optional_text(row, "gold")
    if gold is None:
        raise Rejected("no_gold", "it has no gold, so that no roll-out can be marked")
    steps = tuple(_steps(row, splitter))
    about = {**(row.get("meta") or {}), **{k: v for k, v in row.items() if k not in OURS}}
    name = str(row.get("problem_id") or row.get("id") or problem_id(text))
    problem = Problem(name, text, gold, meta=about)
    return LabelledSteps(problem, steps, (None,) * len(steps), meta=dict(row.get("meta") or {}))


def _steps(row: Mapping[str, Any], splitter: str) -> Iterator[str]:
    steps = row.get("steps")
    if steps is None:
        whole = next((row[name] for name in TEXTS if isinstance(row.get(name), str)), "")
        steps = list(step_texts(whole, split_steps(whole, splitter)))
    is_texts = isinstance(steps, list) and all(isinstance(one, str) for one in steps)
    if not is_texts or not steps or not all(step.strip() for step in steps):
        raise Rejected(
            "no_steps", f"steps is {steps!r:.60}; it must be a list of texts, none blank"
        )
    yield from steps
