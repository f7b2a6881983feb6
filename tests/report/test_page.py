"""A page is one file, the same bytes for the same sections, and needs nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepmark.report import Page, SampleView, markdown_table, number, percent, points

VIEWS = [
    SampleView("2 + 2?", "two and two\nis \\boxed{4}", "4", "4", True, "equal", 1.0),
    SampleView("2 + 3?", "\\boxed{6}", "5", "6", False, "different", 0.0, title="arith/7"),
    SampleView("2 + ?", "5", None, None, None, "gold_missing"),
]


def full_page() -> Page:
    page = Page("A run", "seed 0").section("Table").table(["n", "right"], [["a", "1.0 %"]], "cap")
    return page.figure('<?xml version="1.0"?><svg><path id="a"/></svg>', "one").samples(VIEWS)


def test_the_same_sections_give_the_same_bytes() -> None:
    assert full_page().html() == full_page().html()


def test_a_page_loads_nothing() -> None:
    page = full_page().html()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)""", page)
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_the_script_is_the_only_one_that_the_page_allows() -> None:
    import base64
    import hashlib

    page = full_page().html()
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_samples_show_steps_verdicts_and_filters() -> None:
    page = Page("t").samples(VIEWS).html()
    assert "<li>two and two</li><li>is \\boxed{4}</li>" in page
    kinds = re.findall(r'data-kind="(\w+)"', page)
    assert kinds == ["right", "wrong", "other"]
    assert "✓ right (1)" in page
    assert "gold missing" in page
    assert "arith/7" in page


def test_without_scripts_all_samples_are_shown_and_no_dead_buttons() -> None:
    page = Page("t").samples(VIEWS).html()
    assert re.search(r'class="filter"[^>]* hidden>', page)
    assert not re.search(r"<article[^>]* hidden", page)


def test_two_figures_do_not_share_ids() -> None:
    svg = '<svg><path id="p"/><use href="#p" clip-path="url(#p)"/></svg>'
    page = Page("t").figure(svg).figure(svg).html()
    assert page.count('id="fig1-p"') == page.count('href="#fig2-p"') == 1
    assert page.count("url(#fig2-p)") == 1


def test_what_is_no_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="<svg>"):
        Page("t").figure("<img>")


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells"):
        Page("t").table(["a"], [[1, 2]])
    with pytest.raises(ValueError, match="2 cells"):
        markdown_table(["a"], [[1, 2]])


def test_a_table_without_rows_is_a_table() -> None:
    assert "<th" in Page("t").table(["a", "b"], []).html()
    assert markdown_table(["a"], []).count("\n") == 1


def test_writing_makes_the_folder_and_one_file(tmp_path: Path) -> None:
    path = full_page().write(tmp_path / "deep" / "report.html")
    assert path.read_bytes() == full_page().html().encode()
    assert [child.name for child in path.parent.iterdir()] == ["report.html"]


def test_numbers_read_the_same_everywhere() -> None:
    assert percent(0.842, (0.821, 0.861)) == "84.2 % [82.1, 86.1]"
    assert points(-0.0312) == "-3.1 points"
    assert number(1234.5678) == "1.23e+03"
    assert percent(float("nan")) == "–"


def test_pages_need_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from stepmark.report import Page, markdown_table; Page('t').html();"
        "print([m for m in ('torch', 'matplotlib', 'jinja2', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
