"""``stepmark prm score`` and the metrics that read its scores, from the command line."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from stepmark.cli import app as command
from stepmark.prm import aggregate
from stepmark.prm.aggregation import rank_of
from stepmark.statistics import best_at_k
from stepmark.store import RunFolder, read_rows

ENGINE = """
from pathlib import Path
from stepmark.registry import load_file

fake = load_file(Path({fake!r}))


def answer(problem, k, seed):
    right = seed % 3
    return f"First, {{seed % 7}} = {{seed % 7}}.\\nThe answer is {{problem.gold if right else 1}}"


class Engine(fake.FakeEngine):
    tokenizer = fake.FakeTokenizer()

    @classmethod
    def load(cls, model, **settings):
        return cls(answer, **settings)
"""
SCORERS = """
from pathlib import Path

def digits(problem, steps):
    with Path("asked").open("a") as file:
        file.write(f"{problem.id}\\n")
    if Path("broken").exists():
        raise RuntimeError("the scorer broke")
    counts = [sum(map(str.isdigit, step)) for step in steps]
    return [None if "none" in s else n / 40 for s, n in zip(steps, counts)]

def ones(steps):
    return [1.0 for step in steps]


class Flaky:
    # fails on some problems while a file says so

    key = "flaky@1"

    def segment(self, text):
        return [(0, len(text))]

    def score(self, items):
        from stepmark.types import StepScores

        is_bad = Path("trouble").exists()
        return [
            StepScores((None,) * len(item.steps), self.key, failed=True)
            if is_bad and Path("trouble").read_text() in item.problem.text
            else StepScores(tuple(0.2 if "wrong" in step else 0.8 for step in item.steps), self.key)
            for item in items
        ]
