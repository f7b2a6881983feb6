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
            found.append(_goal("throughput", f"{name}: times the peer's", measured, least, ">="))
    cold = results["latency"]["cold"]["ours"]
    found.append(_goal("latency", "peer_tests: median, us", cold["median_us"], MEDIAN_US, "<="))
    found.append(_goal("latency", "peer_tests: p99, us", cold["p99_us"], P99_US, "<="))
    sympy = {"value": int(results["import"]["ours"]["loads_sympy"])}
    found.append(_goal("import", "sympy loaded by the import", sympy, 0, "<="))
    for name, least in ACCURACIES.items():
        ours = results["accuracy"][name]["ours"]["accuracy"]
        found.append(_goal("accuracy", f"{name}: accuracy", ours, least, ">="))
    for name, most in FALSE_POSITIVES.items():
        ours = results["accuracy"][name]["ours"]["false_positives"]
        found.append(_goal("accuracy", f"{name}: false positives", ours, most, "<="))
    return found


def _goal(
    kind: str, name: str, measured: dict[str, Any], bound: float, sense: str
) -> dict[str, Any]:
    value = measured["value"]
    return {
        "kind": kind,
        "name": name,
        "goal": bound,
        "sense": sense,
        "value": value,
        "low": measured.get("low"),
        "high": measured.get("high"),
        "reached": value is not None and (value >= bound if sense == ">=" else value <= bound),
    }
