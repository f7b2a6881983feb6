"""Whether two answers are the same one, as a plain bool: what a verifier of your own stands on."""

from __future__ import annotations

from stepmark.errors import DataError, VerifierError

from .compare import Units, compare
from .folding import text_key
from .limits import MAX_CHARS, TooLarge, Unreadable
from .math import prove_task
from .reading import parse
from .settings import MathSettings, settings_of
from .spellings import same_spelling
from .tree import Node
from .workers import run_all

__all__ = ["GoldError", "equal"]


class GoldError(DataError):
    """A gold cannot be read, or is beyond the bounds; a verifier that raises it abstains."""


def equal(
    gold: str | Node, answer: str | Node, *, units: Units = "strip", timeout_s: float = 5.0
) -> bool:
    r"""Whether an answer is the gold, by the rules of the verifier `math`.

    Nothing is extracted: both are answers, as they stand in a box, or trees that `parse` made.
    What exact rules leave open is settled by sympy in a worker. Whose fault decides, as in
    verdicts: an answer that cannot be read, is too large or takes too long is False; a gold like
    that is an error, so that no data set is marked wrong in silence. A function that is used as a
    verifier need not catch it: the row abstains.

    Args:
        gold: the reference answer; first, because percent signs and units follow it.
        answer: what is compared with it.
        units: ``strip`` drops a unit that one side lacks; ``require`` wants the gold's;
            ``ignore`` drops all.
        timeout_s: deadline of one symbolic comparison in a worker, in seconds; tried twice.

    Raises:
        GoldError: the gold is no mathematics and no words, or beyond the bounds.
        VerifierError: the worker was lost, twice.
        ConfigError: a setting has a value that is not allowed.

    >>> equal("0.5", r"\frac{1}{2}"), equal("(1, 2)", "(2, 1)"), equal("5", "not maths {")
    (True, False, False)
    >>> equal(r"12\text{ cm}", "12", units="require")
    False
    """
    settings_of(MathSettings, {"units": units, "timeout_s": timeout_s}, "math")
    spelling = None
    if isinstance(gold, str) and isinstance(answer, str) and len(answer) <= MAX_CHARS:
        if text_key(gold) == text_key(answer):
            return True
        spelling = same_spelling(gold, answer)
    left = _gold(gold)
    try:
        right = parse(answer) if isinstance(answer, str) else answer
        result = compare(left, right, units=units)
    except (Unreadable, TooLarge, RecursionError):
        return spelling is not None
    if result.equal is None:
        return _proved(result.pairs, timeout_s)
    return result.equal or spelling is not None


def _gold(gold: str | Node) -> Node:
    if not isinstance(gold, str):
        return gold
    remedy = "Mend the gold, or compare texts by the verifier exact."
    try:
        return parse(gold)
    except Unreadable as error:
        raise GoldError(f"The gold {gold!r:.60} cannot be read: {error}. {remedy}") from error
    except (TooLarge, RecursionError) as error:
        why = str(error) or "nested too deep"
        raise GoldError(f"The gold {gold!r:.60} is beyond the bounds: {why}. {remedy}") from error


def _proved(pairs: tuple[tuple[Node, Node], ...], timeout_s: float) -> bool:
    outcomes = run_all("compare", prove_task, pairs, timeout_s=timeout_s)
    for outcome in outcomes:
        if outcome.kind in ("raised", "lost"):
            raise VerifierError(
                f"The comparison of {pairs[0]!r:.120} has no result: {outcome.value!r:.200}. "
                "Try again; if it stays so, report the two answers as a defect."
            )
    return all(outcome.value in ("symbolic", "numeric") for outcome in outcomes)
