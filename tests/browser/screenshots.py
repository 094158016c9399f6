"""Pictures of every page for the eyes of its author: ``python -m tests.browser.screenshots OUTDIR [NAME ...]``.

Each solved lesson and the start page are run in JupyterLab, as a reader sees them, with sliders and formulas, and
photographed in parts of a screen's height (OUTDIR/NAME-01.png and so on). NAME is any part of a lesson's name.
``--untouched`` photographs the learner's version instead. Cells that raise are named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

from grading.cells import SOURCES, Lesson, lessons, read_lesson
from grading.notebooks import solved, to_text
from tests.browser.lab import Notebook, browser_page, copy_course, lab_server

WIDTH, PART_HEIGHT = 1100, 1400
LARGEST = 16_000  # pixels; a browser draws no higher picture


def photograph(notebook: Notebook, path: Path) -> int:
    """PNG parts of the whole notebook, named after ``path``; returns how many."""
    page, cells = notebook.page, notebook.front.locator(".jp-Cell")
    page.set_viewport_size({"width": WIDTH, "height": LARGEST})
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    notebook.settle()
    page.evaluate("""() => document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) *')
        .forEach(part => { if (part.scrollTop) part.scrollTop = 0; })""")
    notebook.settle()
    top, bottom = cells.first.bounding_box(), cells.last.bounding_box()
    height = bottom["y"] + bottom["height"] - top["y"]
    parts = math.ceil(height / PART_HEIGHT)
    for part in range(parts):
        start = part * PART_HEIGHT
        clip = {"x": top["x"], "y": top["y"] + start, "width": top["width"], "height": min(PART_HEIGHT, height - start)}
        page.screenshot(path=path.with_name(f"{path.name}-{part + 1:02}.png"), clip=clip)
    return parts


def place(lesson: Lesson, course: Path, untouched: bool) -> str:
    """Put the version that is wanted into the copy of the course; its path there."""
    name = "START_HERE.ipynb" if lesson.assignment == "start" else f"{lesson.assignment}/{lesson.name}.ipynb"
    if not untouched:
        (course / name).parent.mkdir(exist_ok=True)
        (course / name).write_text(to_text(solved(lesson)), encoding="utf-8")
    return name


def chosen(names: list[str]) -> list[Lesson]:
    every = [*(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py"))), *lessons()]
    return [lesson for lesson in every if not names or any(name in lesson.name for name in names)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots", description="Photograph the lessons.")
    parser.add_argument("outdir", type=Path)
    parser.add_argument("names", nargs="*", help="parts of lesson names; all when none is given")
    parser.add_argument("--untouched", action="store_true", help="as released, nothing answered")
    options = parser.parse_args(arguments)
    options.outdir.mkdir(parents=True, exist_ok=True)
    failed = not chosen(options.names)
    with tempfile.TemporaryDirectory() as folder:
        course, scratch = Path(folder) / "course", Path(folder) / "scratch"
        course.mkdir()
        scratch.mkdir()
        with lab_server(copy_course(course), scratch) as address, browser_page(WIDTH, PART_HEIGHT) as page:
            for lesson in chosen(options.names):
                notebook = Notebook.open(page, address, place(lesson, course, options.untouched))
                notebook.run_all()
                errors = notebook.errors()
                parts = photograph(notebook, options.outdir / lesson.name)
                print(f"{lesson.name}: {parts} pictures", *errors, sep="\n  ", flush=True)
                failed = failed or bool(errors)
                notebook.close()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
