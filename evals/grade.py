"""Marking what is in the store, never twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepmark.errors import VerifierError
from stepmark.protocols import OutcomeVerifier
from stepmark.store import Key, Sample, SampleStore
from stepmark.types import Status, Verdict

__all__ = ["check_error_share", "grade", "mark"]

AT_ONCE = 2048
"""Completions per call of the verifier: enough to keep its workers busy, little to lose."""

ENOUGH = 16
"""Verdicts after which the share of errors means something before all are in."""


def mark(verifier: OutcomeVerifier, samples: Sequence[Sample]) -> list[Verdict]:
    """One verdict per sample, in order."""
    return verifier([sample.to_item() for sample in samples])


def grade(
    store: SampleStore,
    verifier: OutcomeVerifier,
    *,
    max_error_share: float = 0.1,
    samples: Iterable[Sample] | None = None,
    known: Mapping[Key, Verdict] | None = None,
) -> dict[Key, Verdict]:
    """Verdicts on all samples of a store; only those without one are marked, and then stored.

    Stored errors are marked again when there were too many of them to go on: the verifier may have
    been mended since.

    Args:
        store: new verdicts go to the verifier's side file.
        verifier: what marks.
        max_error_share: largest share of error verdicts, in [0, 1].
        samples: those to mark; all of the store by default.
        known: what an earlier call returned, so that the side file is not read again.

    Raises:
        VerifierError: more errors than allowed; the message holds the first traceback. The verdicts
            are stored.
    """
    known = store.verdicts(verifier.key) if known is None else dict(known)
    if _share_of_errors(known) > max_error_share:
        known = {key: v for key, v in known.items() if v.status is not Status.ERROR}
    waiting = [s for s in (store.rows() if samples is None else samples) if s.key not in known]
    for start in range(0, len(waiting), AT_ONCE):
        batch = waiting[start : start + AT_ONCE]
        fresh = list(zip((s.key for s in batch), mark(verifier, batch), strict=True))
        store.append_verdicts(verifier.key, fresh)
        known |= dict(fresh)
        check_error_share(verifier.key, known.values(), max_error_share, is_partial=True)
    check_error_share(verifier.key, known.values(), max_error_share)
    return known


def check_error_share(
    key: str, verdicts: Iterable[Verdict], largest: float, *, is_partial: bool = False
) -> None:
    """Refuse to go on when the verifier fails too often for the rest to mean anything.

    Args:
        key: the verifier's.
        verdicts: all so far.
        largest: share of errors that is allowed, in [0, 1].
        is_partial: more verdicts follow, so that a few errors among a few say nothing yet.

    Raises:
        VerifierError: with the first traceback.
    """
    known = list(verdicts)
    failed = [verdict for verdict in known if verdict.status is Status.ERROR]
    if len(failed) <= largest * len(known) or (is_partial and len(known) < ENOUGH):
        return
    trace = str(failed[0].detail.get("traceback") or failed[0].reason).rstrip()
    raise VerifierError(
        f"{len(failed)} of {len(known)} verdicts of {key} are errors; a share of {largest:g} is "
        f"allowed. Mend the verifier and run the same command again. The first error:\n{trace}"
    )


def _share_of_errors(known: Mapping[Key, Verdict]) -> float:
    errors = sum(verdict.status is Status.ERROR for verdict in known.values())
    return errors / max(len(known), 1)
