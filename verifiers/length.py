"""The verifier `length`: a soft penalty on completions that come near their limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from stepmark.errors import ConfigError
from stepmark.types import Item, Reason, Verdict

from .settings import Allowed
from .shipped import ShippedVerifier

__all__ = ["LengthVerifier"]

Units = Literal["tokens", "characters"]
Length = Annotated[int, Allowed("a whole number of 1 or more", lambda value: value >= 1)]


@dataclass(frozen=True)
class LengthVerifier(ShippedVerifier):
    r"""Marks completions by their length alone: 1 while short enough, falling to 0 at the limit.

    The soft overlong punishment of DAPO (arXiv:2503.14476), equation 13, raised by 1 into [0, 1].
    With :math:`L` = ``max_length`` and :math:`C` = ``cache``:

    .. math::

        s(y) = \begin{cases}
            1 & |y| \le L - C \\
            (L - |y|) / C & L - C < |y| \le L \\
            0 & |y| > L
        \end{cases}

    Tokens are those that the policy sampled (the end token included), and only rollouts and stored
    samples carry their number: a text from a file has none and abstains, with the reason
    ``tokens_missing``, unless ``unit`` is ``characters``. The gold is not read. DAPO adds the
    punishment, from -1 to 0, to a reward; give this verifier the same weight for that: within a
    group a constant does not matter.

    Args:
        max_length: the limit :math:`L`, in the unit; DAPO's 20480 tokens by default.
        cache: the stretch :math:`C` before the limit in which the score falls; DAPO's 4096.
        unit: ``tokens``, or ``characters`` of the text.

    Raises:
        ConfigError: a setting has a value that is not allowed, or ``cache`` exceeds ``max_length``.

    >>> from stepmark.verifiers import verify
    >>> reference = "length?max_length=10&cache=4&unit=characters"
    >>> [verify("x" * n, gold=None, verifier=reference).score for n in (6, 8, 10, 11)]
    [1.0, 0.5, 0.0, 0.0]
    """

    name: ClassVar[str] = "length"
    version: ClassVar[int] = 1

    max_length: Length = 20_480
    cache: Length = 4_096
    unit: Units = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache > self.max_length:
            raise ConfigError(
                f"The settings cache = {self.cache} and max_length = {self.max_length} of the "
                "verifier 'length' do not fit: the score falls over the last cache of max_length. "
                "Set cache to max_length or less (a fifth of it is DAPO's)."
            )

    def mark(self, item: Item) -> Verdict:
        """The verdict on one completion."""
        length = item.tokens if self.unit == "tokens" else len(item.completion)
        if length is None:
            why = "the item carries no number of tokens: set unit=characters to count those"
            return Verdict.abstained("tokens_missing", gold=item.problem.gold, why=why)
        left = (self.max_length - length) / self.cache
        score = min(1.0, max(0.0, left))
        rule = "short enough" if score == 1 else "near the limit" if left > 0 else "at the limit"
        return Verdict.marked(
            score, Reason.JUDGED, gold=item.problem.gold, rule=rule, length=length, unit=self.unit
        )
