"""docs/coverage.csv: none of the course's promises is lost, and what is called taught exists."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
with (ROOT / "docs/coverage.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))

EXPECTED = [f"{kind}{n:02d}" for kind, last in (("T", 28), ("M", 37), ("P", 40)) for n in range(1, last + 1)]
HELD = [row for row in ROWS if row["status"] in ("begun", "taught")]


def test_every_promise_stands_once_and_in_order() -> None:
    assert [row["id"] for row in ROWS] == EXPECTED


def test_states_are_known_and_something_is_taught() -> None:
    assert {row["status"] for row in ROWS} <= {"planned", "begun", "taught", "left out"}
    assert HELD


@pytest.mark.parametrize("row", HELD, ids=lambda row: row["id"])
def test_what_is_called_taught_has_its_file_and_its_test(row: dict[str, str]) -> None:
    assert row["file"], "names the file that teaches it"
    assert (ROOT / row["file"]).exists(), row["file"]
    path, _, name = row["test"].partition("::")
    assert path, "names the test that holds it"
    assert (ROOT / path).exists(), row["test"]
    if name:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"no test {name} in {path}"
