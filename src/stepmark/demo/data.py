"""The embedded responses, as the package carries them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stepmark.types import Item, Problem

__all__ = ["Response", "load_responses"]


@dataclass(frozen=True, slots=True)
class Response:
    """One completion of one problem, with our own label."""

    id: str
    """Of the problem."""
    k: int
    """Place among the responses to its problem, from 0."""
    problem: str
    completion: str
    gold: str
    right: bool
    """Whether a person who reads it would mark it right: decided by hand, not by a verifier."""

    @property
    def name(self) -> str:
        """Problem and place, such as ``pizza/2``."""
        return f"{self.id}/{self.k}"

    def item(self) -> Item:
        """What a verifier is asked to mark; the label is not in it."""
        problem = Problem(id=f"demo/{self.id}", text=self.problem, gold=self.gold, task="demo")
        return Item(problem, self.completion)


@cache
def load_responses() -> tuple[Response, ...]:
    """All 200 responses, in the order of the file.

    >>> len(load_responses())
    200
    """
    text = files("stepmark.demo").joinpath("responses.jsonl").read_text(encoding="utf-8")
    return tuple(Response(**json.loads(line)) for line in text.splitlines() if line)
