"""Whatever a model wrote, a page shows it and never obeys it."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st

from stepmark.report import Page, SampleView, escape, markdown_table, shorten, visible

HOSTILE = (
    "<script>alert(1)</script>",
    "</li></ol></article></main><h1>",
    '"><img src=x onerror=alert(1)>',
    "<!-- unclosed",
    "${style} $title $$",
    "\x1b[31mred\x00\u202e\ud800\u2028",
    "<![CDATA[",
    "&lt;b&gt; &#60;",
    "]]>",
)
text = st.text(max_size=80) | st.sampled_from(HOSTILE)


class Outline(HTMLParser):
    """The tags of a page, in order, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def page_with(words: str) -> str:
    view = SampleView(
        words, words, words, words, False, words, 0.5, (f"x{words}",), f"t{words}", f"n{words}"
    )
    page = Page(words, f"s{words}").section(words).text(words).code(words)
    return page.table([words], [[f"a{words}"]], f"c{words}").samples([view]).html()


@given(text)
def test_escaped_text_opens_no_tag_and_leaves_no_quotes(words: str) -> None:
    escaped = escape(words)
    assert not re.search("[<>\"']", escaped)
    assert unescape(escaped) == visible(words)


@given(text)
@example("</style></script>")
def test_no_text_changes_the_outline_of_a_page(words: str) -> None:
    assert Outline(page_with(words)).tags == Outline(page_with("plain")).tags


@given(text)
def test_visible_text_has_no_control_characters_and_can_be_written(words: str) -> None:
    shown = visible(words)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    shown.encode()
    assert visible(shown) == shown


@given(st.text(max_size=300), st.integers(4, 100))
def test_shortened_text_keeps_both_ends_and_says_what_is_missing(words: str, limit: int) -> None:
    short = shorten(words, limit)
    if len(words) <= limit:
        assert short == words
    else:
        tail = limit // 4
        assert short.startswith(words[: limit - tail])
        assert short.endswith(words[-tail:])
        assert f"{len(words) - limit:,} characters left out" in short


def test_a_megabyte_makes_a_small_page_that_says_so() -> None:
    loop = SampleView("p", "ab\n" * 400_000, "1", "9" * 1_000_000, False, "too_large")
    line = SampleView("p" * 1_000_000, "a" * 1_000_000, "1", None, False, "no_answer")
    page = Page("t").samples([loop, line]).html()
    assert len(page) < 60_000
    assert "399,800 steps left out" in page
    assert page.count("994,000 characters left out") == 2
    assert page.count("999,600 characters left out") == 1


@given(st.lists(st.lists(text, min_size=2, max_size=2), max_size=4))
def test_no_cell_leaves_its_row_of_a_markdown_table(rows: list[list[str]]) -> None:
    lines = markdown_table(["a", "b"], rows).split("\n")
    assert len(lines) == len(rows) + 2
    for line in lines:
        bare = line.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") == 3
