"""Rewards for TRL without TRL: both shapes of completions, names, pickles, refusals."""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepmark.adapters.trl import async_reward, reward
from stepmark.errors import ConfigError, DataError, SetupError, UnknownNameError, VerifierError
from stepmark.registry import load_file
from stepmark.verifiers import MathVerifier

CHECKS = Path(__file__).parent / "checks.py"
TEXTS = ["5 cm", "5 m", "2"]
MESSAGES = [[{"role": "assistant", "content": text}] for text in TEXTS]
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]


def call(mark: Any, completions: list[Any] = TEXTS, **columns: Any) -> list[float | None]:
    count = len(completions)
    given = {"solution": ["5"] * count, "unit": ["cm"] * count} | columns
    ids = [[0]] * count
    return mark(prompts=["How long?"] * count, completions=completions, completion_ids=ids, **given)


class Trainer:
    """The hooks that a trainer hands to its reward functions, and what came through them."""

    def __init__(self, functions: int = 1, aggregation: str = "sum_then_normalize") -> None:
        self.reward_funcs = [None] * functions
        self.multi_objective_aggregation = aggregation
        self.extra: dict[str, list[Any]] = {}
        self.metrics: dict[str, float] = {}

    def log_extra(self, column: str, values: list[Any]) -> None:
        self.extra[column] = values

    def log_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value

    @property
    def hooks(self) -> dict[str, Any]:
        given = {"log_extra": self.log_extra, "log_metric": self.log_metric}
        return {"trainer_state": SimpleNamespace(global_step=1), **given}


@pytest.mark.parametrize("completions", [TEXTS, MESSAGES], ids=["text", "messages"])
def test_texts_and_messages_are_marked_alike(completions: list[Any]) -> None:
    assert call(reward(f"{CHECKS}:units", gold="solution"), completions) == [1.0, 0.0, 0.5]


def test_of_a_conversation_the_last_words_of_the_assistant_count() -> None:
    turns = [
        {"role": "assistant", "content": "5 cm"},
        {"role": "tool", "content": "5 cm"},
        {"role": "assistant", "content": [{"type": "text", "text": "5 m"}]},
    ]
    silent = [{"role": "assistant", "content": None, "tool_calls": []}]
    assert call(reward(f"{CHECKS}:units", gold="solution"), [turns, silent]) == [0.0, 0.0]


def test_any_reference_of_a_verifier_works() -> None:
    for reference in ("math", {"name": "math", "units": "require"}, MathVerifier(strict=True)):
        assert call(reward(reference, gold="solution"), [r"\boxed{5}", "6"]) == [1.0, 0.0]
    with pytest.raises(UnknownNameError, match="math"):
        reward("mth", gold="solution")


def test_a_function_is_a_verifier_and_is_pickled_by_its_file() -> None:
    mark = reward(load_file(CHECKS).units, gold="solution")
    assert mark.__name__ == "units"
    assert call(pickle.loads(pickle.dumps(mark))) == call(mark) == [1.0, 0.0, 0.5]


def test_a_verifier_gets_the_question_the_prompt_and_the_columns() -> None:
    mark = reward(f"{CHECKS}:sees", gold="unit")
    given: dict[str, Any] = {"solution": ["four"], "unit": ["cm"]}
    assert mark(prompts=[ASKED], completions=["x"], **given) == [1.0]


def test_names_tell_rewards_apart() -> None:
    assert reward(f"{CHECKS}:units").__name__ == "units"
    assert reward("math?units=require").__name__ == "math-units-require"
    assert reward(MathVerifier()).__name__ == "math"
    assert reward("math", name="answer").__name__ == "answer"


def test_the_gold_is_guessed_when_one_column_has_a_usual_name() -> None:
    assert call(reward("math"), ["5", "6"]) == [1.0, 0.0]
    with pytest.raises(ConfigError, match="ground_truth, solution"):
        call(reward("math"), ["5"], ground_truth=["5"])


def test_without_a_gold_column_the_columns_are_named() -> None:
    with pytest.raises(DataError, match=r"'sulution'.*'solution'.*Columns: solution, unit"):
        call(reward("math", gold="sulution"))
    with pytest.raises(DataError, match=r"no column has a name.*Columns: length"):
        reward("math")(prompts=["?"], completions=["5"], length=[3])
    assert reward(f"{CHECKS}:shouts")(prompts=["?"] * 2, completions=["A", "a"]) == [1.0, 0.0]


