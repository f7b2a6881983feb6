"""Labels from an engine that does as it is told: caching, stopping, budgets, and bad engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepmark.errors import ConfigError, DataError, EngineError, VerifierError
from stepmark.prm.annotation import (
    AnnotatedSteps,
    AnnotationSettings,
    Annotator,
    ToAnnotate,
    upper_bound,
)
from stepmark.prm.annotation.rollouts import ENOUGH
from stepmark.statistics import wilson
from stepmark.store import SampleStore
from stepmark.types import Item, Sampling, Verdict

Make = Callable[..., ToAnnotate]
SOME = st.lists(st.floats(0, 1), min_size=6, max_size=6)
WITH_FIXTURES = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def labels(found: list[AnnotatedSteps]) -> dict[str, tuple[float | None, ...]]:
    return {one.item.key: one.row.labels for one in found}


def several(make: Make) -> list[ToAnnotate]:
    """Solutions of two problems; some share prefixes, some are right."""
    return [
        make(steps, correct=correct, name=name, key=f"{name}{steps}{correct}")
        for name in ("p", "q")
        for steps, correct in ((5, False), (3, True), (4, False), (1, False), (5, True))
    ]


def test_a_label_is_what_the_roll_outs_of_its_prefix_say(
    scripted: Any, judge: Any, make: Make
) -> None:
    engine = scripted(lambda steps: 1.0 if steps < 3 else 0.0)
    annotator = Annotator(engine, judge, AnnotationSettings(rollouts=4), completer="c@1")
    [found] = annotator.annotate([make(5)])
    assert found.row.labels == (1, 1, 0, 0, 0)
    assert (found.row.origin, found.row.kind, found.row.final_correct) == (
        "rollouts",
        "hard",
        False,
    )
    about = found.row.meta["annotation"]
    assert about["n_rollouts"] == [2, 2, 4, 4, 0]
    assert about["successes"] == [2, 2, 0, 0, 0]
    assert (about["low"][2], about["high"][2]) == tuple(round(x, 6) for x in wilson(0, 4))
    assert about["reason"][-1] == "verdict"
    assert (about["completer"], about["method"], about["verifier"]) == ("c@1", "mc", judge.key)
    assert about["settings"]["sampling"]["temperature"] == 0.7
    assert found.row.meta["key"] == "p"


@WITH_FIXTURES
@given(SOME, st.integers(1, 8), st.integers(0, 3))
def test_neither_company_nor_order_nor_the_size_of_a_block_changes_a_label(
    scripted: Any, judge: Any, make: Make, chances: list[float], n: int, seed: int
) -> None:
    items = several(make)
    for method in ("mc", "binary"):
        asked = AnnotationSettings(method=method, rollouts=n, seed=seed)  # type: ignore[arg-type]

        def run(items: list[ToAnnotate], asked: AnnotationSettings = asked, **how: Any) -> Any:
            engine = scripted(lambda steps: chances[min(steps, 5)], silent=0.2)
            found = list(Annotator(engine, judge, asked, **how).annotate(items))
            return {one.item.key: one.row for one in found}

        together = run(items)
        assert run(items[::-1], at_once=3) == together
        alone = [run([item]) for item in items]
        assert {key: row for one in alone for key, row in one.items()} == together


@WITH_FIXTURES
@given(SOME, st.sampled_from([1, 2, 4]))
def test_fewer_roll_outs_are_the_first_ones_of_more(
    scripted: Any, judge: Any, make: Make, chances: list[float], n: int
) -> None:
    def shares(rollouts: int) -> Any:
        engine = scripted(lambda steps: chances[min(steps, 5)])
        asked = AnnotationSettings(rollouts=rollouts, early_stop=False)
        annotator = Annotator(engine, judge, asked)
        item = make(5)
        list(annotator.annotate([item]))
        return [annotator.rollouts.of(item.prefix(k), n) for k in range(1, 5)]

    assert shares(n) == shares(8)


def test_equal_prefixes_of_a_problem_are_rolled_out_once(
    scripted: Any, judge: Any, make: Make
) -> None:
    engine = scripted(lambda steps: 0.0)
    asked = AnnotationSettings(rollouts=4)
    items = [make(5, key="one"), make(5, correct=True, key="two"), make(5, name="other")]
    list(Annotator(engine, judge, asked).annotate(items))
    names = [prompt.problem.id for call in engine.calls for prompt in call]
    assert len(names) == len(set(names)) == 2 * 4 * 4  # two problems, four prefixes, four roll-outs
    assert upper_bound(items, asked).rollouts == engine.drawn


def test_a_wave_of_all_solutions_is_one_call_of_the_engine(
    scripted: Any, judge: Any, make: Make
) -> None:
    engine = scripted(lambda steps: 0.5)
    list(Annotator(engine, judge, AnnotationSettings(labels="soft")).annotate(several(make)))
    assert len(engine.calls) == 1
    assert all(len(prompt.ids) > 2 for prompt in engine.calls[0])


def test_a_prefix_is_sent_as_the_sampled_ids_and_marked_as_one_text(
    scripted: Any, judge: Any, make: Make
) -> None:
    seen: list[Item] = []

    class Watching(type(judge)):  # type: ignore[misc]
        def __call__(self, items: Any) -> list[Verdict]:
            seen.extend(items)
            return super().__call__(items)

    engine, item = scripted(lambda steps: 1.0), make(3)
    list(Annotator(engine, Watching(), AnnotationSettings(rollouts=1)).annotate([item]))
    assert {prompt.ids for prompt in engine.calls[0]} == {
        item.prompt.ids + item.ids[: end + 1] for end in item.ends[:-1]
    }
    assert sorted(one.completion for one in seen) == ["a\nR", "a\nb\nR", "a\nb\nW"]
    assert {one.problem.id for one in seen} == {"p"}
    assert {one.tokens for one in seen} == {3, 5}


@pytest.mark.parametrize("method", ["mc", "binary"])
def test_a_store_makes_a_second_annotation_free_and_equal(
    scripted: Any, judge: Any, make: Make, tmp_path: Path, method: Any
) -> None:
    asked = AnnotationSettings(method=method)
    rows: list[Any] = []
    engines = [scripted(lambda steps: 0.4, silent=0.3) for _ in range(2)]
    for engine in engines:
        store = SampleStore(tmp_path / "store")
        rows.append(
            [
                one.row
                for one in Annotator(engine, judge, asked, store=store).annotate(several(make))
            ]
        )
    assert rows[0] == rows[1]
    assert engines[0].drawn > 0
    assert engines[1].drawn == 0
    sample = next(SampleStore(tmp_path / "store").rows())
    assert sample.completion.startswith("a\n")
    assert sample.meta["rollout"]["of"] in ("p", "q")
    other = Annotator(
        engines[1], judge, asked, completer="other", store=SampleStore(tmp_path / "store")
    )
    list(other.annotate(several(make)))
    assert engines[1].drawn > 0


@pytest.mark.parametrize("after", [0, 1, 30, 63])
def test_stopped_and_begun_again_gives_the_labels_of_a_straight_run(
    scripted: Any, judge: Any, make: Make, tmp_path: Path, after: int
) -> None:
    asked, items = AnnotationSettings(labels="soft"), several(make)
    straight = list(Annotator(scripted(lambda s: 0.5), judge, asked).annotate(items))
    engine = scripted(lambda steps: 0.5)
    engine.stops_after = after
    with pytest.raises(KeyboardInterrupt):
        list(Annotator(engine, judge, asked, store=SampleStore(tmp_path)).annotate(items))
    again = scripted(lambda steps: 0.5)
    resumed = list(Annotator(again, judge, asked, store=SampleStore(tmp_path)).annotate(items))
    assert [one.row for one in resumed] == [one.row for one in straight]
    assert again.drawn == 2 * 4 * 8 - after  # two problems with four prefixes each


def test_what_was_drawn_and_not_marked_is_marked_when_it_goes_on(
    scripted: Any, judge: Any, make: Make, tmp_path: Path
) -> None:
    asked = AnnotationSettings(labels="soft")
    straight = list(Annotator(scripted(lambda s: 0.5), judge, asked).annotate([make(4)]))
    list(
        Annotator(scripted(lambda s: 0.5), judge, asked, store=SampleStore(tmp_path)).annotate(
            [make(4)]
        )
    )
    [verdicts] = tmp_path.glob("verdicts.*")
    verdicts.unlink()
    engine = scripted(lambda steps: 0.5)
    again = list(Annotator(engine, judge, asked, store=SampleStore(tmp_path)).annotate([make(4)]))
    assert [one.row for one in again] == [one.row for one in straight]
    assert engine.drawn == 0


@pytest.mark.parametrize("budget", [1, 20, 40, 60, 10_000])
def test_a_budget_is_never_exceeded_and_says_what_it_left_out(
    scripted: Any, judge: Any, make: Make, tmp_path: Path, budget: int
) -> None:
    items = several(make)
    asked = AnnotationSettings(rollouts=2, sampling=Sampling(max_tokens=2))

    def run(store: SampleStore) -> tuple[list[Any], Any]:
        left: list[tuple[str, str]] = []
        annotator = Annotator(
            scripted(lambda steps: 0.0), judge, asked, budget=budget, store=store, at_once=4,
            on_left_out=lambda item, why: left.append((item.key, why)),
        )  # fmt: skip
        rows = [one.row for one in annotator.annotate(items)]
        assert annotator.counts.spent.generated <= budget
        assert len(rows) + annotator.counts.left_out["budget"] == len(items)
        assert [why for _, why in left] == ["budget"] * len(left)
        return rows, left

    first = run(SampleStore(tmp_path))
    assert run(SampleStore(tmp_path)) == first  # what is in the store counts as when it was drawn
    assert (len(first[0]) == len(items)) == (budget >= 40)


def test_an_engine_that_gives_fewer_roll_outs_is_named_and_nothing_is_lost(
    scripted: Any, judge: Any, make: Make, tmp_path: Path
) -> None:
    asked = AnnotationSettings(labels="soft")
    engine = scripted(lambda steps: 0.5, lacks=3)
    with pytest.raises(EngineError, match=r"returned 29 of 32 roll-outs; the first .*'p#\w+\.5'"):
        list(Annotator(engine, judge, asked, store=SampleStore(tmp_path)).annotate([make(5)]))
    again = scripted(lambda steps: 0.5)
    list(Annotator(again, judge, asked, store=SampleStore(tmp_path)).annotate([make(5)]))
    assert again.drawn == 3


def test_an_engine_that_answers_what_was_not_asked_is_refused(
    scripted: Any, judge: Any, make: Make
) -> None:
    class Twice(scripted):  # type: ignore[misc]
        def generate(self, prompts: Any, n: int, sampling: Any, seed: int) -> Any:
            yield from super().generate(prompts, 2, sampling, seed)

    with pytest.raises(EngineError, match=r"returned 2 roll-outs of 'p#\w+\.0' \(asked for 1\)"):
        list(Annotator(Twice(lambda s: 0.5), judge).annotate([make(5)]))


def test_roll_outs_without_a_verdict_do_not_count_and_a_prefix_without_any_says_so(
    scripted: Any, judge: Any, make: Make
) -> None:
    engine = scripted(lambda steps: 1.0, silent=1.0)
    annotator = Annotator(engine, judge)
    assert [one.row.labels for one in annotator.annotate([make(3)])] == [(None, None, 0)]
    engine = scripted(lambda steps: 1.0, silent=0.5)
    [found] = Annotator(engine, judge, AnnotationSettings(labels="soft")).annotate([make(3)])
    assert found.row.labels == (1, 1, 0)
    assert 0 < found.estimates[0].n_rollouts < 8


def test_a_verifier_that_fails_too_often_stops_the_work_with_its_own_words(
    scripted: Any, make: Make
) -> None:
    class Broken:
        key, columns = "broken@1", frozenset[str]()

        def __call__(self, items: Any) -> list[Verdict]:
            return [Verdict.failed("verifier_raised", traceback="ValueError: no") for _ in items]

    with pytest.raises(VerifierError, match=r"of broken@1 are errors.*\n.*ValueError: no"):
        list(Annotator(scripted(lambda s: 0.5), Broken()).annotate([make(ENOUGH)]))


def test_a_prompt_without_room_is_not_sent_and_its_solution_says_why(
    scripted: Any, judge: Any, make: Make
) -> None:
    engine, left = scripted(lambda steps: 1.0), list[str]()
    asked = replace(
        AnnotationSettings(), sampling=replace(AnnotationSettings().sampling, max_tokens=4)
    )
    engine.max_length = 2 + 4 + 4  # prompt, two lines of two tokens, roll-out
    annotator = Annotator(engine, judge, asked, on_left_out=lambda item, why: left.append(why))
    [found] = annotator.annotate([make(5)])
    assert found.row.labels == (1, 1, None, None, 0)
    assert [str(one.reason) for one in found.estimates][2:4] == ["no_room"] * 2
    assert max(len(prompt.ids) for call in engine.calls for prompt in call) == 6
    hidden = AnnotationSettings(include_last=False, sampling=asked.sampling)
    engine.max_length = 6
    silent = Annotator(engine, judge, hidden, on_left_out=lambda item, why: left.append(why))
    assert not list(silent.annotate([make(5)]))
    assert left == ["no_room"]


def test_settled_problems_are_left_out_when_asked_for(
    scripted: Any, judge: Any, make: Make
) -> None:
    asked = AnnotationSettings(skip_settled=True)
    items = [
        replace(make(3, key=key), root=root)
        for key, root in (("none", (0, 4)), ("all", (4, 4)), ("some", (1, 4)))
    ]
    engine = scripted(lambda steps: 0.5)
    annotator = Annotator(engine, judge, asked)
    assert [one.item.key for one in annotator.annotate(items)] == ["some"]
    assert annotator.counts.left_out == {"settled": 2}
    unknown = Annotator(scripted(lambda steps: 0.0), judge, asked)
    assert not list(unknown.annotate([make(3)]))
    assert unknown.counts.left_out == {"settled": 1}


def test_the_naive_loop_is_what_it_would_cost(scripted: Any, judge: Any, make: Make) -> None:
    engine = scripted(lambda steps: 1.0)
    annotator = Annotator(engine, judge, AnnotationSettings(rollouts=8))
    list(annotator.annotate([make(4, key="a"), make(4, key="b")]))
    read = sum(2 + 2 * k for k in (1, 2, 3))
    counts = annotator.counts
    assert counts.naive == (2 * 3 * 8, 2 * 3 * 8 * 1, 2 * 8 * read)
    assert counts.spent == (3 * 2, 3 * 2, 2 * read)  # two roll-outs a prefix, shared by both
    assert counts.ratio == counts.naive.tokens / counts.spent.tokens


def test_what_cannot_be_is_refused(scripted: Any, judge: Any, make: Make) -> None:
    engine = scripted(lambda steps: 1.0)
    with pytest.raises(ConfigError, match="budget is 0"):
        Annotator(engine, judge, budget=0)
    engine.tokenizer = None
    with pytest.raises(ConfigError, match="has no tokenizer"):
        Annotator(engine, judge)
    good = make(3)
    with pytest.raises(DataError, match="one rising end a step"):
        ToAnnotate("k", good.prompt, good.ids, good.text, good.steps, (1, 1, 4))
