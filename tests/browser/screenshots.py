"""Pictures of every page for the eyes of its author: ``python -m tests.browser.screenshots OUTDIR [NAME ...]``.

Each solved lesson and the start page are executed, written as HTML (OUTDIR/NAME.html, to be opened and read) and
photographed in parts of a screen's height (OUTDIR/NAME-01.png and so on). NAME is any part of a lesson's name.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from grading.cells import SOURCES, Lesson, lessons, read_lesson
from grading.notebooks import solved
from tests.browser.lab import browser_page

WIDTH, HEIGHT = 1100, 1400
TIMEOUT_SECONDS = 300  # for one cell


def page_html(lesson: Lesson) -> str:
    """The solved lesson, executed, as HTML with its sliders; a cell that fails shows its error on the page."""
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = solved(lesson)
    resources = {"metadata": {"path": str(lesson.folder)}}
    NotebookClient(notebook, timeout=TIMEOUT_SECONDS, allow_errors=True, resources=resources).execute()
    html, _ = HTMLExporter(template_name="classic").from_notebook_node(notebook)
    return str(html)


def photograph(page: Any, path: Path) -> int:
    """PNG parts beside an HTML file; returns how many."""
    page.goto(path.as_uri(), wait_until="load")
    height = page.evaluate("document.documentElement.scrollHeight")
    parts = math.ceil(height / HEIGHT)
    for part in range(parts):
        clip = {"x": 0, "y": part * HEIGHT, "width": WIDTH, "height": min(HEIGHT, height - part * HEIGHT)}
        page.screenshot(path=path.with_name(f"{path.stem}-{part + 1:02}.png"), full_page=True, clip=clip)
    return parts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots", description="Photograph the lessons.")
    parser.add_argument("outdir", type=Path)
    parser.add_argument("names", nargs="*", help="parts of lesson names; all when none is given")
    options = parser.parse_args(arguments)
    folder = options.outdir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    every = [*(read_lesson(path) for path in sorted((SOURCES / "start").glob("*.py"))), *lessons()]
    wanted = [lesson for lesson in every if not options.names or any(name in lesson.name for name in options.names)]
    with tempfile.TemporaryDirectory() as home, browser_page(WIDTH, HEIGHT) as page:
        for lesson in wanted:
            os.environ["TRACE_A_TENSOR_HOME"] = str(Path(home) / lesson.name)
            path = folder / f"{lesson.name}.html"
            path.write_text(page_html(lesson), encoding="utf-8")
            print(f"{path}: {photograph(page, path)} pictures", flush=True)
    return 0 if wanted else 1


if __name__ == "__main__":
    raise SystemExit(main())
