from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stepmark.errors import ConfigError, SetupError
from stepmark.training.trackers import TRACKERS, Trackers, check_trackers

pytest.importorskip("accelerate")

OWN = """
from accelerate.tracking import GeneralTracker

SEEN = []

class Kept(GeneralTracker):
    name = "kept"
    requires_logging_directory = False
    tracker = None

    def __init__(self, run_name):
        super().__init__()
        SEEN.append(("begin", run_name))

    def store_init_configuration(self, values):
        SEEN.append(("settings", values))

    def log(self, values, step=None, **kwargs):
        SEEN.append((step, values))

    def finish(self):
        SEEN.append(("end", None))

class Failing(Kept):
    def log(self, values, step=None, **kwargs):
        raise OSError("the network is down")

def no_class():
    return 1
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    place = tmp_path / "own.py"
    place.write_text(OWN)
    return str(place)


def seen(own: str) -> list:
    from stepmark.registry import load_file

    return load_file(Path(own)).SEEN


def test_a_tracker_gets_settings_and_metrics_under_their_names(own, tmp_path) -> None:
    with Trackers([f"{own}:Kept"], tmp_path / "run-7", {"a.b": 1, "c": None, "d": [1]}) as trackers:
        trackers.log(3, {"rewards/math@2/mean": 0.5})
    assert seen(own) == [
        ("begin", "run-7"),
        ("settings", {"a.b": 1, "c": "none", "d": "[1]"}),
        (3, {"rewards/math@2/mean": 0.5}),
        ("end", None),
    ]


def test_a_tracker_that_fails_ends_no_run_and_is_told_once(own, tmp_path, caplog) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Trackers([f"{own}:Failing", f"{own}:Kept"], tmp_path / "run") as trackers,
    ):
        trackers.log(1, {"loss": 1.0})
        trackers.log(2, {"loss": 0.5})
    assert [text for text in caplog.messages if "network is down" in text] == caplog.messages[:1]
    assert [row for row in seen(own) if row[0] in (1, 2)] == [
        (1, {"loss": 1.0}),
        (2, {"loss": 0.5}),
    ]


def test_unknown_trackers_are_refused_with_the_nearest_name(own) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'tensorboard'\?"):
        check_trackers(["tensorbord"])
    with pytest.raises(ConfigError, match="no class made from"):
        check_trackers([f"{own}:no_class"])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_refused_with_the_line_that_installs_it(name, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SetupError, match=rf"\n    pip install {TRACKERS[name]}$"):
        check_trackers([name])


def test_tensorboard_files_lie_in_the_run_folder(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Trackers(["tensorboard"], tmp_path, {"algorithm.mu": 1}) as trackers:
        trackers.log(1, {"reward": 0.25, "eval/accuracy": 0.5})
        trackers.log(2, {"reward": 0.75})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(row.step, row.value) for row in events.Scalars("reward")] == [(1, 0.25), (2, 0.75)]
