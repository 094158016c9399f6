"""The proof itself is held to its word: a lax exercise, a lost hint and a wrong style are gaps."""

import dataclasses
import os
import subprocess
import sys

import pytest

from course_lib.errors import InvalidInputError
from grading.cells import ROOT, SOURCES, lessons, read_lesson
from grading.proofs import Mutant, Proof, proofs_of
from grading.prove import main, prove, prove_exercise, table

KEY = "w1-2-linear-flops"
LESSONS = [lesson for lesson in lessons() if lesson.of_role("exercise")]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("TRACE_A_TENSOR_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def lesson():
    return read_lesson(SOURCES / "week1_backprop" / "w1_2_trace_forward.py")


@pytest.fixture(scope="module")
def proof(lesson):
    return proofs_of(lesson)[KEY]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_exercise_of_the_course_is_proved(lesson):
    rows = prove(lesson)
    assert not [(row.exercise_id, row.gaps) for row in rows if row.gaps], table(rows)
    assert all(row.num_caught == row.num_mutants >= 4 for row in rows)


def test_a_mutant_that_is_right_is_a_gap(lesson, proof):
    right = Mutant(name="half", answer=lambda b, i, o: 2 * b * i * o)
    planted = dataclasses.replace(proof, mutants=(*proof.mutants, right))
    assert any("earns full marks" in gap for gap in prove_exercise(lesson, KEY, planted).gaps)


def test_a_mutant_told_another_hint_is_a_gap(lesson, proof):
    misnamed = Mutant(name="double", answer=lambda b, i, o: b * i * o)
    planted = dataclasses.replace(proof, mutants=(*proof.mutants, misnamed))
    assert any("is told 'half', not 'double'" in gap for gap in prove_exercise(lesson, KEY, planted).gaps)


def test_a_style_that_fails_is_a_gap(lesson, proof):
    planted = dataclasses.replace(proof, styles={**proof.styles, "bad": lambda b, i, o: 2 * b * i * o + (i == 1)})
    assert any(gap.startswith("bad earns 0") for gap in prove_exercise(lesson, KEY, planted).gaps)


def test_a_check_that_passes_everything_is_a_gap(lesson, proof, monkeypatch):
    from course_lib.lesson import exercise

    lax = dataclasses.replace(exercise(KEY), same=lambda got, expected: True)
    monkeypatch.setattr("grading.prove.exercise", lambda key: lax)
    gaps = prove_exercise(lesson, KEY, proof).gaps
    assert any("junk" in gap for gap in gaps)
    assert sum("earns full marks" in gap for gap in gaps) == len(proof.mutants)


def test_an_exercise_without_a_proof_is_a_gap(lesson):
    assert prove_exercise(lesson, KEY, None).gaps == ("has no proof",)


def test_points_that_differ_are_a_gap(lesson, proof, monkeypatch):
    from course_lib.lesson import exercise

    monkeypatch.setattr("grading.prove.exercise", lambda key: dataclasses.replace(exercise(key), points=3))
    assert any("the source says 2 points" in gap for gap in prove_exercise(lesson, KEY, proof).gaps)


@pytest.mark.parametrize(("styles", "num_mutants"), [(1, 4), (2, 3)])
def test_a_thin_proof_is_refused(proof, styles, num_mutants):
    with pytest.raises(InvalidInputError, match="at least"):
        Proof(id=KEY, styles=dict(list(proof.styles.items())[:styles]), mutants=proof.mutants[:num_mutants])


def test_no_lesson_of_that_name_is_an_error_not_a_pass(capsys):
    assert main(["--lesson", "w9_9"]) == 1


def test_the_command_prints_the_table_and_ends_with_zero():
    command = [sys.executable, "-m", "grading.prove", "--lesson", "w1_2"]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY in done.stdout
    assert done.stderr == ""
