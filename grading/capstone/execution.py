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
from grading.capstone.recordings import ROOT
from grading.capstone.records import Cell

TIMEOUT_SECONDS = 300  # ends a model that never returns; no mark depends on how long one takes
MAX_FILE_BYTES = 5_000_000
SUFFIXES = (".py", ".json", ".csv", ".toml", ".txt")
UNTIMED = "elapsed_seconds"
"""The one field that may differ between two runs: a model may say how long it took itself."""


def answers(folder: Path, cells: Sequence[Cell], *, run: int = 1, beside: Sequence[Cell] = ()) -> list[dict[str, Any]]:
    """What ``predict`` returned for each cell in run 1 or run 2, which never share a process.

    Answers are kept by the bytes of the model. ``beside`` names cells that will be asked for later: they are run in the
    same process, and nothing is said about them now.

    Raises:
        NotAttempted: the model is the released stub, or there is none.
        Finding: it does not load, raised, or never returned.
    """
    model = _Model(digest=_digest(folder), folder=folder)
    kept = _kept(model, run)
    asked = [json.dumps(cell.to_dict()) for cell in cells]
    if any(text not in kept for text in asked):
        later = (json.dumps(cell.to_dict()) for cell in beside)
        new = [text for text in dict.fromkeys([*asked, *later]) if text not in kept]
        kept.update(zip(new, _run(model, new, run), strict=True))
    return [_value(cell, kept[text]) for cell, text in zip(cells, asked, strict=True)]


def _value(cell: Cell, answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("missing"):
        raise NotAttempted
    if "load_error" in answer:
        raise Finding("model-does-not-load", f"model.py does not load: {answer['load_error']}")
    if "error" in answer:
        raise Finding("model-raises", f"predict raised on {cell.name}: {answer['error']}")
    value: dict[str, Any] = answer["value"]
    return value


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
def _kept(model: _Model, run: int) -> dict[str, Any]:
    """Answers of one model in one run, by cell."""
    return {}


def _run(model: _Model, cells: Sequence[str], run: int) -> list[dict[str, Any]]:
    """One answer for each cell from a fresh process.

    Hash order differs between run 1 and run 2, so a model that leans on it is found.
    """
    if not (model.folder / "model.py").is_file():
        return [{"missing": True}] * len(cells)
    with tempfile.TemporaryDirectory() as scratch:
        work, source, target = Path(scratch) / "work", Path(scratch) / "cells.json", Path(scratch) / "answers.json"
        work.mkdir()
        for path in _files(model.folder):
            shutil.copy(path, work / path.name)
        source.write_text(f"[{','.join(cells)}]", encoding="utf-8")
        words = _process(work, source, target, run)
        text = target.read_text(encoding="utf-8") if target.exists() else json.dumps({"load_error": words})
    result = json.loads(text)
    found: list[dict[str, Any]] = result["answers"] if "answers" in result else [result] * len(cells)
    return found


def _process(work: Path, source: Path, target: Path, run: int) -> str:
    """Run the runner; the last thing it said, for when it leaves no answer."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRACE_A_TENSOR")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(run), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "grading.capstone.runner", str(source), str(target)]
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it did not finish in {TIMEOUT_SECONDS} s"
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it ended without an answer"]
    return last[0][:300]
