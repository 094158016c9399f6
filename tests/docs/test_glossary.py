"""The glossary is held to the code: every name in it exists, and none stands twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| term", "| ---"))
]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "course_lib").rglob("*.py")))


def test_the_table_has_rows_of_five_cells() -> None:
    assert len(ROWS) >= 40
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[3].strip("`"))
def test_a_name_in_the_glossary_is_defined_in_the_library(row: list[str]) -> None:
    name = row[3].strip("`")
    defined = rf"(?:^\s*(?:def|class) {name}\b)|(?:^\s*{name}\s*[:=])|(?:[(,]\s*{name}\s*[:=])"
    assert re.search(defined, CODE, flags=re.MULTILINE), f"{name} is defined nowhere in course_lib"


def test_no_name_stands_twice() -> None:
    names = [row[3] for row in ROWS]
    assert len(names) == len(set(names))
