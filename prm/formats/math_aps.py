"""MATH-APS, the layout of OpenR for OmegaPRM (arXiv:2406.06592): prefixes with their estimates.

``mc_value`` is the share of rollouts from a prefix that reached the answer. A row holds all
prefixes of one problem, as a tree (``text``, ``mc_value``, ``children``) or as a flat list
(``solution_prefix``, ``mc_value``). Both become one solution per leaf: the way from the problem to
it, each step with the estimate of the prefix that it ends. Ways that share steps repeat them, and
most leaves are right: look at ``stepmark prm inspect`` before training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from stepmark.types import LabelKind, LabelledSteps, Problem

from .cells import choice_of, label_of, need_text, optional_text, other_columns
from .rejects import LeftOut, Rejected, RejectReason
from .rows import problem_id

__all__ = ["MathAps"]

Row = Mapping[str, Any]


class Way(NamedTuple):
    """Steps from the problem to a prefix, with the estimate at the end of each."""

    steps: tuple[str, ...] = ()
    values: tuple[float | None, ...] = ()


class MathAps:
    """The format ``math-aps``: columns question, reasoning_steps and final_answer.

    Args:
        labels: ``soft`` keeps the estimates; ``hard`` is 1 for every estimate above 0.
        conflicts: what becomes of a problem in whose flat list one prefix has two estimates:
            ``reject`` it, take their ``mean``, or give that step no label (``mask``).
    """

    name: ClassVar[str] = "math-aps"

    def __init__(self, labels: str = "soft", conflicts: str = "reject") -> None:
        choice_of("labels", labels, ("soft", "hard"))
        choice_of("conflicts", conflicts, ("reject", "mean", "mask"))
        self.labels, self.conflicts = labels, conflicts

    @staticmethod
    def matches(row: Row) -> bool:
        """A question as text, reasoning_steps as a list or a tree."""
        nested = isinstance(row.get("reasoning_steps"), list | Mapping)
        return nested and isinstance(row.get("question"), str)

    def read(self, row: Row) -> Iterator[LabelledSteps | LeftOut]:
        """One solution per leaf."""
        text, given = need_text(row, "question"), row.get("reasoning_steps")
        problem = Problem(problem_id(text), text, optional_text(row, "final_answer"))
        meta = other_columns(row, "question", "reasoning_steps", "final_answer")
        if isinstance(given, Mapping):
            ways = _tree(given, text)
        elif isinstance(given, list):
            ways = _flat(self._estimates(given, text), text)
        else:
            raise Rejected(
                RejectReason.COLUMN, f"reasoning_steps is {given!r:.60}, not a list or a tree"
            )
        for way in ways:
            labels, kind = self._labelled(way)
            yield LabelledSteps(problem, way.steps, labels, kind, "rollouts", self.name, meta=meta)

    def _labelled(self, way: Way) -> tuple[tuple[float | None, ...], LabelKind]:
        if self.labels == "soft":
            return way.values, "soft"
        return tuple(None if value is None else float(value > 0) for value in way.values), "hard"

    def _estimates(self, given: list[Any], question: str) -> dict[str, float | None]:
        """The estimate of every different prefix, in the order of the list."""
        found: dict[str, list[float | None]] = {}
        for index, one in enumerate(given):
            if not isinstance(one, Mapping):
                raise Rejected(RejectReason.COLUMN, f"reasoning_steps[{index}] is {one!r:.60}")
            prefix = need_text(one, "solution_prefix").strip()
            if not prefix.startswith(question.strip()):
                raise Rejected(
                    RejectReason.PREFIX_WITHOUT_PROBLEM,
                    f"reasoning_steps[{index}] begins {prefix[:40]!r}, not with the question",
                )
            values = found.setdefault(prefix, [])
            if (value := label_of(one.get("mc_value"), index)) not in values:
                values.append(value)
        return {prefix: self._agreed(prefix, values) for prefix, values in found.items()}

    def _agreed(self, prefix: str, values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if len(known) < 2:
            return known[0] if known else None
        if self.conflicts == "reject":
            raise Rejected(
                RejectReason.CONFLICTING_LABELS,
                f"the prefix that ends {prefix[-30:]!r} has the estimates {known}; "
                "conflicts=mean or conflicts=mask keeps it",
            )
        return sum(known) / len(known) if self.conflicts == "mean" else None


def _tree(root: Mapping[str, Any], question: str) -> Iterator[Way]:
    """The ways to the leaves, in the order of the tree, which may be of any depth."""
    if need_text(root, "text").strip() != question.strip():
        raise Rejected(
            RejectReason.PREFIX_WITHOUT_PROBLEM,
            f"the root of the tree is {root['text'][:40]!r}, not the question",
        )
    waiting: list[tuple[Any, Way]] = [(root, Way())]
    while waiting:
        node, way = waiting.pop()
        children = node.get("children") or []
        if not isinstance(children, list):
            raise Rejected(RejectReason.COLUMN, f"children is {children!r:.60}, not a list")
        if not children and way.steps:
            yield way
        for child in reversed(children):
            if not isinstance(child, Mapping):
                raise Rejected(RejectReason.COLUMN, f"a node of the tree is {child!r:.60}")
            value = label_of(child.get("mc_value"), len(way.steps))
            text = need_text(child, "text").strip()
            waiting.append((child, Way((*way.steps, text), (*way.values, value))))


def _flat(estimates: Mapping[str, float | None], question: str) -> Iterator[Way]:
    """The ways to the prefixes that no other prefix continues."""
    ways: dict[str, Way] = {question.strip(): Way()}
    parents: set[str] = set()
    stack = [question.strip()]
    # In sorted order a prefix stands before all that continue it, and its kin stand together.
    for prefix in sorted(estimates):
        if prefix == stack[0]:
            continue
        while len(stack) > 1 and not _continues(prefix, stack[-1]):
            stack.pop()
        parents.add(stack[-1])
        before, step = ways[stack[-1]], prefix[len(stack[-1]) :].strip()
        ways[prefix] = Way((*before.steps, step), (*before.values, estimates[prefix]))
        stack.append(prefix)
    for prefix in estimates:
        if prefix not in parents and prefix != question.strip():
            yield ways[prefix]


def _continues(prefix: str, start: str) -> bool:
    """Whether a step begins after the start: ``x = 40`` does not continue ``x = 4``."""
    return prefix.startswith(start) and prefix[len(start) :][:1].isspace()
