"""The table to adjudicate on: text from models stays text, names come back as they were."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from stepmark.report import Dispute, Page

HOSTILE = (
    """</pre></details></td><script>alert(1)</script><img src=x onerror="alert(1)">' \x00\u202e"""
)


class Found(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[dict[str, object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        assert not any(name.startswith("on") for name in known)
        if (data := known.get("data-row")) is not None:
            self.rows.append(json.loads(data))


def page_of(*disputes: Dispute) -> Found:
    found = Found()
    found.feed(Page("Verdicts").disputes(disputes, "math@1", "recorded").html())
    return found


def dispute(text: str, k: int = 0) -> Dispute:
    return Dispute(text, k, text, text, text, text, text, "correct", "wrong", text, text, text)


def test_each_line_has_three_choices_and_a_remark() -> None:
    found = page_of(dispute("a"), dispute("b", 3))
    assert found.tags.count("input") == 2 * (3 + 1)
    assert found.rows == [{"id": "a", "k": 0, "group": "a"}, {"id": "b", "k": 3, "group": "b"}]


def test_a_hostile_completion_adds_no_element() -> None:
    assert page_of(dispute(HOSTILE)).tags == page_of(dispute("4")).tags
    assert page_of(dispute(HOSTILE)).rows[0]["id"] == HOSTILE


@given(st.text())
def test_any_id_comes_back_as_it_was(text: str) -> None:
    assert page_of(dispute(text)).rows[0]["id"] == text


def test_two_pages_keep_their_choices_apart() -> None:
    pages = [Page("x").disputes([dispute(id)], "a", "b").html() for id in ("1", "2", "1")]
    assert pages[0] == pages[2] != pages[1]
