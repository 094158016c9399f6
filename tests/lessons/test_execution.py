"""Every lesson runs: solved in a kernel, untouched, with other shapes, and each exercise on its own."""

import nbformat
import pytest

from course_lib.units import GB
from grading.cells import SOURCES, lessons, read_lesson
from grading.execute import is_wordless_picture
from grading.running import check_exercise

LESSONS = lessons()
WEEKLY = [lesson for lesson in LESSONS if lesson.name.startswith("w")]
EVERY = [*LESSONS, *(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py")))]
EXERCISES = [(lesson, cell.key) for lesson in LESSONS for cell in lesson.of_role("exercise")]

MAX_CPU_SECONDS = 120  # 60 s on two cores
MAX_PEAK_BYTES = 1 * GB

every = pytest.mark.parametrize("lesson", EVERY, ids=lambda lesson: lesson.name)
weekly = pytest.mark.parametrize("lesson", WEEKLY, ids=lambda lesson: lesson.name)


@every
def test_the_solved_notebook_runs_clean_earns_everything_and_keeps_its_budget(lesson, executed):
    report = executed(lesson.path, "solved")
    assert report["errors"] == []
    assert report["stderr"] == []
    assert report["wordless_pictures"] == []
    expected = {f"{key}-check": points for key, points in lesson.points.items()}
    expected |= {f"{c.key}-reveal": 1.0 for c in lesson.of_role("reveal")}
    assert {key: float(text) for key, text in report["marks"].items()} == expected
    assert report["cpu_seconds"] < MAX_CPU_SECONDS
    assert report["peak_bytes"] < MAX_PEAK_BYTES


@every
def test_the_untouched_notebook_runs_without_an_error_and_gives_nothing_away(lesson, executed):
    words = executed(lesson.path, "cells")["untouched"]["words"]
    assert all("Commit a number" in text for key, text in words.items() if key.endswith("-reveal"))
    assert all(": 0 of " in text for key, text in words.items() if key.endswith("-check"))


@pytest.mark.parametrize(
    ("data", "wordless"),
    [
        ({"image/png": "AAAA"}, True),
        ({"text/html": '<img src="a"> and words that say alt="x"'}, True),
        ({"text/html": '<img alt="" src="a">'}, True),
        ({"text/html": "<svg></svg>"}, True),
        ({"text/html": '<svg aria-label="A rising line."></svg>'}, False),
        ({"text/html": '<img src="a" alt="A rising line.">'}, False),
        ({"text/html": "<p>words</p>"}, False),
    ],
)
def test_a_picture_without_words_is_found(data, wordless):
    assert is_wordless_picture(nbformat.v4.new_output("display_data", data)) is wordless


@weekly
def test_numbers_change_when_the_shapes_change(lesson, executed):
    first, second = executed(lesson.path, "cells")["shapes"]
    assert first["output"] != second["output"]
    reveals = [key for key in first["words"] if key.endswith("-reveal")]
    assert any(first["words"][key] != second["words"][key] for key in reveals)
    for run in (first, second):
        assert all(": 0 of" not in text for key, text in run["words"].items() if key.endswith("-check"))
        assert not [text for text in run["words"].values() if "did not run" in text]


@pytest.mark.parametrize(("lesson", "key"), EXERCISES, ids=lambda value: getattr(value, "name", value))
def test_an_exercise_needs_only_the_set_up_and_its_own_cell(lesson, key, monkeypatch, tmp_path):
    monkeypatch.setenv("TRACE_A_TENSOR_HOME", str(tmp_path))
    result = check_exercise(lesson, key, solved=True)
    assert result.passed, str(result)
