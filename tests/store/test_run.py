"""Run folders: complete or not there, resumed only with the settings that they were made with."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from stepmark.errors import RunError
from stepmark.store import RunFolder, build_manifest

CONFIG = {"seed": 0, "data": {"task": "arith", "limit": None}, "stop": ("a", "b")}


def manifest(**given: object) -> dict[str, object]:
    return build_manifest(config=CONFIG, seeds={"run": 0}, **given)  # type: ignore[arg-type]


def test_a_run_reads_back_what_it_was_made_with(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", CONFIG, manifest(prompt_hash="ab"))
    again = RunFolder.open(run.path)
    assert again.config() == {
        "seed": 0,
        "data": {"task": "arith", "limit": "none"},
        "stop": ["a", "b"],
    }
    assert again.manifest()["hashes"]["prompt"] == "ab"
    assert again.checkpoints.is_dir()


def test_the_manifest_holds_versions_seeds_and_no_times(tmp_path: Path) -> None:
    one, two = manifest(), manifest()
    assert one == two
    assert {"stepmark", "python", "platform", "packages", "git", "seeds", "hashes"} <= one.keys()
    assert "time" not in json.dumps(list(one))


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="not a run"):
        RunFolder.create(tmp_path, CONFIG, manifest(), resume=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
    RunFolder.create(tmp_path / "r", CONFIG, manifest())
    with pytest.raises(RunError, match="already holds a run"):
        RunFolder.create(tmp_path / "r", CONFIG, manifest())
    with pytest.raises(RunError, match="not a run folder"):
        RunFolder.open(tmp_path)


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    assert RunFolder.create(tmp_path / "r", CONFIG, manifest()).config()["seed"] == 0


def test_resuming_with_other_settings_names_them(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "r", CONFIG, manifest(), resume=True)
    RunFolder.create(tmp_path / "r", CONFIG, manifest(), resume=True)
    other = CONFIG | {"data": {"task": "arith", "limit": 5}}
    with pytest.raises(RunError, match=r"data\.limit was 'none' and is now 5") as refused:
        RunFolder.create(tmp_path / "r", other, manifest(), resume=True)
    assert "seed" not in str(refused.value)


def test_resuming_with_other_weights_or_data_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "r", CONFIG, manifest(data_hashes={"arith": "1"}))
    with pytest.raises(RunError, match=r"hashes\.data\.arith was '1' and is now '2'"):
        RunFolder.create(tmp_path / "r", CONFIG, manifest(data_hashes={"arith": "2"}), resume=True)


def test_resuming_with_other_versions_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = manifest()
    earlier["packages"] = {**earlier["packages"], "numpy": "0.1"}  # type: ignore[dict-item]
    RunFolder.create(tmp_path / "r", CONFIG, earlier)
    with caplog.at_level(logging.WARNING):
        RunFolder.create(tmp_path / "r", CONFIG, manifest(), resume=True)
    assert "numpy" in caplog.text
    assert "0.1" in caplog.text


def test_metrics_come_back_by_step_and_the_later_value_wins(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", CONFIG, manifest())
    run.log_metrics(0, {"eval/accuracy": 0.1})
    run.log_metrics(1, {"loss": 2.0})
    run.log_metrics(1, {"loss": 1.5, "kl": float("nan")})
    run.log_metrics(0, {"reward": 0.2})
    run.log_timings(1, {"step_s": 0.7})
    assert run.metrics() == [
        {"step": 0, "eval/accuracy": 0.1, "reward": 0.2},
        {"step": 1, "loss": 1.5, "kl": None},
    ]
    assert run.timings() == [{"step": 1, "step_s": 0.7}]


def test_the_lock_is_held_within_the_block_only(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "r", CONFIG, manifest())
    with run, pytest.raises(RunError, match="in use by process"), RunFolder.open(run.path):
        pass
    with RunFolder.open(run.path):
        pass


def test_a_run_of_an_earlier_version_is_refused_with_the_reason(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "r", CONFIG, manifest(weights_hash="ab"))
    more = CONFIG | {"average": "steps"}
    with pytest.raises(RunError, match=r"average is 'steps' and is not among(.|\n)*earlier Step"):
        RunFolder.check(tmp_path / "r", more, manifest(weights_hash="ab"), resume=True)
    with pytest.raises(RunError, match=r"weights was 'ab' and is now 'cd'(.|\n)*earlier Stepmark"):
        RunFolder.create(tmp_path / "r", CONFIG, manifest(weights_hash="cd"), resume=True)
    fewer = {key: value for key, value in CONFIG.items() if key != "seed"}
    with pytest.raises(RunError, match="seed was 0 and is no setting now"):
        RunFolder.create(tmp_path / "r", fewer, manifest(weights_hash="ab"), resume=True)
