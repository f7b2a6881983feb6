"""What the engines refuse before the first token: settings and lengths that cannot work."""

from __future__ import annotations

from stepmark.errors import ConfigError
from stepmark.types import Prompt, Sampling

__all__ = ["check_length", "check_sampling"]


def check_sampling(sampling: Sampling, n: int = 1) -> None:
    """Refuse what cannot be sampled.

    Raises:
        ConfigError: names the setting, its value and the range.
    """
    rules = (
        ("temperature", sampling.temperature, sampling.temperature >= 0, "0 (greedy) or more"),
        ("max_tokens", sampling.max_tokens, sampling.max_tokens >= 1, "at least 1"),
        ("top_p", sampling.top_p, 0 < sampling.top_p <= 1, "above 0 and at most 1 (1 is off)"),
        ("top_k", sampling.top_k, sampling.top_k >= 0, "0 (off) or more"),
        ("n", n, n >= 1, "at least 1"),
    )
    for name, value, is_allowed, allowed in rules:
        if not is_allowed:
            raise ConfigError(f"{name} is {value}; it must be {allowed}. Change it.")
    if "" in sampling.stop:
        raise ConfigError("One of the stop strings is empty and would stop at once; remove it.")


def check_length(prompt: Prompt, max_tokens: int, limit: int | None) -> None:
    """Refuse a prompt whose completion may not fit behind it.

    Raises:
        ConfigError: prompt and completion together may exceed the limit, in tokens.
    """
    length = len(prompt.ids)
    if limit is None or length + max_tokens <= limit:
        return
    room = limit - length
    remedy = "Shorten the prompt template, leave the problem out, or take a model with more room."
    if room > 0:
        remedy = f"Set max_tokens to {room} or less, or leave the problem out."
    raise ConfigError(
        f"The prompt of problem {prompt.problem.id!r} has {length} tokens and max_tokens is "
        f"{max_tokens}: together {length + max_tokens}, but the model's limit is {limit}. {remedy}"
    )
