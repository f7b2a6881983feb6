"""Heat-maps of solutions on a page: what is low, what is named, and nothing that runs."""

from __future__ import annotations

import re
from dataclasses import replace

from stepmark.report import Page, SolutionView

VIEW = SolutionView(
    title="bench, 7",
    problem="What is <b>3</b> + 4?",
    steps=("3 + 4 = 8", "<script>alert(1)</script>", "done"),
    scores=(0.9, 0.2, None),
    labels=(1.0, 0.0, None),
    threshold=0.5,
    first_error=1,
    prediction=1,
    outcome="found",
)


def rows(html: str) -> list[str]:
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    return re.findall(r"<tr.*?</tr>", body, re.DOTALL)


def test_scores_are_shaded_and_written_and_labels_stand_beside_them() -> None:
    found = rows(Page("t").solutions([VIEW]).html())
    assert len(found) == 3
    assert '<td style="--h:6%">0.90</td><td class="yes">✓ right</td>' in found[0]
    assert '<td style="--h:48%">0.20</td><td class="no">✗ wrong</td>' in found[1]
    assert "<td>–</td><td>–</td><td>done</td>" in found[2]


def test_the_first_step_below_the_threshold_is_outlined_and_no_other() -> None:
    marked = ['class="first"' in row for row in rows(Page("t").solutions([VIEW]).html())]
    assert marked == [False, True, False]
    none = replace(VIEW, prediction=-1, outcome="missed")
    html = Page("t").solutions([none]).html()
    assert 'class="first"' not in html
    assert "<dt>named first</dt><dd>none</dd>" in html
    assert "<dt>first error</dt><dd>step 2</dd>" in html


def test_text_of_models_is_shown_and_never_run() -> None:
    html = Page("t").solutions([VIEW]).html()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;b&gt;3&lt;/b&gt;" in html
    assert html.count("<script>") == 1, "the page's own"


def test_there_is_a_button_for_every_outcome_that_is_there() -> None:
    views = [VIEW, replace(VIEW, outcome="alarm", first_error=-1)]
    html = Page("t").solutions(views).html()
    assert re.findall(r'data-show="(\w+)"', html) == ["all", "found", "alarm"]
    assert re.findall(r'<article class="sample (\w+)"', html) == ["right", "wrong"]


def test_a_loop_of_steps_does_not_fill_the_page() -> None:
    many = replace(
        VIEW, steps=("x" * 500,) * 900, scores=(0.5,) * 900, labels=(None,) * 900, prediction=-1
    )
    html = Page("t").solutions([many]).html()
    assert "[... 700 steps left out ...]" in html
    assert len(html) < 120_000


def test_soft_labels_are_numbers() -> None:
    html = Page("t").solutions([replace(VIEW, labels=(0.25, 1.0, None))]).html()
    assert "<td>0.25</td>" in html


def test_rows_for_orientation_are_grey() -> None:
    html = Page("t").table(["a"], [["x"], ["y"]], grey=[1]).html()
    assert "<tr><td>x</td></tr>\n<tr class=grey><td>y</td></tr>" in html
