"""In a notebook two plain dollar signs make a formula of the words between them: amounts are written with \\$."""

import re

import pytest

from grading.cells import SOURCES, lessons, read_lesson

PAGES = [*lessons(), *(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py")))]
# An amount: a plain dollar sign, digits, and then prose or the end. A formula goes on with a symbol, "$2 \cdot 3$".
AMOUNT = re.compile(r"(?<![\\$])\$\d+(?:,\d{3})*(?:\.\d+)?(?=\*|[,.;:)]?(?:\s+[a-z]{2,}|\s*$))", re.MULTILINE)
CODE = re.compile(r"`[^`]*`|\$\$.*?\$\$", re.DOTALL)


def amounts(markdown):
    return AMOUNT.findall(CODE.sub("", markdown))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_amounts_in_prose_are_escaped(page):
    assert [found for cell in page.of_role("markdown") for found in amounts(cell.text)] == []


def test_the_rule_knows_an_amount_from_a_formula():
    assert amounts("They cost $1,295, less than $70 or") == ["$1,295", "$70"]
    assert amounts("becomes **$36,609.50**. Where") == ["$36,609.50"]
    assert amounts(r"stays at **\$17,228.00**; `$5 a` and $2 \cdot 3$, $$2 P B$$") == []
