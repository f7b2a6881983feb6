"""How a verdict came about: what was found where, how both sides were read, what decided."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from stepmark.types import Reason, Status, Verdict

from .console import grid, plain, show

__all__ = ["explanation", "show_explanation"]

FOUND_BY = {
    "boxed": "the last complete box",
    "hash": "the text after ####",
    "phrase": "the text after words such as 'the answer is'",
    "whole": "the whole completion, which is nothing but an answer",
    "option": "the option that is stated",
    "last_maths": "the last formula, since nothing else marks an answer",
    "last_number": "the last number, since nothing else marks an answer",
}
"""The rules of extraction, in words."""

RULES = {
    "same text": "both are written alike",
    "same": "both are read as the same expression",
    "rational": "both are rational numbers, compared exactly",
    "normal form": "the normal forms are compared",
    "symbolic": "the difference is worked out by sympy, in a worker",
    "numeric agreement": "values at random points agree to many digits",
    "value at random points": "values at a random point differ, beyond their error bounds",
    "rounded to the digits shown": "a decimal is compared to the digits that it shows",
    "in order": "the entries are compared one by one, in order",
    "in any order": "the entries are compared in any order",
    "text": "compared as words",
    "base": "the bases and the digits are compared",
    "intervals": "compared as sets of real numbers",
}
"""The rules that decide, in words where the name says too little."""

REASONS = {
    Reason.EQUAL: "both sides have the same value",
    Reason.DIFFERENT: "the two sides differ",
    Reason.JUDGED: "the verifier returned this and gave no reason",
    Reason.NO_ANSWER: "nothing in the completion is accepted as an answer",
    Reason.UNREADABLE: "what was found is not mathematics that can be read",
    Reason.TOO_LARGE: "what was found is beyond the bounds on length, depth or magnitude",
    Reason.TOO_SLOW: "the comparison was stopped twice, the second time on an idle worker",
    Reason.DECLINED: "the verifier returned None",
    Reason.GOLD_MISSING: "there is no gold to compare with",
    Reason.GOLD_UNREADABLE: "the gold is not mathematics that can be read",
    Reason.VERIFIER_RAISED: "the verifier raised an exception",
    Reason.WORKER_LOST: "the process that was marking died",
}


def explanation(judge: Any, completion: str, verdict: Verdict) -> dict[str, str]:
    """What was found where, how both sides were read, and what decided."""
    from stepmark.verifiers import MathVerifier

    told = {"verifier": judge.key, "completion": _end(completion)}
    detail = {name.replace("_", " "): value for name, value in verdict.detail.items()}
    if isinstance(judge, MathVerifier):
        told |= _of_math(judge, completion, verdict)
        detail = {k: v for k, v in detail.items() if k not in ("method", "rule", "why")}
    else:
        told |= {} if verdict.extracted is None else {"found": verdict.extracted}
        told |= {} if verdict.gold is None else {"gold": verdict.gold}
    told["reason"] = _with_meaning(str(verdict.reason), REASONS.get(verdict.reason))  # type: ignore[call-overload]
    return told | {name: str(value) for name, value in detail.items()}


def _of_math(judge: Any, completion: str, verdict: Verdict) -> dict[str, str]:
    from stepmark.verifiers import explain

    more = explain(completion, gold=verdict.gold, **asdict(judge.settings))
    told = {"found": more.extracted or "nothing"}
    if more.extracted:
        told["found by"] = _with_meaning(more.method.replace("_", " "), FOUND_BY.get(more.method))
        told["found means"] = _bare(more.completion_form) or "nothing that can be read"
    told["gold"] = verdict.gold or "none"
    if verdict.gold:
        told["gold means"] = _bare(more.gold_form) or "nothing that can be read"
    told |= _normal_forms(more.extracted, verdict.gold)
    if verdict.reason not in (Reason.NO_ANSWER, Reason.GOLD_MISSING):
        told["decided by"] = _decided(more.rule, verdict)
    return told


def _normal_forms(found: str | None, gold: str | None) -> dict[str, str]:
    """The normal forms of both sides, once where they are one."""
    from stepmark.verifiers.normal import normal_form

    ours, theirs = (normal_form(text) if text else None for text in (found, gold))
    if ours is None or theirs is None:
        return {}
    if ours == theirs:
        return {"normal form": f"{ours} on both sides"}
    return {"normal form": f"{ours} against {theirs}"}


def _decided(rule: str, verdict: Verdict) -> str:
    """The rule in words; of what could not be read or was too large, where it broke."""
    if verdict.status is Status.ERROR:
        return "an error, not a rule"
    if verdict.reason in (Reason.UNREADABLE, Reason.GOLD_UNREADABLE):
        return f"reading stopped at {rule}" if rule.startswith("'") else f"reading stopped: {rule}"
    if verdict.reason == Reason.TOO_LARGE:
        return f"a bound: {rule}"
    name, comma, more = rule.partition(", ")
    meaning = RULES.get(rule) or (f"{RULES[name]}{comma}{more}" if name in RULES else None)
    return _with_meaning(rule, meaning)


def _with_meaning(name: str, meaning: str | None) -> str:
    return f"{name}: {meaning}" if meaning else name


def _bare(form: str | None) -> str | None:
    """A form without brackets around the whole of it, which say nothing."""
    if form is None or not re.fullmatch(r"\(.*\)", form, re.DOTALL) or "," in form:
        return form
    depth = 0
    for place, sign in enumerate(form):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and place < len(form) - 1:
            return form
    return form[1:-1]


def show_explanation(told: Mapping[str, str]) -> None:
    """One line for each thing that is known, under the verdict."""
    from stepmark.report import visible

    table = grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in told.items():
        table.add_row(f"  [dim]{plain(name)}[/]", plain(visible(value.rstrip())))
    show(table)


def _end(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"... {text[-width:]}"
