"""Seeds that are derived, never drawn: the same words give the same seed on every machine."""

from __future__ import annotations

import hashlib

__all__ = ["derive_seed"]


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that is a pure function of its parts.

    Python's ``hash`` changes between processes and sums of seeds collide; a digest does neither.
    A rollout's seed is ``derive_seed(run_seed, "rollout", step, problem_id, index)``, so that one
    rollout can be remade alone.

    >>> derive_seed(0, "rollout", 3, "gsm8k/7", 1) == derive_seed(0, "rollout", 3, "gsm8k/7", 1)
    True
    >>> derive_seed(1, "23") == derive_seed(12, "3")
    False
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
