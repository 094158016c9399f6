"""nbgrader without a screen: release, autograde, feedback, export, through its own converters.

nbgrader takes two seconds to import, so it is imported inside functions only.
"""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat

from course_lib.errors import InvalidInputError
from grading.cells import GRADING, STARTERS, Lesson, cell_id, lessons
from grading.notebooks import nbgrader_source, to_text


def configuration(course: Path, *, database: bool = True) -> Any:
    """grading/nbgrader_config.py as every command of nbgrader reads it, with the course folder set."""
    from traitlets.config import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(GRADING)).load_config()
    config.CourseDirectory.root = str(course)
    config.CourseDirectory.db_url = f"sqlite:///{course / 'gradebook.db'}"
    if not database:
        config.SaveCells.enabled = False
        config.GenerateAssignment.no_database = True
    return config


def write_sources(course: Path, assignment: str, found: tuple[Lesson, ...] | None = None) -> None:
    """``course/source/<assignment>``: the instructor's notebooks, and the files that learners start from."""
    folder = course / "source" / assignment
    folder.mkdir(parents=True, exist_ok=True)
    for lesson in lessons(assignment) if found is None else found:
        (folder / f"{lesson.name}.ipynb").write_text(to_text(nbgrader_source(lesson)), encoding="utf-8")
    if (STARTERS / assignment).is_dir():
        shutil.copytree(STARTERS / assignment, folder, dirs_exist_ok=True)


def release(course: Path, assignment: str, *, database: bool = True) -> Path:
    """``course/release/<assignment>``: what learners get."""
    from nbgrader.converters import GenerateAssignment

    _convert(GenerateAssignment, configuration(course, database=database), assignment)
    return course / "release" / assignment


def autograde(course: Path, assignment: str) -> None:
    """Execute and mark every submission in ``course/submitted/<student>/<assignment>``."""
    from nbgrader.converters import Autograde

    _convert(Autograde, configuration(course), assignment)


def feedback(course: Path, assignment: str) -> None:
    """``course/feedback/<student>/<assignment>/*.html``."""
    from nbgrader.converters import GenerateFeedback

    _convert(GenerateFeedback, configuration(course), assignment)


def export(course: Path) -> list[dict[str, str]]:
    """nbgrader's own CSV, as rows."""
    from nbgrader.api import Gradebook
    from nbgrader.plugins import CsvExportPlugin

    target = course / "grades.csv"
    plugin = CsvExportPlugin()
    plugin.to = str(target)
    with nbgraders_own_warnings_ignored(), Gradebook(configuration(course).CourseDirectory.db_url) as gradebook:
        plugin.export(gradebook)
    return list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))


def marks(course: Path, assignment: str, student: str) -> dict[str, float]:
    """Every grade id's mark of one submission, from the gradebook."""
    from nbgrader.api import Gradebook

    with nbgraders_own_warnings_ignored(), Gradebook(configuration(course).CourseDirectory.db_url) as gradebook:
        submission = gradebook.find_submission(assignment, student)
        return {grade.name: float(grade.score) for notebook in submission.notebooks for grade in notebook.grades}


def submit(
    course: Path, assignment: str, student: str, solved_ids: set[str], predicted: bool = True,
    files: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write a submission from the released notebooks, as a learner would: answers typed into their cells.

    ``solved_ids`` names the exercises and the answers in words that are given; ``predicted`` says whether
    predictions were committed; ``files`` replaces released files, name to text.
    """
    folder = course / "submitted" / student / assignment
    shutil.copytree(course / "release" / assignment, folder, ignore=shutil.ignore_patterns("*.ipynb"))
    for name, text in (files or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    for lesson in lessons(assignment):
        notebook = nbformat.read(course / "release" / assignment / f"{lesson.name}.ipynb", as_version=4)
        answers = {f"{c.key}-exercise": c.solved_text for c in lesson.of_role("exercise") if c.key in solved_ids}
        words = [c for c in lesson.of_role("markdown") if c.key in solved_ids]
        answers |= {cell_id(lesson, c): c.solved_text for c in words}
        if predicted:
            answers |= {f"{c.key}-predict": c.solved_text for c in lesson.of_role("predict")}
        for cell in notebook.cells:
            cell.source = answers.get(cell.id, cell.source)
        nbformat.write(notebook, folder / f"{lesson.name}.ipynb")


def _convert(converter: Any, config: Any, assignment: str) -> None:
    from nbgrader.coursedir import CourseDirectory

    config.CourseDirectory.assignment_id = assignment
    coursedir = CourseDirectory(config=config)
    log = logging.getLogger(f"nbgrader.{converter.__name__}")
    lines = _Lines()
    log.handlers, log.propagate, log.level = [lines], False, logging.WARNING
    running = converter(coursedir=coursedir, config=config, parent=None)
    running.log = log
    running.force = True
    # nbgrader gives up with SystemExit-like errors after logging why; the log is the message.
    from nbgrader.converters import NbGraderException

    try:
        with nbgraders_own_warnings_ignored():
            running.start()
    except NbGraderException as error:
        what = f"nbgrader {converter.__name__} of {assignment} failed"
        raise InvalidInputError(what, given=lines.text()) from error


@contextlib.contextmanager
def nbgraders_own_warnings_ignored() -> Iterator[None]:
    """nbgrader 0.9 warns about its own use of SQLAlchemy and traitlets; nothing there is ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Lines(logging.Handler):
    """Keeps log lines for an error message; nbgrader prints nothing in normal use."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def text(self) -> str:
        return "\n".join(self.lines[-40:])