def test_sampled_tokens_are_counted_for_verifiers_of_length() -> None:
    mark = reward("length?max_length=4&cache=2")
    ids = [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert mark(prompts=TEXTS, completions=TEXTS, completion_ids=ids) == [1.0, 0.5, 0.0]


def test_several_verifiers_make_one_reward_and_a_missing_score_is_missing() -> None:
    mark = reward("sum(0.8*math, 0.2*format)", gold="solution")
    assert call(mark, [r"\boxed{5}", "5"], solution=["5", "5"]) == [1.0, 0.8]
    assert call(mark, [r"\boxed{5}", "5"], solution=["5", None]) == [1.0, None]


def test_golds_that_cannot_be_read_are_counted_before_anything_is_marked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = ["\\frac{1", "\\sqrt{", "5"]
    mark = reward("math", gold="solution")
    assert call(mark, ["1", "2", "5"], solution=broken) == [None, None, 1.0]
    call(mark, ["1", "2", "5"], solution=broken)
    assert [record.getMessage().count("2 of 3 golds") for record in caplog.records] == [1]
    with pytest.raises(DataError, match=r"no gold to compare with. 2 of 2 golds.*gold=COLUMN"):
        call(reward("math", gold="solution"), ["1", "2"], solution=broken[:2])


def test_a_missing_column_of_the_verifier_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'mass'.*Columns: solution, unit"):
        call(reward(f"{CHECKS}:asks", gold="solution"))


def test_a_completion_that_is_no_text_is_an_error() -> None:
    with pytest.raises(DataError, match="17"):
        call(reward("math", gold="solution"), [17])


@pytest.mark.parametrize("gold", [None, " ", float("nan"), {"a": 1}, [1, 2], "\\frac{1"])
def test_a_gold_that_cannot_be_used_has_no_score_and_its_neighbours_have(gold: Any) -> None:
    mark = reward("math", gold="solution")
    assert call(mark, ["5", "5", "6"], solution=["5", gold, "5"]) == [1.0, None, 0.0]


def test_numbers_are_golds_too() -> None:
    assert call(reward("math", gold="solution"), ["5", "2.5"], solution=[5, 2.5]) == [1.0, 1.0]


def test_a_number_stands_in_for_a_missing_score_only_when_asked() -> None:
    mark = reward("math", gold="solution", abstain_score=0.25)
    assert call(mark, ["5", "5"], solution=["5", None]) == [1.0, 0.25]
    with pytest.raises(ConfigError, match="nan"):
        reward("math", abstain_score=float("nan"))


def test_what_was_found_and_why_reaches_the_tables_of_the_trainer() -> None:
    trainer = Trainer()
    call(reward("math", gold="solution"), ["5", "?", "7"], solution=["5", "5", ""], **trainer.hooks)
    assert trainer.extra["math/reason"] == ["equal", "no_answer", "gold_missing"]
    assert trainer.extra["math/extracted"] == ["5", None, None]
    shares = {"rewards/math/abstained": pytest.approx(1 / 3), "rewards/math/errors": 0.0}
    assert trainer.metrics == shares


def test_sums_that_count_a_missing_score_as_0_are_refused() -> None:
    mark = reward("math", gold="solution")
    with pytest.raises(ConfigError, match="normalize_then_sum"):
        call(mark, **Trainer(2).hooks)
    call(mark, **Trainer(2, "normalize_then_sum").hooks)
    call(reward("math", gold="solution", abstain_score=0.0), **Trainer(2).hooks)


def test_trainers_that_count_a_missing_score_as_0_are_refused() -> None:
    with pytest.raises(SetupError, match="OnlineDPOTrainer"):
        call(reward("math", gold="solution"), trainer_state=SimpleNamespace())


@pytest.mark.parametrize(
    ("installed", "fits", "fits_async"),
    [("1.16.0", True, True), ("1.13.2", True, False), ("1.5.1", False, False)],
)
def test_versions_that_count_a_missing_score_as_0_are_refused(
    installed: str, fits: bool, fits_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed)
    reward("math", abstain_score=0.0)
    for make, works in ((reward, fits), (async_reward, fits_async)):
        if works:
            make("math")
        else:
            with pytest.raises(SetupError, match=rf"TRL {installed}.*\n    pip install 'trl>=1"):
                make("math")


def test_the_async_reward_says_the_same_and_is_seen_as_async() -> None:
    mark = async_reward(f"{CHECKS}:units", gold="solution")
    assert inspect.iscoroutinefunction(mark.__call__)
    assert asyncio.run(call(mark)) == [1.0, 0.0, 0.5]  # type: ignore[arg-type]


def test_a_pickled_reward_works_in_another_process_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CHECKS.parent)
    mark = reward("checks.py:units?digits=3", gold="solution", name="length")
    (tmp_path / "mark.pickle").write_bytes(pickle.dumps(mark))
    code = (
        "import pickle; mark = pickle.load(open('mark.pickle', 'rb'))\n"
        "given = {'prompts': ['?'], 'solution': ['5'], 'unit': ['cm']}\n"
        "print(mark.__name__, mark(completions=['3'], **given))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "length [0.5]"


def test_marking_for_a_trainer_loads_no_trainer_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from stepmark.adapters.trl import reward; import stepmark.adapters.verl\n"
        "print(reward('math')(prompts=['?'], completions=['It is 5.'], answer=['5']))\n"
        "heavy = ('torch', 'transformers', 'datasets', 'trl', 'verl', 'sympy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[1.0]", "[]"]


def test_a_name_of_the_folder_travels_with_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stepmark.toml").write_text(f"[verifiers]\nruler = '{CHECKS}:units'\n")
    monkeypatch.chdir(tmp_path)
    stored = pickle.dumps(reward("ruler?digits=5", gold="solution"))
    monkeypatch.chdir(tmp_path.parent)
    assert call(pickle.loads(stored), ["5"]) == [0.5]


def test_a_verifier_object_is_pickled_with_its_settings() -> None:
    mark = pickle.loads(pickle.dumps(reward(MathVerifier(units="require"), gold="solution")))
    assert call(mark, ["5", "5 cm"], solution=["5 cm", "5 cm"]) == [0.0, 1.0]


def test_a_verifier_that_breaks_stops_the_run_and_shows_why() -> None:
    mark = reward(f"{CHECKS}:breaks", gold="solution")
    assert [call(mark) for _ in range(3)] == [[None, None, None]] * 3
    with pytest.raises(VerifierError, match="no such table"):
        call(mark)
    patient = reward(f"{CHECKS}:breaks", gold="solution", max_error_share=1)
    assert [call(patient) for _ in range(4)] == [[None, None, None]] * 4
    with pytest.raises(ConfigError, match="10"):
        reward("math", max_error_share=10)


def test_threads_may_share_a_reward() -> None:
    mark, seen = reward("math", gold="solution"), []
    threads = [
        threading.Thread(target=lambda: seen.append(call(mark, ["5", "6", r"\sqrt{25}"])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[1.0, 0.0, 1.0]] * 8
