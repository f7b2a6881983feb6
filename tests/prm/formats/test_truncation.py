"""What a limit on the tokens costs is what encoding with that limit cuts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark import LabelledSteps, Problem
from stepmark.prm import EncodingSettings, StepEncoder
from stepmark.prm.formats.truncation import TokenForecast
from stepmark.tasks import arith_tokenizer

TOKENIZER = arith_tokenizer()
UNCUT = StepEncoder(TOKENIZER, EncodingSettings(max_tokens=10**6))
LIMITS = (10, 14, 20, 40)

rows = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["1 + 2 = 3", "answer: 3", "7 * 12 = 84"]),
            st.sampled_from([0, 1, None]),
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)


def solutions(drawn: list[list[tuple[str, float | None]]]) -> list[LabelledSteps]:
    problem = Problem("p", "1 + 2?", "3")
    return [
        LabelledSteps(problem, tuple(step for step, _ in row), tuple(label for _, label in row))
        for row in drawn
    ]


@settings(max_examples=40)
@given(rows)
def test_the_forecast_is_what_encoding_with_the_limit_cuts(
    drawn: list[list[tuple[str, float | None]]],
) -> None:
    made = solutions(drawn)
    forecast = TokenForecast(UNCUT, LIMITS)
    assert list(forecast.counted(made)) == made
    for loss in forecast.losses:
        encoder = StepEncoder(TOKENIZER, EncodingSettings(max_tokens=loss.max_tokens))
        kept = [len(encoder.encode(row.problem, row.steps).ends) for row in made]
        lost = [row.labels[number:] for row, number in zip(made, kept, strict=True)]
        assert loss.rows_cut == sum(bool(labels) for labels in lost)
        assert loss.labels == sum(one is not None for labels in lost for one in labels)
        assert loss.wrong == sum(one == 0 for labels in lost for one in labels)
        empty = [
            any(one is not None for one in row.labels)
            and all(one is None for one in row.labels[:number])
            for row, number in zip(made, kept, strict=True)
        ]
        cut = [bool(labels) for labels in lost]
        assert loss.rows_without_label == sum(a and b for a, b in zip(empty, cut, strict=True))


def test_limits_end_with_the_first_that_costs_nothing() -> None:
    forecast = TokenForecast(UNCUT, (9, 500, 1000))
    forecast.add(solutions([[("1 + 2 = 3", 1), ("answer: 3", 0)]])[0])
    assert [loss.max_tokens for loss in forecast.losses] == [9, 500]
    assert forecast.losses[0].labels == 2
    assert forecast.losses[1] == (500, 0, 0, 0, 0)


def test_tokens_of_prompt_and_steps_make_up_the_row() -> None:
    forecast = TokenForecast(UNCUT)
    forecast.add(solutions([[("1 + 2 = 3", 1), ("answer: 3", 0)]])[0])
    assert forecast.prompts[0] + sum(forecast.steps) == forecast.rows[0]
    assert len(forecast.steps) == 2
    assert forecast.to_json()["labels"] == 2


def test_rows_without_words_are_left_out_as_training_leaves_them_out() -> None:
    problem = Problem("p", "1 + 2?", "3")
    bare = StepEncoder(TOKENIZER, EncodingSettings(separator=""))
    forecast = TokenForecast(bare)
    for steps in ((), ("",), ("1 + 2 = 3", " ")):
        forecast.add(LabelledSteps(problem, steps, (1,) * len(steps)))
    assert (forecast.rows, forecast.labels) == ([], 0)
