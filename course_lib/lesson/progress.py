"""The learner's progress: one small JSON file, written whole or not at all, never a reason to crash."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["ProgressStore", "course_root", "is_autograding", "progress_path", "progress_store"]

_LOCK_TRIES, _LOCK_SECONDS = 200, 0.005
HOME_VARIABLE = "TRACE_A_TENSOR_HOME"
_EMPTY: dict[str, Any] = {"version": 1, "predictions": {}, "checks": {}}
# While nbgrader grades, each notebook has a kernel of its own; its progress lives and dies with it.
_memory: dict[str, Any] = {}


def is_autograding() -> bool:
    """Whether nbgrader is executing this notebook for a grade (it sets NBGRADER_EXECUTION)."""
    return os.environ.get("NBGRADER_EXECUTION") == "autograde"


def course_root(start: Path | None = None) -> Path | None:
    """The nearest folder at or above ``start`` that holds the course (``grading/checks``), or None."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "grading" / "checks").is_dir():
            return folder
    return None


def progress_path() -> Path:
    """Where progress is kept: $TRACE_A_TENSOR_HOME, else .trace-a-tensor in the course, else here."""
    home = os.environ.get(HOME_VARIABLE)
    folder = Path(home).expanduser() if home else (course_root() or Path.cwd()) / ".trace-a-tensor"
    return folder / "progress.json"


class ProgressStore:
    """Predictions and check results by id, kept in a JSON file.

    A file that cannot be read is set aside under another name and a new one begun; a folder that cannot
    be written to means progress lives in memory until the kernel stops. Both are said once, in ``notes``.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.notes: list[str] = []

    def load(self) -> dict[str, Any]:
        """All progress; an empty record where there is none yet."""
        if str(self.path) in _memory:
            return _copy(_memory[str(self.path)])
        if self.path is None or not self.path.exists():
            return _copy(_EMPTY)
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            return _checked(data)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            self._set_aside()
            return _copy(_EMPTY)

    def update(self, section: str, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Read, replace one entry by ``change(old entry)``, write; returns the new entry."""
        with _alone(self.path):
            data = self.load()
            entry = change(dict(data[section].get(key, {})))
            data[section][key] = entry
            self._write(data)
        return entry

    def entry(self, section: str, key: str) -> dict[str, Any]:
        """One entry, ``{}`` where there is none."""
        return dict(self.load()[section].get(key, {}))

    def _write(self, data: dict[str, Any]) -> None:
        if self.path is None:
            _memory[str(None)] = _copy(data)
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".progress-", suffix=".json")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1, sort_keys=True)
                file.write("\n")
            os.replace(name, self.path)
        except OSError as error:
            _memory[str(self.path)] = _copy(data)
            self.notes.append(f"Progress is kept in memory only: {self.path} cannot be written ({error.strerror}).")

    def _set_aside(self) -> None:
        assert self.path is not None
        for number in range(1, 1000):
            aside = self.path.with_name(f"progress.unreadable-{number}.json")
            if not aside.exists():
                break
        try:
            os.replace(self.path, aside)
            self.notes.append(f"The progress file could not be read; it was kept as {aside.name}, a new one begins.")
        except OSError:
            self.notes.append(f"The progress file {self.path} could not be read.")


@contextlib.contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """Keep other kernels from writing between our reading and our writing.

    The lock is a file that only one can make. It is waited for, for a moment; one left by a kernel that died, or a
    folder that cannot be written to, never stops a learner.
    """
    lock = path.with_name("progress.lock") if path else None
    if lock is None:
        yield
        return
    with contextlib.suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
    made = False
    for _ in range(_LOCK_TRIES):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            made = True
            break
        except OSError:
            if not lock.exists():  # nobody holds it: the folder cannot be written to, or it was just given back
                if not os.access(lock.parent, os.W_OK):
                    break
                continue
            time.sleep(_LOCK_SECONDS)
    try:
        yield
    finally:
        if made or lock.exists():
            with contextlib.suppress(OSError):
                lock.unlink()


def progress_store() -> ProgressStore:
    """The store in use: the progress file, or memory alone while nbgrader grades."""
    return ProgressStore(None if is_autograding() else progress_path())


def now() -> str:
    """This instant in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def forget_memory() -> None:
    """Drop what is kept in memory only (between two gradings in one process)."""
    _memory.clear()


def _copy(data: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(data))
    return copied


def _checked(data: Any) -> dict[str, Any]:
    """The data if it has the shape we write; otherwise ValueError."""
    if not isinstance(data, dict):
        raise ValueError("progress is no object")
    for section in ("predictions", "checks"):
        entries = data.setdefault(section, {})
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise ValueError(f"{section} is no object of objects")
    return data
