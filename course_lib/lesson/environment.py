"""Is this machine ready for the course? What was found, whether it will do, and the cure where it will not."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata

from course_lib.lesson.pages import Page, table
from course_lib.units import GB, format_bytes

__all__ = ["EnvironmentCheck", "environment_checks", "environment_report"]

NEEDED_MEMORY_BYTES = 2 * GB
"""A lesson stays under 1 GB; Jupyter and the browser need the rest."""

PACKAGES = (
    ("numpy", "numpy", True, "pip install 'numpy>=2'"),
    ("torch", "torch", True, "make course, or pip install torch --index-url https://download.pytorch.org/whl/cpu"),
    ("numba", "numba", False, "pip install numba (simulators run without it, slower, with the same results)"),
    ("matplotlib", "matplotlib", True, "pip install matplotlib"),
    ("widgets", "ipywidgets", False, "pip install ipywidgets (every widget also has a static figure)"),
    ("JupyterLab", "jupyterlab", False, "pip install jupyterlab, or open the notebooks in your own editor"),
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
    """A table of what the course needs, with a cure for each thing that is missing."""
    checks = environment_checks()
    missing = [check for check in checks if check.state == "missing"]
    words = "Ready." if not missing else f"{len(missing)} to mend: {', '.join(check.what for check in missing)}."
    body = [(check.what, check.found, check.state, check.cure) for check in checks]
    rows = table(("What", "Found", "State", "Cure"), body, caption="Your environment")
    lines = (f"{check.what}: {check.found} ({check.state}) {check.cure}".strip() for check in checks)
    return Page(html=f"<p><strong>{words}</strong></p>{rows}", text="\n".join([words, *lines]))


def environment_checks() -> tuple[EnvironmentCheck, ...]:
    """Python, packages, memory and cores, without importing anything heavy."""
    return (_python(), *(_package(*package) for package in PACKAGES), _memory(), _cores())


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
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return EnvironmentCheck(what="Memory", found="not known on this system", state="optional")
    ready = total >= NEEDED_MEMORY_BYTES
    cure = "" if ready else "close other programs; each lesson needs under 1 GB"
    return EnvironmentCheck(what="Memory", found=format_bytes(total), state="ready" if ready else "missing", cure=cure)


def _cores() -> EnvironmentCheck:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cure = "" if count > 1 else "one core will do; running cells take about twice as long"
    return EnvironmentCheck(what="Cores", found=str(count), state="ready" if count > 1 else "optional", cure=cure)
