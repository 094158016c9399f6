"""The memo's front matter: TOML between two lines of +++, read strictly, said back in words when it is not right."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import TraceATensorError
from course_lib.lesson.running import NotAttempted
from grading.capstone.findings import Finding
from grading.capstone.recordings import recording
from grading.capstone.records import ENGINE_FIELDS, Cell

FENCE = "+++"
MIN_ALTERNATIVES = 2
MIN_REVERSAL_CHARACTERS = 40
_NEEDED = (
    "baseline", "change", "predicted_effect", "measured_effect", "error_bar", "alternatives", "losing_regime",
    "reversal_condition",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A change of ``usd_per_month`` in per cent, with an interval."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A change not taken and what the model says it would have done."""

    change: Mapping[str, Any]
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo:
    """The front matter, with its cells worked out.

    Args:
        baseline: the recorded cell that everything is compared with.
        change: the one change, engine fields and values; ``enabling``: others made beside it, or empty.
        predicted: by the model, committed before anything was replayed.
        measured_percent: replayed.
        error_bar: half the range of the measured effect over its repetitions, in percentage points.
        alternatives: at least two.
        losing_regime: fields of traffic, engine or ``machine`` that make the same change lose.
        losing_percent: what the model says the change does there.
        reversal_condition: when to take the change back, with a number.
        problems: what is wrong with alternatives and reversal; it costs the memo's points and no others.
    """

    baseline: Cell
    change: Mapping[str, Any]
    enabling: Mapping[str, Any]
    predicted: Effect
    measured_percent: float
    error_bar: float
    alternatives: tuple[Alternative, ...]
    losing_regime: Mapping[str, Any]
    losing_percent: float
    reversal_condition: str
    problems: tuple[Finding, ...] = ()

    @property
    def optimized(self) -> Cell:
        """The baseline with the change and what enables it."""
        return self.baseline.with_changes(**self.enabling, **self.change)

    @property
    def ablated(self) -> Cell:
        """The optimized cell with the change taken out and everything else left in."""
        return self.baseline.with_changes(**self.enabling)

    @property
    def losing_pair(self) -> tuple[Cell, Cell]:
        """The regime without and with the optimization."""
        before = self.baseline.with_changes(**self.losing_regime)
        return before, before.with_changes(**self.enabling, **self.change)


def front_matter(path: Path) -> dict[str, Any]:
    """The TOML of a memo.

    Raises:
        NotAttempted: there is no memo, or it is the template (an ``effect`` still says "fill in").
        Finding: no front matter, or no TOML.
    """
    if not path.is_file():
        raise NotAttempted
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    fences = [number for number, line in enumerate(lines) if line.strip() == FENCE]
    if len(fences) < 2 or any(line.strip() for line in lines[: fences[0]]):
        raise Finding("no-front-matter", "memo.md begins with a line +++, the fields in TOML, and a line +++")
    try:
        return tomllib.loads("\n".join(lines[fences[0] + 1 : fences[1]]))
    except tomllib.TOMLDecodeError as error:
        raise Finding("no-toml", f"the front matter of memo.md is no TOML: {error}") from None


def read_memo(path: Path) -> Memo:
    """The memo, every field checked for presence, kind and range.

    Raises:
        NotAttempted: the template, or no memo.
        Finding: named by the first field that is wrong.
    """
    data = front_matter(path)
    if data.get("baseline") == "":
        raise NotAttempted
    missing = [name for name in _NEEDED if name not in data]
    if missing:
        raise Finding("field-missing", f"memo.md has no {', '.join(missing)}")
    try:
        memo = _memo(data)
        # Each cell is built once here, so that a value no record takes is said of the memo.
        for cell in (memo.optimized, memo.ablated, *memo.losing_pair):
            cell.machine.kv_blocks(cell.config)
    except TraceATensorError as error:
        raise Finding("field-wrong", str(error)) from None
    return memo


def _memo(data: Mapping[str, Any]) -> Memo:
    predicted = _table("predicted_effect", data["predicted_effect"])
    measured = _table("measured_effect", data["measured_effect"])
    numbers = {name: _number(f"predicted_effect.{name}", predicted.get(name)) for name in ("percent", "low", "high")}
    effect = Effect(**numbers)
    if not effect.low <= effect.percent <= effect.high:
        words = f"{effect.percent:g} is not between {effect.low:g} and {effect.high:g}"
        raise Finding("interval", f"predicted_effect: {words}")
    change, enabling = (_engine(name, data.get(name, {})) for name in ("change", "enabling"))
    if len(change) != 1 or set(change) & set(enabling):
        raise Finding("one-change", "change names one field of the engine; whatever else you set goes into enabling")
    regime = dict(_table("losing_regime", data["losing_regime"]))
    losing = _number("losing_regime.predicted_percent", regime.pop("predicted_percent", None))
    baseline, reversal, problems = recording(str(data["baseline"])).cell, data["reversal_condition"], []
    try:
        _check_reversal(reversal)
        alternatives = _alternatives(data["alternatives"], baseline)
    except Finding as found:
        problems, alternatives = [found], ()
    return Memo(
        baseline=baseline, change=change, enabling=enabling, predicted=effect,
        measured_percent=_number("measured_effect.percent", measured.get("percent")),
        error_bar=_number("error_bar", data["error_bar"]), alternatives=alternatives,
        losing_regime=regime, losing_percent=losing, reversal_condition=str(reversal), problems=tuple(problems),
    )  # fmt: skip


def _alternatives(value: Any, baseline: Cell) -> tuple[Alternative, ...]:
    if not isinstance(value, list) or len(value) < MIN_ALTERNATIVES:
        raise Finding("alternatives", f"alternatives has at least {MIN_ALTERNATIVES} tables [[alternatives]]")
    found = []
    for number, item in enumerate(value, 1):
        table = _table(f"alternative {number}", item)
        change = _engine(f"alternative {number}, change", table.get("change", {}))
        if not change:
            raise Finding("alternatives", f"alternative {number} changes nothing")
        percent = _number(f"alternative {number}, predicted_percent", table.get("predicted_percent"))
        try:
            baseline.with_changes(**change)
        except TraceATensorError as error:
            raise Finding("alternatives", f"alternative {number}: {error}") from None
        found.append(Alternative(change=change, percent=percent))
    return tuple(found)


def _check_reversal(value: Any) -> None:
    text = value if isinstance(value, str) else ""
    if len(text.strip()) < MIN_REVERSAL_CHARACTERS or not any(letter.isdigit() for letter in text):
        raise Finding("reversal", "reversal_condition is a sentence with the number at which the change is taken back")


def _engine(where: str, value: Any) -> Mapping[str, Any]:
    table = _table(where, value)
    unknown = set(table) - ENGINE_FIELDS
    if unknown:
        raise Finding("field-wrong", f"{where}: no field of an engine: {', '.join(sorted(unknown))}")
    return table


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Finding("field-wrong", f"{where} is a table of fields, got {value!r}")
    return value


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Finding("field-wrong", f"{where} is a finite number, got {value!r}")
    return float(value)
