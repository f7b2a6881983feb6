"""`arith`, the embedded default task: generated word problems with worked, labelled steps.

A problem is a short story about one number that grows and shrinks. Its content is a pure function
of (seed, difficulty, split, index), and the two splits cannot share a problem: a digest of the
story's operations and numbers, names and things left out, says to which split it belongs.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from stepmark.errors import ConfigError
from stepmark.seeds import derive_seed
from stepmark.types import Problem

from .arith_words import ADDS, BOXED, HEAPED, NAMES, QUESTION, TAKES, THINGS
from .task import Task

__all__ = [
    "ARITH",
    "Difficulty",
    "bare_answer",
    "check_steps",
    "demonstrations",
    "make_problem",
    "problems",
    "split_of",
]

Split = Literal["train", "test"]
Move = tuple[str, int, int]
"""Sign, and one or two numbers (0: no second one): ``("+", 3, 5)`` adds three times five."""

SPLITS: tuple[Split, ...] = ("train", "test")
_TEST_SHARE = 1 / 8
_MAX_DRAWS = 10_000
_SIZES = {"train": 8_000, "test": 500}
_LINE = re.compile(r"(\d+) ([+*-]) (\d+) = (\d+)")
_ANSWER = re.compile(r"answer: (\d+)")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How long the worked solution is, and how large its numbers are."""

    steps: tuple[int, int] = (2, 3)
    """Fewest and most worked lines, the line with the answer not counted; from 1 to 12."""
    max_start: int = 30
    """Largest number to start with."""
    max_change: int = 30
    """Largest number to add or take away at once."""
    max_product: tuple[int, int] = (5, 6)
    """Largest factors of a product; each factor is at least 2."""
    product_share: float = 0.3
    """Share of sentences with a product, where there is room for one; from 0 to 1."""

    def __post_init__(self) -> None:
        fewest, most = self.steps
        if not 1 <= fewest <= most <= 12:
            raise ConfigError(
                f"arith: steps is {self.steps}; it must hold 1 <= fewest <= most <= 12. "
                "Write steps=3 or steps=[2,4]."
            )
        small = {"max_start": (self.max_start, 2), "max_change": (self.max_change, 1)}
        small |= {"max_product": (min(self.max_product), 2)}
        for name, (value, least) in small.items():
            if value < least:
                raise ConfigError(f"arith: {name} is {value}; it must be {least} or more.")
        if not 0 <= self.product_share <= 1:
            raise ConfigError(
                f"arith: product_share is {self.product_share}; it must be from 0 to 1."
            )


def split_of(moves: Sequence[Move]) -> Split:
    """The one split to which a story with these operations and numbers belongs, under any seed."""
    digest = hashlib.blake2b(json.dumps([list(m) for m in moves]).encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < _TEST_SHARE * 2**64 else "train"


def _draw_moves(rng: random.Random, difficulty: Difficulty) -> tuple[Move, ...]:
    left = rng.randint(*difficulty.steps)
    most_a, most_b = difficulty.max_product
    products = [(a, b) for a in range(2, most_a + 1) for b in range(2, most_b + 1)]
    boxed = rng.random() < difficulty.product_share
    first = rng.choice(products) if boxed else (rng.randint(2, difficulty.max_start), 0)
    moves: list[Move] = [("=", first[0], first[1])]
    value = _amount(moves[0])
    left -= boxed
    while left > 0:
        sign = "+" if value == 0 or rng.random() < 0.5 else "-"
        fitting = [(a, b) for a, b in products if sign == "+" or a * b <= value]
        if left > 1 and fitting and rng.random() < difficulty.product_share:
            move = (sign, *rng.choice(fitting))
        else:
            most = difficulty.max_change if sign == "+" else min(difficulty.max_change, value)
            move = (sign, rng.randint(1, most), 0)
        moves.append(move)
        value += _amount(move) if sign == "+" else -_amount(move)
        left -= 2 if move[2] else 1
    return tuple(moves)


def _amount(move: Move) -> int:
    return move[1] * (move[2] or 1)


def _story(rng: random.Random, moves: Sequence[Move]) -> str:
    words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS)}
    sentences: list[str] = []
    for sign, a, b in moves:
        if sign == "=":
            forms = BOXED if b else HEAPED
        else:
            forms = (ADDS if sign == "+" else TAKES)[2 if b else 1]
        sentences.append(rng.choice(forms).format(a=a, b=b, **words))
    return " ".join([*sentences, QUESTION.format(**words)])


