"""Find the record of an exercise: ``grading/checks/<assignment>/<notebook>.py`` holds a lesson's EXERCISES.

Looked for, in this order: the folder named by ``$TRACE_A_TENSOR_CHECKS`` (nbgrader's configuration sets it:
submissions are graded in a folder far from the course), the course at or above the working folder, the
checkout this library is installed from, and the copy inside an installed wheel.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.lesson.exercise import Exercise
from course_lib.lesson.progress import course_root

__all__ = ["all_exercises", "checks_folder", "exercise", "exercises_in"]

CHECKS_VARIABLE = "TRACE_A_TENSOR_CHECKS"


def checks_folder() -> Path:
    """The folder of check files in use.

    Raises:
        InvalidInputError: there is none in any of the four places.
    """
    named = os.environ.get(CHECKS_VARIABLE)
    root = course_root()
    library = Path(__file__).resolve().parents[1]
    places = [
        Path(named) if named else None,
        root / "grading" / "checks" if root else None,
        library.parent / "grading" / "checks",
        library / "checks",
    ]
    for place in places:
        if place is not None and place.is_dir():
            return place
    raise InvalidInputError(
        "the exercises' check files were not found",
        given=str(Path.cwd()),
        next_step=f"Start Jupyter inside the course folder, or set {CHECKS_VARIABLE} to its grading/checks.",
    )


def exercise(exercise_id: str) -> Exercise:
    """The record of one exercise, loading only its lesson's file.

    Raises:
        UnknownNameError: no check file has an exercise of this id; near matches are offered.
    """
    folder = checks_folder()
    for path in _files(folder, _stem(exercise_id)):
        for record in exercises_in(path):
            if record.id == exercise_id:
                return record
    raise UnknownNameError("exercise", exercise_id, [record.id for record in all_exercises()])


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise of the course, by assignment and lesson."""
    return tuple(record for path in _files(checks_folder(), "") for record in exercises_in(path))


def exercises_in(path: Path) -> tuple[Exercise, ...]:
    """The EXERCISES of one check file."""
    module = _load(path, path.stat().st_mtime_ns)
    records = getattr(module, "EXERCISES", None)
    if not isinstance(records, tuple) or not all(isinstance(record, Exercise) for record in records):
        raise InvalidInputError(
            f"{path.name} needs EXERCISES, a tuple of Exercise records", given=type(records).__name__
        )
    return records


def _stem(exercise_id: str) -> str:
    """The lesson's part of the id, as file names spell it: w2-2-misses is in w2_2_*.py."""
    parts = exercise_id.split("-")
    return f"{parts[0]}_{parts[1]}_" if len(parts) > 2 and parts[0].startswith("w") else ""


def _files(folder: Path, start: str) -> list[Path]:
    return sorted(path for path in folder.glob("*/*.py") if path.name.startswith(start) and path.name[0] != "_")


@lru_cache(maxsize=64)
def _load(path: Path, changed_at: int) -> ModuleType:
    name = f"trace_a_tensor_checks.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
