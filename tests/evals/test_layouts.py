"""Files as other tools write them: each layout's traps, on rows of our own."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepmark.errors import DataError
from stepmark.evals import Columns, Recording, read_recorded


def jsonl(path: Path, rows: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def parquet(path: Path, **columns: list[Any]) -> str:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def brief(found: Recording) -> list[tuple[str, str, int, str, str | None, bool | None]]:
    return [
        (row.group, row.sample.id, row.sample.k, row.sample.completion, row.sample.gold, row.label)
        for row in found.rows
    ]


def named(found: Recording) -> list[tuple[str, str, int]]:
    return [row.name for row in found.rows]


def test_verl_dumps_are_groups_of_one_prompt_apart_by_step(tmp_path: Path) -> None:
    for step in (10, 2):
        rows = [
            {"input": ask, "output": text, "gts": "4", "score": score, "step": step}
            for ask, text, score in [("2+2?", "4", 1.0), ("2+2?", "5", 0.1), ("4?", "4", -1.0)]
        ]
        jsonl(tmp_path / "dumps" / f"{step}.jsonl", rows)
    found = read_recorded(str(tmp_path / "dumps"))
    assert "Layout verl" in found.announcement
    assert [row.group for row in found.rows] == ["step 2"] * 3 + ["step 10"] * 3
    assert [row.sample.k for row in found.rows] == [0, 1, 0] * 2
    assert found.rows[0].sample.id == found.rows[1].sample.id == found.rows[3].sample.id
    assert [row.label for row in found.rows[:3]] == [True, False, False]
    assert len(set(named(found))) == 6


def test_an_accuracy_of_verl_is_surer_than_a_shaped_score(tmp_path: Path) -> None:
    row = {"input": "a", "output": "b", "gts": "1", "score": -1.0, "acc": True, "step": 1}
    found = read_recorded(jsonl(tmp_path / "1.jsonl", [row]))
    assert (found.label, found.rows[0].label) == ("acc", True)


def test_trl_logs_are_texts_or_chats_in_parquet(tmp_path: Path) -> None:
    texts = parquet(
        tmp_path / "texts.parquet",
        step=["5", "5"],
        prompt=["2+2?", "2+2?"],
        completion=["4", "5"],
        accuracy_reward=[1.0, 0.0],
        format_reward=[0.0, 0.0],
        advantage=[1.0, -1.0],
        solution=["4", "4"],
    )
    chats = parquet(
        tmp_path / "chats.parquet",
        prompt=[[{"role": "system", "content": "s"}, {"role": "user", "content": "2+2?"}]] * 2,
        completion=[[{"role": "assistant", "content": text}] for text in ("4", "5")],
        reward=[1.0, 0.0],
        solution=["4", "4"],
    )
    one, two = read_recorded(texts), read_recorded(chats)
    assert (one.label, two.label) == ("accuracy_reward", "reward")
    assert brief(one) == brief(two)
    assert [row.sample.problem for row in two.rows] == ["2+2?", "2+2?"]


def test_a_batch_of_trl_in_one_row_is_taken_apart(tmp_path: Path) -> None:
    row = {
        "step": 3,
        "prompts": ["1+1?", "2+2?", "1+1?"],
        "completions": [[{"role": "assistant", "content": text}] for text in ("2", "4", "3")],
        "rewards": [1.0, 1.0, 0.0],
        "answer": ["2", "4", "2"],
    }
    found = read_recorded(jsonl(tmp_path / "f.jsonl", [row]))
    assert [(r.sample.problem, r.sample.k, r.sample.gold, r.label) for r in found.rows] == [
        ("1+1?", 0, "2", True),
        ("2+2?", 0, "4", True),
        ("1+1?", 1, "2", False),
    ]


def test_of_several_rewards_none_is_taken_for_a_verdict(tmp_path: Path) -> None:
    row = {"prompt": "p", "completion": "4", "gold": "4", "style_reward": 1, "length_reward": 0}
    found = read_recorded(jsonl(tmp_path / "f.jsonl", [row]))
    assert found.rows[0].label is None
    assert "style_reward, length_reward" in found.announcement
    assert "--label-column" in found.announcement


def test_rows_of_lm_eval_are_marked_once_whatever_the_filters(tmp_path: Path) -> None:
    rows = [
        {
            "doc_id": doc,
            "doc": {"question": f"q{doc}?", "answer": "#### 3"},
            "target": "#### 3",
            "resps": [[f"The answer is {doc}."]],
            "filter": name,
            "metrics": ["exact_match"],
            "exact_match": value,
        }
        for doc in (3, 4)
        for name, value in (("strict-match", 0.0), ("flexible-extract", 1.0))
    ]
    path = jsonl(tmp_path / "samples.jsonl", rows)
    found = read_recorded(path)
    assert named(found) == [("", "3", 0), ("", "4", 0)]
    assert found.label == "exact_match,strict-match"
    assert [row.label for row in found.rows] == [False, False]
    assert found.rows[0].sample.problem == "q3?"
    other = read_recorded(path, Columns(label="exact_match,flexible-extract"))
    assert [row.label for row in other.rows] == [True, True]
    inner = read_recorded(path, Columns(gold="doc.answer"))
    assert inner.rows[0].sample.gold == "#### 3"


def test_repeats_of_lm_eval_are_samples_without_labels_of_their_own(tmp_path: Path) -> None:
    base = {"doc_id": 0, "doc": {}, "target": "3", "filter": "none", "metrics": ["exact_match"]}
    rows = [
        base | {"resps": [["3", "4"]], "exact_match": 1.0},
        base | {"doc_id": 1, "resps": [[["-1.5", "False"]]], "exact_match": 0.0},
    ]
    found = read_recorded(jsonl(tmp_path / "samples.jsonl", rows))
    assert [(row.sample.k, row.sample.completion, row.label) for row in found.rows] == [
        (0, "3", None),
        (1, "4", None),
    ]
    assert [(reject.line, "log-likelihoods" in reject.reason) for reject in found.rejects] == [
        (2, True)
    ]


def test_details_of_lighteval_are_read_in_both_layouts(tmp_path: Path) -> None:
    new = parquet(
        tmp_path / "new.parquet",
        doc=[{"query": "1+1?", "choices": ["2", "3"], "gold_index": [0], "id": "7"}],
        model_response=[{"text": ["It is 2"]}],
        metric=[{"extractive_match": 1.0, "length": 3.0}],
    )
    old = parquet(
        tmp_path / "old.parquet",
        example=["1+1?"],
        predictions=[["It is 2"]],
        gold=[["2"]],
        metrics=[{"qem": 1.0}],
    )
    assert brief(read_recorded(new)) == [("", "7", 0, "It is 2", "2", True)]
    assert brief(read_recorded(old)) == [("", "line-1", 0, "It is 2", "2", True)]
    assert read_recorded(new).rows[0].sample.problem == "1+1?"


def test_several_golds_of_one_detail_are_set_aside(tmp_path: Path) -> None:
    doc = {"query": "q", "choices": ["2", "3"], "gold_index": [0, 1], "id": "a"}
    rows = [
        {"doc": doc | {"gold_index": place}, "model_response": {"text": ["2"]}, "metric": {}}
        for place in ([0, 1], 1)
    ]
    found = read_recorded(jsonl(tmp_path / "d.jsonl", rows))
    assert ["2 golds" in reject.reason for reject in found.rejects] == [True]
    assert found.rows[0].sample.gold == "3"


def test_chats_end_in_a_reply_and_failed_requests_are_set_aside(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "1+1?"}
    rows = [
        {"messages": [turn, {"role": "assistant", "content": "2"}], "answer": "2"},
        {"messages": [turn, {"role": "assistant", "content": [{"type": "text", "text": "3"}]}]},
        {"messages": [turn], "answer": "2"},
    ]
    found = read_recorded(jsonl(tmp_path / "chat.jsonl", rows))
    assert [(r.sample.completion, r.sample.problem) for r in found.rows] == [
        ("2", "1+1?"),
        ("3", "1+1?"),
    ]
    assert [reject.line for reject in found.rejects] == [3]


def test_logged_requests_are_chats_or_texts(tmp_path: Path) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": "2"}}]}
    ask = {"model": "m", "messages": [{"role": "user", "content": "1+1?"}]}
    for request, response in [(ask, reply), ("1+1?", "2")]:
        row = {"request": request, "response": response, "gold": "2"}
        found = read_recorded(jsonl(tmp_path / "f.jsonl", [row]))
        assert [(r.sample.problem, r.sample.completion) for r in found.rows] == [("1+1?", "2")]
    row = {"messages": ask["messages"], "response": "2", "gold": "2"}
    found = read_recorded(jsonl(tmp_path / "f.jsonl", [row]))
    assert [(r.sample.problem, r.sample.completion) for r in found.rows] == [("1+1?", "2")]


def test_batch_files_give_every_choice_its_place(tmp_path: Path) -> None:
    def choice(text: str, finish: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}, "finish_reason": finish}

    body = {"choices": [choice("2", "length"), choice("3", "stop")]}
    rows = [
        {"custom_id": "a", "response": {"status_code": 200, "body": body}, "error": None},
        {"custom_id": "b", "response": {"status_code": 429, "body": {"error": "slow down"}}},
    ]
    path = jsonl(tmp_path / "batch.jsonl", rows)
    found = read_recorded(path, needs_gold=False)
    assert named(found) == [("", "a", 0), ("", "a", 1)]
    assert found.rows[0].sample.finish == "length"
    assert "slow down" in found.rejects[0].reason
    with pytest.raises(DataError, match="--gold-from TASK --join-on COLUMN"):
        read_recorded(path)


def test_rows_of_our_own_store_keep_their_place(tmp_path: Path) -> None:
    base = {"id": "arith/1", "step": 0, "problem": "p", "prompt": "", "gold": "1"}
    rows = [base | {"k": k, "completion": str(k)} for k in (3, 1)]
    found = read_recorded(jsonl(tmp_path / "s.jsonl", rows))
    assert [row.sample.k for row in found.rows] == [3, 1]


def test_a_training_run_is_read_apart_by_step_with_the_verdicts_it_has(tmp_path: Path) -> None:
    from stepmark.store import RunFolder, Sample
    from stepmark.types import Verdict

    run = RunFolder.create(tmp_path / "run", {"algorithm": {"backend": "grpo"}}, {})
    for step in (1, 2):
        sample = Sample("arith/1", 0, step, "1+1?", "", "2", None, None, "stop", "2")
        run.samples.append([sample])
    run.samples.append_verdicts("math@1", [((1, "arith/1", 0), Verdict.marked(1, "equal"))])
    found = read_recorded(str(tmp_path / "run"))
    assert [(row.group, row.label) for row in found.rows] == [("step 1", True), ("step 2", None)]
    assert found.label == "math@1"
    assert read_recorded(str(tmp_path / "run" / "samples")) == found
    (tmp_path / "run" / "config.toml").unlink()
    assert len(read_recorded(str(tmp_path / "run" / "samples")).rows) == 2


def test_csv_rows_of_another_length_are_set_aside_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text('response,gold\n4,4\n"a\nb",4\n1,2,3\n5,5\n')
    found = read_recorded(str(tmp_path / "f.csv"))
    assert [row.sample.completion for row in found.rows] == ["4", "a\nb", "5"]
    assert [(one.line, one.reason) for one in found.rejects] == [(5, "3 cells for 2 columns")]


def test_lines_of_several_files_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{name}.jsonl").write_text('{"response": "4", "gold": "4"}\n{"x\n')
    found = read_recorded(str(tmp_path / "d"))
    assert len(set(named(found))) == 2
    assert [one.to_row()["file"] for one in found.rejects] == ["a.jsonl", "b.jsonl"]


def test_rows_that_nobody_can_mean_are_set_aside_and_the_rest_is_read(tmp_path: Path) -> None:
    deep = "[" * 900 + '"4"' + "]" * 900
    lines = [
        '{"response": "4", "gold": "4"}',
        f'{{"response": {deep}, "gold": "4"}}',
        f'{{"response": "4", "gold": "4", "more": {deep}}}',
        f'{{"response": {"[" * 99_999}',
        '{"response": [], "gold": "4"}',
        '{"response": "4", "gold": {"is": "4"}}',
        '{"response": "\\ud800", "gold": NaN}',
        "[]",
    ]
    (tmp_path / "f.jsonl").write_bytes("\n".join(lines).encode() + b'\n{"response": "\xff"}\n')
    found = read_recorded(str(tmp_path / "f.jsonl"))
    assert [row.line for row in found.rows] == [1, 7]
    assert [reject.line for reject in found.rejects] == [2, 3, 4, 5, 6, 8, 9]


def test_labels_that_say_neither_and_scores_below_1_are_counted(tmp_path: Path) -> None:
    labels = [True, "yes", 0.5, 2, "maybe", None, float("nan"), "-1", 1.0]
    rows = [{"response": "4", "gold": "4", "label": label} for label in labels]
    found = read_recorded(jsonl(tmp_path / "f.jsonl", rows))
    read = [row.label for row in found.rows]
    assert read == [True, True, False, None, None, None, None, False, True]
    assert "Labels between 0 and 1, which count as wrong: 1." in found.announcement
    assert "Labels that say neither right nor wrong: 3." in found.announcement


def test_a_file_without_a_usable_row_says_why(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="line 1: not a JSON object"):
        read_recorded(str(tmp_path / "f.jsonl"))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["response", "gold", "label", "id", "model", "input", "output", "score"]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["role", "content", "k"]), inner, max_size=2)
                ),
                max_leaves=6,
            ),
        ),
        max_size=4,
    )
)
def test_any_rows_are_read_or_refused_in_words(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = jsonl(Path(folder) / "f.jsonl", rows)
        try:
            found = read_recorded(path)
        except DataError:
            return
    assert len(found.rows) + len(found.rejects) > 0
