"""A refresh: what it writes and refuses, and that it ends the same after any kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmark.errors import DataError, RunError
from stepmark.prm import PrmScorer, labelled_steps
from stepmark.prm.checkpoint import read_card
from stepmark.prm.replay import (
    RefreshConfig,
    RefreshOutcome,
    ReplayBuffer,
    Rescale,
    current_model,
    reader_of,
    refresh,
)
from stepmark.prm.replay.matrix import matrix_of, matrix_svg
from stepmark.prm.replay.rounds import publish_round, switch
from stepmark.prm.splits import read_problems
from stepmark.training.events import Saved, StepDone
from stepmark.types import Problem, StepItem

Make = Callable[..., Any]


def settings(**gate: Any) -> RefreshConfig:
    return RefreshConfig.model_validate(
        {
            "gate": {"resamples": 100, **gate},
            "model": {"device": "cpu"},
            "algorithm": {
                "steps": 6,
                "rows_per_step": 8,
                "learning_rate": 5e-3,
                "eval_every": 3,
                "save_every": 2,
                "tokens_per_microbatch": 1000,
            },
        }
    )


def filled(folder: Path, sums: Make, **given: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(folder, held_out=0.3, **given)
    buffer.add(sums(60, "no"), 0)
    buffer.add(sums(60, "nu"), 1)
    return buffer


@pytest.fixture(scope="module")
def done(
    tiny_prm: Path, sums: Make, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ReplayBuffer, RefreshOutcome]:
    """One accepted refresh."""
    folder = tmp_path_factory.mktemp("buffer")
    buffer = filled(folder, sums)
    return buffer, refresh(tiny_prm, buffer, 1, settings(new="any", max_old_drop=1.0))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_an_accepted_model_is_current_and_scores_steps(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    buffer, found = done
    assert found.accepted
    assert found.model == buffer.folder.resolve() / "rounds" / "1" / "rm"
    assert current_model(buffer.folder) == found.model
    assert weights(found.model) != weights(tiny_prm)
    scorer = PrmScorer(buffer.folder / "current", device="cpu")
    scores = scorer.score([StepItem(Problem("p", "nu sum 1?", None), ("ok 1", "nu 1"))])[0].scores
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert not (buffer.folder / "work").exists()


def test_the_record_tells_what_was_learnt_from_and_what_came_of_it(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    buffer, found = done
    record = json.loads((found.folder / "manifest.json").read_text())
    counts = record["mixture"]
    assert counts["n_admitted"] == buffer.report(1).train >= counts["n_new"] > 0
    assert counts["n_replay"] == counts["replay_by_mixture"] > 0
    assert record["inputs"]["buffer"] == buffer.digest(1)
    assert record["parent"] == str(tiny_prm.resolve())
    assert set(record["before"]) == set(record["after"]) == {"0", "1", "probe"}
    assert "seconds" not in record
    assert set(json.loads((found.folder / "timings.json").read_text())["seconds"]) > {"train"}
    assert found.row == {0: found.after["0"].value, 1: found.after["1"].value}


def test_the_card_keeps_how_scores_are_read_and_the_problems_of_all_rounds(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    _, found = done
    before, after = read_card(tiny_prm), read_card(found.model)
    assert after.encoding == before.encoding
    assert after.aggregation == before.aggregation
    assert len(after.trained_on) == len(before.trained_on) + 1
    known, now = read_problems(tiny_prm), read_problems(found.model)
    assert known is not None
    assert now is not None
    assert known < now
    assert reader_of(found.model) == reader_of(tiny_prm)


def test_the_same_call_again_says_the_same_and_writes_nothing(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    buffer, found = done
    before = (found.folder / "manifest.json").stat().st_mtime_ns
    config = settings(new="any", max_old_drop=1.0)
    for model in (tiny_prm, buffer.folder / "current"):
        again = refresh(model, buffer, 1, config)
        assert again.changes == found.changes
        assert again.model == found.model
    assert (found.folder / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(RunError, match=r"Round 1 .* was refreshed otherwise: settings"):
        refresh(tiny_prm, buffer, 1, settings())


def test_scores_of_the_probe_say_how_to_rescale(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    buffer, found = done
    assert found.rescale is not None
    rows = list(labelled_steps(buffer.folder / "probe.jsonl"))
    assert {row.problem.text for row in rows} == {
        r.problem.text for r in buffer.rows(buffer.entries(round=0, split="held_out"))
    }
    items = [StepItem(row.problem, row.steps) for row in rows]
    found_scores = PrmScorer(tiny_prm, device="cpu").score(items)
    flat = [s for one in found_scores for s in one.scores if s is not None]
    assert found.rescale.mean_before == pytest.approx(sum(flat) / len(flat), abs=1e-5)


def test_rescaled_scores_have_the_mean_and_spread_of_those_before() -> None:
    moved = Rescale(0.6, 0.1, 0.5, 0.2)
    assert moved.apply(0.5) == pytest.approx(0.6)
    assert moved.apply(0.7) - moved.apply(0.5) == pytest.approx(0.1)
    assert Rescale(0.6, 0.1, 0.5, 0.0).apply(0.5) == pytest.approx(0.6)


def test_a_rejected_round_keeps_the_old_model_and_says_why(
    tiny_prm: Path, sums: Make, tmp_path: Path
) -> None:
    buffer = filled(tmp_path, sums)
    config = settings(new="rise")
    config = config.model_copy(
        update={"algorithm": config.algorithm.model_copy(update={"learning_rate": 1e-9})}
    )
    before = weights(tiny_prm)
    found = refresh(tiny_prm, buffer, 1, config)
    assert not found.accepted
    assert found.model == tiny_prm.resolve()
    assert weights(tiny_prm) == before
    assert current_model(tmp_path) is None
    names = {path.name for path in found.folder.iterdir()}
    assert names == {"rejected.json", "timings.json", "metrics.jsonl"}
    assert json.loads((found.folder / "rejected.json").read_text())["reasons"] == list(
        found.reasons
    )
    assert matrix_of(tmp_path).rejected == {1}
    assert found.row[1] == found.before["1"].value


class Killed(BaseException):
    """What a kill looks like to the code that it hits."""


@pytest.mark.parametrize("at", ["saved", "last"])
def test_killed_and_called_again_it_ends_with_the_same_weights(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path, sums: Make, tmp_path: Path, at: str
) -> None:
    _, straight = done
    buffer = filled(tmp_path, sums)

    def kill(event: Any) -> None:
        saved = at == "saved" and isinstance(event, Saved)
        if saved or (at == "last" and isinstance(event, StepDone) and event.step == 6):
            raise Killed

    config = settings(new="any", max_old_drop=1.0)
    with pytest.raises(Killed):
        refresh(tiny_prm, buffer, 1, config, on_event=kill)
    assert current_model(tmp_path) is None
    again = refresh(tiny_prm, ReplayBuffer(tmp_path), 1, config)
    assert weights(again.model) == weights(straight.model)
    assert again.changes == straight.changes


def test_a_published_round_becomes_current_when_the_call_is_made_again(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path
) -> None:
    buffer, found = done
    (buffer.folder / "current").unlink()
    refresh(tiny_prm, buffer, 1, settings(new="any", max_old_drop=1.0))
    assert current_model(buffer.folder) == found.model


def test_rounds_may_lie_elsewhere_than_the_rows(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path, tmp_path: Path
) -> None:
    buffer, found = done
    config = settings(new="any", max_old_drop=1.0)
    other = refresh(tiny_prm, buffer, 1, config, tmp_path / "rounds here")
    assert other.folder == tmp_path / "rounds here" / "rounds" / "1"
    assert current_model(tmp_path / "rounds here") == other.model
    assert weights(other.model) == weights(found.model)


def test_a_model_with_another_encoding_or_tokenizer_is_refused_before_anything_is_written(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path, tmp_path: Path
) -> None:
    buffer, _ = done
    for name in ("prm.json", "tokenizer.json"):
        other = tmp_path / name.partition(".")[0]
        shutil.copytree(tiny_prm, other)
        tree = json.loads((other / name).read_text())
        if name == "prm.json":
            tree["encoding"]["max_tokens"] += 1
        else:
            tree["model"]["vocab"]["new"] = len(tree["model"]["vocab"])
        (other / name).write_text(json.dumps(tree))
        word = "encoding" if name == "prm.json" else "tokenizer"
        with pytest.raises(RunError, match=f"is of a reward model with the {word}"):
            refresh(other, buffer, 1)


def test_the_probe_is_frozen(
    done: tuple[ReplayBuffer, RefreshOutcome], tiny_prm: Path, sums: Make
) -> None:
    buffer, _ = done
    with pytest.raises(RunError, match=r"The probe set of .* of earlier rounds could not be"):
        refresh(tiny_prm, buffer, 1, probe=sums(5, "other"))


def test_a_round_without_anything_new_is_refused(
    tiny_prm: Path, sums: Make, tmp_path: Path
) -> None:
    buffer = ReplayBuffer(tmp_path, held_out=0.3)
    buffer.add(sums(20, "no"), 0)
    buffer.add(sums(20, "no"), 1)
    with pytest.raises(DataError, match="Round 1 has nothing new to learn from: 0 new rows of 0"):
        refresh(tiny_prm, buffer, 1, settings())


def test_transfer_gain_and_forgetting_are_read_from_the_rounds(tmp_path: Path) -> None:
    def figures(**values: float) -> dict[str, Any]:
        return {name[1:]: {"value": value} for name, value in values.items()}

    first = {"accepted": True, "model_before": 0}
    one = {"before": figures(r0=0.9, r1=0.1), "after": figures(r0=0.8, r1=0.7)}
    two = {
        "before": figures(r0=0.8, r1=0.7, r2=0.2),
        "after": figures(r0=0.85, r1=0.6, r2=0.5),
    }
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w")
    publish_round(tmp_path, 1, {**first, **one}, model, {})
    publish_round(tmp_path, 2, {**first, "model_before": 1, **two}, model, {})
    switch(tmp_path, 2)
    found = matrix_of(tmp_path)
    assert found.to_row()["f1"] == [[0.9, 0.1, None], [0.8, 0.7, 0.2], [0.85, 0.6, 0.5]]
    assert found.backward_transfer(2) == pytest.approx(((0.85 - 0.9) + (0.6 - 0.7)) / 2)
    assert found.forward_gain(2) == pytest.approx(0.3)
    assert found.forgetting(2) == pytest.approx({0: 0.05, 1: 0.1})
    picture = matrix_svg(found)
    assert picture.startswith("<svg")
    assert "0.85" in picture
