"""Rules that every lesson keeps. docs/lesson-format.md says them in words."""

import ast
import re

import pytest

from course_lib.lesson import exercise
from grading.cells import SOURCES, lessons, read_lesson
from grading.proofs import PROOFS, load, proofs_of

LESSONS = lessons()
# A lesson proper is named w{week}_{lesson}_...; the capstone's notebooks have rules of their own.
WEEKLY = [lesson for lesson in LESSONS if lesson.name.startswith("w")]
EVERY = [*LESSONS, *(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py")))]
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]")

every = pytest.mark.parametrize("lesson", EVERY, ids=lambda lesson: lesson.name)
weekly = pytest.mark.parametrize("lesson", WEEKLY, ids=lambda lesson: lesson.name)


def calls(text):
    """Names of the functions called in a cell."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [node.func.id for node in nodes if isinstance(node.func, ast.Name)]


def imported(text):
    """Top-level modules imported in a cell."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


def is_draft(lesson):
    return getattr(load(PROOFS / lesson.assignment / f"{lesson.name}.py"), "DRAFT", False)


def test_there_are_lessons():
    assert WEEKLY


@weekly
def test_a_lesson_has_25_to_40_cells(lesson):
    fewest = 15 if is_draft(lesson) else 25
    assert fewest <= len(lesson.cells) <= 40


@every
def test_code_cells_have_at_most_15_lines(lesson):
    lines = {cell.position + 1: len(cell.solved_text.split("\n")) for cell in lesson.cells if cell.is_code}
    assert not {number: count for number, count in lines.items() if count > 15}


@every
def test_there_is_no_emoji(lesson):
    assert not [cell.position + 1 for cell in lesson.cells if EMOJI.search(cell.text)]


@every
def test_no_lesson_draws_with_matplotlib_itself(lesson):
    code = [cell for cell in lesson.cells if cell.is_code]
    assert not [c.position + 1 for c in code if imported(c.solved_text) & {"matplotlib", "pylab", "seaborn", "plotly"}]


@every
def test_markdown_pictures_have_alternative_text(lesson):
    words = "\n".join(cell.text for cell in lesson.cells if not cell.is_code)
    assert not re.findall(r"!\[\s*\]\(", words)
    assert all("alt=" in tag for tag in re.findall(r"<img[^>]*>", words))


@weekly
def test_the_first_cell_is_a_puzzle_with_its_number(lesson):
    head = lesson.cells[0].text
    assert "?" in head
    assert re.search(r"\d", head.split("\n", 1)[1])


@weekly
def test_the_last_cell_closes_with_three_takeaways_and_sources(lesson):
    close = lesson.cells[-1].text
    assert len(re.findall(r"^- ", close, re.MULTILINE)) == 3
    assert "Sources" in close


@every
def test_each_reveal_stands_after_its_predict(lesson):
    predicted = {cell.key: cell.position for cell in lesson.of_role("predict")}
    revealed = {cell.key: cell.position for cell in lesson.of_role("reveal")}
    assert set(predicted) == set(revealed)
    assert all(predicted[key] < revealed[key] for key in predicted)


@weekly
def test_a_lesson_asks_for_at_least_one_prediction_and_marks_one(lesson):
    assert any(cell.points for cell in lesson.of_role("reveal"))


@every
def test_predict_reveal_and_check_cells_make_the_call_with_their_own_id(lesson):
    for cell in lesson.of_role("predict", "reveal", "check"):
        assert calls(cell.text).count(cell.role) == 1, cell.text
        assert f'{cell.role}("{cell.key}"' in cell.text
    others = [cell for cell in lesson.cells if cell.is_code and cell.role not in {"predict", "reveal", "check"}]
    assert not [cell.position + 1 for cell in others if {"predict", "reveal", "check"} & set(calls(cell.solved_text))]


@every
def test_a_check_cell_is_one_call(lesson):
    for cell in lesson.of_role("check"):
        assert len(ast.parse(cell.text).body) == 1


@every
def test_a_marked_reveal_passes_a_function(lesson):
    for cell in lesson.of_role("reveal"):
        nodes = [node for node in ast.walk(ast.parse(cell.text)) if isinstance(node, ast.Call)]
        call = next(node for node in nodes if ast.unparse(node.func) == "reveal")
        assert not cell.points or isinstance(call.args[1], (ast.Lambda, ast.Name))


@every
def test_ids_name_week_lesson_and_noun(lesson):
    prefix = "-".join(lesson.name.split("_")[:2]) if lesson.name.startswith("w") else "capstone"
    keys = [cell.key for cell in lesson.of_role("predict", "exercise")]
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(rf"{prefix}(-[a-z0-9]+)+", key) for key in keys)


@weekly
def test_there_are_at_least_three_exercises_with_four_mutants_each(lesson):
    proofs = proofs_of(lesson)
    keys = [cell.key for cell in lesson.of_role("exercise")]
    assert len(keys) >= 3
    assert all(len(proofs[key].mutants) >= 4 for key in keys)


@every
def test_points_in_the_source_are_those_of_the_check(lesson):
    assert all(points == exercise(key).points for key, points in lesson.points.items())


@weekly
def test_the_shapes_cell_holds_names_and_literals_only(lesson):
    (shapes,) = lesson.of_role("shapes")
    body = ast.parse(shapes.text).body
    assert all(isinstance(line, ast.Assign) and len(line.targets) == 1 for line in body)
    for line in body:
        ast.literal_eval(line.value)


@weekly
def test_two_other_shapes_name_every_shape_and_differ(lesson):
    first, second = load(PROOFS / lesson.assignment / f"{lesson.name}.py").OTHER_SHAPES
    (shapes,) = lesson.of_role("shapes")
    names = {line.targets[0].id for line in ast.parse(shapes.text).body}
    released = {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(shapes.text).body}
    assert set(first) == set(second) == names
    assert first != second
    assert released not in (first, second)


def test_no_id_is_used_by_two_lessons():
    keys = [cell.key for lesson in LESSONS for cell in lesson.of_role("predict", "exercise")]
    assert len(set(keys)) == len(keys)
