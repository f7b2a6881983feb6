"""The example that refreshes a reward model: what replay keeps, and what is lost without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_new_errors_are_of_another_kind_and_labelled_at_the_first(example: Any) -> None:
    maker = example.tiny_prm
    for kind in ("carry", "early"):
        for row in maker.rows(200, 0, (kind,)):
            assert all(label == 1 for label in row["labels"][:-1])
            if row["labels"][-1]:
                continue
            before, last = row["steps"][-2], row["steps"][-1]
            reached = before.split("= ")[1].split()[0]
            words = last.split()
            if kind == "early":
                assert last == f"answer {reached}"
            else:
                start, sign, change, result = words[2], words[3], words[4], words[6]
                assert start != reached
                assert int(start) + int(sign + change) == int(result)


@pytest.mark.slow
def test_a_tenth_of_history_keeps_what_is_forgotten_without_it(
    example: Any, tmp_path: Path
) -> None:
    first = example.first_model(tmp_path / "first", 0)
    arms = {
        share: example.refreshed(tmp_path / f"{share}", first, 0, example.settings(share, 0))
        for share in (0.0, 0.1)
    }
    alone, replayed = arms[0.0], arms[0.1]
    assert alone.counts["n_replay"] == 0
    assert replayed.counts["n_replay"] == round(replayed.counts["n_new"] / 9)
    for done in arms.values():
        assert done.before["0"].value is not None
        assert done.before["0"].value > 0.9
        assert done.before["1"].value is not None
        assert done.before["1"].value < 0.3
    assert replayed.accepted, replayed.reasons
    assert replayed.after["1"].value is not None
    assert replayed.after["1"].value > 0.85
    assert replayed.changes["0"].gain > -0.05
    assert not alone.accepted
    assert alone.changes["0"].gain < -0.3
    assert alone.model == first.resolve()
    lost = replayed.after["0"].value - (alone.after["0"].value or 0.0)
    assert lost > 0.25
