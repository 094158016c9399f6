"""From a lesson source to notebooks: nbgrader's source version, the solved one, and a clean learner's one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.errors import InvalidInputError
from grading.cells import BEGIN, END, Cell, Lesson, cell_id, text_hash

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
FORBIDDEN = (
    BEGIN, END, "BEGIN HIDDEN TESTS", "END HIDDEN TESTS", "BEGIN MARK SCHEME", "END MARK SCHEME",
    "grading/staff", "grading.staff",
)  # fmt: skip


def nbgrader_source(lesson: Lesson) -> NotebookNode:
    """The instructor's version: solution regions and nbgrader metadata, ready for generate_assignment."""
    return _notebook(lesson, lambda cell: cell.text, lesson.points)


def solved(lesson: Lesson) -> NotebookNode:
    """Every exercise solved and every prediction committed, as a perfect submission would be."""
    return _notebook(lesson, lambda cell: cell.solved_text, lesson.points)


def plain_notebook(lesson: Lesson) -> NotebookNode:
    """A page that is no assignment (the start page)."""
    return _notebook(lesson, lambda cell: cell.text, {})


def _notebook(lesson: Lesson, text: Callable[[Cell], str], points: dict[str, float]) -> NotebookNode:
    make = {True: nbformat.v4.new_code_cell, False: nbformat.v4.new_markdown_cell}
    cells = []
    for cell in lesson.cells:
        node = make[cell.is_code](text(cell))
        node["id"] = cell_id(lesson, cell)
        node["metadata"] = nbformat.from_dict(_metadata(cell, points))
        cells.append(node)
    return nbformat.v4.new_notebook(cells=cells, metadata=nbformat.from_dict(METADATA))


def _metadata(cell: Cell, points: dict[str, float]) -> dict[str, Any]:
    if not cell.is_code:
        return {"nbgrader": _nbgrader(cell.key, by_hand=True, points=cell.points)} if cell.key else {}
    metadata: dict[str, Any] = {"trace_a_tensor": {"role": cell.role}}
    if cell.role == "shapes":
        metadata["tags"] = ["parameters"]
    if cell.role == "exercise":
        metadata["nbgrader"] = _nbgrader(f"{cell.key}-answer", solution=True)
    elif cell.role == "check":
        metadata["nbgrader"] = _nbgrader(cell.key, points=points[cell.key])
    elif cell.role == "reveal" and cell.points:
        metadata["nbgrader"] = _nbgrader(cell.key, points=cell.points)
    elif cell.role not in {"predict"}:
        metadata["trace_a_tensor"]["text"] = text_hash(cell.text)
    return metadata


def _nbgrader(
    grade_id: str, *, solution: bool = False, by_hand: bool = False, points: float | None = None
) -> dict[str, Any]:
    """An answer in code, a locked check, or an answer in words that a person marks."""
    open_to_learner = solution or by_hand
    metadata: dict[str, Any] = {
        "grade": not solution, "grade_id": grade_id, "locked": not open_to_learner, "schema_version": 3,
        "solution": open_to_learner, "task": False,
    }  # fmt: skip
    return metadata if points is None else metadata | {"points": points}


def to_text(notebook: NotebookNode) -> str:
    """The bytes that are committed: sorted keys, one space, a final newline; the same for the same notebook."""
    text = json.dumps(json.loads(nbformat.writes(notebook)), indent=1, sort_keys=True, ensure_ascii=False)
    return text + "\n"


def leaks(notebook: NotebookNode) -> list[str]:
    """What a learner's notebook must not hold: outputs, execution counts, solutions, hidden regions, staff paths."""
    found = []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            found.append(f"cell {number} has outputs or an execution count")
        found += [f"cell {number} holds {mark!r}" for mark in FORBIDDEN if mark in cell.source]
        if cell.get("attachments"):
            found.append(f"cell {number} has attachments")
    return found


def leaked_solutions(notebook: NotebookNode, lesson: Lesson) -> list[str]:
    """Exercise cells whose text is not the released stub."""
    released = {f"{cell.key}-answer": cell.learner_text for cell in lesson.of_role("exercise")}
    texts = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in notebook.cells}
    return [
        f"{grade_id} is not as released: a solution?"
        for grade_id, text in released.items()
        if texts.get(grade_id) != text
    ]


def checked(notebook: NotebookNode, name: str) -> NotebookNode:
    """The notebook if it is clean and valid; otherwise an error that says what leaked."""
    nbformat.validate(notebook)
    found = leaks(notebook)
    if found:
        raise InvalidInputError(f"{name} is not fit for learners", given="; ".join(found))
    return notebook
