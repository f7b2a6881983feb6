"""Search over steps: exact ids, any engine and scorer, and what a good scorer makes of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stepmark.errors import ConfigError, DataError, EngineError, UnknownNameError, VerifierError
from stepmark.prm.search import SearchSettings, beam_search, search
from stepmark.types import Group, Problem, Sampling, StepItem, StepScores

S = Any
"""The module of the scripted engine."""
WIDE = SearchSettings(n=16, width=4, sampling=Sampling(temperature=1.0, max_tokens=200))


def found(scripted: S, golds: tuple[str, ...], settings: SearchSettings, score: Any = None) -> Any:
    engine = scripted.ScriptedEngine(scripted.bits)
    scorer = scripted.ByFunction(score or scripted.right_bits)
    return search(engine, engine.tokenizer, scorer, scripted.prompts(*golds), settings), engine


@pytest.mark.parametrize("method", ["beam", "dvts"])
def test_a_perfect_scorer_solves_what_sampling_can_reach(scripted: S, method: Any) -> None:
    golds = ("10110", "00111", "11111111111111", "010101")
    settings = replace(WIDE, n=64, width=16, method=method)
    rows, _ = found(scripted, golds, settings)
    assert [row.best.rollout.text.splitlines()[-1] for row in rows] == [
        f"answer: {gold}" for gold in golds
    ]
    plain, _ = found(scripted, golds, replace(settings, method="best_of_n"))
    assert plain[2].best.rollout.text.splitlines()[-1] != f"answer: {golds[2]}"


@pytest.mark.parametrize("method", ["beam", "dvts", "best_of_n"])
def test_ids_are_the_sampled_ones_and_say_what_the_text_says(scripted: S, method: Any) -> None:
    rows, engine = found(scripted, ("1011", "001"), replace(WIDE, method=method))
    for row in rows:
        for one in row.candidates:
            rollout = one.rollout
            assert engine.tokenizer.batch_decode([rollout.ids])[0] == rollout.text
            assert rollout.finish == "stop"
            assert rollout.ids[-1] == scripted.END
            assert rollout.ids.count(scripted.END) == 1
            assert rollout.logps == tuple(-0.01 * (id % 7) for id in rollout.ids)
            assert rollout.prompt is row.prompt
            assert one.steps.ends[-1] == len(rollout.ids) - 1
            assert len(one.steps.scores) == len(rollout.text.splitlines())


def test_the_ids_of_a_beam_are_those_of_its_steps_one_after_another(scripted: S) -> None:
    engine = scripted.ScriptedEngine(scripted.bits)
    parts: dict[tuple[int, ...], tuple[int, ...]] = {}
    generate = engine.generate

    def spied(*given: Any) -> Iterator[Group]:
        for group in generate(*given):
            for rollout in group.rollouts:
                parts[(*group.prompt.ids, *rollout.ids)] = group.prompt.ids
            yield group

    engine.generate = spied
    [prompt] = scripted.prompts("1001")
    scorer = scripted.ByFunction(scripted.right_bits)
    [row] = search(engine, engine.tokenizer, scorer, [prompt], WIDE)
    for one in row.candidates:
        whole, steps = (*prompt.ids, *one.rollout.ids), 0
        while whole != prompt.ids:
            whole = parts[whole]
            steps += 1
        assert steps == 5


def test_one_greedy_beam_is_the_greedy_sample(scripted: S) -> None:
    greedy = Sampling(temperature=0.0, max_tokens=100)

    def follows(question: str, before: str, rng: random.Random) -> str:
        lines = before.count("\n")
        return "".join(f"line {at}\n" for at in range(lines, 3)) + "answer: 3"

    engine = scripted.ScriptedEngine(follows)
    prompts = scripted.prompts("1")
    [group] = engine.generate(prompts, 1, greedy, 0)
    scorer = scripted.ByFunction(lambda problem, steps: 0.5)
    settings = SearchSettings(n=1, width=1, sampling=greedy)
    [row] = search(engine, engine.tokenizer, scorer, prompts, settings)
    [one] = row.candidates
    assert one.rollout.ids == group.rollouts[0].ids
    assert one.rollout.logps == group.rollouts[0].logps
    assert (one.rollout.text, row.tokens) == (group.rollouts[0].text, len(one.rollout.ids))


def test_one_tree_is_beam_search_that_keeps_one(scripted: S) -> None:
    settings = replace(WIDE, n=4, width=4)
    one, _ = found(scripted, ("10110", "0011"), settings)
    two, _ = found(scripted, ("10110", "0011"), replace(settings, method="dvts"))
    assert one == two


def test_a_search_is_a_function_of_its_seed_and_of_no_other_problem(scripted: S) -> None:
    rows, _ = found(scripted, ("10110", "0011", "111"), WIDE)
    again, _ = found(scripted, ("10110", "0011", "111"), WIDE)
    assert rows == again
    engine = scripted.ScriptedEngine(scripted.bits)
    alone = scripted.prompts("10110", "0011", "111")[1:2]
    scorer = scripted.ByFunction(scripted.right_bits)
    assert search(engine, engine.tokenizer, scorer, alone, WIDE) == rows[1:2]
    other, _ = found(scripted, ("10110", "0011", "111"), replace(WIDE, seed=1))
    assert other != rows


def test_the_samples_of_best_of_n_are_those_of_the_engine_and_ordered_by_score(scripted: S) -> None:
    settings = replace(WIDE, method="best_of_n", n=6, aggregation="mean", seed=5)
    [row], engine = found(scripted, ("1011",), settings)
    [group] = engine.generate(scripted.prompts("1011"), 6, settings.sampling, 5)
    by_index = sorted(row.candidates, key=lambda one: one.rollout.index)
    assert tuple(one.rollout for one in by_index) == group.rollouts
    ranks = [one.rank for one in row.candidates]
    assert ranks == sorted(ranks, reverse=True)
    assert row.tokens == sum(len(rollout.ids) for rollout in group.rollouts)


def test_duplicates_of_a_text_go_on_once(scripted: S) -> None:
    def same(question: str, before: str, rng: random.Random) -> str:
        return "one\ntwo\nanswer: 1"[len(before) :]

    engine = scripted.ScriptedEngine(same)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    [row] = search(engine, engine.tokenizer, scorer, scripted.prompts("1"), WIDE)
    assert [n for _, n, _ in engine.asked] == [16, 4, 4]
    assert len(row.candidates) == 4
    assert row.tokens == engine.tokens


def test_a_blank_line_is_no_step_to_stand_still_on(scripted: S) -> None:
    def spaced(question: str, before: str, rng: random.Random) -> str:
        return "one\n\n\ntwo\n\nanswer: 1"[len(before) :]

    engine = scripted.ScriptedEngine(spaced)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    settings = replace(WIDE, n=2, width=1)
    [row] = search(engine, engine.tokenizer, scorer, scripted.prompts("1"), settings)
    assert row.rounds == 3
    assert row.best.rollout.text == "one\n\n\ntwo\n\nanswer: 1"
    assert len(row.best.steps.scores) == 3


def test_a_beam_of_blank_lines_only_is_cut_off(scripted: S) -> None:
    engine = scripted.ScriptedEngine(lambda question, before, rng: "\n" * 100)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    [row] = search(engine, engine.tokenizer, scorer, scripted.prompts("1"), WIDE)
    assert {one.rollout.finish for one in row.candidates} == {"length"}
    assert row.rounds == 1


def test_a_step_that_never_ends_is_cut_at_max_tokens(scripted: S) -> None:
    engine = scripted.ScriptedEngine(lambda question, before, rng: "on and on " * 50)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    settings = replace(WIDE, sampling=Sampling(temperature=1.0, max_tokens=30))
    [row] = search(engine, engine.tokenizer, scorer, scripted.prompts("1"), settings)
    assert {(one.rollout.finish, len(one.rollout.ids)) for one in row.candidates} == {
        ("length", 30)
    }


def test_no_completion_is_longer_than_max_tokens_and_the_cut_ones_stand_last(scripted: S) -> None:
    def uneven(question: str, before: str, rng: random.Random) -> str:
        left = 4 - before.count("\n")
        return "".join("x" * rng.randint(1, 12) + "\n" for _ in range(left)) + "answer: 1"

    engine = scripted.ScriptedEngine(uneven)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0 - steps[-1].startswith("answer"))
    settings = replace(WIDE, sampling=Sampling(temperature=1.0, max_tokens=40), max_steps=6)
    rows = search(engine, engine.tokenizer, scorer, scripted.prompts("1", "0", "11"), settings)
    ends = [one.rollout.finish for row in rows for one in row.candidates]
    assert {"stop", "length"} == set(ends)
    for row in rows:
        assert len(row.candidates) <= 16
        finishes = [one.rollout.finish for one in row.candidates]
        assert finishes == sorted(finishes, reverse=True)
        for one in row.candidates:
            assert len(one.rollout.ids) <= 40
            assert len(one.rollout.ids) == len(one.rollout.logps)


def test_beams_that_have_less_room_than_others_are_asked_apart(scripted: S) -> None:
    def uneven(question: str, before: str, rng: random.Random) -> str:
        left = 2 - before.count("\n")
        return "".join("x" * rng.randint(1, 14) + "\n" for _ in range(left)) + "answer: 1"

    sampling = Sampling(temperature=1.0, max_tokens=40)
    engine = scripted.ScriptedEngine(uneven, max_length=42)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    settings = replace(WIDE, sampling=sampling)
    rows = search(engine, engine.tokenizer, scorer, scripted.prompts("1", "0"), settings)
    free = scripted.ScriptedEngine(uneven)
    again = search(free, free.tokenizer, scorer, scripted.prompts("1", "0"), settings)
    assert [row.candidates for row in rows] == [row.candidates for row in again]
    lengths = {sampling.max_tokens for _, _, sampling in engine.asked}
    assert len(lengths) > 2


def test_max_steps_and_the_budget_end_a_search_with_what_there_is(scripted: S) -> None:
    rows, _ = found(scripted, ("1011011",), replace(WIDE, max_steps=2))
    [row] = rows
    assert row.rounds == 2
    assert {one.rollout.finish for one in row.candidates} == {"length"}
    assert len(row.best.steps.scores) == 2
    [row], engine = found(scripted, ("1011011",), replace(WIDE, token_budget=40))
    assert 40 <= row.tokens == engine.tokens < 80


def test_the_stop_strings_of_a_prompt_end_a_completion(scripted: S) -> None:
    def chats(question: str, before: str, rng: random.Random) -> str:
        return "one\nanswer: 1\nQ: next?\nmore"[len(before) :]

    engine = scripted.ScriptedEngine(chats)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    sampling = Sampling(temperature=1.0, max_tokens=100, stop=("\nQ:",))
    settings = replace(WIDE, n=4, sampling=sampling)
    [row] = search(engine, engine.tokenizer, scorer, scripted.prompts("1"), settings)
    assert row.best.rollout.text == "one\nanswer: 1"
    assert row.best.rollout.finish == "stop"


def test_paragraphs_are_steps_where_the_scorer_divides_so(scripted: S) -> None:
    def spoken(question: str, before: str, rng: random.Random) -> str:
        return "one\nhalf\n\ntwo\n\nanswer: 1"[len(before) :]

    engine = scripted.ScriptedEngine(spoken)
    scorer = scripted.ByFunction(lambda problem, steps: 1.0)
    scorer.splitter = "blank_line"
    search(engine, engine.tokenizer, scorer, scripted.prompts("1"), replace(WIDE, n=1, width=1))
    assert {sampling.stop for _, _, sampling in engine.asked} == {("\n\n",)}
    assert len(engine.asked) == 3


def test_a_step_without_a_score_stands_below_all_others(scripted: S) -> None:
    def partly(problem: Problem, steps: tuple[str, ...]) -> float | None:
        return None if steps[0] == "1" else 0.1

    rows, _ = found(scripted, ("00",), WIDE, partly)
    ranks = [one.rank for one in rows[0].candidates]
    assert ranks == sorted(ranks, key=lambda rank: rank is None)
    assert rows[0].best.rollout.text.startswith("0")


def test_the_aggregation_decides_what_goes_on(scripted: S) -> None:
    def late(problem: Problem, steps: tuple[str, ...]) -> float:
        return {"0": 0.2, "1": 0.9}.get(steps[-1], 0.5)

    last, _ = found(scripted, ("0000",), replace(WIDE, aggregation="last"), late)
    least, _ = found(scripted, ("0000",), replace(WIDE, aggregation="min"), late)
    assert least[0].best.rank == 0.5
    assert last[0].best.rollout.text.startswith("1\n") or last[0].best.rank == 0.5
    assert SearchSettings().how(scripted.ByFunction(late)) == "last"
    assert SearchSettings(method="best_of_n").how(scripted.ByFunction(late)) == "min"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": 10}, "a width that divides n"),
        ({"n": 0}, "n is 0"),
        ({"width": 0}, "width is 0"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"step_end": ("",)}, "none empty"),
        ({"sampling": Sampling(temperature=0.0)}, "temperature 0"),
        ({"sampling": Sampling(temperature=-1.0)}, "temperature is -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    scripted: S, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        found(scripted, ("1",), replace(WIDE, **changed))


def test_unknown_methods_and_aggregations_are_refused(scripted: S) -> None:
    for changed in ({"method": "beams"}, {"aggregation": "minimum"}):
        with pytest.raises(UnknownNameError, match=r"'(min|beam)'|Did you mean"):
            found(scripted, ("1",), replace(WIDE, **changed))


@pytest.mark.parametrize("method", ["beam", "best_of_n"])
def test_an_engine_that_returns_fewer_samples_is_refused(scripted: S, method: Any) -> None:
    class Short(scripted.ScriptedEngine):
        def generate(self, prompts: Any, n: int, *given: Any) -> Iterator[Group]:
            return super().generate(prompts, n - 1, *given)

    class Lost(scripted.ScriptedEngine):
        def generate(self, prompts: Any, *given: Any) -> Iterator[Group]:
            return super().generate(prompts[1:], *given)

    scorer = scripted.ByFunction(scripted.right_bits)
    settings = replace(WIDE, method=method)
    for kind, count in ((Short, "15 of 16"), (Lost, "0 of 16")):
        engine = kind(scripted.bits)
        with pytest.raises(EngineError, match=count):
            search(engine, engine.tokenizer, scorer, scripted.prompts("1"), settings)


def test_an_engine_that_does_not_stop_at_a_step_is_refused(scripted: S) -> None:
    class Deaf(scripted.ScriptedEngine):
        def generate(self, prompts: Any, n: int, sampling: Any, seed: int) -> Iterator[Group]:
            return super().generate(prompts, n, replace(sampling, stop=()), seed)

    engine = Deaf(scripted.bits)
    with pytest.raises(EngineError, match="went on after the end of a step"):
        search(
            engine, engine.tokenizer, scripted.ByFunction(scripted.right_bits),
            scripted.prompts("11"), WIDE,
        )  # fmt: skip


def test_other_counts_of_scores_and_failing_scorers_are_refused(scripted: S) -> None:
    class Wrong(scripted.ByFunction):
        def score(self, items: list[StepItem]) -> list[StepScores]:
            return [StepScores((*row.scores, 1.0), self.key) for row in super().score(items)]

    class Failing(scripted.ByFunction):
        def score(self, items: list[StepItem]) -> list[StepScores]:
            return [StepScores((None,) * len(i.steps), self.key, failed=True) for i in items]

    engine = scripted.ScriptedEngine(scripted.bits)
    for kind, error in ((Wrong, DataError), (Failing, VerifierError)):
        with pytest.raises(error, match="by-function@1"):
            search(engine, engine.tokenizer, kind(scripted.right_bits), scripted.prompts("1"), WIDE)


def test_no_prompts_find_nothing_and_beam_search_is_by_beams(scripted: S) -> None:
    engine = scripted.ScriptedEngine(scripted.bits)
    scorer = scripted.ByFunction(scripted.right_bits)
    assert search(engine, engine.tokenizer, scorer, [], WIDE) == []
    given = (engine, engine.tokenizer, scorer, scripted.prompts("101"))
    assert beam_search(*given, replace(WIDE, method="dvts")) == search(*given, WIDE)
