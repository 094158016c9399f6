r"""Two dollar signs in one run of text make a formula of the words between them, also when both are written \$.

Markdown turns ``\$`` into a plain dollar sign before JupyterLab looks for formulas. What keeps two amounts apart is
markup between them: ``**\$70** or **\$80**`` is safe, and so is ``70 USD or 80 USD``. And an amount needs its
backslash, or other readers of notebooks see a formula where JupyterLab does not.
"""

import re

import pytest

from grading.cells import SOURCES, lessons, read_lesson

PAGES = [*lessons(), *(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py")))]
DISPLAYED = re.compile(r"```.*?```|\$\$.*?\$\$", re.DOTALL)
MARKUP = re.compile(r"`[^`\n]*`|\*+|\]\([^)]*\)|<[^>]+>|\[")  # whatever ends a run of plain text
# An amount: a plain dollar sign, digits, then prose or the end. A formula goes on with a symbol, "$2 \cdot 3$".
AMOUNT = re.compile(r"(?<!\\)\$\d+(?:,\d{3})*(?:\.\d+)?(?=[,.;:)]?(?:\s+[a-z]{2,}|\s*$))")


def troubles(markdown):
    """Runs of text in which an amount meets another dollar sign, or stands without its backslash."""
    blocks = re.split(r"\n\s*\n|\n\s*[-*|]|\n\s*\d+\. ", DISPLAYED.sub("\n\n", markdown))
    runs = [run for block in blocks for run in MARKUP.split(block)]
    return [run for run in runs if AMOUNT.search(run) or (r"\$" in run and run.count("$") > 1)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_amount_of_dollars_is_read_as_a_formula(page):
    assert [run for cell in page.of_role("markdown") for run in troubles(cell.text)] == []


@pytest.mark.parametrize(
    "text", [r"cost \$1,295, less than \$70", "cost $1,295, less", r"with $B$ rows it costs \$5 a day", "a **$36.50**"]
)
def test_the_rule_finds(text):
    assert troubles(text)


@pytest.mark.parametrize(
    "text", [r"**\$70** or **\$80** or \$90", r"with $B$ rows, $2 \cdot 3$", "one \\$5\n\ntwo \\$6", "`$5 a`"]
)
def test_the_rule_lets_pass(text):
    assert troubles(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sum_that_is_broken_before_its_plus_becomes_a_list(page):
    prose = [DISPLAYED.sub("", cell.text) for cell in page.of_role("markdown")]
    assert [line for text in prose for line in text.splitlines() if line.startswith("+ ")] == []
