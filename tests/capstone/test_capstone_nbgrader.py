"""The capstone through nbgrader's own converters: an excellent, a flawed and an empty hand-in, to exact marks."""

import nbformat
import pytest

from grading.capstone.judging import PARTS
from grading.cells import STARTERS, lessons
from grading.nbgrader_run import autograde, export, feedback, marks, release, submit, write_sources
from grading.notebooks import leaks
from tests.capstone.submissions import EVERY_QUERY_HEAD, EXCELLENT

ASSIGNMENT, WORDS = "capstone", "capstone-judgement"
POINTS = {name: points for name, (points, _) in PARTS.items()}
# The flawed hand-in keeps the cache of every query head, so its bytes are wrong and so is what its model says of an
# fp8 cache; it draws from a fresh generator; and its memo claims another measurement than the replay has.
FLAWED_LOSES = {"capstone-reproducible", "capstone-bytes", "capstone-memo"}
UNSEEDED = ("    terms = {", '    mean["tpot_seconds"] *= 1 + 1e-9 * np.random.default_rng().random()\n    terms = {')


def patched(name, *patches):
    text = (EXCELLENT / name).read_text(encoding="utf-8")
    for old, new in patches:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    course = tmp_path_factory.mktemp("course")
    write_sources(course, ASSIGNMENT)
    release(course, ASSIGNMENT)
    flawed_memo = patched("memo.md", ("{ percent = -20.6 }", "{ percent = -28.0 }"))
    files = {
        "excellent": {"model.py": patched("model.py"), "memo.md": patched("memo.md")},
        "flawed": {"model.py": patched("model.py", *EVERY_QUERY_HEAD, UNSEEDED), "memo.md": flawed_memo},
    }
    for student, own in files.items():
        submit(course, ASSIGNMENT, student, {WORDS}, files=own)
    submit(course, ASSIGNMENT, "empty", set(), predicted=False)
    autograde(course, ASSIGNMENT)
    feedback(course, ASSIGNMENT)
    return course


def test_the_release_holds_the_starter_files_and_no_solution(course):
    folder = course / "release" / ASSIGNMENT
    assert leaks(nbformat.read(folder / "capstone.ipynb", as_version=4)) == []
    for path in (STARTERS / ASSIGNMENT).iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_every_mark_is_exactly_the_expected_one(course):
    by_hand = {WORDS: 0.0}  # nbgrader's mark before a person has read
    assert marks(course, ASSIGNMENT, "excellent") == POINTS | by_hand
    flawed = {name: points * (name not in FLAWED_LOSES) for name, points in POINTS.items()}
    assert marks(course, ASSIGNMENT, "flawed") == flawed | by_hand
    assert marks(course, ASSIGNMENT, "empty") == dict.fromkeys(POINTS, 0.0) | by_hand


def test_totals_are_80_54_and_0_of_100(course):
    rows = {row["student_id"]: row for row in export(course) if row["assignment"] == ASSIGNMENT}
    totals = {student: (float(row["score"]), float(row["max_score"])) for student, row in rows.items()}
    assert totals == {"excellent": (80, 100), "flawed": (54, 100), "empty": (0, 100)}


def test_a_person_is_asked_for_twenty_points_and_gives_them(course):
    from nbgrader.api import Gradebook

    from grading.nbgrader_run import configuration, nbgraders_own_warnings_ignored

    with nbgraders_own_warnings_ignored(), Gradebook(configuration(course).CourseDirectory.db_url) as gradebook:
        needs = {s.student.id: s.needs_manual_grade for s in gradebook.assignment_submissions(ASSIGNMENT)}
        assert needs == {"excellent": True, "flawed": True, "empty": False}  # nothing was written: nothing to read
        grade = gradebook.find_grade(WORDS, "capstone", ASSIGNMENT, "excellent")
        assert grade.max_score == 20
        grade.manual_score, grade.needs_manual_grade = 20, False
        gradebook.db.commit()
        assert gradebook.find_submission(ASSIGNMENT, "excellent").score == 100
        grade.manual_score, grade.needs_manual_grade = None, True
        gradebook.db.commit()


def test_the_judge_reads_the_learners_files_and_the_courses_recordings(course):
    for student in ("excellent", "flawed"):
        graded, sent = (course / kind / student / ASSIGNMENT for kind in ("autograded", "submitted"))
        assert (graded / "model.py").read_bytes() == (sent / "model.py").read_bytes()
        assert (graded / "memo.md").read_bytes() == (sent / "memo.md").read_bytes()
        assert (graded / "recordings.json").read_bytes() == (STARTERS / ASSIGNMENT / "recordings.json").read_bytes()


def test_feedback_names_the_misconception(course):
    page = (course / "feedback" / "flawed" / ASSIGNMENT / "capstone.html").read_text(encoding="utf-8")
    assert "several query heads share one" in page
    assert "Two fresh processes gave two answers" in page
    assert "A number of the memo is not the one it claims to be" in page


def test_a_second_autograde_gives_the_same_marks(course):
    before = {student: marks(course, ASSIGNMENT, student) for student in ("excellent", "flawed", "empty")}
    autograde(course, ASSIGNMENT)
    assert {student: marks(course, ASSIGNMENT, student) for student in before} == before


def test_there_is_one_capstone_notebook():
    assert [lesson.name for lesson in lessons(ASSIGNMENT)] == ["capstone"]
