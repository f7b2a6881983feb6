r"""A set of real numbers is its members, and a number its value, however either is written.

Sets come as intervals, inequalities, memberships, builders and complements; members at every half
say which of them are the same. Numbers come with all separators, as decimals, fractions, mixed
numbers and in scientific notation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark.verifiers import verify

FAR = 10**6
"""Stands for infinity."""


@dataclass(frozen=True)
class Piece:
    """An interval, or one point where both ends are the same."""

    low: int
    high: int
    closed_low: bool
    closed_high: bool

    def holds(self, point: float) -> bool:
        above = self.low < point or (self.closed_low and self.low == point)
        return above and (point < self.high or (self.closed_high and self.high == point))


Pieces = tuple[Piece, ...]


def members(pieces: Pieces) -> list[bool]:
    return [any(piece.holds(half / 2) for piece in pieces) for half in range(-26, 27)]


@st.composite
def real_sets(draw: st.DrawFn) -> Pieces:
    """One to three pieces that do not touch, the outer ones perhaps without an end."""
    count = draw(st.integers(1, 3))
    ends = sorted(draw(st.sets(st.integers(-9, 9), min_size=2 * count, max_size=2 * count)))
    pieces = [
        Piece(low, high, draw(st.booleans()), draw(st.booleans()))
        for low, high in zip(ends[::2], ends[1::2], strict=True)
    ]
    if draw(st.booleans()):
        pieces[0] = replace(pieces[0], low=-FAR, closed_low=False)
    if draw(st.booleans()) and (count > 1 or pieces[0].low != -FAR):
        pieces[-1] = replace(pieces[-1], high=FAR, closed_high=False)
    return tuple(pieces)


@st.composite
def set_pairs(draw: st.DrawFn) -> tuple[Pieces, Pieces]:
    """A set twice, the second time perhaps with one end or bracket changed."""
    pieces = draw(real_sets())
    at = draw(st.integers(0, len(pieces) - 1))
    piece = pieces[at]
    changed = [piece]
    if piece.low != -FAR:
        changed += [replace(piece, closed_low=not piece.closed_low)]
        changed += [replace(piece, low=piece.low - 1)]
    if piece.high != FAR:
        changed += [replace(piece, closed_high=not piece.closed_high)]
        changed += [replace(piece, high=piece.high + 1)]
    return pieces, (*pieces[:at], draw(st.sampled_from(changed)), *pieces[at + 1 :])


def end(number: int) -> str:
    return {FAR: r"\infty", -FAR: r"-\infty"}.get(number, str(number))


def interval(piece: Piece) -> str:
    left, right = "[" if piece.closed_low else "(", "]" if piece.closed_high else ")"
    return f"{left}{end(piece.low)}, {end(piece.high)}{right}"


def inequality(piece: Piece, pen: random.Random) -> str:
    low = r"\le " if piece.closed_low else pen.choice(["<", r"\lt "])
    high = pen.choice([r"\le ", r"\leq ", "≤"]) if piece.closed_high else "<"
    down = {True: r"\ge", False: ">"}
    if piece.low == -FAR:
        turned = f"{piece.high} {down[piece.closed_high]} x"
        return pen.choice([f"x {high}{piece.high}", turned])
    if piece.high == FAR:
        turned = f"x {down[piece.closed_low]} {piece.low}"
        return pen.choice([f"{piece.low} {low}x", turned])
    return f"{piece.low} {low}x {high}{piece.high}"


def rest(pieces: Pieces) -> Pieces:
    """What of the reals is not in the pieces."""
    found, low, closed = [], -FAR, False
    for piece in pieces:
        if piece.low != -FAR:
            found.append(Piece(low, piece.low, closed, not piece.closed_low))
        low, closed = piece.high, not piece.closed_high
    return (*found, *([Piece(low, FAR, closed, False)] if low != FAR else []))


def written(pieces: Pieces, seed: int) -> str:
    pen = random.Random(seed)
    shuffled = pen.sample(pieces, len(pieces))
    union = pen.choice([r" \cup ", r"\cup ", "∪"]).join(map(interval, shuffled))
    conditions = [inequality(piece, pen) for piece in shuffled]
    outside = r" \cup ".join(map(interval, rest(pieces)))
    return pen.choice(
        [
            union,
            rf"x \in {union}",
            pen.choice([r" \text{ or } ", " or "]).join(conditions),
            rf"\mathbb{{R}} \setminus \left({outside}\right)",
            rf"\{{x {pen.choice([':', chr(92) + 'mid '])} {conditions[0]}\}}"
            if len(pieces) == 1
            else union,
        ]
    )


def check_sets(pair: tuple[Pieces, Pieces], seed: int, other: int) -> None:
    gold, answer = pair
    correct = verify(rf"\boxed{{{written(answer, seed)}}}", gold=written(gold, other)).correct
    assert correct is (members(gold) == members(answer)), (gold, answer)


def spellings(value: Fraction) -> list[str]:
    r"""All ways to write a number that is a whole number of thousandths."""
    sign, size = "-" if value < 0 else "", abs(value)
    decimal = f"{float(size):.3f}"
    whole, places = decimal.split(".")
    grouped = f"{int(whole):,}"
    top, bottom = size.numerator, size.denominator
    found = [sign + decimal, f"{sign}{decimal}00", sign + decimal.rstrip("0").rstrip(".")]
    found += [f"{sign}{grouped.replace(',', mark)}.{places}" for mark in (",", "{,}", r",\!")]
    found += [rf"{sign}\frac{{{top}}}{{{bottom}}}", f"{sign}{2 * top}/{2 * bottom}"]
    found += [
        rf"\dfrac{{{sign}{top}}}{{{bottom}}}",
        rf"{sign}\left(\frac{{{top}}}{{{bottom}}}\right)",
    ]
    if bottom > 1 and top > bottom:
        found.append(rf"{sign}{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}")
    digits = str(int(size * 1000))
    power = len(digits) - 4
    found.append(rf"{sign}{digits[0]}.{digits[1:] or '0'} \times 10^{{{power}}}")
    return found


def check_numbers(value: Fraction, seed: int) -> None:
    pen = random.Random(seed)
    gold, answer = pen.choice(spellings(value)), pen.choice(spellings(value))
    assert verify(rf"\boxed{{{answer}}}", gold=gold).correct, (gold, answer)
    for wrong in (-value, value * 10, value / 10, value + 1, value - 1):
        if wrong != value and (wrong * 1000).denominator == 1:
            answer = pen.choice(spellings(wrong))
            assert verify(rf"\boxed{{{answer}}}", gold=gold).correct is False, (gold, answer)


SEEDS = st.integers(0, 2**32)
NUMBERS = st.integers(-(10**8), 10**8).map(lambda thousandths: Fraction(thousandths, 1000))


@settings(max_examples=60)
@given(set_pairs(), SEEDS, SEEDS)
def test_a_set_is_its_members(pair: tuple[Pieces, Pieces], seed: int, other: int) -> None:
    check_sets(pair, seed, other)


@settings(max_examples=60)
@given(NUMBERS, SEEDS)
def test_a_number_is_its_value(value: Fraction, seed: int) -> None:
    check_numbers(value, seed)


@pytest.mark.slow
@settings(max_examples=3000)
@given(set_pairs(), SEEDS, SEEDS, NUMBERS)
def test_sets_and_numbers_for_many(
    pair: tuple[Pieces, Pieces], seed: int, other: int, value: Fraction
) -> None:
    check_sets(pair, seed, other)
    check_numbers(value, seed)
