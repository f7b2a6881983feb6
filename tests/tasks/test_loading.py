from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stepmark.errors import ConfigError, DataError, UnknownNameError
from stepmark.tasks import load_task, load_tasks
from stepmark.tasks.math import SUBJECTS, last_box

DATA = os.environ.get("STEPMARK_DATA")
real = pytest.mark.skipif(not DATA, reason="STEPMARK_DATA is not set: no real data here")
GSM8K = {"question": "6 - 2?", "answer": "It is 6 - 2 = <<6-2=4>>4.\n#### 1,204"}
MATH = {
    "problem": "x?",
    "level": "Level 1",
    "type": "Algebra",
    "solution": r"$\boxed{\frac{1}{2}}$",
}


def write(path: Path, *rows: dict) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_parquet(path: Path, *rows: dict) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def test_gsm8k_reads_the_hub_layout(tmp_path):
    write_parquet(tmp_path / "main" / "test-00000-of-00001.parquet", GSM8K)
    write_parquet(tmp_path / "main" / "train-00000-of-00001.parquet", GSM8K, GSM8K)
    loaded = load_task(f"gsm8k?path={tmp_path}")
    (problem,) = loaded.problems
    assert (problem.id, problem.text, problem.gold) == ("gsm8k/test/0", "6 - 2?", "1204")
    assert problem.solution == "It is 6 - 2 = 4.\n#### 1,204"
    assert problem.meta["answer"] == GSM8K["answer"]
    assert loaded.prompt.name == "gsm8k_zeroshot"
    assert len(load_task(f"gsm8k?path={tmp_path}", "train").problems) == 2


def test_math_reads_the_seven_configurations_of_the_hub(tmp_path):
    for subject in SUBJECTS:
        write_parquet(tmp_path / subject / "test-00000-of-00001.parquet", {**MATH, "type": subject})
    problems = load_task(f"math?path={tmp_path}").problems
    assert [p.meta["type"] for p in problems] == list(SUBJECTS)
    assert [p.gold for p in problems] == [r"\frac{1}{2}"] * 7
    assert problems[6].id == "math/test/6"


def test_math500_reads_the_hub_layout(tmp_path):
    row = {**MATH, "answer": "7", "subject": "Algebra", "level": 1, "unique_id": "test/a/1.json"}
    write(tmp_path / "test.jsonl", row)
    (problem,) = load_task(f"math500?path={tmp_path}").problems
    assert (problem.gold, problem.meta["unique_id"]) == ("7", "test/a/1.json")
    with pytest.raises(ConfigError, match="no split 'train'"):
        load_task("math500", "train")


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"\boxed{1} or \boxed{\sqrt{2}}", r"\sqrt{2}"),
        (r"\boxed 2.", "2"),
        (r"\boxed {42}", "42"),
        (r"\boxed \pi$", r"\pi"),
        (r"\boxed \frac{1}{2}", None),
        (r"\fbox{3}", "3"),
        (r"\boxed{\left\{1\right\}}", r"\left\{1\right\}"),
        (r"\boxed{open", None),
        (r"\boxed{}", None),
        ("none", None),
    ],
)
def test_the_gold_of_math_is_in_the_last_box(solution, gold):
    assert last_box(solution) == gold


def test_missing_columns_and_golds_are_refused_with_what_was_seen(tmp_path):
    no_column = write(tmp_path / "a.jsonl", {"q": "1?", "answer": "#### 1"})
    with pytest.raises(DataError, match=r"no column 'question'; it has q, answer, expected"):
        load_task(f"gsm8k?path={no_column}")
    no_gold = write(tmp_path / "b.jsonl", GSM8K, {"question": "1?", "answer": "one"})
    with pytest.raises(DataError, match="line 2: the answer has no '####'"):
        load_task(f"gsm8k?path={no_gold}")
    no_box = write(tmp_path / "c.jsonl", {"problem": "1?", "solution": "one"})
    with pytest.raises(DataError, match=r"line 1: no gold .*boxed"):
        load_task(f"math?path={no_box}")


def test_a_file_named_after_the_other_split_is_announced(tmp_path):
    write(tmp_path / "gsm8k_test.jsonl", GSM8K)
    write(tmp_path / "gsm8k_train.jsonl", GSM8K, GSM8K)
    assert load_task(f"gsm8k?path={tmp_path}/gsm8k_{{split}}.jsonl", "train").announcement == ""
    assert len(load_task(f"gsm8k?path={tmp_path}/gsm8k_{{split}}.jsonl", "train").problems) == 2
    wrong = load_task(f"gsm8k?path={tmp_path}/gsm8k_test.jsonl", "train")
    assert "by name the 'test' one" in wrong.announcement


def test_settings_reach_the_task_and_unknown_ones_are_refused():
    loaded = load_task("arith?size=7&steps=4&seed=3")
    assert len(loaded.problems) == 7
    assert {p.meta["n_steps"] for p in loaded.problems} == {4}
    assert (
        loaded.data_hash == load_task({"name": "arith", "size": 7, "steps": 4, "seed": 3}).data_hash
    )
    with pytest.raises(ConfigError, match="Did you mean 'steps'"):
        load_task("arith?step=4")
    with pytest.raises(ConfigError, match="no split 'dev'"):
        load_task("arith", "dev")
    with pytest.raises(UnknownNameError, match="Did you mean 'gsm8k'"):
        load_task("gsm8")


