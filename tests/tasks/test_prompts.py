from __future__ import annotations

from dataclasses import replace

import pytest

from stepmark.errors import ConfigError, UnknownNameError
from stepmark.tasks.prompts import PROMPTS, PromptTemplate, prompt_named


def test_built_in_prompts_ask_for_a_boxed_answer():
    assert set(PROMPTS) == {"plain", "qwen_boxed", "deepseek_cot_en", "gsm8k_zeroshot"}
    assert PROMPTS["plain"].fill("1 + 1?") == "1 + 1?\n"
    for name in ("deepseek_cot_en", "gsm8k_zeroshot"):
        assert PROMPTS[name].fill("X").endswith("within \\boxed{}.")
    assert "\\boxed{}" in (PROMPTS["qwen_boxed"].system or "")


def test_the_hash_is_that_of_the_content_and_not_of_the_name():
    prompt = PROMPTS["qwen_boxed"]
    assert replace(prompt, name="mine").hash == prompt.hash
    assert replace(prompt, system="else").hash != prompt.hash
    assert len({p.hash for p in PROMPTS.values()}) == len(PROMPTS)


def test_braces_in_problems_and_templates_are_text():
    assert PromptTemplate("a", "{x} {problem} {}").fill("{problem} {y}") == "{x} {problem} {y} {}"


def test_a_prompt_comes_from_a_toml_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('template = "Q: {problem}\\nA:"\nchat = "never"\nstop = ["Q:"]')
    prompt = prompt_named(str(file))
    assert prompt == PromptTemplate("mine", "Q: {problem}\nA:", None, "never", ("Q:",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('template = "no place"', "0 times"),
        ('template = "{problem}"\nchatt = "never"', "Did you mean 'chat'"),
        ('template = "{problem}"\nchat = "sometimes"', "'sometimes'"),
        ("template = 3", "must be a str"),
        ("template = ", "cannot be read"),
    ],
)
def test_a_wrong_prompt_file_is_refused(tmp_path, content, words):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=words):
        prompt_named(str(file))


def test_an_unknown_prompt_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'qwen_boxed'"):
        prompt_named("qwen_box")
