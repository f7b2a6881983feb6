"""Tokens of labelled solutions for ``prm inspect``: where scores are read, what limits cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepmark.errors import ConfigError, did_you_mean, require

from .console import grid, out, plain, show
from .prm_settings import settings_from

if TYPE_CHECKING:
    from stepmark.prm import EncodingSettings, StepEncoder
    from stepmark.prm.formats.balance import Spread
    from stepmark.prm.formats.truncation import TokenForecast
    from stepmark.types import LabelledSteps

__all__ = ["encoder_for", "forecast_for", "spread_text", "tell_tokens", "token_cells"]

UNCUT = 2**31
"""Longest row of an encoder that only counts."""


def encoder_for(base: str | None, max_tokens: int | None, words: list[str]) -> StepEncoder | None:
    r"""The encoder of a base model or reward model; None without one.

    The settings are those of the reward model's card where it has one, else the defaults; words
    such as ``separator=\n`` change them.

    Raises:
        ConfigError: settings are given without a base, or one of them is not known.
        SetupError: transformers is missing, or there is no such tokenizer.
    """
    if base is None:
        if max_tokens is not None or words:
            raise ConfigError(
                f"{'--max-tokens' if max_tokens is not None else '--set'} is about tokens, and no "
                "tokenizer is named. Add --base FOLDER, the model that is to be trained."
            )
        return None
    require("transformers", extra="train", purpose="Counting tokens")
    from stepmark.engines.loading import load_tokenizer
    from stepmark.prm import StepEncoder

    settings = _settings(base, words).model_copy(update={"max_tokens": UNCUT})
    return StepEncoder(load_tokenizer(base), settings)


def _settings(base: str, words: list[str]) -> EncodingSettings:
    from pydantic import ValidationError

    from stepmark.prm import EncodingSettings

    card = EncodingSettings()
    if (Path(base).expanduser() / "prm.json").is_file():
        from stepmark.prm.checkpoint import read_card

        card = read_card(base).encoding
    given = settings_from(words)
    known = list(EncodingSettings.model_fields)
    if unknown := [key for key in given if key not in known]:
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(
            f"--set {unknown[0]}: an encoding has no such setting. {hint} Its settings: "
            f"{', '.join(known)}."
        )
    try:
        return EncodingSettings(**(card.model_dump() | given))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or ", ".join(given)
        raise ConfigError(f"--set {name}: {first['msg']}. Mend it, or leave it out.") from error


def forecast_for(encoder: StepEncoder, max_tokens: int | None) -> TokenForecast:
    """Counts of tokens with the usual limits, and one more."""
    from stepmark.prm.formats.truncation import LIMITS, TokenForecast

    return TokenForecast(encoder, (*LIMITS, *([max_tokens] if max_tokens else [])))


def tell_tokens(tokens: TokenForecast) -> None:
    """Print the spreads, and the cost of each limit."""
    from stepmark.prm.formats.balance import Spread

    out.print()
    table = grid()
    for name, numbers in (
        ("tokens a row", tokens.rows),
        ("tokens a prompt", tokens.prompts),
        ("tokens a step", tokens.steps),
    ):
        table.add_row(f"[bold]{name}[/]", spread_text(Spread.of(numbers)))
    show(table)
    out.print()
    table = grid("max tokens", "rows cut", "left without label", "labels lost", "of them wrong")
    for loss in tokens.losses:
        share = f" ({loss.labels / tokens.labels:.1%})" if tokens.labels else ""
        rows = [f"{loss.max_tokens:,}", f"{loss.rows_cut:,}", f"{loss.rows_without_label:,}"]
        table.add_row(*rows, f"{loss.labels:,}{share}", f"{loss.wrong:,}")
    show(table)


def token_cells(encoder: StepEncoder, row: LabelledSteps) -> list[str]:
    """Per step its tokens, divided by bars; the one at which its score is read is underlined."""
    from stepmark.report.text import visible

    encoded = encoder.encode(row.problem, row.steps)
    cells: list[str] = []
    start = 0
    for end in encoded.ends:
        texts = [encoder.tokenizer.decode([id]) for id in encoded.ids[start : end + 1]]
        shown = [plain(visible(text.replace("\n", "\\n").replace("\t", "\\t"))) for text in texts]
        cells.append("[dim]|[/]".join([*shown[:-1], f"[bold underline]{shown[-1]}[/]"]))
        start = end + 1
    return cells


def spread_text(spread: Spread) -> str:
    """A spread in one line."""
    smallest, median, p95, largest, mean = spread
    return f"{smallest:,} to {largest:,}, median {median:,}, 95 % up to {p95:,}, mean {mean:.1f}"
