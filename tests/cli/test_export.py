"""``stepmark export``: the file that it writes is loaded as verl and TRL load theirs."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli.app import run

OWN = '''
def units(completion, gold, unit, digits=3):
    """Right with its unit."""
    return completion == f"{gold} {unit}" or (digits == 4 and completion == "four")
'''


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "physics.py").write_text(OWN)
    monkeypatch.chdir(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(["export", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["export", *words]) == 2
    return " ".join(capsys.readouterr().err.split())


def loaded(path: Path) -> Any:
    """The module in a file, not put among the imported ones: as verl does it."""
    spec = importlib.util.spec_from_file_location("custom_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verl_score(path: Path, text: str, gold: str | None, **extra_info: Any) -> Any:
    given = {"solution_str": text, "ground_truth": gold, "extra_info": extra_info}
    return loaded(path).compute_score(data_source="data", **given)


def test_the_file_for_verl_scores_and_the_lines_name_it(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = said(capsys, "verl", "--verifier", "physics.py:units", "--out", "reward.py")
    assert row["columns"] == ["unit"]
    assert row["config"] == {
        "reward.custom_reward_function.path": str(desk / "reward.py"),
        "reward.custom_reward_function.name": "compute_score",
    }
    assert verl_score(desk / "reward.py", "5 cm", "5", unit="cm")["score"] == 1.0


def test_people_are_told_what_to_paste_and_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["verl", "--verifier", "physics.py:units", "--out", "reward.py"]
    assert run(["export", *words, "--abstain-score", "0.5"]) == 0
    told = capsys.readouterr()
    assert "reward.custom_reward_function.name=compute_score\n" in told.out
    assert "extra_info: unit." in told.err
    assert "0.5" in told.err


def test_a_verifier_beside_the_file_moves_with_it(desk: Path) -> None:
    assert run(["export", "verl", "--verifier", "physics.py:units", "--out", "reward.py"]) == 0
    moved = shutil.move(desk, desk.parent / "cluster's")
    assert str(desk) not in (Path(moved) / "reward.py").read_text()
    assert verl_score(Path(moved) / "reward.py", "5 cm", "5", unit="cm")["score"] == 1.0


def test_a_verifier_elsewhere_is_named_from_the_root(desk: Path, tmp_path: Path) -> None:
    out = tmp_path / "rewards" / "reward.py"
    assert run(["export", "verl", "--verifier", "physics.py:units", "--out", str(out)]) == 0
    assert str(desk / "physics.py") in out.read_text()
    assert verl_score(out, "5 cm", "5", unit="cm")["score"] == 1.0


@pytest.mark.parametrize(
    ("reference", "score"),
    [
        ("physics.py:units?digits=4", 1.0),
        ("ruler", 0.0),
        ("ruler?digits=4", 1.0),
        ("sum(3*ruler?digits=4, 1*format)", 0.75),
        ("sum(1*physics.py:units?digits=4, 1*ruler)", 0.5),
    ],
)
def test_settings_short_names_and_combinations_are_carried(
    reference: str, score: float, desk: Path
) -> None:
    (desk / "stepmark.toml").write_text("[verifiers]\nruler = 'physics.py:units'\n")
    assert run(["export", "verl", "--verifier", reference, "--out", "made/reward.py"]) == 0
    (desk / "stepmark.toml").unlink()
    assert verl_score(desk / "made" / "reward.py", "four", "5", unit="cm")["score"] == score


def test_the_score_of_what_cannot_be_marked_is_written_down(desk: Path) -> None:
    words = ["verl", "--verifier", "math", "--out", "reward.py", "--abstain-score", "0.25"]
    assert run(["export", *words]) == 0
    row = verl_score(desk / "reward.py", "5", None)
    assert (row["score"], row["verdict_status"]) == (0.25, "abstain")


def test_the_file_for_trl_is_a_named_reward_function(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("trl", "--verifier", "physics.py:units", "--gold", "solution", "--out", "length.py")
    assert said(capsys, *words)["reward_funcs"] == "length.reward_func"
    mark = loaded(desk / "length.py").reward_func
    assert mark.__name__ == "units"
    given = {"solution": ["5"] * 2, "unit": ["cm"] * 2}
    assert mark(prompts=["?"] * 2, completions=["5 cm", "5 m"], **given) == [1.0, 0.0]


def test_only_its_own_files_are_written_over(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("verl", "--verifier", "math", "--out", "reward.py")
    assert run(["export", *words]) == 0
    assert run(["export", *words]) == 0
    assert "physics.py" in refused(capsys, "verl", "--verifier", "math", "--out", "physics.py")
    assert (desk / "physics.py").read_text() == OWN


def test_what_cannot_work_is_refused_and_nothing_is_written(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verl = ("verl", "--out", "reward.py", "--verifier")
    assert "'mth'" in refused(capsys, *verl, "mth")
    assert "no file" in refused(capsys, *verl, "chemistry.py:units")
    assert "nan" in refused(capsys, *verl, "math", "--abstain-score", "nan")
    assert "1979" in refused(capsys, *verl, "physics.py:units?digits=1979-05-27")
    assert ".py" in refused(capsys, "verl", "--verifier", "math", "--out", "reward.txt")
    assert "no such name" in refused(capsys, "trl", "--verifier", "math", "--out", "my-reward.py")
    assert "cannot be written" in refused(
        capsys, *verl[:1], "--verifier", "math", "--out", "physics.py/x.py"
    )
    assert sorted(path.name for path in desk.iterdir() if path.suffix == ".py") == ["physics.py"]
