"""Run a lesson from start to end and report as JSON: ``python -m grading.execute SOURCE.py --as solved``.

``solved`` runs the solved notebook in a kernel under nbclient, as a learner's JupyterLab would, and reports its
peak memory and CPU time. ``cells`` runs the cells without a kernel: as released, and once with each of the proof's
OTHER_SHAPES. Each is a process of its own, so that the memory is that of one lesson.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grading.cells import GRADING, Lesson, read_lesson
from grading.notebooks import solved
from grading.proofs import PROOFS, load
from grading.running import run_cells

TIMEOUT_SECONDS = 300  # for one cell; the budgets are tested on CPU time, which a busy machine does not stretch


def run_solved(lesson: Lesson) -> dict[str, Any]:
    """The solved notebook under nbclient: errors, stderr, marks, pictures without words, CPU time, peak memory."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook, errors = solved(lesson), []
    with solved_folder(lesson) as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT_SECONDS, resources={"metadata": {"path": str(folder)}})
        try:
            client.execute()
        except CellExecutionError as error:
            errors.append(str(error)[-2000:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    outputs = [(cell.id, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return {
        "errors": errors,
        "stderr": [f"{key}: {out.text[:500]}" for key, out in outputs if out.get("name") == "stderr"],
        "marks": {key: _text(out) for key, out in outputs if key.endswith(("-check", "-reveal")) and _text(out)},
        "wordless_pictures": [key for key, out in outputs if is_wordless_picture(out)],
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


@contextlib.contextmanager
def solved_folder(lesson: Lesson) -> Iterator[Path]:
    """Where a solved notebook runs: its own folder, or a copy of it with the files of an excellent hand-in."""
    excellent = GRADING / "staff" / "submissions" / lesson.assignment / "excellent"
    if not excellent.is_dir():
        yield lesson.folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / lesson.assignment
        shutil.copytree(lesson.folder, folder)
        shutil.copytree(excellent, folder, dirs_exist_ok=True)
        yield folder


def run_variants(lesson: Lesson) -> dict[str, Any]:
    """The cells as released, then solved with each of the other shapes: what was printed and what was told."""
    released = {cell.position: cell.learner_text for cell in lesson.cells}
    report = {"untouched": run_all(lesson, released), "shapes": []}
    proofs = PROOFS / lesson.assignment / f"{lesson.name}.py"
    others = getattr(load(proofs), "OTHER_SHAPES", ()) if proofs.exists() else ()
    for other in others:
        (shapes,) = lesson.of_role("shapes")
        text = "\n".join(f"{name} = {value!r}" for name, value in other.items())
        texts = {cell.position: cell.solved_text for cell in lesson.cells} | {shapes.position: text}
        report["shapes"].append(run_all(lesson, texts))
    return report


def run_all(lesson: Lesson, texts: dict[int, str]) -> dict[str, Any]:
    """All code cells in order in one namespace: everything printed or shown, and each reveal's and check's words."""
    space: dict[str, Any] = {"__name__": "__main__"}
    words: dict[str, str] = {}
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(lesson.folder):
        os.environ["TRACE_A_TENSOR_HOME"] = home
        for cell in (cell for cell in lesson.cells if cell.is_code):
            with contextlib.redirect_stdout(printed):
                value = run_cells([cell], texts, space)
            if value is not None:
                printed.write(f"{value!r}\n")
            if cell.role in {"reveal", "check"}:
                words[f"{cell.key}-{cell.role}"] = str(value)
    return {"output": printed.getvalue(), "words": words}


def _text(output: Any) -> str:
    return str(output.get("data", {}).get("text/plain", "")) if output.output_type == "execute_result" else ""


def is_wordless_picture(output: Any) -> bool:
    """A picture shown without alternative text: a bare image, or an <img> whose alt is missing or empty."""
    data = output.get("data", {})
    if any(kind.startswith("image/") for kind in data):
        return True
    html = "".join(data.get("text/html", ""))
    wordless = [tag for tag in re.findall(r"<img\b[^>]*>", html) if not re.search(r'\balt="\s*[^"\s]', tag)]
    return bool(wordless) or ("<svg" in html and not re.search(r'aria-label="\s*[^"\s]', html))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grading.execute", description="Run one lesson.")
    parser.add_argument("source", type=Path)
    parser.add_argument("--as", dest="mode", choices=("solved", "cells"), default="solved")
    options = parser.parse_args(arguments)
    lesson = read_lesson(options.source)
    report = run_solved(lesson) if options.mode == "solved" else run_variants(lesson)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
