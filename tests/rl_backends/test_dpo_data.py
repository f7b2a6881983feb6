"""Preference data: TRL's columns, texts or messages, and rows that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from stepmark.errors import DataError
from stepmark.rl_backends import preference_problems
from stepmark.rl_backends.preference_data import PreferenceData
from stepmark.types import Problem, Prompt, Sampling


def problem(**meta: Any) -> Problem:
    return Problem("d/1", "a", None, None, "d", meta)


USER = {"role": "user", "content": "a"}
REPLY = {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    "chosen", ["b", [REPLY], [USER, REPLY], [{"role": "system", "content": "s"}, USER, REPLY]]
)
def test_texts_and_messages_are_the_same_completion(chosen: Any) -> None:
    (found,) = preference_problems([problem(chosen=chosen, rejected="c")], "p.jsonl")
    assert (found.meta["chosen"], found.meta["rejected"]) == ("b", "c")


def test_columns_may_have_other_names() -> None:
    rows = [problem(better="b", worse="c", chosen="x")]
    (found,) = preference_problems(rows, "p.jsonl", "better", "worse")
    assert (found.meta["chosen"], found.meta["rejected"]) == ("b", "c")


BAD = [None, 3, [], [USER], [REPLY, USER], ["b"], [USER, REPLY, USER, REPLY]]
BAD += [[{"role": "assistant", "content": None}], [{"role": "assistant", "content": [1]}]]


@pytest.mark.parametrize("cell", BAD, ids=repr)
def test_a_row_that_holds_no_completion_is_refused_by_its_number(cell: Any) -> None:
    rows = [problem(chosen="b", rejected="c"), problem(chosen="b", rejected=cell)]
    with pytest.raises(
        DataError, match=r"p.jsonl, row 2 \(d/1\): 'rejected' is .*messages"
    ) as said:
        preference_problems(rows, "p.jsonl")
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.parametrize("cell", ["", " \n", [{"role": "assistant", "content": ""}]], ids=repr)
def test_a_model_may_have_written_nothing_but_nothing_is_never_chosen(cell: Any) -> None:
    (found,) = preference_problems([problem(chosen="b", rejected=cell)], "p.jsonl")
    assert not found.meta["rejected"].strip()
    with pytest.raises(DataError, match=r"'chosen' is .* with words in it"):
        preference_problems([problem(chosen=cell, rejected="c")], "p.jsonl")


def test_a_missing_column_is_named_with_what_there_is() -> None:
    with pytest.raises(DataError, match=r"no column 'chosen'.*Did you mean 'chosn'.*rejected"):
        preference_problems([problem(chosn="b", rejected="c")], "p.jsonl")


def test_pairs_end_with_the_end_token_unless_they_are_cut(bandit, tmp_path) -> None:
    tokenizer = bandit(tmp_path / "run").policy.tokenizer
    prompt = Prompt(
        problem(chosen="b c", rejected=[{"role": "assistant", "content": "a"}]), (2,), "a"
    )
    (group,) = PreferenceData(tokenizer).generate([prompt], 2, Sampling(max_tokens=2), 0)
    chosen, rejected = group.rollouts
    assert (chosen.text, rejected.text) == ("b c", "a")
    words = [tokenizer.convert_ids_to_tokens(list(row.ids)) for row in group.rollouts]
    assert words == [["b", "c"], ["a", "<eos>"]]
    assert (chosen.finish, rejected.finish) == ("length", "stop")
    assert [row.index for row in group.rollouts] == [0, 1]
