"""The contract test passes what keeps the contract and names what a verifier breaks."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepmark.testing import CheckFailed, check_verifier
from stepmark.types import Item, Verdict
from stepmark.verifiers import registry


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


class Locked(Fake):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class MainThreadOnly(Fake):
    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        return super().__call__(items)


class Golden(Fake):
    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [Verdict.marked(len(str(item.problem.gold.strip())) > 0, "x") for item in items]  # type: ignore[union-attr]


class Columned(Fake):
    columns = frozenset({"level"})

    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [Verdict.marked(bool(item.problem.meta["level"]), "x") for item in items]


class Listed(Fake):
    columns = ["level"]  # type: ignore[assignment]  # noqa: RUF012


class Unstorable(Fake):
    def __call__(self, items: Sequence[Item]) -> list[Verdict]:
        return [Verdict.marked(1, "x", at=(1, 2)) for _ in items]


SHIPPED = (
    "math",
    "math?strict=true",
    "math?units=require",
    "exact",
    "exact?policy=boxed+phrase",
    "numeric",
    "numeric?rel_tol=0.01&percent=share",
    "choice",
    "choice?column=choices",
    "format",
    "format?steps=2&think=true&share=true",
    "length",
    "length?unit=characters&max_length=100&cache=50",
    "all(math, format?one_box=true)",
    "first(choice, math)",
    "sum(0.9*math, 0.1*length?unit=characters)",
    "first(choice, all(numeric, sum(format, 2*exact)))",
)


@pytest.mark.parametrize("reference", SHIPPED)
def test_shipped_verifiers_keep_the_contract(reference: str) -> None:
    assert check_verifier(reference).passed


def test_every_shipped_name_is_checked() -> None:
    names = {
        name
        for name in registry.entries()
        if registry.entries()[name].source.startswith("stepmark ")
    }
    checked = {word for text in SHIPPED for word in re.findall(r"[a-z-]+", text)}
    assert names - checked <= {"math-verify"}


def test_a_plain_function_keeps_the_contract() -> None:
    assert check_verifier(lambda completion, gold: gold in completion).passed


@pytest.mark.parametrize(
    ("fake", "promise"),
    [
        (Shifting(), "one verdict per item"),
        (Raising(), "odd texts raise nothing"),
        (Slashed(), "the key is file-safe text"),
        (Moody(), "marking twice gives the same"),
        (Locked(), "a pickled copy marks the same"),
        (MainThreadOnly(), "another thread marks the same"),
        (Golden(), "a problem without a gold is no error"),
        (Columned(), "a row without its columns raises nothing"),
        (Listed(), "columns are a set of names"),
        (Unstorable(), "verdicts survive the store"),
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
