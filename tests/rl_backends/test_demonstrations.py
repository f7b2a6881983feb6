"""Worked solutions as completions: what is cut is known before it happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepmark.rl_backends import Demonstrations
from stepmark.tasks.arith_model import arith_tokenizer
from stepmark.types import Problem, Prompt

TOKENIZER = arith_tokenizer()
texts = st.lists(
    st.lists(st.sampled_from(["1", "12", "+", "Zoe", "coins"]), max_size=9), max_size=9
)


@given(texts, st.integers(1, 12))
def test_as_many_texts_are_cut_as_are_said_to_be(found: list[list[str]], limit: int) -> None:
    data, written = Demonstrations(TOKENIZER), [" ".join(words) for words in found]
    prompt = Prompt(Problem("p/1", "What?", None), (1,), "What?")
    rows = [data.rollout(prompt, text, 0, limit) for text in written]
    told = data.cut(written, limit)
    assert told.number == sum(row.finish == "length" for row in rows)
    whole = [data.rollout(prompt, text, 0, max(told.longest, 1)) for text in written]
    assert all(row.finish == "stop" for row in whole)
    assert told.longest == max((len(row.ids) for row in whole), default=0)


def test_texts_behind_a_thousand_that_fit_are_not_looked_at() -> None:
    asked: list[int] = []

    def tokenizer(texts, add_special_tokens):
        asked.append(len(texts))
        return {"input_ids": [[1] * len(text) for text in texts]}

    tokenizer.eos_token_id = 0  # type: ignore[attr-defined]
    told = Demonstrations(tokenizer).cut(["a" * n for n in range(4_000)], 2_500)
    assert told == (1_500, 4_000)
    assert asked == [1_000, 1_000, 1_000]
