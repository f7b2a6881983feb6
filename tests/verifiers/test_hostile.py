"""What a policy may write: bounded in time, never marked right, never run as code."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stepmark.types import Reason, Status
from stepmark.verifiers import extract, verify

CASES = [
    json.loads(line)["completion"]
    for line in (Path(__file__).parent / "cases/hostile.jsonl").read_text().splitlines()
]
LONG = {
    "a megabyte of digits": "\\boxed{" + "9" * 1_000_000 + "}",
    "bare digits": "9" * 1_000_000,
    "ten thousand open braces": "\\boxed" + "{" * 10_000,
    "a hundred thousand open boxes": "\\boxed{" * 100_000,
    "closed boxes": "\\boxed{1}" * 100_000,
    "deep fractions": "\\boxed{" + "\\frac{1}{" * 1000 + "1" + "}" * 1000 + "}",
    "deep brackets": "\\boxed{" + "(" * 1900 + "17" + ")" * 1900 + "}",
    "many minus signs": "\\boxed{" + "-" * 3000 + "17}",
    "towers of powers": "\\boxed{" + "2^" * 1500 + "2}",
    "spaces": "\\boxed{17" + " " * 1_000_000 + "1}",
    "dollars": "$" * 200_000,
    "open displays": "\\[" * 100_000,
    "phrases": "the answer is " * 70_000,
    "a wide matrix": "\\boxed{\\begin{pmatrix}" + "1&" * 1500 + "1\\end{pmatrix}}",
    "a long list": "\\boxed{" + "17," * 1200 + "17}",
    "factorials": "\\boxed{17" + "!" * 500 + "}",
    "a wide product": "\\boxed{" + "(x+y+z+1)" * 100 + "}",
    "hashes": "####" * 250_000,
    "stars": "answer" + "*" * 500_000,
}


@pytest.mark.parametrize("completion", CASES, ids=ascii)
def test_hostile_completion_is_scored_zero_and_quickly(
    completion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    for gold in ("17", r"\sin(x)+\sqrt{17}", "(17,18)"):
        verdict = verify(completion, gold=gold)
        assert (verdict.status, verdict.score) == (Status.OK, 0), verdict
    assert time.process_time() - start < 1.5
    assert list(tmp_path.iterdir()) == [], "something ran"


@pytest.mark.parametrize("name", LONG)
def test_long_text_is_scanned_in_linear_time(name: str) -> None:
    start = time.process_time()
    verdict = verify(LONG[name], gold="17")
    assert time.process_time() - start < 1.5
    if name not in ("deep brackets", "many minus signs"):
        assert verdict.score == 0


def test_too_large_has_its_own_reason() -> None:
    for text in ("9^{9^{9^9}}", "100000000!", "9" * 5000, "(" * 500 + "1" + ")" * 500):
        assert verify(f"\\boxed{{{text}}}", gold="17").reason is Reason.TOO_LARGE


def test_an_open_box_holds_nothing() -> None:
    assert extract("so \\boxed{\\frac{1}{2}", strict=True).method == "none"


def test_the_bound_on_terms_does_not_depend_on_the_callers_stack() -> None:
    def at_depth(frames: int) -> tuple[Reason | str, Reason | str]:
        if frames:
            return at_depth(frames - 1)
        sums = ["+".join(["1"] * n) for n in (200, 400)]
        return tuple(verify(f"\\boxed{{{text}}}", gold="200").reason for text in sums)  # type: ignore[return-value]

    assert at_depth(0) == at_depth(200) == (Reason.EQUAL, Reason.TOO_LARGE)
