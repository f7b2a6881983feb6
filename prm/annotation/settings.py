"""How solutions are annotated: which prefixes, how many roll-outs, what a label is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from stepmark.errors import ConfigError
from stepmark.types import LabelKind, Sampling

__all__ = ["AnnotationSettings", "Method"]

Method = Literal["mc", "binary"]
"""``mc`` rolls out from every prefix; ``binary`` searches for the first that cannot be completed.
"""

METHODS = ("mc", "binary")
KINDS = ("hard", "soft")
RIGHT = ("label", "skip")


@dataclass(frozen=True, slots=True)
class AnnotationSettings:
    """The settings of an annotation; with engine and verifier they determine every label.

    >>> AnnotationSettings(method="binary", rollouts=8).most_rollouts(5)
    64
    """

    method: Method = "mc"
    """``mc`` (Math-Shepherd, arXiv:2312.08935) or ``binary`` (OmegaPRM, arXiv:2406.06592)."""
    rollouts: int = 8
    """Completions drawn from each prefix, at most."""
    labels: LabelKind = "hard"
    """``hard``: whether enough roll-outs reached the answer; ``soft``: their share."""
    threshold: float = 0.0
    """Of hard labels: the share of roll-outs that must reach the answer, in [0, 1]; at 0 a single
    one is enough, as in Math-Shepherd."""
    early_stop: bool = True
    """Of hard labels: draw no more from a prefix once its label is settled. Never changes one."""
    chunk: int = 2
    """Roll-outs from a prefix before it is first asked whether it is settled; doubles each time."""
    recheck: int = 2
    """Of ``binary``: the two prefixes around the error are drawn so many times as often."""
    include_last: bool = True
    """Whether the last step is labelled, by the solution's own verdict."""
    right: Literal["label", "skip"] = "label"
    """Of ``binary``: right solutions get 1 at every step without a roll-out, or are left out."""
    skip_settled: bool = False
    """Leave out solutions of problems of which all completions are right, or all wrong."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.7))
    """How roll-outs are drawn; ``max_tokens`` counts what follows the prefix."""
    seed: int = 0
    """Of the roll-outs: each has its own by seed, problem, prefix and place."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("method", self.method, METHODS),
            ("labels", self.labels, KINDS),
            ("right", self.right, RIGHT),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} is {value!r}; it is one of: {', '.join(allowed)}.")
        for name, number in (
            ("n", self.rollouts),
            ("chunk", self.chunk),
            ("recheck", self.recheck),
        ):
            if number < 1:
                raise ConfigError(f"{name} is {number}; it must be 1 or more.")
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold is {self.threshold}; it is a share, from 0 to 1.")
        if self.method == "binary" and self.labels == "soft":
            raise ConfigError(
                "method is 'binary' and labels is 'soft': the search asks of a few prefixes only "
                "whether they can be completed. Set labels to 'hard', or method to 'mc'."
            )
        if self.rollouts > 1 and self.sampling.temperature == 0:
            raise ConfigError(
                f"n is {self.rollouts} at temperature 0: all roll-outs of a prefix would be the "
                "same. Set temperature (0.7 is usual), or n to 1."
            )

    @property
    def stops_early(self) -> bool:
        """Whether a prefix may be drawn fewer than ``rollouts`` times."""
        return self.early_stop and self.labels == "hard"

    def most_rollouts(self, steps: int) -> int:
        """Upper bound of the roll-outs that the labels of a solution with so many steps may take.

        The last step needs none. ``binary`` usually takes about ``log2(steps)`` prefixes; the bound
        is reached only where noise moves its border again and again.
        """
        each = self.rollouts * (self.recheck if self.method == "binary" else 1)
        return max(steps - 1, 0) * each

    def rounds(self, upto: int) -> tuple[int, ...]:
        """After how many roll-outs a prefix is asked whether its label is settled.

        >>> AnnotationSettings(rollouts=8).rounds(8), AnnotationSettings(labels="soft").rounds(8)
        ((2, 4, 8), (8,))
        """
        if not self.stops_early:
            return (upto,)
        ends, at = list[int](), self.chunk
        while at < upto:
            ends.append(at)
            at *= 2
        return (*ends, upto)

    def to_row(self) -> dict[str, Any]:
        """The settings that shape labels, in plain values."""
        row: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if name != "sampling"
        }
        sampling = self.sampling
        row["sampling"] = {name: getattr(sampling, name) for name in sampling.__slots__}
        row["sampling"]["stop"] = list(sampling.stop)
        return row
