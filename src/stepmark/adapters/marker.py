"""Rows of a trainer in, verdicts out: what all adapters do alike."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepmark.errors import DataError
from stepmark.protocols import OutcomeVerifier
from stepmark.types import Item, Problem, Reason, Verdict
from stepmark.verifiers import check_columns, load_verifier
from stepmark.verifiers.functions import FunctionVerifier

from .references import VerifierLike, by_origin, portable
from .texts import gold_text
from .watch import ErrorWatch

__all__ = ["Marker", "Row"]


class Row(NamedTuple):
    """One completion with what the data say of its problem."""

    completion: str
    gold: Any
    """The cell as the data have it; what is no text and no number makes the row abstain."""
    columns: Mapping[str, Any]
    question: str = ""
    prompt: str = ""
    tokens: int | None = None
    """How many tokens were sampled, where the trainer says so."""


class Marker:
    """A verifier that travels: it can be pickled by its reference and called from any thread.

    Args:
        reference: as `stepmark.verifiers.load_verifier` takes it. Files are looked up now, from
            the current folder.
        name: the word for messages.
        max_error_share: largest share of errors among the last hundred verdicts, in [0, 1].

    Raises:
        ConfigError: the verifier does not load, or the share is not in [0, 1].
        UnknownNameError: nothing is known under that name.
    """

    def __init__(self, reference: VerifierLike, name: str, max_error_share: float) -> None:
        self.reference = portable(reference)
        self.name = name
        self.watch = ErrorWatch(name, max_error_share)
        self._lock = threading.Lock()
        self._verifier: OutcomeVerifier | None = load_verifier(self.reference)
        if isinstance(self._verifier, FunctionVerifier):
            self.reference = by_origin(self._verifier) or self.reference

    def __getstate__(self) -> dict[str, Any]:
        return {"reference": self.reference, "name": self.name, "watch": self.watch}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _verifier=None)

    @property
    def verifier(self) -> OutcomeVerifier:
        """The verifier, loaded again where this came out of a pickle."""
        with self._lock:
            if self._verifier is None:
                self._verifier = load_verifier(self.reference)
            return self._verifier

    def __call__(self, rows: Sequence[Row]) -> list[Verdict]:
        """One verdict per row, in order.

        Raises:
            ConfigError: the verifier asks for a column that the rows do not have.
            VerifierError: too many errors.
        """
        verifier = self.verifier
        if rows:
            check_columns(verifier, rows[0].columns)
        prepared = [_item(row) for row in rows]
        marked = iter(verifier([entry for entry in prepared if isinstance(entry, Item)]))
        verdicts = [entry if isinstance(entry, Verdict) else next(marked) for entry in prepared]
        self.watch.see(verdicts)
        return verdicts


def _item(row: Row) -> Item | Verdict:
    try:
        gold = gold_text(row.gold)
    except DataError as error:
        return Verdict.abstained(Reason.GOLD_UNREADABLE, gold=f"{row.gold!r:.80}", why=str(error))
    columns = row.columns
    worked = columns.get("solution")
    problem = Problem(
        id=str(columns.get("id", "")),
        text=str(columns.get("problem") or row.question),
        gold=gold,
        solution=None if worked is None else str(worked),
        task=str(columns.get("task", "")),
        meta=dict(columns),
    )
    return Item(problem, row.completion, row.prompt, row.tokens)
