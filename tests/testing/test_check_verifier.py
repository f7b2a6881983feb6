"""The contract test passes what keeps the contract and names what a verifier breaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stepmark.testing import CheckFailed, check_verifier
from stepmark.types import Item, Verdict


class Fake:
    key = "fake@1"
    columns: frozenset[str] = frozenset()

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [Verdict.marked(1, "judged") for _ in items]


class Shifting(Fake):
    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return super().__call__(items)[:-1]


class Raising(Fake):
    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        if any(not item.completion for item in items):
            raise ValueError("empty")
        return super().__call__(items)


class Slashed(Fake):
    key = "fa/ke"


class Moody(Fake):
    calls = 0

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        self.calls += 1
        return [Verdict.marked(self.calls % 2, "judged") for _ in items]


def test_shipped_verifiers_keep_the_contract() -> None:
    for name in ("math", "exact", "math?strict=true"):
        assert check_verifier(name).passed


def test_a_plain_function_keeps_the_contract() -> None:
    assert check_verifier(lambda completion, gold: gold in completion).passed


@pytest.mark.parametrize(
    ("fake", "promise"),
    [
        (Shifting(), "one verdict per item"),
        (Raising(), "odd texts raise nothing"),
        (Slashed(), "the key is file-safe text"),
        (Moody(), "marking twice gives the same"),
    ],
)
def test_a_broken_promise_is_named(fake: Fake, promise: str) -> None:
    with pytest.raises(CheckFailed, match=promise):
        check_verifier(fake)
    report = check_verifier(fake, strict=False)
    assert not report.passed
    assert promise in [check.name for check in report.checks if not check.passed]


def test_a_function_that_raises_on_odd_text_is_told_which() -> None:
    def strict_number(completion: str, gold: str) -> bool:
        return int(completion.strip("\\boxed{}")) == int(gold)

    report = check_verifier(strict_number, strict=False)
    assert [c.name for c in report.checks if not c.passed] == [
        "odd texts are not errors of the verifier"
    ]


def test_a_verifier_that_hangs_is_named_after_one_text(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(
        "import time\ndef hangs(completion):\n    time.sleep(60)\n    return True\n"
    )
    report = check_verifier(f"{tmp_path / 'hang.py'}:hangs?timeout_s=0.3", strict=False)
    assert [check.passed for check in report.checks] == [False]
    assert "too slow" in report.checks[0].seen
