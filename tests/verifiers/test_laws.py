r"""Laws of equality on answers that are written from small trees, and of where answers are found.

A tree is a structure of exact values (`(1/2, 3)`, `\{1, 2\}`, `[0, 5)`, a matrix) or an expression.
A `Pen` writes it as LaTeX and draws every choice that changes nothing: white space, the size of
brackets, which fraction command, where the sign of a fraction stands. The values themselves are
what says whether two structures are the same answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepmark.types import Item, Problem, Reason, Status, Verdict
from stepmark.verifiers import MathVerifier, verify

Body = Callable[..., None]
MANY: dict[str, Body] = {}
"""Every law with many examples, for the slow suite."""


def law(**drawn: st.SearchStrategy) -> Callable[[Body], Body]:
    """A test with few examples every day and with many in the slow suite."""

    def build(body: Body) -> Body:
        MANY[body.__name__] = settings(max_examples=600)(given(**drawn)(body))
        return settings(max_examples=40)(given(**drawn)(body))

    return build


def marked(answer: str, gold: str) -> bool | None:
    return verify(f"So it is $\\boxed{{{answer}}}$.", gold=gold).correct


@dataclass(frozen=True)
class Structure:
    """A kind, its values in the order in which they are written, and an interval's brackets."""

    kind: str
    values: tuple[Fraction, ...]
    brackets: str = "()"

    def same_as(self, other: Structure) -> bool:
        """Whether two structures of one kind are one answer, by their values alone."""
        if self.kind in ("set", "list"):
            return set(self.values) == set(other.values)
        return (self.values, self.brackets) == (other.values, other.brackets)


