"""A lesson source says what is wrong with it: file, cell and cure."""

import pytest

from course_lib.errors import InvalidInputError
from grading.cells import cell_id, read_lesson

HEAD = "# %% [markdown]\n# # A lesson\n\n"
EXERCISE = '''# %% role="exercise" grade_id="w1-1-size" points=1
def size(n):
    """Twice n."""
    ### BEGIN SOLUTION
    return 2 * n
    ### END SOLUTION

# %% role="check"
check("w1-1-size", size)
'''


@pytest.fixture
def lesson(tmp_path):
    def write(body, head=HEAD):
        path = tmp_path / "w1_1_size.py"
        path.write_text(head + body)
        return read_lesson(path)

    return write


def test_a_check_belongs_to_the_exercise_before_it(lesson):
    exercise, check = lesson(EXERCISE).exercise_cells("w1-1-size")
    assert (exercise.points, check.key) == (1, "w1-1-size")


def test_the_learner_keeps_the_signature_and_docstring(lesson):
    exercise, _ = lesson(EXERCISE).exercise_cells("w1-1-size")
    assert exercise.learner_text == 'def size(n):\n    """Twice n."""\n    ...  # your code here'
    assert exercise.solved_text == 'def size(n):\n    """Twice n."""\n    return 2 * n'


def test_a_value_exercise_becomes_an_ellipsis(lesson):
    body = EXERCISE.replace("def size(n):", "size = (").replace('    """Twice n."""\n', "")
    body = body.replace("return 2 * n", "42")
    body = body.replace("### END SOLUTION\n", "### END SOLUTION\n)\n")
    exercise, _ = lesson(body).exercise_cells("w1-1-size")
    space = {}
    exec(exercise.learner_text, space)
    assert space["size"] is ...


def test_guesses_replace_the_ellipses_of_a_prediction_in_order(lesson):
    body = '# %% role="predict" id="w1-1-n" guess="3e6 1e6 1e7"\npredict("w1-1-n", ..., low=..., high=...)\n'
    (cell,) = lesson(body).of_role("predict")
    assert cell.solved_text == 'predict("w1-1-n", 3e6, low=1e6, high=1e7)'
    assert cell.learner_text == 'predict("w1-1-n", ..., low=..., high=...)'


def test_cell_ids_are_the_same_in_every_reading_and_differ_within_one(lesson):
    first, second = lesson(EXERCISE + "\n# %%\n1\n\n# %%\n1\n"), lesson(EXERCISE + "\n# %%\n1\n\n# %%\n1\n")
    ids = [cell_id(first, cell) for cell in first.cells]
    assert ids == [cell_id(second, cell) for cell in second.cells]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (EXERCISE.replace("    ### BEGIN", "### BEGIN").replace("    ### END", "### END"), "inside the body"),
        (EXERCISE.replace("    ### END SOLUTION\n", ""), "inside the body"),
        (EXERCISE.replace("points=1", "point=1"), "marker fields"),
        (EXERCISE.replace('role="exercise"', 'role="exercice"'), "no such role"),
        (EXERCISE.split("# %% role=\"check\"")[0], "each exercise has its check"),
        (EXERCISE + EXERCISE, "id of its own"),
        ("# %%\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n", "only exercise cells"),
        ('# %% role="predict" id="w1-1-n" guess="1 2"\npredict("w1-1-n", ...)\n', "as many guesses"),
        (EXERCISE.replace('    """Twice n."""', "    if n ="), "no Python"),
    ],
)
def test_a_fault_in_a_source_is_named(lesson, body, message):
    with pytest.raises(InvalidInputError, match=message):
        lesson(body)


def test_the_first_cell_is_the_title(lesson):
    with pytest.raises(InvalidInputError, match="title"):
        lesson(EXERCISE, head="")
