"""Encoding: one function, places that are remembered, nothing searched for in tokens."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from stepmark.errors import ConfigError, DataError
from stepmark.prm import EncodingSettings, StepEncoder
from stepmark.types import Problem

WORDS = [
    "Ana has 3 pens and buys 4 more. How many pens has she?\n\n",
    "Step 1: 3 + 4 = 7.\nStep 2: The answer is 7.\n\n<tag> + - ки",
]
HALF = "\ud835"
"""Half a surrogate pair, as recorded responses hold them."""
PROBLEM = Problem("p", "Ana has 3 pens and <tag> buys 4\nmore. How many pens?", "7")
STEPS = ("3 + 4 = 7.", "So she has 7 pens.\n\nThe answer is 7.", "<tag> is a tag.")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Byte-level, so that separators in running text become other tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        WORDS * 4,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=["<bos>", "<eos>", "<tag>"], initial_alphabet=alphabet
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", model_max_length=500
    )


def encoder(tokenizer: Any, **settings: Any) -> StepEncoder:
    return StepEncoder(tokenizer, EncodingSettings(**settings))


def test_every_step_ends_where_its_own_tokens_end(tokenizer: Any) -> None:
    made = encoder(tokenizer, separator="\n\n")
    found = made.encode(PROBLEM, STEPS)
    starts = [0, *(end + 1 for end in found.ends)]
    texts = [
        tokenizer.decode(found.ids[start : end + 1])
        for start, end in zip(starts, found.ends, strict=False)
    ]
    assert texts == [step + "\n\n" for step in STEPS]
    assert found.ends[-1] == len(found.ids) - 1
    assert found.cut == 0
    assert found.length == len(found.prompt_ids) + len(found.ids)


def test_what_is_remembered_of_other_rows_changes_nothing(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepmark.prm import encoding

    monkeypatch.setattr(encoding, "REMEMBERED", 2)
    monkeypatch.setattr(encoding, "LONGEST_REMEMBERED", 40)
    shared = encoder(tokenizer, separator="\n\n")
    others = [Problem(f"q{n}", f"{n}?", None) for n in range(3)]
    rows = [(PROBLEM, STEPS[:n]) for n in (1, 2, 3)] + [(one, STEPS) for one in others]
    rows += [(Problem("other id", PROBLEM.text, None), STEPS[::-1]), (PROBLEM, ("x " * 40,))]
    fresh = [encoder(tokenizer, separator="\n\n").encode(*row) for row in rows]
    assert [shared.encode(*row) for row in [*rows, *rows]] == [*fresh, *fresh]
    assert len(shared._steps) == len(shared._prompts) == 2


def test_a_text_that_repeats_is_tokenized_once(tokenizer: Any) -> None:
    made = encoder(tokenizer)
    seen: list[str] = []

    def counted(text: str, **settings: Any) -> Any:
        seen.append(text)
        return tokenizer(text, **settings)

    made.tokenizer = counted
    made._prompts.tokens_of = lambda problem: (1, 2)
    for number in (1, 2, 3):
        made.encode(PROBLEM, STEPS[:number])
    assert seen == list(STEPS)


def test_the_beginning_of_a_solution_is_the_beginning_of_its_tokens(tokenizer: Any) -> None:
    made = encoder(tokenizer)
    whole = made.encode(PROBLEM, STEPS)
    part = made.encode(PROBLEM, STEPS[:2])
    assert whole.prompt_ids == part.prompt_ids
    assert whole.ids[: len(part.ids)] == part.ids
    assert whole.ends[:2] == part.ends


def test_a_tag_in_the_words_is_text_and_the_places_are_those_of_our_tags(tokenizer: Any) -> None:
    made = encoder(tokenizer, mark="tag", tag="<tag>")
    tag = tokenizer.convert_tokens_to_ids("<tag>")
    found = made.encode(PROBLEM, STEPS)
    assert [place for place, one in enumerate(found.ids) if one == tag] == list(found.ends)
    assert found.ids.count(tag) == len(STEPS)


def test_what_is_too_long_is_cut_left_out_or_refused_as_the_settings_say(tokenizer: Any) -> None:
    whole = encoder(tokenizer).encode(PROBLEM, STEPS)
    most = len(whole.prompt_ids) + whole.ends[1]
    cut = encoder(tokenizer, max_tokens=most).encode(PROBLEM, STEPS)
    assert (cut.ends, cut.cut) == (whole.ends[:1], 2)
    assert cut.ids == whole.ids[: whole.ends[0] + 1], "no token of a step without its end"
    left_out = encoder(tokenizer, max_tokens=most, overflow="drop_row").encode(PROBLEM, STEPS)
    assert (left_out.ids, left_out.ends, left_out.cut) == ((), (), 3)
    with pytest.raises(DataError, match=rf"max_tokens = {most} .*step 2 of 3"):
        encoder(tokenizer, max_tokens=most, overflow="error").encode(PROBLEM, STEPS)


def test_there_is_one_bos_where_the_tokenizer_adds_one(tokenizer: Any) -> None:
    assert tokenizer.bos_token_id not in encoder(tokenizer).encode(PROBLEM, STEPS).prompt_ids
    chat = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}"
    tokenizer.chat_template = chat
    try:
        ids = encoder(tokenizer, chat="always", system="Be brief.").encode(PROBLEM, STEPS)
    finally:
        tokenizer.chat_template = None
    assert (*ids.prompt_ids, *ids.ids).count(tokenizer.bos_token_id) == 1
    assert tokenizer.decode(ids.prompt_ids).startswith("<bos>[system] Be brief.[user] ")


def test_the_key_changes_with_settings_and_vocabulary(tokenizer: Any) -> None:
    keys = {
        encoder(tokenizer).key,
        encoder(tokenizer, separator="\n\n").key,
        encoder(tokenizer, max_tokens=64).key,
    }
    assert len(keys) == 3
    assert encoder(tokenizer).key in keys


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mark": "tag"}, "a tag is needed"),
        ({"tag": "<tag>"}, "a tag is needed"),
        ({"max_tokens": 3}, "greater than or equal to 8"),
        ({"seperator": "x"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncodingSettings(**settings)


def test_tags_of_several_tokens_and_empty_solutions_are_refused(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"The tag 'zzqq' is [2-4] tokens"):
        encoder(tokenizer, mark="tag", tag="zzqq")
    with pytest.raises(DataError, match="'p' has no steps"):
        encoder(tokenizer).encode(PROBLEM, ())
    with pytest.raises(DataError, match="Step 2 of problem 'p' is ''"):
        encoder(tokenizer, separator="").encode(PROBLEM, ("a", ""))


def test_a_problem_beyond_the_limit_of_the_tokenizer_is_for_overflow_to_judge(
    tokenizer: Any,
) -> None:
    long = Problem("long", "pens " * 900, None)
    for settings in ({}, {"overflow": "drop_row"}):
        found = encoder(tokenizer, max_tokens=600, **settings).encode(long, STEPS)
        assert (found.ids, found.ends, found.cut) == ((), (), 3)
    assert encoder(tokenizer, max_tokens=9000).encode(long, STEPS).cut == 0
    with pytest.raises(DataError, match="takes more than max_tokens = 600"):
        encoder(tokenizer, max_tokens=600, overflow="error").encode(long, STEPS)


def test_half_a_surrogate_pair_reads_as_the_character_for_what_cannot_be_read(
    tokenizer: Any,
) -> None:
    encoder = StepEncoder(tokenizer, EncodingSettings())
    half, whole = (
        encoder.encode(Problem("p", f"How {mark}many?", "7"), (f"3 + 4 {mark}", "so 7"))
        for mark in (HALF, "\ufffd")
    )
    assert half == whole