"""
FAKE = Path(__file__).parents[1] / "evals" / "fake_engine.py"
ROWS = [
    {"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 2", "answer: 2"], "label": -1},
    {"problem": "2 + 2?", "completion": "2 + 2 = 5\n\nanswer: 5", "model": "m"},
    {"problem": "3 + 3?", "steps": ["none", "answer: 6"]},
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("own.py").write_text(ENGINE.format(fake=str(FAKE)))
    Path("scorers.py").write_text(SCORERS)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def score(*arguments: str, scorer: str = "scorers.py:digits") -> int:
    return command.run(["prm", "score", *arguments, "--scorer", scorer])


def asked() -> int:
    return len(Path("asked").read_text().splitlines()) if Path("asked").exists() else 0


def evaluate(n: int = 4) -> None:
    arguments = ["--model", "m", "--task", "arith", "--limit", "6", "--n", str(n), "--out", "r"]
    given = ["eval", "run", *arguments, "--temperature", "1", "--engine", "own.py:Engine"]
    assert command.run(given) == 0


def test_a_run_is_scored_into_its_sample_store_once(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate()
    assert score("r", "--json") == 0
    said = capsys.readouterr()
    value = json.loads(said.out.splitlines()[-1])
    assert (value["solutions"], value["fresh"], value["steps"]) == (24, 24, 48)
    assert "the tokenizer of 'm' cannot be loaded" in said.err
    store = RunFolder.open(Path("r")).samples
    (key,) = store.score_keys()
    assert key == value["scorer"]
    assert {len(row.scores) for row in store.scores(key).values()} == {2}
    assert score("r", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["solutions"], value["fresh"]) == (24, 0)
    assert asked() == 24


def test_the_table_reads_scores_as_the_best_of_k(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate()
    assert score("r") == 0
    capsys.readouterr()
    assert command.run(["eval", "table", "r", "--metrics", "mean@4,pass@2,bon@2:digits:min"]) == 0
    text = capsys.readouterr().out
    assert "| bon@2:digits:min |" in text
    assert "of k completions the one whose steps score highest (digits@" in text
    command.run(["eval", "table", "r", "--json", "--metrics", "pass@2,bon@2:digits:mean"])
    _, passed, best = json.loads(capsys.readouterr().out)["rows"]
    store = RunFolder.open(Path("r")).samples
    scores, verdicts = store.scores(store.score_keys()[0]), store.verdicts("math@2")
    by_problem: dict[str, list[tuple[float, bool]]] = {}
    for key, row in scores.items():
        rank = aggregate(row.scores, "mean")
        assert rank is not None
        by_problem.setdefault(key.id, []).append((rank, verdicts[key].correct is True))
    values = []
    for rows in by_problem.values():
        pairs = list(combinations(rows, 2))
        leads = [
            (one[1] + two[1]) / 2 if one[0] == two[0] else max(one, two)[1] for one, two in pairs
        ]
        values.append(sum(leads) / len(pairs))
    assert best["accuracy"] == pytest.approx(sum(values) / 6)
    assert best["scorer"] == store.score_keys()[0]
    assert best["low"] < best["accuracy"] <= passed["accuracy"]
    assert (
        command.run(["eval", "table", "r", "--metrics", "bon@4:digits:min", "--out", "t.md"]) == 0
    )
    assert "bon@4:digits:min" in Path("t.md").read_text()


def test_the_table_counts_votes_by_the_verifiers_equality(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate()
    assert score("r") == 0
    capsys.readouterr()
    metrics = "maj@3,wmaj@3:digits:min,mean@4,maj@1"
    assert command.run(["eval", "table", "r", "--metrics", metrics]) == 0
    text = capsys.readouterr().out
    assert "equal ones as one (math@2), the exact mean over all subsets" in text
    assert "every vote counting its score (digits@" in text
    command.run(["eval", "table", "r", "--json", "--metrics", metrics])
    _, majority, weighted, mean, one = json.loads(capsys.readouterr().out)["rows"]
    store = RunFolder.open(Path("r")).samples
    right: dict[str, list[float]] = {}
    for key, verdict in store.verdicts("math@2").items():
        right.setdefault(key.id, []).append(float(verdict.correct is True))
    # Wrong completions all say 1: of three, the result that two or more of them have.
    votes = [sum(sum(some) >= 2 for some in combinations(row, 3)) / 4 for row in right.values()]
    assert majority["accuracy"] == pytest.approx(sum(votes) / 6)
    assert (majority["equality"], majority["draws"], majority["scorer"]) == ("math@2", 0, None)
    assert weighted["scorer"] == store.score_keys()[0]
    assert one["accuracy"] == pytest.approx(mean["accuracy"])


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("maj@2:digits:min", "no other metric has a scorer"),
        ("wmaj@2", "wmaj weighed by one"),
        ("wmaj@2:digits:mn", "Did you mean 'min'"),
        ("maj@9", "has 4 of"),
        ("bon@2:digits:mn", "Did you mean 'min'"),
        ("bon@2", "best of K is chosen by a scorer"),
        ("best@2", "Known are mean@K, pass@K and bon@K:SCORER:AGGREGATION"),
        ("bon@0:digits:min", "is not known"),
        ("bon@9:digits:min", "has 4 of"),
        ("bon@2:prm:min", "has no scores named 'prm'; there are: digits@"),
    ],
)
def test_metrics_that_cannot_be_had_are_refused(
    metrics: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate()
    assert score("r") == 0
    assert command.run(["eval", "table", "r", "--metrics", metrics]) == 2
    assert said in capsys.readouterr().err


def test_scores_that_lack_some_completions_are_not_averaged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate(2)
    assert score("r") == 0
    side = next(Path("r/samples").glob("scores.*"))
    side.write_text("".join(side.read_text().splitlines(keepends=True)[:-2]))
    assert command.run(["eval", "table", "r", "--metrics", "bon@2:digits:min"]) == 2
    said = capsys.readouterr().err
    assert "on 2 of 12 completions" in said
    assert "stepmark prm score r --scorer CHECKPOINT" in said


def test_a_file_is_scored_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert score("rows.jsonl", "--out", "scored.jsonl", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["solutions"], value["steps"], value["unscored"]) == (3, 6, 1)
    one, two, three = read_rows(Path("scored.jsonl"))
    assert (one["line"], one["label"], one["id"]) == (1, -1, "a")
    assert one["step_scores"] == pytest.approx([3 / 40, 1 / 40])
    assert one["score"] == pytest.approx(1 / 40)
    assert two["steps"] == ["2 + 2 = 5", "answer: 5"]
    assert (three["step_scores"][0], three["score"]) == (None, None)
    assert score("rows.jsonl", "--aggregation", "mean") == 0
    assert read_rows(Path("rows.scored.jsonl"))[0]["score"] == pytest.approx(2 / 40)


def test_a_stopped_file_goes_on_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepmark.prm import score_runs

    monkeypatch.setattr(score_runs, "AT_ONCE", 1)
    assert score("rows.jsonl", "--out", "whole.jsonl") == 0
    whole = Path("whole.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    Path("half.jsonl").write_text(lines[0] + lines[1][:20])  # as a kill leaves it
    assert score("rows.jsonl", "--out", "half.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["fresh"] == 2
    assert Path("half.jsonl").read_text() == whole


def test_rows_without_a_solution_are_counted_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    bad: list[Any] = [{"problem": 3}, {"problem": "x"}, {"problem": "x", "steps": ["a", " "]}, [1]]
    with Path("rows.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in bad)
        file.write("{not json\n")
    assert score("rows.jsonl", "--out", "scored.jsonl", "--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["rejected"] == 5
    assert "5 rows hold no solution. The first, line 4: it has no text in the column problem" in (
        said.err
    )


def test_a_scorer_that_needs_a_column_is_refused_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert score("rows.jsonl", scorer="arith-steps") == 2
    assert "line 1: it lacks the column moves, which arith-steps@1 needs" in capsys.readouterr().err
    evaluate(1)
    assert score("r", scorer="arith-steps") == 0
    own = "own.jsonl"
    Path(own).write_text('{"q": "1 + 1?", "a": "2"}\n')
    given = ("--model", "m", "--dataset", own, "--prompt-column", "q", "--gold-column", "a")
    assert command.run(["eval", "run", *given, "--engine", "own.py:Engine", "--out", "o"]) == 0
    assert score("o", scorer="arith-steps") == 2
    assert "needs the column 'moves'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rows.jsonl", "--out", "x.csv"), "must end in .jsonl"),
        (("rows.jsonl", "--out", "rows.jsonl"), "the file that is read"),
        (("rows.jsonl", "--aggregation", "mn"), "Did you mean 'min'"),
        (("nowhere.jsonl",), "There is no file 'nowhere.jsonl'"),
        (("empty.jsonl",), "holds no solution that can be scored"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.jsonl").write_text("")
    assert score(*arguments) == 2
    assert said in capsys.readouterr().err


def test_scores_of_another_scorer_or_file_are_not_mixed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert score("rows.jsonl", "--out", "s.jsonl") == 0
    assert score("rows.jsonl", "--out", "s.jsonl", scorer="scorers.py:ones") == 2
    assert "holds rows of the scorer 'digits@" in capsys.readouterr().err
    Path("rows.jsonl").write_text(json.dumps(ROWS[1]) + "\n")
    assert score("rows.jsonl", "--out", "s.jsonl") == 2
    assert "holds scores of another file: its row of line 1" in capsys.readouterr().err


def test_a_scorer_that_breaks_keeps_what_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(2)
    Path("broken").touch()
    assert score("r") == 2
    assert "the scorer broke" in capsys.readouterr().err
    Path("broken").unlink()
    assert score("r") == 0
    assert score("r", "--out", "x.jsonl") == 2
    assert "--out is for files" in capsys.readouterr().err


def test_rows_on_which_a_scorer_failed_are_not_kept_and_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("rows.jsonl", "--out", "s.jsonl", "--json")
    Path("trouble").write_text("2 + 2")
    assert score(*given, scorer="scorers.py:Flaky") == 3
    said = capsys.readouterr()
    value = json.loads(said.out.splitlines()[-1])
    assert (value["solutions"], value["fresh"], value["failed"], value["unscored"]) == (2, 2, 1, 0)
    assert "the scorer failed on 1 solutions; nothing is kept of them" in said.err
    assert [row["line"] for row in read_rows(Path("s.jsonl"))] == [1, 3]
    Path("trouble").unlink()
    assert score(*given, scorer="scorers.py:Flaky") == 0
    value = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (value["solutions"], value["fresh"], value["failed"]) == (3, 1, 0)
    rows = read_rows(Path("s.jsonl"))
    assert [row["line"] for row in rows] == [1, 2, 3], "in the order of the file"
    assert rows[1]["step_scores"] == [0.8]


def test_completions_on_which_a_scorer_failed_are_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate(2)
    Path("trouble").write_text("")  # in every text
    assert score("r", "--json", scorer="scorers.py:Flaky") == 3
    value = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (value["solutions"], value["fresh"], value["failed"]) == (0, 0, 12)
    assert command.run(["eval", "table", "r", "--metrics", "bon@2:flaky:min"]) == 2
    Path("trouble").unlink()
    capsys.readouterr()
    assert score("r", "--json", scorer="scorers.py:Flaky") == 0
    value = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (value["solutions"], value["fresh"], value["failed"]) == (12, 12, 0)
    assert command.run(["eval", "table", "r", "--metrics", "bon@2:flaky:min"]) == 0


def test_the_best_by_product_is_told_where_products_vanish() -> None:
    ranks = [rank_of((score,) * 200, "prod") for score in (0.01, 0.02, 0.0)]
    assert [aggregate((score,) * 200, "prod") for score in (0.01, 0.02, 0.0)] == [0.0, 0.0, 0.0]
    assert best_at_k([0, 1, 0], ranks, 3) == 1.0
    assert best_at_k([1, 0], [ranks[2], None], 2) == 1.0, "0 is more than no score"