def test_a_function_in_a_file_is_a_task(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from stepmark import Problem\n"
        "def squares(split, top=3):\n"
        "    return [Problem(f'{split}/{n}', f'{n}^2?', str(n * n)) for n in range(top)]\n"
        "def twins(split):\n    return [Problem('a', '1?', '1')] * 2\n"
        "def none(split):\n    return []\n"
        "def rows(split):\n    return [{'problem': '1?'}]\n"
        "number = 3\n"
    )
    loaded = load_task(f"{file}:squares?top=4", "train")
    assert (loaded.name, len(loaded.problems), loaded.problems[3].gold) == ("squares", 4, "9")
    for attr, words in (("twins", "id 'a'"), ("none", "no problems"), ("rows", "a dict")):
        with pytest.raises(DataError, match=words):
            load_task(f"{file}:{attr}")
    with pytest.raises(ConfigError, match="is a int"):
        load_task(f"{file}:number")


def test_a_task_file_names_places_columns_splits_and_prompt(tmp_path):
    write(tmp_path / "rows-validation.jsonl", {"q": "1?", "a": "1", "why": "so", "unit": "m"})
    spec = tmp_path / "mine.toml"
    spec.write_text(
        'name = "mine"\npath = "rows-{split}.jsonl"\nmax_tokens = 64\n'
        '[splits]\ntest = "validation"\n'
        '[columns]\nprompt = "q"\ngold = "a"\nsolution = "why"\n'
        '[prompt]\ntemplate = "Q: {problem}"\n'
    )
    loaded = load_task(str(spec))
    (problem,) = loaded.problems
    assert (problem.text, problem.gold, problem.solution) == ("1?", "1", "so")
    assert problem.meta["unit"] == "m"
    assert (loaded.max_tokens, loaded.prompt.fill("x"), loaded.split) == (64, "Q: x", "test")
    with pytest.raises(ConfigError, match="splits names test"):
        load_task(str(spec), "train")
    with pytest.raises(ConfigError, match="takes no settings"):
        load_task(f"{spec}?size=3")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('name = "a"\npaht = "x"', "path"),
        ('name = "a"', "exactly one"),
        ('name = "a"\npath = "x"\nhub = "y"', "exactly one"),
        ('name = "a"\npath = "x"\nmax_tokens = 0', "max_tokens"),
        ("name = ", "cannot be read"),
    ],
)
def test_a_wrong_task_file_is_refused(tmp_path, content, words):
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(ConfigError, match=words):
        load_task(str(tmp_path / "mine.toml"))


def test_several_tasks_come_with_weights(tmp_path):
    place = write(tmp_path / "rows.jsonl", GSM8K)
    mixed = load_tasks(f"gsm8k?path={place}:2, arith?size=3&steps=[2,4]")
    assert mixed.weight_by_task() == {"gsm8k": 2.0, "arith": 1.0}
    assert {name: len(rows) for name, rows in mixed.problems_by_task().items()} == {
        "gsm8k": 1,
        "arith": 3,
    }
    assert load_tasks(["arith?size=1"], weights=[3]).weights == (3,)
    with pytest.raises(ConfigError, match="2 weights for 1"):
        load_tasks("arith?size=1", weights=[1, 2])
    with pytest.raises(ConfigError, match="greater than 0"):
        load_tasks("arith?size=1:0")
    with pytest.raises(ConfigError, match="not all different"):
        load_tasks("arith?size=1,arith?size=2")


def test_tasks_of_one_run_share_no_id(tmp_path):
    made = "from stepmark import Problem\ndef {}(split): return [Problem('1', 'What?', '2')]\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(made.format(name))
    both = [f"{tmp_path / name}.py:{name}" for name in ("a", "b")]
    with pytest.raises(DataError, match=r"'a' and 'b' both have .* '1'.*such as 'b/1'"):
        load_tasks(both)
    assert len(load_tasks(both[:1]).tasks) == 1


@real
def test_all_real_gsm8k_and_math_golds_load():
    for split, count in (("test", 1319), ("train", 7473)):
        loaded = load_task(f"gsm8k?path={DATA}/gsm8k/gsm8k_{{split}}.jsonl", split)
        assert len(loaded.problems) == count
        assert all(p.gold == str(p.meta["gold"]).replace(",", "") for p in loaded.problems)
        assert not any("<<" in (p.solution or "") for p in loaded.problems)
    math500 = load_task(f"math500?path={DATA}/math/math500.jsonl").problems
    assert len(math500) == 500
    assert all(p.gold == p.meta["answer"] for p in math500)
    assert len(load_task(f"math?path={DATA}/math/math_test5000.jsonl").problems) == 5000


@real
def test_the_last_box_is_the_recorded_gold_of_real_math():
    problems = load_task(f"math?path={DATA}/math/math_test5000.jsonl").problems
    same = sum(last_box(p.solution or "") == str(p.meta["answer"]).strip() for p in problems)
    assert same >= 4900
