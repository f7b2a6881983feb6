"""``stepmark prm search`` and ``eval curve``: into the one store, resumable, read by tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.store import RunFolder, read_rows

OWN = """
from pathlib import Path
from stepmark.registry import load_file

scripted = load_file(Path({scripted!r}))


class Engine(scripted.ScriptedEngine):
    @classmethod
    def load(cls, model, **settings):
        return cls(scripted.bits)


def right(problem, steps):
    if Path("broken").exists() and problem.gold == Path("broken").read_text():
        raise RuntimeError("the scorer broke")
    return [scripted.right_bits(problem, steps[: at + 1]) for at in range(len(steps))]


def none(steps):
    return [0.5 for _ in steps]
"""
SCRIPTED = Path(__file__).parents[1] / "prm" / "search" / "scripted.py"
GOLDS = ("1011", "0010", "1111", "1000", "01")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("own.py").write_text(OWN.format(scripted=str(SCRIPTED)))
    rows = [{"q": f"{gold}>", "a": gold} for gold in GOLDS]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


DATA = ("--dataset", "data.jsonl", "--prompt-column", "q", "--gold-column", "a")
ENGINE = ("--model", "m", "--engine", "own.py:Engine", "--max-tokens", "60")


def searched(*arguments: str, scorer: str = "own.py:right") -> int:
    given = ["prm", "search", *ENGINE, *DATA, "--scorer", scorer, "--n", "8", "--width", "4"]
    return command.run([*given, *arguments])


def value_of(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_search_is_a_run_that_tables_and_comparisons_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert searched("--out", "s", "--json") == 0
    value = value_of(capsys)
    assert value["accuracy"] == 1.0
    assert value["search"]["tokens"] > 0
    names = [row["metric"] for row in value["search"]["beside"]]
    assert names[0] == "majority of the candidates"
    folder = RunFolder.open(Path("s"))
    samples = {sample.id: sample for sample in folder.samples.rows()}
    assert len(samples) == len(GOLDS)
    [key] = folder.samples.score_keys()
    for sample in samples.values():
        scored = folder.samples.scores(key)[sample.key]
        assert scored.ends[-1] == len(sample.ids or ()) - 1
        assert set(scored.scores) == {1.0}
    assert searched("--out", "b", "--method", "best_of_n") == 0
    assert searched("--out", "d", "--method", "dvts", "--aggregation", "min") == 0
    assert command.run(["eval", "compare", "s", "b"]) == 0
    assert "m + beam 8x4 100.0 %" in capsys.readouterr().out
    assert command.run(["eval", "table", "s", "b", "d"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("m + beam 8x4", "m + best_of_n 8", "m + dvts 8x4"))


def test_what_people_see_is_what_was_taken_and_what_it_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert searched("--out", "s") == 0
    said = capsys.readouterr()
    assert "the candidate with the best score  100.0 %" in said.out
    assert "one of the candidates is right" in said.out
    assert "tokens a problem" in said.err
    assert "Sampled:" in Path("s/table.md").read_text()


def content(folder: Path) -> dict[str, str]:
    """All files of a run but the manifest, which has the time in it."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("manifest.json", ".lock")
    }


def test_a_search_that_stopped_goes_on_and_ends_as_one_that_did_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepmark.evals import searching

    monkeypatch.setattr(searching, "AT_ONCE", 2)
    assert searched("--out", "whole") == 0
    ids = [row["id"] for row in read_rows(Path("whole/searches.jsonl"))]
    assert searched("--out", "half", "--method", "beam") == 0
    broken = Path("half")
    for path in broken.rglob("*"):  # as a kill after the first problems leaves it
        if path.is_file() and path.name in ("table.md", "summary.json"):
            path.unlink()
        elif path.suffix == ".jsonl":
            rows = path.read_text().splitlines(keepends=True)
            keep = [row for row in rows if json.loads(row)["id"] in ids[:2]]
            path.write_text("".join(keep))
    store = broken / "samples" / "samples-00000.jsonl"
    store.write_text(store.read_text() + '{"id": "torn')
    capsys.readouterr()
    assert searched("--out", "half", "--resume") == 0
    assert "searching: 2 of 5 problems" in capsys.readouterr().err
    assert content(Path("half")) == content(Path("whole"))
    assert searched("--out", "half", "--json") == 0
    assert value_of(capsys)["n"] == len(GOLDS)


def test_a_scorer_that_breaks_ends_the_search_and_what_was_found_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepmark.evals import searching

    monkeypatch.setattr(searching, "AT_ONCE", 1)
    Path("broken").write_text("1000")
    assert searched("--out", "s") != 0
    assert "the scorer broke" in capsys.readouterr().err
    done = len(read_rows(Path("s/searches.jsonl")))
    assert done == GOLDS.index("1000")
    Path("broken").unlink()
    assert searched("--out", "s", "--json") == 0
    assert value_of(capsys)["n"] == len(GOLDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--n", "6"), "a width that divides n"),
        (("--method", "beams"), "beam"),
        (("--aggregation", "mn"), "Did you mean 'min'"),
        (("--temperature", "0"), "temperature 0"),
        (("--token-budget", "0"), "token_budget is 0"),
        (("--task", "arith"), "give one of the two"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched("--out", "s", *arguments) == 2
    assert said in capsys.readouterr().err
    assert not Path("s").exists()


def test_a_run_of_other_settings_is_not_continued(capsys: pytest.CaptureFixture[str]) -> None:
    assert searched("--out", "s") == 0
    assert searched("--out", "s", "--max-steps", "3") == 2
    assert "search.max_steps" in capsys.readouterr().err
    assert searched("--out", "s", scorer="own.py:none") == 2
    assert "search.scorer" in capsys.readouterr().err


def test_the_curve_of_a_run_is_a_table_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated = ["eval", "run", *ENGINE, *DATA, "--n", "8", "--temperature", "1", "--out", "r"]
    assert command.run(evaluated) == 0
    assert command.run(["prm", "score", "r", "--scorer", "own.py:right"]) == 0
    capsys.readouterr()
    given = ["eval", "curve", "r", "--scorer", "right", "--aggregation", "min,last"]
    assert command.run([*given, "--out", "c.svg"]) == 0
    text = capsys.readouterr().out
    heads = ("pass@N", "majority", "any one", "best of N, last", "weighted majority, min")
    assert all(f"| {name}" in text for name in heads)
    assert "N = 8" in text
    assert Path("c.svg").read_text().startswith("<svg")
    assert command.run([*given, "--json"]) == 0
    curves = value_of(capsys)["curves"]
    assert [point["n"] for point in curves["majority"]] == [1, 2, 4, 8]
    assert curves["best of N, min"] == curves["pass@N"]  # the scorer knows the truth
    assert {points[0]["accuracy"] for points in curves.values()} == {
        curves["any one"][0]["accuracy"]
    }
    assert command.run(["eval", "curve", "r"]) == 0
    assert "best of N" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "c.png"), "must end in .svg"),
        (("--scorer", "prm"), "has no scores named 'prm'"),
        (("--scorer", "right", "--aggregation", "mn"), "Did you mean 'min'"),
    ],
)
def test_curves_that_cannot_be_had_are_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = ["eval", "run", *ENGINE, *DATA, "--n", "2", "--temperature", "1", "--out", "r"]
    assert command.run(evaluated) == 0
    assert command.run(["eval", "curve", "r", *arguments]) == 2
    assert said in capsys.readouterr().err
