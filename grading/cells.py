"""Lesson sources: jupytext percent files with a short role in each cell marker. See docs/lesson-format.md."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.errors import InvalidInputError

GRADING = Path(__file__).resolve().parent
ROOT = GRADING.parent
SOURCES = GRADING / "staff" / "source"
STARTERS = GRADING / "staff" / "starter"
ASSIGNMENTS = ("week1_backprop", "week2_hardware", "week3_optimization", "week4_serving", "capstone")

CODE_ROLES = ("setup", "shapes", "lesson", "predict", "reveal", "measure", "train", "exercise", "check")
GRADED_ROLES = ("setup", "shapes", "predict", "reveal", "exercise", "check")
"""What runs when a submission is graded; everything else only teaches."""

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "...  # your code here"
TEXT_STUB = "*Your answer here.*"
_ALLOWED = {
    "exercise": {"grade_id", "points"},
    "check": {"grade_id", "points"},
    "predict": {"id", "guess"},
    "reveal": {"id", "points"},
    "markdown": {"grade_id", "points"},
}
_NEEDED = {"exercise": {"grade_id", "points"}, "predict": {"id", "guess"}, "reveal": {"id"}}
_PLACEHOLDER = re.compile(r"(?<![.\w])\.\.\.(?![.\w])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a lesson source. ``key`` is the grade id or the prediction id, "" where there is none."""

    role: str
    text: str
    position: int
    key: str = ""
    points: float = 0.0
    guess: str = ""

    @property
    def is_code(self) -> bool:
        return self.role != "markdown"

    @property
    def learner_text(self) -> str:
        """As the learner first sees it: each solution region replaced by the stub."""
        stub = STUB if self.is_code else TEXT_STUB
        lines, inside = [], False
        for line in self.text.split("\n"):
            if BEGIN in line:
                inside = True
                lines.append(re.match(r"\s*", line)[0] + stub)  # type: ignore[index]
            elif END in line:
                inside = False
            elif not inside:
                lines.append(line)
        return "\n".join(lines)

    @property
    def solved_text(self) -> str:
        """Solved: region markers gone, a prediction's ``...`` replaced by the guesses in order."""
        text = "\n".join(line for line in self.text.split("\n") if BEGIN not in line and END not in line)
        for guess in self.guess.split():
            text = _PLACEHOLDER.sub(guess, text, count=1)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A parsed source file: its assignment ("start" for the start page), notebook name and cells."""

    path: Path
    assignment: str
    name: str
    cells: tuple[Cell, ...] = field(repr=False)

    def of_role(self, *roles: str) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.role in roles)

    @property
    def folder(self) -> Path:
        """Where its learner notebook lives."""
        return ROOT if self.assignment == "start" else ROOT / self.assignment

    @property
    def title(self) -> str:
        return self.cells[0].text.split("\n", 1)[0].lstrip("# ").strip()

    @property
    def points(self) -> dict[str, float]:
        """Of each exercise, and of each check that has no exercise cell because a file is handed in."""
        return {cell.key: cell.points for cell in self.of_role("exercise", "check") if cell.points}

    def exercise_cells(self, key: str) -> tuple[Cell, Cell]:
        """The exercise and the check cell of one grade id."""
        exercise = next(cell for cell in self.of_role("exercise") if cell.key == key)
        check = next(cell for cell in self.of_role("check") if cell.key == key)
        return exercise, check


def lessons(assignment: str | None = None, *, sources: Path = SOURCES) -> tuple[Lesson, ...]:
    """All lessons, in order of assignment and name; the start page is not among them."""
    wanted = ASSIGNMENTS if assignment is None else (assignment,)
    return tuple(read_lesson(path) for folder in wanted for path in sorted((sources / folder).glob("*.py")))


def read_lesson(path: Path) -> Lesson:
    """Parse one percent file.

    Raises:
        InvalidInputError: a marker, region or role that the format does not know, with file and cell.
    """
    import jupytext

    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells: list[Cell] = []
    exercise_key = ""
    for position, raw in enumerate(notebook.cells):
        cell = _cell(path, position, raw, exercise_key)
        exercise_key = cell.key if cell.role == "exercise" else exercise_key
        cells.append(cell)
    _check_lesson(path, cells)
    return Lesson(path=path, assignment=path.parent.name, name=path.stem, cells=tuple(cells))


def _cell(path: Path, position: int, raw: Any, exercise_key: str) -> Cell:
    meta = {key: value for key, value in raw.metadata.items() if key not in {"lines_to_next_cell", "title"}}
    role = meta.pop("role", "lesson" if raw.cell_type == "code" else "markdown")
    where = f"{path.name}, cell {position + 1} ({role})"
    if raw.cell_type == "raw" or (raw.cell_type == "code") != (role in CODE_ROLES):
        raise InvalidInputError(f"{where}: no such role", given=role, allowed=", ".join(CODE_ROLES))
    unknown, missing = set(meta) - _ALLOWED.get(role, set()), _NEEDED.get(role, set()) - set(meta)
    if unknown or missing:
        raise InvalidInputError(
            f"{where}: marker fields not as the format has them",
            given=f"unknown {sorted(unknown)}, missing {sorted(missing)}",
        )
    key = str(meta.get("grade_id") or meta.get("id") or (exercise_key if role == "check" else ""))
    points, guess = float(meta.get("points", 0)), str(meta.get("guess", ""))
    cell = Cell(role=role, text=raw.source, position=position, key=key, points=points, guess=guess)
    _check_cell(where, cell)
    return cell


def _check_cell(where: str, cell: Cell) -> None:
    regions = cell.text.count(BEGIN), cell.text.count(END)
    if cell.role == "exercise":
        if regions[0] < 1 or regions[0] != regions[1] or not _region_inside_body(cell.text):
            raise InvalidInputError(
                f"{where}: an exercise needs its solution region inside the body",
                given=f"{regions[0]} begin, {regions[1]} end",
                next_step="Keep the signature, the docstring or 'name = (' outside the region, or learners lose them.",
            )
    elif cell.role == "markdown" and cell.key:
        if regions != (1, 1) or not cell.points:
            raise InvalidInputError(f"{where}: an answer in words needs points and one solution region")
    elif any(regions):
        raise InvalidInputError(f"{where}: only exercise cells and answers in words have a solution region")
    if cell.role == "predict" and len(_PLACEHOLDER.findall(cell.text)) != len(cell.guess.split()):
        raise InvalidInputError(f"{where}: as many guesses as there are ...", given=f"guess={cell.guess!r}")
    if cell.role in {"exercise", "predict"}:
        try:
            ast.parse(cell.learner_text)
        except SyntaxError as error:
            raise InvalidInputError(f"{where}: the learner's version is no Python", given=error) from None


def _region_inside_body(text: str) -> bool:
    """The region is indented, and something stands before it: the signature stays with the learner."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if BEGIN in line]
    return all(number > 0 and lines[number].startswith("    ") for number in starts)


