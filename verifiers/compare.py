r"""Whether two trees are the same answer, with the rule that says so.

Exact first; what stays open between two expressions is handed back as a pair for
`stepmark.verifiers.symbolic` to settle. Three policies stop wrong payments that other graders make:

* A decimal is a rounding of the other side only with `MIN_DIGITS` digits shown and never of a
  whole number; graders with a relative tolerance pay 120,006 for 120,000.
* Units that both sides have must be equal; a unit that one side lacks is dropped.
* Percent. Written with the sign, a value is its fraction: ``28%`` is 0.28. Without the sign,
  28 is ``28%`` in two cases, which read the gold: (a) the gold has the sign and the answer drops
  it; (b) the gold is a plain number beyond 1, as "what percent ...?" has golds, and the answer
  adds the sign. A gold from -1 to 1 is a share of a whole: ``0.5%`` is not 0.5, nor ``1%`` 1.
  Two plain numbers are never equal by a factor of 100: 0.28 is not 28, whichever is the gold.
  Graders that multiply by 100 either way pay 0.45 % of the wrong answers to GSM8K.

All but (a), (b) and ``units`` is symmetric: ``compare(a, b)`` is ``compare(b, a)``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import NamedTuple

from .canonical import canonical
from .comparison import Comparison, every, no, yes
from .evaluate import approximate, differ
from .limits import TooLarge
from .matrices import compare_matrices, has_matrix
from .measures import Units, compare_measures, lettered
from .polynomial import Ratio
from .sets import compare_sets, is_set
from .spellings import plain_words
from .structures import (
    distinct,
    filled,
    is_name,
    is_ratio,
    matched,
    quotient,
    relation_of,
    spread,
    target,
)
from .tree import (
    Binary,
    Call,
    Constant,
    Labelled,
    Measure,
    Node,
    Number,
    Percent,
    Relation,
    Symbol,
    Text,
)

__all__ = ["Comparison", "Units", "compare"]

MIN_DIGITS = 4
"""A decimal stands for a value that it rounds only if it shows this many significant digits."""


class Rules(NamedTuple):
    """What a user may choose."""

    units: Units = "strip"
    min_digits: int = MIN_DIGITS


def compare(
    left: Node, right: Node, *, units: Units = "strip", min_digits: int = MIN_DIGITS
) -> Comparison:
    r"""Whether two answers are the same one.

    Args:
        left: the gold.
        right: the completion's answer; where both are plain the order does not matter.
        units: ``strip`` drops a unit that one side lacks and compares units that both have;
            ``require`` wants the left side's unit on the right; ``ignore`` drops all.
        min_digits: a decimal stands for a value that it rounds only with so many significant
            digits.

    >>> from stepmark.verifiers.reading import parse
    >>> compare(parse("0.5"), parse(r"\frac{1}{2}")).rule
    'normal form'
    """
    return _compare(left, right, Rules(units, min_digits))


def _compare(left: Node, right: Node, rules: Rules) -> Comparison:
    if left == right:
        return yes("same")
    if isinstance(left, Labelled) or isinstance(right, Labelled):
        return _labelled(left, right, rules)
    if isinstance(left, Measure) or isinstance(right, Measure):
        return compare_measures(left, right, rules.units, partial(_compare, rules=rules))
    if isinstance(left, Number) and isinstance(right, Number):
        return _numbers(left, right, rules)
    for structure in (_sets, _text, _classes, _matrices, _relations, _percents, _groups):
        result = structure(left, right, rules)
        if result is not None:
            return result
    return _expressions(left, right, rules)


def _labelled(left: Node, right: Node, rules: Rules) -> Comparison:
    """An option with its value: told by its letter where the other side has one, else by value."""
    letters = [_letter(node) for node in (left, right)]
    if all(letters):
        return yes("option") if letters[0] == letters[1] else no("option")
    values = [node.value if isinstance(node, Labelled) else node for node in (left, right)]
    return every([_compare(*values, rules=rules)], "value of the option")


def _letter(node: Node) -> str | None:
    match node:
        case Labelled(letter, _) | Text(letter) | Symbol(letter) if len(letter) == 1:
            return letter
    return None


def _percents(left: Node, right: Node, rules: Rules) -> Comparison | None:
    """A gold on the left, an answer on the right; the rule stands at the top of this module."""
    if isinstance(left, Percent) and isinstance(right, Percent):
        return _compare(left.value, right.value, rules)
    if isinstance(left, Percent):
        if _compare(left.value, right, rules).equal:
            return yes("percent sign dropped")
        return every([_compare(_share(left), right, rules)], "percent")
    if isinstance(right, Percent):
        counts = isinstance(left, Number) and left.base is None and abs(left.value) > 1
        if counts and _compare(left, right.value, rules).equal:
            return yes("percent sign added")
        return every([_compare(left, _share(right), rules)], "percent")
    return None


def _share(percent: Percent) -> Node:
    return Binary("/", percent.value, Number(Fraction(100)))


def _numbers(a: Number, b: Number, rules: Rules) -> Comparison:
    if a.base is not None or b.base is not None:
        if a.base is not None and b.base is not None and a.base != b.base:
            return no("base")
        return yes("base") if a.value == b.value else no("base")
    if a.value == b.value:
        return yes("rational")
    if a.places is None and b.places is None:
        return no("rational")
    digits = rules.min_digits
    if _rounds(a, b.value, b.places, digits) or _rounds(b, a.value, a.places, digits):
        return yes("rounded to the digits shown")
    return no("rational")


def _rounds(short: Number, exact: Fraction, places: int | None, digits: int) -> bool:
    """Whether a decimal is another value rounded to the digits that it shows, enough of them.

    A whole number is never a rounding's target: 9999.7 is not 10000, and 9999 is not 9999.7.
    """
    if (
        short.places is None
        or exact.denominator == 1
        or (places is not None and places <= short.places)
    ):
        return False
    step = Fraction(10) ** -short.places
    shown = short.value / step
    if shown.denominator != 1 or len(str(abs(int(shown)))) < digits:
        return False
    return abs(short.value - exact) * 2 <= step


def _text(left: Node, right: Node, rules: Rules) -> Comparison | None:
    if not (isinstance(left, Text) or isinstance(right, Text)):
        return None
    a, b = (_words(node) for node in (left, right))
    kinds = [(words or "").partition(" ")[0] for words in (a, b)]
    rule = (
        {"date": "date", "time": "clock"}.get(kinds[0], "text") if kinds[0] == kinds[1] else "text"
    )
    return yes(rule) if a == b and a is not None else no(rule)


def _classes(left: Node, right: Node, rules: Rules) -> Comparison | None:
    """Residues: 7 mod 5 is 2 mod 5; a modulus that one side lacks is dropped."""
    match left, right:
        case Call("class", (a, m)), Call("class", (b, n)):
            if m == n and all(isinstance(node, Number) for node in (a, b, m)):
                difference = (a.value - b.value) / m.value  # type: ignore[union-attr]
                return yes("residue") if difference.denominator == 1 else no("residue")
            return every([_compare(a, b, rules), _compare(m, n, rules)], "residue")
        case (Call("class", (a, _)), Number() as b) | (Number() as b, Call("class", (a, _))):
            return every([_compare(a, b, rules)], "residue, modulus dropped")
    return None


def _words(node: Node) -> str | None:
    match node:
        case Text(words):
            return words if len(words) == 1 else plain_words(words)
        case Constant("emptyset"):
            return plain_words("empty set")
        case Symbol(name) | Constant(name):
            return name
    return None


def _matrices(left: Node, right: Node, rules: Rules) -> Comparison | None:
    if not (has_matrix(left) or has_matrix(right)):
        return None
    return compare_matrices(left, right, partial(_compare, rules=rules))


def _sets(left: Node, right: Node, rules: Rules) -> Comparison | None:
    """Intervals, unions, and inequalities in one variable."""
    if not (is_set(left) or is_set(right)):
        return None
    return compare_sets(left, right, partial(_compare, rules=rules))


def _relations(left: Node, right: Node, rules: Rules) -> Comparison | None:
    if not (isinstance(left, Relation) or isinstance(right, Relation)):
        return None
    if is_ratio(left) != is_ratio(right):
        if (share := quotient(left, right)) is not None:
            return every([_compare(*share, rules=rules)], "ratio as a quotient")
        relation, ratio = (right, left) if is_ratio(left) else (left, right)
        value = target(relation) if isinstance(relation, Relation) else None
        return (
            every([_compare(value, ratio, rules)], "value of the ratio") if value else no("ratio")
        )
    if isinstance(left, Relation) and isinstance(right, Relation):
        return relation_of(left, right, lambda x, y: _compare(x, y, rules))
    relation, other = (left, right) if isinstance(left, Relation) else (right, left)
    if not isinstance(relation, Relation):
        return None
    value = target(relation)
    if value is None or not _holds(relation, value, rules):
        return no("relation against a value")
    pair = (value, other) if relation is left else (other, value)
    return every([_compare(*pair, rules=rules)], "value of the variable")


def _holds(relation: Relation, value: Node, rules: Rules) -> bool:
    """Whether a relation may stand for its value: "3 + 3 = 2" must not."""
    end = relation.ops.index("~=") + 1 if "~=" in relation.ops else len(relation.parts)
    return is_name(relation.parts[0]) or all(
        _compare(part, value, rules).equal is not False
        for part in relation.parts[:end]
        if part is not value and not is_name(part)
    )


def _groups(left: Node, right: Node, rules: Rules) -> Comparison | None:
    a, b = spread(left), spread(right)
    if a is None and b is None:
        return None
    if a is None or b is None:
        alone = (a or b).items  # type: ignore[union-attr]
        if len(alone) == 1 and alone[0] != Constant("emptyset"):
            return _compare(*((left, alone[0]) if a is None else (alone[0], right)), rules=rules)
        return no("one value against several")
    if len(a.items) != len(b.items):
        a, b = distinct(filled(a)), distinct(filled(b))
    kinds = {a.brackets, b.brackets}
    points = kinds in ({"()", "[]"}, {"", "[]"}) and len(a.items) == 2
    if len(a.items) != len(b.items) or ("{}" in kinds and kinds & {"()", "[]"}) or points:
        return no("list length" if len(a.items) != len(b.items) else "brackets")
    ordered = bool(kinds & {"()", "[]", "(]", "[)"}) or any(
        item == Constant("dots") for item in a.items
    )
    if ordered:
        return every(
            [_compare(x, y, rules) for x, y in zip(a.items, b.items, strict=True)], "in order"
        )
    return matched(a.items, b.items, lambda x, y: _compare(x, y, rules), "in any order")


def _expressions(left: Node, right: Node, rules: Rules) -> Comparison:
    """Normal forms, then values at random points, then the pair stays open."""
    for number, other in ((left, right), (right, left)):
        if isinstance(number, Number) and isinstance(other, Binary):
            measure = lettered(other)
            if isinstance(measure, Measure) and ("/" in measure.unit or "^" in measure.unit):
                return every([_compare(number, measure.value, rules)], "unit dropped")  # 18 m/s
    if Constant("oo") in (left, right, *_negated(left), *_negated(right)):
        return no("infinity")  # equal ones are the same tree
    try:
        a, b = canonical(left), canonical(right)
    except TooLarge:
        if differ(left, right):
            return no("value at random points")
        raise
    if a.equals(b):
        return yes("normal form")
    if (rounded := _decimal(left, right, a, b, rules)) is not None:
        return rounded
    if a.is_free() and b.is_free():
        return no("normal form")
    different = differ(left, right)
    if different is True:
        return no("value at random points")
    if different is None and any(
        isinstance(x, Call) and x.name.startswith("fn:") for x in (left, right)
    ):
        return no("normal form")
    return Comparison(None, "symbolic", ((left, right),))


def _negated(node: Node) -> tuple[Node, ...]:
    match node:
        case Binary("-", Number(zero, None, None), right) if zero == 0:
            return (right,)
    return ()


def _decimal(left: Node, right: Node, a: Ratio, b: Ratio, rules: Rules) -> Comparison | None:
    """A decimal against an exact constant that it may round."""
    for short, other, form in ((left, right, b), (right, left, a)):
        if not isinstance(short, Number) or short.places is None or isinstance(other, Number):
            continue
        exact = form.rational()
        if exact is None:
            exact = approximate(other)
        if exact is None:
            continue
        return (
            yes("rounded to the digits shown")
            if _rounds(short, exact, None, rules.min_digits)
            else no("rounded to the digits shown")
        )
    return None