def _equations(moves: Sequence[Move]) -> tuple[list[tuple[int, str, int]], int]:
    """The worked lines as (left, sign, right), and the number that they lead to."""
    lines: list[tuple[int, str, int]] = []
    value = 0
    for move in moves:
        sign, a, b = move
        if b:
            lines.append((a, "*", b))
        if sign == "=":
            value = _amount(move)
        else:
            lines.append((value, sign, _amount(move)))
            value += _amount(move) if sign == "+" else -_amount(move)
    return lines, value


def _result(left: int, sign: str, right: int) -> int:
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def _problem(rng: random.Random, moves: Sequence[Move], id: str) -> Problem:
    lines, value = _equations(moves)
    steps = [f"{a} {sign} {b} = {_result(a, sign, b)}" for a, sign, b in lines]
    steps.append(f"answer: {value}")
    meta: dict[str, Any] = {
        "steps": steps,
        "truth": [True] * len(steps),
        "n_steps": len(lines),
        "style": "worked",
        "moves": [list(move) for move in moves],
    }
    return Problem(id, _story(rng, moves), str(value), "\n".join(steps), "arith", meta)


def make_problem(
    rng: random.Random, difficulty: Difficulty, *, split: Split | None = None, id: str = "arith"
) -> Problem:
    """A problem with its worked solution, one step a line, the last one ``answer: N``.

    ``meta`` has ``steps`` (the lines), ``truth`` (one bool a line), ``n_steps`` (lines without the
    last one), ``style`` and ``moves`` (the story as signs and numbers).

    Args:
        rng: the source of every choice.
        difficulty: length and size of the numbers.
        split: draw until the story belongs to this split; None takes the first one.
        id: the id that the problem gets.

    Raises:
        ConfigError: the difficulty is so narrow that it has no story for this split.

    >>> print(make_problem(random.Random(1), Difficulty(steps=(2, 2))).solution)
    5 * 2 = 10
    27 - 10 = 17
    answer: 17
    """
    for _ in range(_MAX_DRAWS):
        moves = _draw_moves(rng, difficulty)
        if split is None or split_of(moves) == split:
            return _problem(rng, moves, id)
    raise ConfigError(
        f"arith: {difficulty} has no story for the split {split!r} in {_MAX_DRAWS:,} draws. "
        "Allow more steps or larger numbers, for example max_start=30."
    )


def bare_answer(problem: Problem) -> str:
    """The demonstration that shows no working, such as ``answer: 18``."""
    return f"answer: {problem.gold}"


def demonstrations(
    problems: Sequence[Problem], worked_share: float = 0.4, seed: int = 0
) -> list[tuple[Problem, str]]:
    """Each problem with what to imitate: the worked solution, or the bare answer.

    Which of the two is a pure function of the seed and the problem's id, so about
    ``worked_share`` of them are worked. A model trained on such a mixture can do either, which
    leaves reinforcement learning a choice to find.

    Raises:
        ConfigError: the share is not in [0, 1].
    """
    if not 0 <= worked_share <= 1:
        raise ConfigError(f"worked_share is {worked_share}; it must be from 0 to 1.")
    return [
        (problem, (problem.solution or "") if worked else bare_answer(problem))
        for problem in problems
        for worked in [derive_seed(seed, "style", problem.id) < worked_share * 2**63]
    ]


