"""Golds that cannot be read are shown by every verb that marks, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepmark.cli.app import run


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--backend", "grpo", "--model", "x", "--dry-run"),
        ("eval", "run", "--model", "absent", "--out", "r"),
    ],
)
def test_golds_are_looked_at_before_a_model_is_loaded(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    Path("d.jsonl").write_text(
        '{"question": "1+1?", "gold": "2"}\n{"question": "2+2?", "gold": "\\\\frac{"}\n'
    )
    run([*words, "--dataset", "d.jsonl"])
    assert "d: 1 of 2 golds cannot be read" in capsys.readouterr().err