def _check_lesson(path: Path, cells: list[Cell]) -> None:
    if not cells or cells[0].role != "markdown" or not cells[0].text.startswith("# "):
        raise InvalidInputError(f"{path.name}: the first cell is markdown and begins with '# title'")
    for role in ("exercise", "check", "predict", "reveal"):
        keys = [cell.key for cell in cells if cell.role == role]
        if len(set(keys)) != len(keys) or "" in keys:
            raise InvalidInputError(f"{path.name}: each {role} cell has an id of its own", given=", ".join(keys))
    exercises = {cell.key for cell in cells if cell.role == "exercise"}
    # A check with points of its own marks files that are handed in beside the notebook; it has no exercise cell.
    checks = {cell.key for cell in cells if cell.role == "check" and not cell.points}
    if exercises != checks:
        lone = ", ".join(sorted(exercises ^ checks))
        raise InvalidInputError(f"{path.name}: each exercise has its check", given=lone)


def cell_id(lesson: Lesson, cell: Cell) -> str:
    """The same id for the same cell in every build: readable for graded cells, a hash for the others."""
    if cell.key:
        return f"{cell.key}-{cell.role}"
    identity = f"{lesson.assignment}/{lesson.name}/{cell.role}/{cell.position}"
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def text_hash(text: str) -> str:
    """A short hash of a cell's released text: whether a learner changed it."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
