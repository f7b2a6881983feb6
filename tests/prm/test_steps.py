from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import ConfigError, UnknownNameError
from stepmark.prm import SPLITTERS, split_steps, step_texts, step_token_ends

texts = st.text(st.sampled_from("ab \t\n.:1é𝄞") | st.characters(), max_size=60) | st.lists(
    st.sampled_from(["Step 1: ", "**Step 2** ", "\n", "\n\n", " ", "so", "\t", "step 3"]),
    max_size=20,
).map("".join)


@given(texts, st.sampled_from(sorted(SPLITTERS)))
def test_steps_joined_are_the_text(text, splitter):
    spans = split_steps(text, splitter)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans)


@given(texts, st.sampled_from(sorted(SPLITTERS)))
def test_no_step_is_empty_unless_the_whole_text_is(text, splitter):
    spans = split_steps(text, splitter)
    if text.strip():
        assert all(step_texts(text, spans))
    else:
        assert len(spans) <= 1


@given(texts, st.sampled_from(sorted(SPLITTERS)), st.data())
def test_steps_end_on_increasing_tokens_and_the_last_on_the_last(text, splitter, data):
    spans = split_steps(text, splitter)
    cuts = {0, len(text)} | {a for a, _ in spans}
    cuts |= set(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    edges = sorted(cuts)
    offsets = [*pairwise(edges), (len(text), len(text))]
    ends = step_token_ends(spans, offsets)
    assert len(ends) == len(spans)
    assert list(ends) == sorted(set(ends))
    if spans:
        assert ends[-1] == len(offsets) - 1
    for (start, stop), end in zip(spans[:-1], ends, strict=False):
        assert start <= offsets[end][0] < stop


def test_a_token_across_a_border_ends_the_earlier_step():
    text = "1 + 1 = 2\nanswer: 2"
    spans = split_steps(text)
    assert step_token_ends(spans, [(0, 5), (5, 12), (12, 19)]) == (1, 2)


@pytest.mark.parametrize("splitter", sorted(SPLITTERS))
def test_steps_are_the_same_whatever_ends_the_lines(splitter):
    text = "Step 1: a\n\nb\n \nStep 2: c\nd\n\n\nStep 3: e"
    other = text.replace("\n", "\r\n")
    steps = step_texts(text, split_steps(text, splitter))
    again = step_texts(other, split_steps(other, splitter))
    assert tuple(step.replace("\r\n", "\n") for step in again) == steps
    assert len(steps) > 2


def test_blank_lines_join_the_step_before_and_leading_ones_the_first():
    assert step_texts("\n\na\n\n\nb\n", split_steps("\n\na\n\n\nb\n")) == ("a", "b")
    assert split_steps("") == ()


def test_a_step_without_a_token_is_refused():
    with pytest.raises(ConfigError, match="No token starts in step 2"):
        step_token_ends([(0, 2), (2, 4), (4, 6)], [(0, 4), (4, 6)])
    with pytest.raises(ConfigError, match="0 tokens"):
        step_token_ends([(0, 2)], [])
    assert step_token_ends([], []) == ()


def test_an_unknown_splitter_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="newline"):
        split_steps("a", "newlines")
