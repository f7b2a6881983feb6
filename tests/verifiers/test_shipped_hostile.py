"""The small shipped verifiers on what a policy may write: a verdict, at once, and never paid."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path

import pytest

from stepmark.types import Status
from stepmark.verifiers import load_verifier, verify

CASES = [
    json.loads(line)["completion"]
    for line in (Path(__file__).parent / "cases/hostile.jsonl").read_text().splitlines()
]
LONG = {
    "digits": "\\boxed{" + "9" * 1_000_000 + "}",
    "open boxes": "\\boxed{" * 100_000,
    "phrases": "the answer is " * 70_000,
    "letters": "A, " * 300_000,
    "statements": "A is " * 200_000,
    "tags": "<think>" * 100_000,
    "steps": "Step 1\n" * 100_000,
    "lines": "\n" * 1_000_000,
    "stars": "answer" + "*" * 500_000,
}
ANSWERS = {"exact": "17", "numeric": "17", "choice": "B", "all(numeric, format)": "17"}
loaded = cache(load_verifier)


@pytest.mark.parametrize("reference", ANSWERS)
def test_hostile_text_is_scored_zero_and_quickly(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for completion in CASES:
        start = time.process_time()
        verdict = verify(completion, gold=ANSWERS[reference], verifier=loaded(reference))
        assert (verdict.status, verdict.score) == (Status.OK, 0), verdict
        assert time.process_time() - start < 1.5
    assert list(tmp_path.iterdir()) == [], "something ran"


@pytest.mark.parametrize("reference", [*ANSWERS, "format?steps=3&think=true&ends_boxed=true"])
@pytest.mark.parametrize("name", LONG)
def test_long_text_is_scanned_in_linear_time(reference: str, name: str) -> None:
    start = time.process_time()
    verdict = verify(LONG[name], gold=ANSWERS.get(reference, "17"), verifier=loaded(reference))
    assert time.process_time() - start < 2
    assert (verdict.status, verdict.score) == (Status.OK, 0)
    assert len(verdict.extracted or "") < 5_000, "rows of verdicts stay readable"
