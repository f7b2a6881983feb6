"""From sampled tokens to steps, to scores, and back; what is stored, and never asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmark.errors import ConfigError, DataError, VerifierError
from stepmark.prm import split_steps
from stepmark.rl_backends import Grpo, GrpoConfig, Reward, StepDone, StepsCounted
from stepmark.rl_backends.scoring import (
    check_step_counts,
    combined,
    score_steps,
    step_metrics,
    steps_of,
)
from stepmark.store import ScoredSteps
from stepmark.tasks import arith_tokenizer, load_task
from stepmark.types import Marked, Problem, Prompt, Rollout, StepItem, StepScores

HashedSteps = run_path(str(Path(__file__).with_name("hashed_steps.py")))["HashedSteps"]
ARITH: Any = arith_tokenizer()


def rollout(text: str, problem: Problem | None = None, *, ends: bool = True) -> Rollout:
    ids = tuple(ARITH(text, add_special_tokens=False).input_ids)
    ids += (ARITH.eos_token_id,) if ends else ()
    prompt = Prompt(problem or Problem("p", "How many?", "3"), (1,), "How many?")
    return Rollout(prompt, 0, ids, (0.0,) * len(ids), "stop", text, seed=0)


class Lines:
    """Gives what it was told to give."""

    key = "lines@1"

    def __init__(self, *given: Sequence[float | None]) -> None:
        self.given, self.items = given, list[StepItem]()

    def segment(self, text: str) -> tuple[tuple[int, int], ...]:
        return split_steps(text)

    def score(self, items: Sequence[StepItem]) -> list[StepScores]:
        self.items += items
        return [StepScores(tuple(scores), self.key) for scores in self.given]


def test_steps_end_on_their_newline_and_the_last_one_on_the_end_token() -> None:
    row = rollout("1 + 2 = 3\nanswer: 3")
    found = steps_of(Lines(), row, ARITH)
    assert found.texts == ("1 + 2 = 3", "answer: 3")
    assert [ARITH.decode([row.ids[end]]) for end in found.ends] == ["\n", "<eos>"]
    assert steps_of(Lines(), rollout("1\n2\n", ends=False), ARITH).ends == (1, 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("0123456789\n"), min_size=1, max_size=30), st.booleans())
def test_there_are_as_many_ends_as_texts_and_they_rise_to_the_last_token(signs, ends) -> None:
    row = rollout("".join(signs), ends=ends)
    found = steps_of(Lines(), row, ARITH)
    assert len(found.ends) == len(found.texts) >= 1
    assert list(found.ends) == sorted(set(found.ends))
    assert found.ends[-1] == len(row.ids) - 1


def test_a_step_in_which_no_token_starts_joins_the_one_before() -> None:
    class Letters(Lines):
        def segment(self, text: str) -> tuple[tuple[int, int], ...]:
            return tuple((n, n + 1) for n in range(len(text)))

    found = steps_of(Letters(), rollout("1 + 2"), ARITH)
    assert (found.texts, found.ends) == (("1", "+", "2"), (0, 1, 3))


def test_a_completion_without_words_is_one_step_with_score_0_and_the_scorer_is_not_asked() -> None:
    scorer = Lines((1.0,))
    found = score_steps(scorer, [rollout(""), rollout("\n\n"), rollout("3")], ARITH)
    assert found[:2] == [ScoredSteps((0,), (0.0,)), ScoredSteps((2,), (0.0,))]
    assert [item.steps for item in scorer.items] == [("3",)]


def test_scores_are_matched_to_steps_by_index_and_none_abstains() -> None:
    found = score_steps(Lines((0.25, None, 1)), [rollout("1\n2\n3")], ARITH)
    assert found == [ScoredSteps((1, 3, 5), (0.25, None, 1.0))]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (((0.5,),), "1 scores for 2 steps of 'p'"),
        (((0.5, 0.5, 0.5),), "3 scores for 2 steps"),
        ((), "0 rows for 1 completions"),
        (((0.5, 1.5),), "gave 1.5 for step 2"),
        (((float("nan"), 1.0),), "gave nan for step 1"),
    ],
)
def test_a_count_or_a_score_that_cannot_be_is_refused(given, said) -> None:
    with pytest.raises(DataError, match=said):
        score_steps(Lines(*given), [rollout("1\n2")], ARITH)


@pytest.mark.parametrize("spans", [((0, 1),), ((0, 2), (1, 3)), ((0, 1), (2, 3)), ()])
def test_spans_that_do_not_cover_the_text_are_refused(spans) -> None:
    class Wrong(Lines):
        def segment(self, text: str) -> tuple[tuple[int, int], ...]:
            return spans

    with pytest.raises(DataError, match="must follow one another from 0 to 3"):
        score_steps(Wrong((1.0, 1.0)), [rollout("1\n2")], ARITH)


def test_what_a_scorer_raises_comes_with_its_traceback() -> None:
    class Broken(Lines):
        def score(self, items: Sequence[StepItem]) -> list[StepScores]:
            raise RuntimeError("no memory")

    with pytest.raises(VerifierError, match=r"'lines@1' raised on 1 (.|\n)*no memory"):
        score_steps(Broken(), [rollout("1\n2")], ARITH)


numbers = st.lists(st.floats(0, 1), min_size=3, max_size=3)


@given(numbers, numbers, st.floats(0.01, 10), st.floats(0.01, 10))
def test_combined_scores_lie_between_those_of_the_scorers(one, two, first, second) -> None:
    ends = (0, 1, 2)
    rows = {"a@1": (first, ScoredSteps(ends, tuple(one)))}
    rows |= {"b@1": (second, ScoredSteps(ends, tuple(two)))}
    found = combined(rows)
    assert found is not None
    for score, x, y in zip(found.scores, one, two, strict=True):
        assert score is not None
        assert min(x, y) - 1e-12 <= score <= min(1.0, max(x, y) + 1e-12)
    assert combined({"a@1": rows["a@1"], "b@1": (0.0, rows["b@1"][1])}) == rows["a@1"][1]


def test_scorers_that_divide_a_completion_differently_cannot_be_added_up() -> None:
    one, two = ScoredSteps((1, 3), (1.0, 0.0)), ScoredSteps((3,), (1.0,))
    with pytest.raises(ConfigError, match="'a@1' and 'b@1' find 2 and 1 steps"):
        combined({"a@1": (1.0, one), "b@1": (1.0, two)})
    assert combined({"a@1": (1.0, one), "b@1": (0.0, two)}) == one
    assert combined({"b@1": (0.0, two)}) is None


def test_the_step_count_of_the_first_completions_is_told_or_refused() -> None:
    def group(*counts: int) -> tuple[Marked, ...]:
        return tuple(Marked(rollout("1"), {}, None, (0.5,) * count) for count in counts)

    counts = check_step_counts([group(1, 2), group(3, 4)])
    assert str(counts) == "2.5 steps per completion (from 1 to 4; 25% have one only)"
    with pytest.raises(ConfigError, match=r"1.3 steps per completion .*67% have one only"):
        check_step_counts([group(1, 1, 2)])
    assert check_step_counts([(Marked(rollout("1"), {}, None),)]) is None


def test_metrics_count_steps_and_leave_abstentions_out_of_the_mean() -> None:
    rows = [Marked(rollout("1"), {}, None, scores) for scores in ((1.0, None), (0.5,))]
    assert step_metrics([tuple(rows)]) == {
        "steps/mean_count": 1.5,
        "steps/min_count": 1.0,
        "steps/max_count": 2.0,
        "steps/single_share": 0.5,
        "steps/abstain_share": pytest.approx(1 / 3),
        "steps/score_mean": 0.75,
    }
    assert step_metrics([(Marked(rollout("1"), {}, None),)]) == {}


def test_a_scorer_that_stands_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lines@1 stands twice in reward\.scorers"):
        Reward(scorers=((Lines(), 1.0), (Lines(), 2.0)))


def test_the_truth_of_arith_reaches_the_tokens_of_each_line() -> None:
    from stepmark.prm import load_scorer

    problem = load_task("arith?size=1&steps=2", "test").problems[0]
    lines = (problem.solution or "").split("\n")
    wrong = lines[1].rpartition(" ")[0] + " 999"
    row = rollout("\n".join((lines[0], wrong, lines[2])), problem)
    (found,) = score_steps(load_scorer("arith-steps"), [row], ARITH)
    assert found.scores == (1.0, 0.0, 1.0)
    starts = (0, *(end + 1 for end in found.ends))
    parts = [ARITH.decode(row.ids[a : b + 1]) for a, b in zip(starts, found.ends, strict=False)]
    assert parts == [f"{lines[0]}\n", f"{wrong}\n", f"{lines[2]}<eos>"]


# -- on the loop


def grpo(**given: Any) -> Grpo:
    return Grpo(GrpoConfig(**{"steps": 3, "learning_rate": 1e-2, "save_every": 1, **given}))


def words_reward(run: Any, scorer: Any, **given: Any) -> Reward:
    run.rollout = run.rollout.model_copy(update={"max_tokens": 8})
    return Reward(((run.verifier, 1.0),), ((scorer, 1.0),), **given)


def test_ends_and_scores_are_stored_with_the_samples_and_logged(bandit, tmp_path) -> None:
    run, scorer, events = bandit(tmp_path / "run"), HashedSteps("word"), []
    result = run.train(
        grpo(), reward=words_reward(run, scorer, process=0.0), on_event=events.append
    )
    store = run.folder.samples
    scores = store.scores(scorer.key)
    assert scores.keys() == store.keys()
    for sample in store.rows():
        row = scores[sample.key]
        assert row.ends[-1] == len(sample.ids or ()) - 1
        assert len(row.ends) == len(row.scores)
    assert result.metrics["steps/score_mean"] <= 0.5
    assert not any(isinstance(event, StepsCounted) for event in events), "nothing is rewarded"


def test_a_resumed_run_never_scores_again(bandit, tmp_path) -> None:
    straight = bandit(tmp_path / "straight")
    straight.train(grpo(), reward=words_reward(straight, HashedSteps("word"), process=0.0))

    def kill(event: Any) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            raise KeyboardInterrupt

    broken = bandit(tmp_path / "broken")
    reward = words_reward(broken, HashedSteps("word"), process=0.0)
    with pytest.raises(KeyboardInterrupt):
        broken.train(grpo(), reward=reward, on_event=kill)
    again, scorer = bandit(tmp_path / "broken", resume=True), HashedSteps("word")
    again.train(grpo(), reward=words_reward(again, scorer, process=0.0))
    assert scorer.asked <= 3 * 4, "step 3 alone"
    assert straight.folder.metrics() == again.folder.metrics()
    one, two = straight.folder.samples, again.folder.samples
    assert one.scores(scorer.key) == two.scores(scorer.key)


def test_a_scorer_that_raises_costs_no_completion(bandit, tmp_path) -> None:
    class Once(HashedSteps):
        def score(self, items: Any) -> Any:
            raise RuntimeError("boom")

    run = bandit(tmp_path / "run")
    with pytest.raises(VerifierError, match="boom"):
        run.train(grpo(), reward=words_reward(run, Once("word"), process=0.0))
    assert len(run.folder.samples.keys()) == 3 * 4
    mended = bandit(tmp_path / "run", resume=True)
    drawn: list[int] = []
    generate = mended.engine.generate

    def watched(prompts: Any, *given: Any) -> Any:
        drawn.append(len(prompts))
        return generate(prompts, *given)

    mended.engine.generate = watched
    mended.train(grpo(), reward=words_reward(mended, HashedSteps("word"), process=0.0))
    assert drawn == [3, 3], "steps 2 and 3; step 1 lies in the store"


def test_most_completions_of_one_step_are_refused_before_anything_is_learnt(
    bandit, tmp_path
) -> None:
    run = bandit(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"are one step: 1\.0 steps per completion"):
        run.train(grpo(), reward=words_reward(run, HashedSteps("line")))
    assert not run.folder.metrics()
    events: list[Any] = []
    other = bandit(tmp_path / "other")
    reward = words_reward(other, HashedSteps("word"))
    other.train(grpo(), reward=reward, on_event=events.append)
    (told,) = (event for event in events if isinstance(event, StepsCounted))
    assert told.counts.mean > 1


def test_a_run_may_allow_a_policy_that_has_yet_to_find_steps() -> None:
    def group(*counts: int) -> tuple[Marked, ...]:
        rows = (Marked(rollout("1"), {}, None, step_scores=(1.0,) * n) for n in counts)
        return tuple(rows)

    counts = check_step_counts([group(1, 1, 2)], 1.0)
    assert counts is not None
    assert counts.single_share == pytest.approx(2 / 3)
    with pytest.raises(ConfigError, match="largest_single_share"):
        check_step_counts([group(1, 1, 2)], 0.6)
