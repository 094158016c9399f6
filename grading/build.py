"""Build the learner notebooks: ``python -m grading.build [--check] [--nbgrader]``.

source (percent file) -> nbgrader source -> nbgrader's generate_assignment -> learner notebook. One way only:
nothing is ever read back from a learner notebook.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat

from course_lib.errors import TraceATensorError
from grading.cells import ASSIGNMENTS, GRADING, ROOT, SOURCES, STARTERS, Lesson, lessons, read_lesson
from grading.nbgrader_run import release, write_sources
from grading.notebooks import checked, leaked_solutions, leaks, plain_notebook, to_text

START = "START_HERE.ipynb"
LIST_BEGIN, LIST_END = "<!-- lessons: begin (built) -->", "<!-- lessons: end -->"


def built_files(*, root: Path = ROOT, sources: Path = SOURCES) -> dict[str, str]:
    """Every file that the build owns, path below the course folder -> text."""
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for assignment in ASSIGNMENTS:
            found = lessons(assignment, sources=sources)
            if found:
                files |= _assignment(Path(folder), assignment, found, root)
    for path in sorted((sources / "start").glob("*.py")):
        files[START] = to_text(checked(plain_notebook(read_lesson(path)), START))
    return files


def _assignment(course: Path, assignment: str, found: tuple[Lesson, ...], root: Path) -> dict[str, str]:
    write_sources(course, assignment, found)
    released = release(course, assignment, database=False)
    files = {}
    for lesson in found:
        name = f"{assignment}/{lesson.name}.ipynb"
        notebook = nbformat.read(released / f"{lesson.name}.ipynb", as_version=4)
        files[name] = to_text(checked(notebook, name))
    starters = sorted((STARTERS / assignment).glob("*"))
    files |= {f"{assignment}/{path.name}": path.read_text(encoding="utf-8") for path in starters}
    readme = root / assignment / "README.md"
    text = files.get(f"{assignment}/README.md") or (readme.read_text(encoding="utf-8") if readme.exists() else "")
    return files | ({f"{assignment}/README.md": with_lesson_list(text, found)} if text else {})


def with_lesson_list(readme: str, found: tuple[Lesson, ...]) -> str:
    """The README with the list between its two markers rewritten."""
    if LIST_BEGIN not in readme or LIST_END not in readme:
        return readme
    head, rest = readme.split(LIST_BEGIN, 1)
    tail = rest.split(LIST_END, 1)[1]
    lines = [f"- [{lesson.title}]({lesson.name}.ipynb)" for lesson in found]
    return "\n".join([head + LIST_BEGIN, *lines, LIST_END + tail])


def problems(*, root: Path = ROOT, sources: Path = SOURCES) -> list[str]:
    """Why the committed notebooks are not what the sources say; empty when they are."""
    files = built_files(root=root, sources=sources)
    found = []
    for name, text in files.items():
        path = root / name
        if not path.exists():
            found.append(f"{name} is missing")
        elif path.read_bytes() != text.encode():
            found += [f"{name} is not what its source builds", *_why(path, sources)]
    stale = [path for folder in ASSIGNMENTS for path in sorted((root / folder).glob("*.ipynb"))]
    return found + [f"{path.relative_to(root)} has no source" for path in stale if _name(path, root) not in files]


def _why(path: Path, sources: Path) -> list[str]:
    """Name the leak, where it is one."""
    source = sources / path.parent.name / f"{path.stem}.py"
    if path.suffix != ".ipynb":
        return []
    try:
        notebook = nbformat.read(path, as_version=4)
    except (ValueError, KeyError, AttributeError) as error:
        return [f"  it cannot be read: {error}"]
    solutions = leaked_solutions(notebook, read_lesson(source)) if source.exists() else []
    return [f"  {line}" for line in leaks(notebook) + solutions]


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def write(files: dict[str, str], root: Path = ROOT) -> list[str]:
    """Write what differs; remove notebooks without a source. Returns what was changed."""
    changed = []
    for name, text in files.items():
        path = root / name
        if not path.exists() or path.read_bytes() != text.encode():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            changed.append(name)
    for path in [path for folder in ASSIGNMENTS for path in (root / folder).glob("*.ipynb")]:
        if _name(path, root) not in files:
            path.unlink()
            changed.append(f"{_name(path, root)} (removed)")
    return changed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grading.build", description="Build the learner notebooks.")
    parser.add_argument("--check", action="store_true", help="build elsewhere, compare bytes, fail on a difference")
    parser.add_argument("--nbgrader", action="store_true", help="write nbgrader's source folder in grading/work")
    options = parser.parse_args(arguments)
    try:
        if options.nbgrader:
            for assignment in {lesson.assignment for lesson in lessons()}:
                write_sources(GRADING / "work", assignment)
            return 0
        if options.check:
            found = problems()
            print("\n".join(found) if found else "Notebooks are what their sources build.")
            return 1 if found else 0
        changed = write(built_files())
    except TraceATensorError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"built {name}" for name in changed) if changed else "Nothing to build: all is current.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