class Pen:
    """Writes trees; what does not change the answer is drawn."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def space(self) -> str:
        return self.draw.choice(["", "", " ", r"\,", r"\;", r"\ ", "~", "  "])

    def number(self, value: Fraction) -> str:
        sign, size = "-" if value < 0 else "", abs(value)
        if size.denominator == 1:
            return sign + str(size)
        top, bottom = size.numerator, size.denominator
        command = self.draw.choice([r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"])
        forms = [
            rf"{sign}{command}{{{top}}}{{{bottom}}}",
            rf"{command}{{{sign}{top}}}{{{bottom}}}",
            rf"{sign}{command}{{{self.space()}{top}}}{{{bottom}{self.space()}}}",
            f"{sign}{top}/{bottom}",
        ]
        if sign:
            forms.append(rf"{command}{{{top}}}{{-{bottom}}}")
        if top < 10 and bottom < 10:
            forms.append(rf"{sign}\frac{top}{bottom}")
        if 100 % bottom == 0:
            decimal = f"{float(size):.2f}"
            forms += [sign + decimal, sign + decimal + "0", sign + decimal.removeprefix("0")]
        return self.draw.choice(forms)

    def around(self, left: str, inside: str, right: str) -> str:
        sizes = [
            ("", ""),
            ("", ""),
            (r"\left", r"\right"),
            (r"\bigl", r"\bigr"),
            (r"\Big", r"\Big"),
        ]
        before, after = self.draw.choice(sizes)
        return f"{before}{left}{self.space()}{inside}{self.space()}{after}{right}"

    def structure(self, tree: Structure) -> str:
        written = [self.number(value) for value in tree.values]
        if tree.kind == "matrix":
            name = self.draw.choice(["pmatrix", "bmatrix"])
            a, b, c, d = (f"{self.space()}{text}{self.space()}" for text in written)
            last = self.draw.choice(["", r"\\"])
            return rf"\begin{{{name}}}{a}&{b}\\{c}&{d}{last}\end{{{name}}}"
        inside = f",{self.draw.choice([' ', '', chr(92) + ', ', chr(92) + 'quad '])}".join(written)
        if tree.kind == "list":
            return inside
        if tree.kind == "set":
            return self.around(r"\{", inside, r"\}")
        return self.around(tree.brackets[0], inside, tree.brackets[1])

    def expression(self, tree: object) -> str:
        if isinstance(tree, Fraction):
            return self.number(tree)
        if isinstance(tree, str):
            return tree
        mark, *parts = tree  # type: ignore[misc]
        first = self.around("(", self.expression(parts[0]), ")")
        if mark == "^":
            return first + self.draw.choice([f"^{parts[1]}", f"^{{{parts[1]}}}"])
        if mark == "root":
            return rf"\sqrt{{{self.space()}{self.expression(parts[0])}{self.space()}}}"
        if mark == "over":
            command = self.draw.choice([r"\frac", r"\dfrac"])
            bottom = f"{parts[1]}{self.space()}"
            return rf"{command}{{{self.expression(parts[0])}}}{{{bottom}}}"
        second = self.around("(", self.expression(parts[1]), ")")
        if mark == "*":
            mark = self.draw.choice([r"\cdot ", r"\times ", "*", "", r"\,"])
        return f"{first}{self.space()}{mark}{self.space()}{second}"


VALUES = st.builds(Fraction, st.integers(-99, 99), st.integers(1, 25))
"""Of two digits at most: in ``1,101/2`` a comma may separate thousands as well as values."""
PENS = st.integers(0, 2**32).map(lambda seed: Pen(random.Random(seed)))


@st.composite
def structures(draw: st.DrawFn, kinds: str = "tuple set list interval matrix") -> Structure:
    kind = draw(st.sampled_from(kinds.split()))
    if kind == "matrix":
        return Structure(kind, tuple(draw(st.lists(VALUES, min_size=4, max_size=4))))
    if kind == "interval":
        ends = sorted(draw(st.lists(VALUES, min_size=2, max_size=2, unique=True)))
        return Structure(kind, tuple(ends), draw(st.sampled_from(["()", "[]", "(]", "[)"])))
    size = {"tuple": (2, 4), "set": (2, 5), "list": (2, 4)}[kind]
    values = draw(st.lists(VALUES, min_size=size[0], max_size=size[1], unique=kind != "tuple"))
    return Structure(kind, tuple(values))


LEAVES = st.one_of(VALUES, st.sampled_from(["x", "y", r"\pi ", r"\sqrt{3}", "i"]))
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*"), inner, inner),
        st.tuples(st.just("^"), inner, st.integers(1, 3)),
        st.tuples(st.just("over"), inner, st.integers(2, 99)),
        st.tuples(st.just("root"), st.integers(2, 60).map(Fraction)),
    ),
    max_leaves=4,
)


@law(tree=structures(), pen=PENS, other=PENS)
def test_a_structure_equals_itself_however_it_is_written(
    tree: Structure, pen: Pen, other: Pen
) -> None:
    assert marked(pen.structure(tree), other.structure(tree)), "the same values"


@law(tree=EXPRESSIONS, pen=PENS, other=PENS)
def test_an_expression_equals_itself_however_it_is_written(
    tree: object, pen: Pen, other: Pen
) -> None:
    assert marked(pen.expression(tree), other.expression(tree)), "the same tree"


@st.composite
def altered(draw: st.DrawFn) -> tuple[Structure, Structure]:
    """A structure and one that is changed in one place; it may be the same answer still."""
    tree = draw(structures())
    values, at = list(tree.values), draw(st.integers(0, len(tree.values) - 1))
    changes = ["digit", "sign", "order", "turned over"]
    changes += ["shorter"] if tree.kind in ("tuple", "set", "list") and len(values) > 2 else []
    changes += ["bracket"] if tree.kind == "interval" else []
    match draw(st.sampled_from(changes)):
        case "digit":
            values[at] = digit_changed(draw, values[at])
        case "sign":
            values[at] = -values[at]
        case "order":
            values.reverse()
        case "turned over":
            assume(values[at] != 0)
            values[at] = 1 / values[at]
        case "shorter":
            del values[at]
        case "bracket":
            return tree, replace(tree, brackets=draw(st.sampled_from(["()", "[]", "(]", "[)"])))
    assume(tree.kind != "interval" or values[0] < values[1])
    assume(tree.kind not in ("set", "list") or len(set(values)) == len(values))
    return tree, replace(tree, values=tuple(values))


def digit_changed(draw: st.DrawFn, value: Fraction) -> Fraction:
    digits = str(abs(value.numerator))
    at = draw(st.integers(0, len(digits) - 1))
    digit = draw(st.sampled_from([d for d in "123456789" if d != digits[at]]))
    top = int(digits[:at] + digit + digits[at + 1 :])
    return Fraction(top if value >= 0 else -top, value.denominator)


@law(pair=altered(), pen=PENS, other=PENS)
def test_a_structure_changed_in_one_place_is_equal_only_if_its_values_are(
    pair: tuple[Structure, Structure], pen: Pen, other: Pen
) -> None:
    tree, changed = pair
    assert marked(pen.structure(changed), other.structure(tree)) is tree.same_as(changed)


ANYTHING = st.one_of(
    st.tuples(structures(), PENS).map(lambda pair: pair[1].structure(pair[0])),
    st.tuples(EXPRESSIONS, PENS).map(lambda pair: pair[1].expression(pair[0])),
    st.tuples(VALUES, PENS).map(lambda pair: f"x = {pair[1].number(pair[0])}"),
    st.tuples(VALUES, PENS).map(lambda pair: rf"x \le {pair[1].number(pair[0])}"),
    st.integers(0, 99).map(lambda count: rf"{count}\text{{ cm}}"),
    st.sampled_from(["B", r"\text{even}", r"90^\circ", r"\emptyset", "3:4", r"\pm 2", "12_5"]),
)


@law(left=ANYTHING, right=ANYTHING)
def test_gold_and_answer_may_change_places(left: str, right: str) -> None:
    assert marked(left, right) is marked(right, left)


@law(count=st.integers(0, 100), pen=PENS)
def test_a_share_is_one_value_as_decimal_fraction_and_percent(count: int, pen: Pen) -> None:
    share = Fraction(count, 100)
    written = [f"{count / 100:.2f}", pen.number(share), rf"{count}\%", f"{count} percent"]
    assert all(marked(answer, gold) for gold in written for answer in written)


@law(
    whole=st.integers(0, 9999),
    places=st.text("0123456789", min_size=1, max_size=5),
    data=st.data(),
)
def test_a_decimal_changed_in_one_digit_is_never_equal(
    whole: int, places: str, data: st.DataObject
) -> None:
    text = f"{whole}.{places}"
    at = data.draw(st.sampled_from([n for n, char in enumerate(text) if char != "."]))
    digit = data.draw(st.sampled_from([d for d in "0123456789" if d != text[at]]))
    changed = text[:at] + digit + text[at + 1 :]
    assert marked(changed, text) is False
    assert marked(text, changed) is False


UNITS = [
    ["cm", "centimeters", "centimetres"],
    ["kg", "kilograms"],
    ["hours", "h", "hrs"],
    ["cm^2", "square centimeters", "cm²"],
    ["m/s", "meters per second"],
    ["dollars"],
]


@law(value=VALUES, pen=PENS, data=st.data())
def test_spellings_of_a_unit_are_equal_and_other_units_are_not(
    value: Fraction, pen: Pen, data: st.DataObject
) -> None:
    assume(value != 0)
    mine, yours = data.draw(st.lists(st.sampled_from(UNITS), min_size=2, max_size=2))
    number = pen.number(value)
    gold = rf"{number}\text{{ {data.draw(st.sampled_from(mine))}}}"
    answer = rf"{number}\text{{ {data.draw(st.sampled_from(yours))}}}"
    assert marked(answer, gold) is (mine is yours)
    assert marked(number, gold), "a unit may be left out"


@law(tree=EXPRESSIONS, pen=PENS, cut=st.sampled_from(["+{", r"\frac{1}{", r"\sqrt{", "+", "^"]))
def test_a_gold_that_breaks_off_has_no_score(tree: object, pen: Pen, cut: str) -> None:
    text = f"2{pen.around('(', pen.expression(tree), ')')}"
    verdict = verify(f"\\boxed{{{text}}}", gold=text + cut)
    assert (verdict.status, verdict.score) == (Status.ABSTAIN, None)
    assert verdict.reason is Reason.GOLD_UNREADABLE


FRAMES = [r"$\boxed{{{0}}}$", "The answer is {0}.", "Answer: {0}", "#### {0}"]
JOINTS = [", ", " or ", r" \text{ or } ", "; ", " and ", " / ", " "]
LISTINGS = [(frame, joint) for frame in FRAMES for joint in JOINTS]
LISTINGS += [(frame, joint) for frame in ("It must be {0}.", "{0}") for joint in JOINTS[:2]]


@law(
    guesses=st.lists(st.integers(2, 999), min_size=2, max_size=5, unique=True),
    listing=st.sampled_from(LISTINGS),
    data=st.data(),
)
def test_listing_guesses_is_never_paid(
    guesses: list[int], listing: tuple[str, str], data: st.DataObject
) -> None:
    frame, joint = listing
    said = joint.join(map(str, guesses))
    gold = data.draw(st.sampled_from(guesses))
    assume(not (joint == " / " and len(guesses) == 2 and guesses[0] == gold * guesses[1]))
    assume(joint not in (" ", ", ") or int(said.replace(joint, "")) not in guesses)
    assert verify(frame.format(said), gold=str(gold)).correct is False


@law(guesses=st.lists(st.integers(2, 999), min_size=2, max_size=5, unique=True), data=st.data())
def test_boxes_with_guesses_are_never_paid_for_one(guesses: list[int], data: st.DataObject) -> None:
    joint = data.draw(st.sampled_from([", ", " or ", r" \text{ or } ", " and ", "$ or $"]))
    said = joint.join(rf"\boxed{{{guess}}}" for guess in guesses)
    gold = data.draw(st.sampled_from(guesses))
    assert verify(f"It is ${said}$.", gold=str(gold)).correct is False


SENTENCES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "I hope this helps!",
                "We can check it: $3^2 + 4^2 = 25$.",
                "Note that 17 is prime.",
                r"\[ x = 12 \]",
                "**Remark.** It holds for $n = 1, 2, 3$ too.",
                "---",
                "$$",
                "Let me know if you want the case n = 7.",
                "所以 x 是 8。",
            ]
        ),
        st.text("abc 0123456789.,+-=$\\{}()\n", max_size=30),
    ),
    min_size=1,
    max_size=3,
).map(" ".join)


def seen(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.status, verdict.score, verdict.reason)


@law(value=st.integers(2, 999), gold=st.integers(2, 20), tail=SENTENCES, head=SENTENCES)
def test_what_stands_around_the_box_does_not_change_the_verdict(
    value: int, gold: int, tail: str, head: str
) -> None:
    boxed = rf"$\boxed{{{value}}}$."
    alone = verify(boxed, gold=str(gold))
    assert seen(verify(f"{boxed}\n\n{tail}", gold=str(gold))) == seen(alone)
    assert seen(verify(f"{head}\n{boxed}", gold=str(gold))) == seen(alone)


def test_every_gold_of_math_equals_itself(data: Path) -> None:
    lines = (data / "math/math_all12500_answers.jsonl").read_text(encoding="utf-8").splitlines()
    golds = list(dict.fromkeys(json.loads(line)["answer"] for line in lines))
    items = [Item(Problem(str(n), "", gold), rf"\boxed{{{gold}}}") for n, gold in enumerate(golds)]
    verdicts = MathVerifier()(items)
    assert [
        gold
        for gold, verdict in zip(golds, verdicts, strict=True)
        if not verdict.correct and not (not gold and verdict.reason is Reason.GOLD_MISSING)
    ] == []
    assert len(golds) > 4000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MANY))
def test_each_law_holds_for_many_examples(name: str) -> None:
    MANY[name]()
