"""Offsets of sampled tokens: they cover the text, whatever the tokenizer would make of it again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stepmark.engines import token_offsets
from stepmark.engines.stopping import texts_of
from stepmark.tasks import arith_tokenizer

ARITH: Any = arith_tokenizer()


def byte_tokenizer() -> Any:
    """One token a byte, and one for ``ab``."""
    words = {sign: id for id, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE({**words, "ab": 256, "<eos>": 257}, [("a", "b")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")


def pieces_tokenizer() -> Any:
    """Words with a mark for the space before them, which is lost in front of a text."""
    words = {word: id for id, word in enumerate(("<eos>", "<unk>", "▁so", "▁it", "s", "\n"))}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="<unk>")


def byte_ids(tokenizer: Any, text: str) -> list[int]:
    return [i for sign in text for i in tokenizer(sign, add_special_tokens=False).input_ids]


def test_ids_that_would_be_tokenised_otherwise_keep_their_own_offsets() -> None:
    tokenizer = byte_tokenizer()
    sampled = byte_ids(tokenizer, "ab")
    assert tokenizer("ab").input_ids != sampled
    assert token_offsets(tokenizer, sampled) == ((0, 1), (1, 2))
    assert token_offsets(tokenizer, tokenizer("ab").input_ids) == ((0, 2),)


def test_a_character_of_several_tokens_belongs_to_the_last_of_them() -> None:
    tokenizer = byte_tokenizer()
    spans = token_offsets(tokenizer, byte_ids(tokenizer, "aé𝄞b"))
    assert spans == ((0, 1), (1, 1), (1, 2), (2, 2), (2, 2), (2, 2), (2, 3), (3, 4))


def test_a_space_that_is_lost_in_front_of_the_text_shifts_nothing() -> None:
    tokenizer = pieces_tokenizer()
    ids = tokenizer.convert_tokens_to_ids(["▁so", "▁it", "s", "\n", "▁so", "<eos>"])
    text = "so its\n so"
    spans = token_offsets(tokenizer, ids)
    assert [text[a:b] for a, b in spans] == ["so", " it", "s", "\n", " so", ""]


def test_end_tokens_and_what_is_cut_have_empty_spans() -> None:
    ids = [*ARITH("1 + 2", add_special_tokens=False).input_ids, ARITH.eos_token_id]
    assert token_offsets(ARITH, ids) == ((0, 1), (1, 4), (4, 5), (5, 5))
    assert token_offsets(ARITH, ids, "1 +") == ((0, 1), (1, 3), (3, 3), (3, 3))
    assert token_offsets(ARITH, [ARITH.eos_token_id]) == ((0, 0),)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 257), min_size=1, max_size=80))
def test_spans_follow_one_another_and_cover_the_text_of_any_bytes(ids: list[int]) -> None:
    tokenizer = BYTES
    spans = token_offsets(tokenizer, ids)
    assert len(spans) == len(ids)
    assert (spans[0][0], spans[-1][1]) == (0, len(texts_of(tokenizer, [ids])[0]))
    assert all(a <= b for a, b in spans)
    assert all(one[1] == two[0] for one, two in pairwise(spans))


BYTES = byte_tokenizer()
