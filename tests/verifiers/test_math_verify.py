"""The verifier `math-verify`: another project's verdicts, under our deadline and in our words."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from stepmark.errors import ConfigError, SetupError
from stepmark.types import Item, Problem, Reason, Verdict
from stepmark.verifiers import load_verifier


def marked(*pairs: tuple[str, str | None], **settings: Any) -> list[Verdict]:
    judge = load_verifier({"name": "math-verify", **settings})
    return judge([Item(Problem(str(n), "", gold), text) for n, (text, gold) in enumerate(pairs)])


def test_golds_and_bare_answers_are_read_as_formulas() -> None:
    pairs = [(r"\frac12", "0.5"), ("x = 5", "5"), (r"So it is \boxed{\frac{1}{2}}.", r"\frac12")]
    assert [verdict.correct for verdict in marked(*pairs)] == [True, True, True]


def test_verdicts_come_in_order_and_say_what_was_found() -> None:
    found = marked(("The answer is 18.", "9 * 2 = 18.\n#### 18"), ("I give up.", "18"), ("1", None))
    assert [verdict.reason for verdict in found] == [
        Reason.EQUAL,
        Reason.NO_ANSWER,
        Reason.GOLD_MISSING,
    ]
    assert (found[0].extracted, found[0].gold) == ("18", "18")
    assert found[2].score is None


def test_what_does_not_end_is_stopped_and_wrong() -> None:
    (verdict,) = marked(("9^{9^{9^9}}", "4"), timeout_s=1.5)
    assert (verdict.score, verdict.correct) == (0.0, False)
    assert verdict.reason in (Reason.TOO_SLOW, Reason.TOO_LARGE)


def test_the_key_carries_the_version_of_the_package() -> None:
    name, _, version = load_verifier("math-verify").key.partition("@")
    assert name == "math-verify"
    assert version[0].isdigit()


def test_a_deadline_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        load_verifier("math-verify?timeout_s=0")


def test_without_the_package_the_error_ends_in_the_line_to_paste(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'stepmark\[compare\]'$"):
        load_verifier("math-verify")
