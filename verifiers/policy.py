r"""What extraction may do: which rules may find the answer of a completion.

`STRICT` is for rewards that a policy trains against: a box or ``####`` and nothing else. `LENIENT`
is for evaluation of models that were never told of boxes: all rules, the last number included.
Between the two a policy names its fallbacks one by one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stepmark.errors import ConfigError, did_you_mean

__all__ = ["LENIENT", "STRICT", "Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Which extraction rules are allowed; a verdict's ``detail["method"]`` says which one fired.

    >>> Policy(last_number=False).allows("last_number")
    False
    >>> str(Policy.of("boxed+phrase")), Policy.of("strict") == STRICT
    ('boxed+phrase', True)
    """

    boxed: bool = True
    r"""The last complete ``\boxed{}`` or ``\fbox{}``."""
    hash: bool = True
    """What follows the last ``####`` on its line, as GSM8K's solutions end."""
    phrase: bool = True
    """What follows "the answer is", "Answer:" and the like."""
    whole: bool = True
    """A short text, all of it mathematics."""
    last_maths: bool = True
    """The last formula between maths delimiters."""
    last_number: bool = True
    """The last number: the last resort."""

    @classmethod
    def of(cls, text: str | Policy) -> Policy:
        """The policy that a setting means.

        Args:
            text: ``lenient``, ``strict``, or names of rules joined by ``+``, such as
                ``boxed+hash+phrase``.

        Raises:
            ConfigError: a rule of an unknown name.
        """
        if isinstance(text, Policy):
            return text
        known = [field.name for field in dataclasses.fields(cls)]
        if text in ("lenient", "strict"):
            return LENIENT if text == "lenient" else STRICT
        chosen = [name.strip() for name in text.split("+")]
        for name in chosen:
            if name not in known:
                raise ConfigError(
                    f"The policy {text!r} names the rule {name!r}, which there is not. "
                    f"{did_you_mean(name, [*known, 'lenient', 'strict'])} "
                    f"Allowed: lenient, strict, or rules joined by +: {'+'.join(known)}."
                )
        return cls(**{name: name in chosen for name in known})

    def allows(self, method: str) -> bool:
        """Whether a rule may find the answer, by the name that verdicts give it."""
        return bool(getattr(self, method, False))

    def __str__(self) -> str:
        for name, known in (("lenient", LENIENT), ("strict", STRICT)):
            if self == known:
                return name
        names = (field.name for field in dataclasses.fields(self))
        return "+".join(name for name in names if self.allows(name))


LENIENT = Policy()
"""All rules; the default."""
STRICT = Policy(phrase=False, whole=False, last_maths=False, last_number=False)
"""A box or ``####`` only."""
