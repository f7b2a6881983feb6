"""Sample logs of evaluation harnesses: one row for each document and filter, nested responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cells import cell_at
from .columns import Columns
from .layout import Laid, Layout, first_of, several
from .lines import Line, Reject, short

__all__ = ["HARNESSES"]

METRICS = ("extractive_match", "math_verify", "exact_match", "acc", "qem", "em", "pass@1")
"""What harnesses call the verdict on an answer, the surest first."""
PROBLEMS = ("question", "problem", "query", "prompt", "input")


def _lm_eval(lines: list[Line]) -> Laid:
    """Samples of lm-eval: the rows of one document are one row, with a label for each filter."""
    merged: dict[tuple[str, str, int], Line] = {}
    seen: dict[tuple[str, str, str], int] = {}
    rejects: list[Reject] = []
    labels: dict[str, None] = {}
    filters: dict[str, None] = {}
    for line in lines:
        row, doc = line.row, str(line.row.get("doc_id"))
        if _is_likelihood(row.get("resps")):
            reason = "its responses are log-likelihoods, not texts"
            rejects.append(Reject(line.number, reason, short(row), line.file))
            continue
        name = str(row.get("filter") or "")
        turn = seen[line.file, doc, name] = seen.get((line.file, doc, name), -1) + 1
        filters[name] = None
        own = _labels(row, name)
        labels |= dict.fromkeys(own)
        key = (line.file, doc, turn)
        base = merged.get(key) or line._replace(row=row | _document(row, line.file))
        merged[key] = base._replace(row=base.row | own)
    kept = list(merged.values())
    label = _surest(labels)
    note = ""
    if len(filters) > 1:
        names = ", ".join(filters)
        note = f"Each response is marked once; it was logged for {len(filters)} filters ({names})."
        note += f" Other labels: {', '.join(n for n in labels if n != label)}."
    known = Columns("resps", "target", label, several(kept, "file"), "doc_id", "problem")
    return Laid(kept, known, note, rejects)


def _document(row: Mapping[str, Any], file: str) -> dict[str, Any]:
    doc = row.get("doc")
    found = first_of(doc, PROBLEMS) if isinstance(doc, Mapping) else None
    text = doc[found] if isinstance(doc, Mapping) and found else ""
    return {"problem": text if isinstance(text, str) else "", "file": file}


def _labels(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metrics of a row under the names that the harness prints: ``exact_match,strict-match``.

    A metric is of the document. Of several responses it says nothing of any single one.
    """
    metrics = row.get("metrics")
    named = metrics if isinstance(metrics, list) else METRICS
    size = _responses(row.get("resps"))
    found = {}
    for metric in named:
        value = row.get(metric) if isinstance(metric, str) else None
        if isinstance(value, bool | int | float):
            label = f"{metric},{name}" if name else metric
            found[label] = value if size == 1 else [None] * size
    return found


def _responses(cell: Any) -> int:
    return sum(map(_responses, cell)) if isinstance(cell, list) else 1


def _is_likelihood(cell: Any) -> bool:
    """Whether a cell holds pairs of a log-likelihood and whether it was the greedy one."""
    while isinstance(cell, list) and cell and isinstance(cell[0], list):
        cell = cell[0]
    if not isinstance(cell, list) or len(cell) != 2 or str(cell[1]) not in ("True", "False"):
        return False
    try:
        float(cell[0])
    except (TypeError, ValueError):
        return False
    return True


def _surest(labels: Mapping[str, Any] | list[str]) -> str | None:
    """The label that is compared with when nobody names one."""
    for metric in METRICS:
        found = [label for label in labels if label.partition(",")[0].rpartition(".")[2] == metric]
        if found:
            return found[0]
    return next(iter(labels), None)


def _lighteval(lines: list[Line]) -> Laid:
    """Details of lighteval, of its present layout (doc, model_response, metric) and the old one."""
    kept: list[Line] = []
    rejects: list[Reject] = []
    labels: dict[str, None] = {}
    for line in lines:
        try:
            made = _detail(line.row)
        except ValueError as error:
            rejects.append(Reject(line.number, str(error), short(line.row), line.file))
            continue
        own = {name: value for name, value in made.items() if name.startswith("metric.")}
        labels |= dict.fromkeys(own)
        id = made.get("id")
        made["id"] = f"line-{line.number}" if id in (None, "") else str(id)
        kept.append(line._replace(row=line.row | made | {"file": line.file}))
    label = _surest(labels)
    others = [name for name in labels if name != label]
    note = f"Other labels: {', '.join(others)}." if others else ""
    known = Columns("completion", "gold", label, several(kept, "file"), "id", "problem")
    return Laid(kept, known, note, rejects)


def _detail(row: Mapping[str, Any]) -> dict[str, Any]:
    """Problem, gold, completions and labels of one detail.

    Raises:
        ValueError: it has no responses, or several golds.
    """
    doc = row.get("doc") if isinstance(row.get("doc"), Mapping) else {}
    texts = cell_at(row, "model_response.text")
    texts = row.get("predictions") if texts is None else texts
    texts = list(texts) if isinstance(texts, list | tuple) else [texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the responses are {short(texts)}, not texts")
    metrics = row.get("metric") or row.get("metrics") or {}
    made: dict[str, Any] = {
        "completion": texts,
        "gold": _gold_of(row, doc or {}),
        "problem": (doc or {}).get("query") or row.get("example") or row.get("full_prompt") or "",
        "id": (doc or {}).get("id"),
    }
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if isinstance(value, bool | int | float):
            made[f"metric.{name}"] = value if len(texts) == 1 else [None] * len(texts)
    return made


def _gold_of(row: Mapping[str, Any], doc: Mapping[str, Any]) -> str | None:
    choices, places = doc.get("choices"), doc.get("gold_index")
    if choices is None:
        golds = row.get("gold")
        golds = golds if isinstance(golds, list) else [golds]
    else:
        places = places if isinstance(places, list) else [places]
        golds = [choices[place] for place in places if isinstance(place, int)]
    golds = list(dict.fromkeys(gold for gold in golds if gold is not None))
    if len(golds) > 1:
        raise ValueError(f"{len(golds)} golds ({short(golds)}); only one can be compared")
    return str(golds[0]) if golds else None


def _is_lm_eval(names: frozenset[str]) -> bool:
    return {"doc_id", "resps", "target"} <= names and bool({"doc", "filter"} & names)


def _is_lighteval(names: frozenset[str]) -> bool:
    return {"doc", "model_response"} <= names or {"predictions", "gold", "metrics"} <= names


HARNESSES = (
    Layout("lm-eval", _is_lm_eval, _lm_eval),
    Layout("lighteval", _is_lighteval, _lighteval),
)
