"""Presets say where each of their values comes from: a place in a paper, or "ours"."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from stepmark.config import preset_names

PAPERS = [name for name in preset_names() if not name.startswith("quickstart-")]
ARXIV = r"\d{4}\.\d{5}"
PLACE = r"(?:\d+(?:\.\d+)*|[A-G](?:\.\d+)*|eq\. \([\d.]+\)|(?:Algorithm|Table|figure) \d+)"
SOURCE = re.compile(rf"ours\b|(?:({ARXIV}), )?{PLACE}(?=[:;,]|$)")


def text_of(name: str) -> str:
    return (files("stepmark.config") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def values(text: str) -> list[tuple[str, str]]:
    """Each line that sets a value, and its comment."""
    found = []
    for line in text.splitlines():
        value, _, comment = line.partition("#")
        if "=" in value and not value.rstrip().endswith("["):
            found.append((value.strip(), comment.strip()))
    return found


@pytest.mark.parametrize("name", PAPERS)
def test_every_value_says_where_it_is_from(name: str) -> None:
    text = text_of(name)
    header = text.split("\n[", 1)[0]
    papers = set(re.findall(rf"arXiv:({ARXIV})", header))
    assert papers
    assert values(text)
    for value, comment in values(text):
        source = SOURCE.match(comment)
        assert source, f"{name}: {value}  # {comment!r} names no place in a paper and no 'ours'"
        if comment.startswith("ours"):
            continue
        assert source[1] or len(papers) == 1, f"{name}: {value}  # of which of {papers}?"
        assert source[1] is None or source[1] in papers, f"{name}: {source[1]} is not in its header"


def test_a_value_without_a_source_is_found() -> None:
    assert values("a = 1\nb = 2  # 3.1\nc = [\n  { d = 1 },\n]\n# e = 1\n") == [
        ("a = 1", ""),
        ("b = 2", "3.1"),
        ("{ d = 1 },", ""),
    ]
    for comment in ("", "usual", "4 in the paper", "of the paper", "theirs"):
        assert not SOURCE.match(comment)
    for comment in ("ours", "ours: 3", "B: 0.1", "2403.17031, 7: 3e-6", "eq. (4.7)", "Table 6"):
        assert SOURCE.match(comment)
