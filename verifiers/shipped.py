"""What the small shipped verifiers share: settings as fields, a key, faults as verdicts."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import ClassVar

from stepmark.types import Item, Reason, Verdict

from .extract import Extraction, extract_gold
from .limits import MAX_CHARS, TooLarge
from .settings import check_settings, settings_key

__all__ = ["ShippedVerifier", "gold_of", "shown"]


class ShippedVerifier:
    """Marks one completion at a time by `mark`; subclasses are frozen dataclasses of settings."""

    name: ClassVar[str]
    version: ClassVar[int]

    def __post_init__(self) -> None:
        check_settings(self, self.name)

    @property
    def key(self) -> str:
        """``name@version``, with a digest of the settings when they are not the defaults."""
        return settings_key(f"{self.name}@{self.version}", self)

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the data that it cannot do without."""
        return frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; nothing is raised."""
        return [self._guarded(item) for item in items]

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it marks.")

    def _guarded(self, item: Item) -> Verdict:
        try:
            return self.mark(item)
        except (TooLarge, RecursionError) as error:
            return Verdict.marked(
                0, Reason.TOO_LARGE, gold=item.problem.gold, rule=str(error) or "nested too deep"
            )
        except Exception as error:  # a defect here must not stop a run: it becomes an error verdict
            return Verdict.failed(
                Reason.VERIFIER_RAISED,
                gold=item.problem.gold,
                error=repr(error),
                traceback=traceback.format_exc(),
            )


def gold_of(item: Item) -> Extraction | None:
    """The reference answer of an item; None where there is none."""
    found = extract_gold(item.problem.gold or "")
    return found if found.text else None


def shown(text: str | None) -> str | None:
    """A text for a verdict row, which stays readable: of a long one, its beginning."""
    return text if text is None or len(text) <= MAX_CHARS else text[:MAX_CHARS] + "..."
