"""What the verifier is to reach, beside what was measured."""

from __future__ import annotations

from typing import Any

from corpora import GSM8K, MATH

SPEEDUPS = {GSM8K: 50, "peer_tests": 10, MATH: 10}
"""Throughput in multiples of the peer's."""
ACCURACIES = {
    "peer_tests": 0.985,
    "bug_reports": 0.97,
    "recorded_answers": 0.997,
    "hard_negatives": 1.0,
    "reflexive_golds": 1.0,
    GSM8K: 1.0,
}
"""Share of rows, not debatable, that are marked as labelled."""
FALSE_POSITIVES = {"peer_tests": 0.005}
MEDIAN_US = 50.0
P99_US = 10_000.0


def goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry per goal; those that need the peer are left out where it was not measured."""
    found = []
    for name, least in SPEEDUPS.items():
        measured = results["throughput"][name].get("ratio")
        if measured:
            found.append(_goal(name, "times the peer's throughput", measured, least=least))
    cold = results["latency"]["cold"]["ours"]
    found.append(_goal("peer_tests", "median, us", cold["median_us"], most=MEDIAN_US))
    found.append(_goal("peer_tests", "p99, us", cold["p99_us"], most=P99_US))
    for name, least in ACCURACIES.items():
        ours = results["accuracy"][name]["ours"]["accuracy"]
        found.append(_goal(name, "accuracy", ours, least=least))
    for name, most in FALSE_POSITIVES.items():
        ours = results["accuracy"][name]["ours"]["false_positives"]
        found.append(_goal(name, "wrong, accepted", ours, most=most))
    for goal in found:
        timed = goal["what"] not in ("accuracy", "wrong, accepted")
        goal["slow"] = timed and not goal["reached"]
    sympy = {"value": int(results["import"]["ours"]["loads_sympy"])}
    imported = _goal("", "sympy loaded by import stepmark.verifiers", sympy, most=0)
    return [*found, {**imported, "slow": False}]


def _goal(
    corpus: str,
    what: str,
    measured: dict[str, Any],
    *,
    least: float | None = None,
    most: float | None = None,
) -> dict[str, Any]:
    value = measured["value"]
    known = value is not None
    reached = known and (least is None or value >= least) and (most is None or value <= most)
    return {
        "corpus": corpus,
        "what": what,
        "least": least,
        "most": most,
        "value": value,
        "low": measured.get("low"),
        "high": measured.get("high"),
        "reached": reached,
    }
