"""Run a submission's model on cells, in fresh processes, on a copy of its folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from course_lib.lesson.running import NotAttempted
from grading.capstone.findings import Finding
from grading.capstone.records import Cell
from grading.capstone.recordings import ROOT

TIMEOUT_SECONDS = 300  # ends a model that never returns; no mark depends on how long one takes
MAX_FILE_BYTES = 5_000_000
SUFFIXES = (".py", ".json", ".csv", ".toml", ".txt")
UNTIMED = "elapsed_seconds"
"""The one field that may differ between two runs: a model may say how long it took itself."""


def answers(folder: Path, cells: Sequence[Cell], *, run: int = 1) -> list[dict[str, Any]]:
    """What ``predict`` returned for each cell in run 1 or run 2, each a process of its own.

    Raises:
        NotAttempted: the model is the released stub, or there is none.
        Finding: it does not load, raised, or never returned.
    """
    data = json.dumps([cell.to_dict() for cell in cells])
    result = json.loads(_run(_Model(digest=_digest(folder), folder=folder), data, run))
    if result.get("missing"):
        raise NotAttempted
    if "error" in result:
        raise Finding("model-does-not-load", f"model.py does not load: {result['error']}")
    found = []
    for cell, one in zip(cells, result["answers"], strict=True):
        if one.get("missing"):
            raise NotAttempted
        if "error" in one:
            raise Finding("model-raises", f"predict raised on {cell.name}: {one['error']}")
        found.append(one["value"])
    return found


def _digest(folder: Path) -> str:
    """Of every file that is copied."""
    digest = hashlib.sha256()
    for path in _files(folder):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    kept = (path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink())
    return sorted(path for path in kept if path.stat().st_size <= MAX_FILE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """The files of a folder; the same bytes elsewhere are the same model."""

    digest: str
    folder: Path = field(compare=False)


@lru_cache(maxsize=64)
def _run(model: _Model, cells: str, run: int) -> str:
    """The runner's output. Hash order differs between run 1 and run 2, so a model that leans on it is found."""
    if not (model.folder / "model.py").is_file():
        return json.dumps({"missing": True})
    with tempfile.TemporaryDirectory() as scratch:
        work, source, target = Path(scratch) / "work", Path(scratch) / "cells.json", Path(scratch) / "answers.json"
        work.mkdir()
        for path in _files(model.folder):
            shutil.copy(path, work / path.name)
        source.write_text(cells, encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TRACE_A_TENSOR")}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(run), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "grading.capstone.runner", str(source), str(target)]
        try:
            done = subprocess.run(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return json.dumps({"error": f"it did not finish in {TIMEOUT_SECONDS} s"})
        if not target.exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it ended without an answer"]
            return json.dumps({"error": last[0][:300]})
        return target.read_text(encoding="utf-8")
