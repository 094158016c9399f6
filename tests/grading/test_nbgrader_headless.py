"""The whole road with nbgrader's own converters: release, submissions, autograde, feedback, export."""

import nbformat
import pytest

from grading.cells import ASSIGNMENTS, SOURCES, lessons
from grading.nbgrader_run import autograde, export, feedback, marks, release, submit, write_sources
from grading.notebooks import leaks

WITH_LESSONS = [name for name in ASSIGNMENTS if any((SOURCES / name).glob("w*.py"))]


def full_marks(assignment):
    found = {}
    for lesson in lessons(assignment):
        found |= {cell.key: cell.points for cell in lesson.of_role("exercise", "reveal") if cell.points}
    return found


def exercise_ids(assignment):
    return [cell.key for lesson in lessons(assignment) for cell in lesson.of_role("exercise")]


@pytest.fixture(scope="module", params=WITH_LESSONS)
def graded(request, tmp_path_factory):
    """One assignment graded for three learners: all right, every second exercise, nothing."""
    assignment, course = request.param, tmp_path_factory.mktemp(request.param)
    write_sources(course, assignment)
    release(course, assignment)
    ids = exercise_ids(assignment)
    submit(course, assignment, "right", set(ids))
    submit(course, assignment, "half", set(ids[::2]), predicted=False)
    submit(course, assignment, "empty", set(), predicted=False)
    autograde(course, assignment)
    feedback(course, assignment)
    return assignment, course


def test_the_release_holds_no_solution_and_no_output(graded):
    assignment, course = graded
    for path in (course / "release" / assignment).glob("*.ipynb"):
        assert leaks(nbformat.read(path, as_version=4)) == []


def test_every_mark_is_exactly_the_expected_one(graded):
    assignment, course = graded
    full = full_marks(assignment)
    solved = set(exercise_ids(assignment)[::2])
    assert marks(course, assignment, "right") == full
    assert marks(course, assignment, "half") == {key: points * (key in solved) for key, points in full.items()}
    assert marks(course, assignment, "empty") == dict.fromkeys(full, 0.0)


def test_feedback_is_written_for_every_notebook_of_every_learner(graded):
    assignment, course = graded
    for student in ("right", "half", "empty"):
        pages = sorted(path.stem for path in (course / "feedback" / student / assignment).glob("*.html"))
        assert pages == sorted(lesson.name for lesson in lessons(assignment))


def test_the_exported_csv_holds_the_same_totals(graded):
    assignment, course = graded
    rows = {row["student_id"]: row for row in export(course) if row["assignment"] == assignment}
    full = full_marks(assignment)
    solved = set(exercise_ids(assignment)[::2])
    assert float(rows["right"]["score"]) == float(rows["right"]["max_score"]) == sum(full.values())
    assert float(rows["half"]["score"]) == sum(full[key] for key in solved)
    assert float(rows["empty"]["score"]) == 0


def test_cells_that_only_teach_are_not_run_when_grading(graded):
    assignment, course = graded
    for path in (course / "autograded" / "right" / assignment).glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        roles = {c.metadata.get("trace_a_tensor", {}).get("role") for c in cells if c.cell_type == "code" and c.outputs}
        assert roles <= {"check", "reveal", "predict", "exercise", "setup", "shapes"}