def check_steps(problem: Problem, steps: Sequence[str]) -> tuple[bool, ...]:
    """Whether each line is true of this problem: its arithmetic and what it works from.

    An equation is true when its arithmetic holds and it is the next one of the worked solution, or
    any of its products; factors and summands may be swapped. So a line that works on from a wrong
    result is false. A line ``answer: N`` is true when N is the gold, once: written again it says
    nothing new. Any other line is false.

    >>> problem = make_problem(random.Random(1), Difficulty(steps=(2, 2)))
    >>> check_steps(problem, ["2 * 5 = 10", "27 - 10 = 18", "answer: 18"])
    (True, False, False)
    """
    moves = [(str(sign), int(a), int(b)) for sign, a, b in problem.meta["moves"]]
    own = [_normal(*line) for line in _equations(moves)[0]]
    products = [line for line in own if line[1] == "*"]
    chain = [line for line in own if line[1] != "*"]
    truth: list[bool] = []
    is_answered = False
    for step in steps:
        if found := _LINE.fullmatch(step.strip()):
            a, sign, b, c = found.groups()
            line = _normal(int(a), sign, int(b))
            expected = products if sign == "*" else chain[:1]
            holds = line in expected and _result(*line) == int(c)
            if holds:
                (products if sign == "*" else chain).remove(line)
            truth.append(holds)
        else:
            answer = _ANSWER.fullmatch(step.strip())
            is_right = answer is not None and answer[1] == problem.gold
            truth.append(is_right and not is_answered)
            is_answered = is_answered or is_right
    return tuple(truth)


def _normal(left: int, sign: str, right: int) -> tuple[int, str, int]:
    return (right, sign, left) if sign != "-" and right < left else (left, sign, right)


def problems(
    split: str,
    *,
    size: int | None = None,
    seed: int = 0,
    worked_share: float = 1.0,
    steps: int | Sequence[int] = (2, 3),
    max_product: Sequence[int] = (5, 6),
    max_start: int = 30,
    max_change: int = 30,
    product_share: float = 0.3,
) -> tuple[Problem, ...]:
    """The problems of a split, of any size; a larger one begins with the smaller one.

    Args:
        split: ``train`` (8,000 unless told) or ``test`` (500).
        size: how many.
        seed: another seed gives other problems; the splits stay disjoint under all of them.
        worked_share: share of the solutions that show their working (see `demonstrations`).
        steps: worked lines: a number, or fewest and most.
        max_product: largest factors.
        max_start: as in `Difficulty`.
        max_change: as in `Difficulty`.
        product_share: as in `Difficulty`.

    Raises:
        ConfigError: an unknown split, or a difficulty that cannot be.
    """
    if split not in SPLITS:
        raise ConfigError(f"arith has no split {split!r}; it has train and test.")
    low_high = (steps, steps) if isinstance(steps, int) else _pair("steps", steps)
    product = _pair("max_product", max_product)
    difficulty = Difficulty(low_high, max_start, max_change, product, product_share)
    count = _SIZES[split] if size is None else size
    if count < 1:
        raise ConfigError(f"arith: size is {count}; it must be 1 or more.")
    words = json.dumps(asdict(difficulty))
    made = [
        make_problem(
            random.Random(derive_seed(seed, words, split, index)),
            difficulty,
            split=split,
            id=f"arith/{split}/{index}",
        )
        for index in range(count)
    ]
    if worked_share >= 1:
        return tuple(made)
    return tuple(_styled(*pair) for pair in demonstrations(made, worked_share, seed))


def _pair(name: str, value: Sequence[int]) -> tuple[int, int]:
    numbers = tuple(value)
    if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
        raise ConfigError(f"arith: {name} is {value!r}; write two whole numbers, {name}=[2,4].")
    return numbers[0], numbers[1]


def _styled(problem: Problem, text: str) -> Problem:
    if text == problem.solution:
        return problem
    bare = {"steps": [text], "truth": [True], "style": "bare"}
    return replace(problem, solution=text, meta={**problem.meta, **bare})


ARITH = Task(
    name="arith",
    version="1",
    problems=problems,
    prompt="plain",
    answer_kind="number",
    max_tokens=80,
    licence="Apache-2.0",
    source="generated by stepmark.tasks.arith",
)
