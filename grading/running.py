"""Run a lesson's cells without a kernel: set-up, then one exercise and its check."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from typing import Any

from grading.cells import Cell, Lesson


def run_cells(
    cells: Iterable[Cell], texts: dict[int, str] | None = None, namespace: dict[str, Any] | None = None
) -> Any:
    """Execute cells in order in one namespace; the value of the last cell's last expression.

    ``texts`` replaces the text of cells by position. Magics are left out.
    """
    space = {"__name__": "__main__"} if namespace is None else namespace
    value = None
    for cell in cells:
        text = (texts or {}).get(cell.position, cell.solved_text)
        text = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(("%", "!")))
        value = _run(text, f"<cell {cell.position + 1}>", space)
    return value


def _run(text: str, name: str, space: dict[str, Any]) -> Any:
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    return eval(compile(ast.Expression(last.value), name, "eval"), space) if last else None


def setup_cells(lesson: Lesson) -> tuple[Cell, ...]:
    """What an exercise may rely on: the set-up and the shapes, nothing else."""
    return lesson.of_role("setup", "shapes")


def check_exercise(lesson: Lesson, key: str, *, solved: bool) -> Any:
    """The result of the check cell after set-up and its own exercise cell only, solved or untouched."""
    exercise, check = lesson.exercise_cells(key)
    text = exercise.solved_text if solved else exercise.learner_text
    return run_cells([*setup_cells(lesson), exercise, check], {exercise.position: text})


def answer_of(lesson: Lesson, key: str) -> Any:
    """The reference: what the solved exercise cell hands to ``check``."""
    exercise, check = lesson.exercise_cells(key)
    space: dict[str, Any] = {"__name__": "__main__"}
    run_cells([*setup_cells(lesson), exercise], namespace=space)
    call = next(node for node in ast.walk(ast.parse(check.text)) if isinstance(node, ast.Call))
    return eval(compile(ast.Expression(call.args[1]), "<check>", "eval"), space)
