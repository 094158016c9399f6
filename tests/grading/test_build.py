"""The build is one-way, the same every time, and lets nothing out."""

import json
import shutil

import nbformat
import pytest

from course_lib.errors import InvalidInputError
from grading.build import LIST_BEGIN, LIST_END, built_files, main, problems, with_lesson_list, write
from grading.cells import ROOT, SOURCES, lessons, read_lesson
from grading.notebooks import FORBIDDEN, METADATA, leaks, nbgrader_source, solved

NAME = "week1_backprop/w1_2_trace_forward.ipynb"


@pytest.fixture(scope="module")
def one_lesson(tmp_path_factory):
    """A course folder of one lesson, built: (root, sources)."""
    base = tmp_path_factory.mktemp("course")
    sources = base / "source"
    shutil.copytree(SOURCES / "start", sources / "start")
    (sources / "week1_backprop").mkdir()
    shutil.copy(SOURCES / "week1_backprop" / "w1_2_trace_forward.py", sources / "week1_backprop")
    write(built_files(root=base, sources=sources), base)
    return base, sources


@pytest.fixture
def notebook(one_lesson):
    """The built notebook as JSON and a way to plant something in it; mended after the test."""
    root, _ = one_lesson
    path = root / NAME
    before = path.read_bytes()
    yield json.loads(before), lambda planted: path.write_text(json.dumps(planted, indent=1))
    path.write_bytes(before)


def cell(notebook, key):
    return next(cell for cell in notebook["cells"] if cell["id"] == key)


def test_the_committed_notebooks_are_what_the_sources_build():
    assert problems() == []


def test_two_builds_are_the_same_to_the_byte(one_lesson):
    root, sources = one_lesson
    assert built_files(root=root, sources=sources) == built_files(root=root, sources=sources)
    assert problems(root=root, sources=sources) == []


def test_a_planted_solution_is_named(one_lesson, notebook):
    root, sources = one_lesson
    content, plant = notebook
    cell(content, "w1-2-linear-flops-exercise")["source"] = "def linear_flops(b, i, o):\n    return 2 * b * i * o"
    plant(content)
    found = "\n".join(problems(root=root, sources=sources))
    assert "w1-2-linear-flops-answer is not as released" in found


def test_a_planted_output_is_named(one_lesson, notebook):
    root, sources = one_lesson
    content, plant = notebook
    cell(content, "w1-2-linear-flops-check")["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "42"}]
    plant(content)
    assert "has outputs" in "\n".join(problems(root=root, sources=sources))


@pytest.mark.parametrize("mark", ["### BEGIN SOLUTION", "### BEGIN HIDDEN TESTS", "open('grading/staff/x')"])
def test_a_planted_region_or_staff_path_is_named(one_lesson, notebook, mark):
    root, sources = one_lesson
    content, plant = notebook
    cell(content, "w1-2-linear-flops-check")["source"] += f"\n{mark}"
    plant(content)
    word = next(word for word in FORBIDDEN if word in mark)
    assert f"holds {word!r}" in "\n".join(problems(root=root, sources=sources))


def test_an_unreadable_a_missing_and_a_sourceless_notebook_are_named(one_lesson, notebook):
    root, sources = one_lesson
    (root / NAME).write_text("no notebook")
    assert "cannot be read" in "\n".join(problems(root=root, sources=sources))
    (root / NAME).unlink()
    (root / "week1_backprop" / "w1_9_stray.ipynb").write_text("{}")
    found = "\n".join(problems(root=root, sources=sources))
    assert f"{NAME} is missing" in found
    assert "w1_9_stray.ipynb has no source" in found
    assert any("w1_9_stray" in line for line in write(built_files(root=root, sources=sources), root))
    assert problems(root=root, sources=sources) == []


def test_the_check_command_fails_on_a_problem(monkeypatch, capsys):
    monkeypatch.setattr("grading.build.problems", lambda: ["one thing"])
    assert main(["--check"]) == 1
    monkeypatch.setattr("grading.build.problems", list)
    assert main(["--check"]) == 0
    assert "one thing" in capsys.readouterr().out


def test_learner_notebooks_hold_no_solution_line_of_their_source():
    for lesson in lessons():
        released = nbformat.read(ROOT / lesson.assignment / f"{lesson.name}.ipynb", as_version=4)
        text = {cell.id: cell.source for cell in released.cells}
        assert leaks(released) == []
        for exercise in lesson.of_role("exercise"):
            assert text[f"{exercise.key}-exercise"] == exercise.learner_text


def test_the_notebooks_name_no_machine_and_no_version():
    for lesson in lessons():
        assert nbgrader_source(lesson).metadata == METADATA


def test_solved_notebooks_hold_solutions_and_guesses():
    lesson = read_lesson(SOURCES / "week1_backprop" / "w1_2_trace_forward.py")
    text = {cell.id: cell.source for cell in solved(lesson).cells}
    assert "return 2 * batch" in text["w1-2-linear-flops-exercise"]
    assert "..." not in text["w1-2-forward-flops-predict"]


def test_a_readme_list_is_rewritten_between_its_marks_only():
    found = lessons("week1_backprop")
    text = with_lesson_list(f"head\n{LIST_BEGIN}\nold\n{LIST_END}\ntail\n", found)
    assert text.startswith("head\n")
    assert text.endswith("tail\n")
    assert "old" not in text
    assert found[0].title in text
    assert with_lesson_list("no marks", found) == "no marks"


def test_a_leak_in_a_built_notebook_stops_the_build(monkeypatch, one_lesson):
    root, sources = one_lesson
    monkeypatch.setattr("grading.notebooks.FORBIDDEN", ("linear_flops",))
    with pytest.raises(InvalidInputError, match="not fit for learners"):
        built_files(root=root, sources=sources)
