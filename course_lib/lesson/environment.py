"""Is this machine ready for the course? What was found, whether it will do, and the cure where it will not."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from pathlib import Path

from course_lib.errors import TraceATensorError
from course_lib.lesson.catalogue import all_exercises
from course_lib.lesson.messages import BAD, GOOD, panel
from course_lib.lesson.pages import Page, folded, table
from course_lib.lesson.progress import progress_path
from course_lib.units import GB, format_bytes

__all__ = ["EnvironmentCheck", "environment_checks", "environment_report", "memory_bytes"]

_LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much memory a container may use, new way and old."""

NEEDED_MEMORY_BYTES = 1 * GB
"""A lesson stays under it."""
COMFORTABLE_MEMORY_BYTES = 2 * GB
"""With room for Jupyter and a browser."""
TORCH = "torch==2.13.0"
"""The release that the course is tested with, as in pyproject.toml."""
_TORCH_CURE = (
    f"run `%pip install {TORCH} --extra-index-url https://download.pytorch.org/whl/cpu` in a new cell, "
    "then Kernel, Restart; until then every cell that does not use torch runs"
)

PACKAGES = (
    ("numpy", "numpy", True, "run `%pip install 'numpy>=2'` in a new cell, then Kernel, Restart"),
    ("torch", "torch", True, _TORCH_CURE),
    ("numba", "numba", False, "`%pip install numba` makes the simulators faster; their results are the same without"),
    ("matplotlib", "matplotlib", True, "run `%pip install matplotlib` in a new cell, then Kernel, Restart"),
    ("widgets", "ipywidgets", False, "`%pip install ipywidgets` for sliders; every one has a figure that stands still"),
    ("JupyterLab", "jupyterlab", False, "any editor that opens notebooks will do"),
)
"""Shown name, distribution, whether the course needs it, and the cure where it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCheck:
    """One line of the report; ``cure`` is empty when nothing needs doing."""

    what: str
    found: str
    state: str
    cure: str = ""


def environment_report() -> Page:
    """One line when all is well, with the list behind it; what is missing stands in the open with its cure."""
    checks = environment_checks()
    missing = [check for check in checks if check.state == "missing"]
    words = f"Ready. {_versions(checks)}" if not missing else f"{len(missing)} to mend: {_names(missing)}."
    cells = [(check.what, check.found, check.state, check.cure) for check in checks]
    rows = table(("What", "Found", "State", "What to do"), cells, caption="What was found")
    notes = "".join(_note(check) for check in checks if check.state in ("missing", "note"))
    lines = (f"{check.what}: {check.found} ({check.state}) {check.cure}".strip() for check in checks)
    body = notes + folded("Everything that was checked", rows)
    return Page(html=panel(BAD if missing else GOOD, words, "", body), text="\n".join([words, *lines]))


def environment_checks() -> tuple[EnvironmentCheck, ...]:
    """Python, packages, memory, cores, exercises and progress, without importing anything heavy."""
    packages = (_package(*package) for package in PACKAGES)
    return (_python(), *packages, _memory(), _cores(), _exercises(), _progress())


def _note(check: EnvironmentCheck) -> str:
    """What to do, in the open; what stands between backticks is to be copied."""
    cure = re.sub("`([^`]*)`", r"<code>\1</code>", escape(check.cure))
    return f"<p>{escape(check.what)}: {cure}.</p>"


def _names(checks: list[EnvironmentCheck]) -> str:
    return ", ".join(check.what for check in checks)


def _versions(checks: tuple[EnvironmentCheck, ...]) -> str:
    """The versions that a question to an instructor should quote."""
    found = {check.what: check.found for check in checks}
    return f"Python {platform.python_version()}, numpy {found['numpy']}, torch {found['torch']}."


def _python() -> EnvironmentCheck:
    ready = sys.version_info >= (3, 11)
    return EnvironmentCheck(
        what="Python",
        found=f"{platform.python_version()} in {sys.prefix}",
        state="ready" if ready else "missing",
        cure="" if ready else "install Python 3.11 or newer, then make course PYTHON=python3.12",
    )


def _package(what: str, name: str, needed: bool, cure: str) -> EnvironmentCheck:
    try:
        return EnvironmentCheck(what=what, found=metadata.version(name), state="ready")
    except metadata.PackageNotFoundError:
        return EnvironmentCheck(what=what, found="not installed", state="missing" if needed else "optional", cure=cure)


def _memory() -> EnvironmentCheck:
    total = memory_bytes()
    if total is None:
        return EnvironmentCheck(what="Memory", found="not known on this system", state="optional")
    found = format_bytes(total)
    if total < NEEDED_MEMORY_BYTES:
        cure = "a lesson takes up to 1 GB: use a larger machine, or give this container more memory"
        return EnvironmentCheck(what="Memory", found=found, state="missing", cure=cure)
    tight = total < COMFORTABLE_MEMORY_BYTES
    cure = "keep one notebook open at a time: Kernel, Shut Down All Kernels" if tight else ""
    return EnvironmentCheck(what="Memory", found=found, state="tight" if tight else "ready", cure=cure)


def memory_bytes(limit_files: Sequence[Path] = _LIMIT_FILES) -> int | None:
    """Memory of this machine, or what its container may use of it where that is less; None where nobody says."""
    found = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in limit_files:
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            found.append(int(path.read_text()))
    return min(found, default=None)


def _cores() -> EnvironmentCheck:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cure = "" if count > 1 else "one core will do; running cells take about twice as long"
    return EnvironmentCheck(what="Cores", found=str(count), state="ready" if count > 1 else "optional", cure=cure)


def _exercises() -> EnvironmentCheck:
    try:
        count = len(all_exercises())
    except (TraceATensorError, ImportError) as error:
        return EnvironmentCheck(what="Exercises", found="not found", state="missing", cure=" ".join(str(error).split()))
    return EnvironmentCheck(what="Exercises", found=str(count), state="ready")


def _progress() -> EnvironmentCheck:
    folder = progress_path().parent
    exists = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(exists, os.W_OK):
        cure = "this folder cannot be written to: progress lasts until the kernel stops"
        return EnvironmentCheck(what="Progress", found=str(folder), state="note", cure=cure)
    if any(name.startswith("BINDER_") for name in os.environ):
        cure = "Binder forgets you when you leave: download your notebooks (File, Download) before that"
        return EnvironmentCheck(what="Progress", found=str(folder), state="note", cure=cure)
    return EnvironmentCheck(what="Progress", found=f"kept in {folder}", state="ready")
