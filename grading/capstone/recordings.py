"""The recorded runs: public ones beside the notebook, held-out ones with the staff."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError, UnknownNameError
from grading.capstone.records import Cell, Machine

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT / "capstone" / "recordings.json"
REPLAY = ROOT / "capstone" / "replay.json"
HELD_OUT = ROOT / "grading" / "staff" / "capstone" / "heldout.json"
NUM_GRADED = 18
"""Held-out cells that one course is graded on, drawn by its seed."""

FIGURES = ("ttft_seconds", "tpot_seconds", "tokens_per_second", "bytes_moved", "usd_per_month")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One run: what was asked, what was measured, and the steps that were sampled.

    Args:
        cell: engine, machine, traffic.
        measured: FIGURES, means over five repetitions.
        breakdown: busy seconds by term: weights, compute, kv, other.
        usd_of_repetitions: dollars a month in each repetition.
        kv_bytes: the part of bytes_moved that is keys and values.
        steps: sampled steps: new prompt tokens, decoding rows, KV tokens read, seconds.
    """

    cell: Cell
    measured: Mapping[str, float]
    breakdown: Mapping[str, float]
    usd_of_repetitions: tuple[float, ...]
    kv_bytes: float
    steps: tuple[tuple[float, ...], ...] = ()

    @property
    def name(self) -> str:
        """Of its cell."""
        return self.cell.name


def read(path: Path) -> tuple[Recording, ...]:
    """Every recording of a file.

    Raises:
        InvalidInputError: the file is missing or no recording.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["entries"]
        return tuple(_recording(entry) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError) as error:
        given = f"{path.name} ({type(error).__name__}: {error})"
        raise InvalidInputError("a file of recordings", given=given) from None


def _recording(entry: Mapping[str, Any]) -> Recording:
    measured = dict(entry["measured"])
    return Recording(
        cell=Cell.from_dict(entry["cell"]), measured=MappingProxyType({name: measured[name] for name in FIGURES}),
        breakdown=MappingProxyType(measured["breakdown"]), usd_of_repetitions=tuple(measured["usd_of_repetitions"]),
        kv_bytes=measured["kv_bytes"], steps=tuple(tuple(step) for step in entry.get("steps", ())),
    )  # fmt: skip


@cache
def public() -> tuple[Recording, ...]:
    """What a model may be fitted on."""
    return read(PUBLIC)


def held_out(seed: str) -> tuple[Recording, ...]:
    """The cells that this course is graded on; a third of them on each machine."""
    found, machines = read(HELD_OUT), sorted({one.cell.machine.name for one in read(HELD_OUT)})
    digest = hashlib.sha256(f"{seed}/capstone".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    chosen: list[Recording] = []
    for name in machines:
        own = [one for one in found if one.cell.machine.name == name]
        chosen += [own[i] for i in sorted(rng.permutation(len(own))[: NUM_GRADED // len(machines)])]
    return tuple(chosen)


def recording(name: str) -> Recording:
    """A public recording by name.

    Raises:
        UnknownNameError: there is none; near matches are offered.
    """
    for one in public():
        if one.name == name:
            return one
    raise UnknownNameError("recording", name, [one.name for one in public()])


def replayed(cell: Cell) -> tuple[float, ...] | None:
    """Dollars a month in each repetition, looked up in the public files; None where this cell was never run."""
    for one in (*public(), *read(REPLAY)):
        if (one.cell.config, one.cell.machine, one.cell.traffic) == (cell.config, cell.machine, cell.traffic):
            return one.usd_of_repetitions
    return None


def bench() -> ModuleType:
    """The staff's simulated machines, which can run any cell. Only grading comes here."""
    return importlib.import_module("grading.staff.capstone.machines")


def machines() -> dict[str, Machine]:
    """Those of the public recordings, by name."""
    return {one.cell.machine.name: one.cell.machine for one in public()}
