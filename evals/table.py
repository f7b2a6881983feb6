"""The benchmark table: the same results always give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepmark.errors import RunError
from stepmark.report.markdown import markdown_table
from stepmark.report.numbers import NOTHING, count, percent
from stepmark.store import RunFolder

from .measured import Measured
from .result import EvalResult

__all__ = ["find_runs", "read_result", "table", "table_json", "table_text"]

HEADERS = (
    "model",
    "task",
    "n",
    "metric",
    "accuracy [95 %]",
    "no answer",
    "truncated",
    "no verdict",
    "tokens",
    "prompt",
)


def table(runs: Iterable[Path]) -> str:
    """The table of finished runs in Markdown, with what must be known to read it below.

    Raises:
        RunError: a folder is not a finished evaluation.
    """
    return table_text([read_result(run) for run in runs])


Further = Sequence[Sequence[Measured]]
"""For each result, further metrics of the same run; each has a row below it."""


def table_json(results: Sequence[EvalResult], further: Further = ()) -> dict[str, Any]:
    """The table for machines: every number with its n and interval."""
    rows: list[dict[str, Any]] = []
    for result, more in _paired(results, further):
        rows.append(result.to_row())
        rows += [asdict(result.about) | measured.to_row() for measured in more]
    return {"rows": rows}


def table_text(results: Sequence[EvalResult], further: Further = ()) -> str:
    """The table of results in Markdown."""
    rows: list[tuple[str, ...]] = []
    for result, more in _paired(results, further):
        rows.append(_row(result))
        rows += [_further_row(result, measured) for measured in more]
    said = footnote(results)
    said += "".join(f"  \n{note}" for note in _choice_notes([m for more in further for m in more]))
    return f"{markdown_table(HEADERS, rows)}\n\n{said}\n"


def _paired(
    results: Sequence[EvalResult], further: Further
) -> Iterable[tuple[EvalResult, Sequence[Measured]]]:
    return zip(results, further or [()] * len(results), strict=True)


def _row(result: EvalResult) -> tuple[str, ...]:
    return (
        short_name(result.about.model),
        f"{result.about.task}/{result.about.split}",
        count(result.n),
        result.name,
        percent(result.accuracy, (result.low, result.high)),
        percent(result.no_answer),
        percent(result.truncated),
        _no_verdict(result),
        NOTHING if result.mean_tokens is None else f"{result.mean_tokens:.1f}",
        f"{result.about.prompt}@{result.about.prompt_hash[:8]}",
    )


def _further_row(result: EvalResult, measured: Measured) -> tuple[str, ...]:
    own = list(_row(result))
    own[2:5] = [
        count(measured.n),
        measured.metric,
        percent(measured.accuracy, (measured.low, measured.high)),
    ]
    return tuple(own)


def _choice_notes(measured: Sequence[Measured]) -> list[str]:
    """How the further rows choose among completions."""
    kinds = {one.metric.partition("@")[0] for one in measured}
    notes: list[str] = []
    if chosen := [one for one in measured if one.scorer]:
        scorers = ", ".join(dict.fromkeys(one.scorer or "" for one in chosen))
        unscored = max(one.unscored for one in chosen)
        left = f" {count(unscored)} completions have no whole score and stand last."
        if "bon" in kinds:
            notes.append(
                f"bon@k: of k completions the one whose steps score highest ({scorers}), the exact "
                f"mean over all subsets; those that tie share.{left if unscored else ''}"
            )
        if "wmaj" in kinds:
            notes.append(f"wmaj@k: as maj@k, every vote counting its score ({scorers}).")
    if voted := [one for one in measured if one.equality]:
        equalities = ", ".join(dict.fromkeys(one.equality or "" for one in voted))
        draws = max(one.draws for one in voted)
        how = (
            f"some by {count(draws)} drawn subsets" if draws else "the exact mean over all subsets"
        )
        notes.append(
            f"maj@k: the result that most of k completions have, equal ones as one "
            f"({equalities}), {how}; those that tie share, and one without a result does not vote."
        )
    return notes


def short_name(model: str) -> str:
    """The name of a model in a table: of a long path the last three parts.

    >>> short_name("/data/runs/grpo-1/checkpoints/best"), short_name("Qwen/Qwen2.5-0.5B")
    ('grpo-1/checkpoints/best', 'Qwen/Qwen2.5-0.5B')
    """
    parts = Path(model).parts
    return "/".join(parts[-3:]) if len(parts) > 3 else model


def footnote(results: Sequence[EvalResult]) -> str:
    """Verifier, decoding, seeds and data of the rows, and how the numbers are made."""
    verifiers = dict.fromkeys(result.about.verifier for result in results)
    decodings = dict.fromkeys(_decoding(result) for result in results)
    data = dict.fromkeys(
        f"{result.about.task}/{result.about.split}@{result.about.data_hash}" for result in results
    )
    said = [
        f"Verifier: {', '.join(verifiers)}. Decoding: {'; '.join(decodings)}.",
        f"Data: {', '.join(data)}.",
        "n: problems. Intervals: Wilson, 95 %; over several completions with the effective sample "
        "size, clustered by problem. Shares are of all completions; tokens per completion.",
    ]
    if any(result.abstains or result.errors for result in results):
        said.append(
            "No verdict: abstains + errors; they count as not correct, and the accuracy would be "
            "at most the number behind 'max' if all of them were correct."
        )
    return "  \n".join(said)


def _no_verdict(result: EvalResult) -> str:
    if not result.abstains + result.errors:
        return "0"
    return f"{result.abstains} + {result.errors}, max {percent(result.accuracy_upper)}"


def _decoding(result: EvalResult) -> str:
    about = result.about
    how = "greedy" if about.greedy else f"temperature {about.temperature:g}, seed {about.seed}"
    return f"{how}, at most {about.max_tokens} tokens"


def read_result(run: Path) -> EvalResult:
    """The result of a finished run.

    Raises:
        RunError: the folder is not a finished evaluation.
    """
    path = Path(run) / "summary.json"
    try:
        return EvalResult.from_row(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        begun = (Path(run) / "config.toml").is_file()
        remedy = (
            "Run its command again, with the same --out, to finish it."
            if begun
            else "Give a folder that `stepmark eval run --out` made."
        )
        raise RunError(f"{str(run)!r} holds no summary.json. {remedy}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{str(path)!r} is not the summary of an evaluation ({error!r}). "
            "Give a folder that `stepmark eval run --out` made."
        ) from error


def find_runs(places: Iterable[Path]) -> list[Path]:
    """The evaluations in some places: each is one itself, or holds some, in the order of names.

    Training runs that lie beside them are passed over.

    Raises:
        RunError: a place holds none.
    """
    found: list[Path] = []
    for place in map(Path, places):
        if (place / "config.toml").is_file():
            found.append(place)
            continue
        runs = sorted(path.parent for path in place.glob("*/config.toml"))
        inner = [run for run in runs if RunFolder.open(run).config().get("kind") == "eval"]
        if not inner:
            raise RunError(
                f"There is no evaluation in {str(place)!r}. "
                "Give folders that `stepmark eval run` made."
            )
        found += inner
    return list(dict.fromkeys(found))
