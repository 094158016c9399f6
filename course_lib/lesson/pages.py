"""Pages for the start notebook: the map of the course with what is done, and progress with calibration."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from course_lib.lesson.catalogue import all_exercises
from course_lib.lesson.progress import course_root, progress_store
from course_lib.lesson.values import show

__all__ = ["ASSIGNMENTS", "Page", "course_map", "folded", "progress_page", "table"]

ASSIGNMENTS = {
    "week1_backprop": "Week 1: values become tensors, tensors become work",
    "week2_hardware": "Week 2: work meets a machine",
    "week3_optimization": "Week 3: work gets smaller",
    "week4_serving": "Week 4: many requests share the machine, and it sends a bill",
    "capstone": "Capstone: predict, measure and justify one optimization",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An HTML page fragment with its plain-text twin."""

    html: str
    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def table(head: Sequence[str], body: Sequence[Sequence[str]], *, caption: str) -> str:
    """An HTML table with a caption; the first column names the row. Cells are escaped unless they are links."""
    cells = "".join(f'<th scope="col" style="text-align:left">{escape(cell)}</th>' for cell in head)
    lines = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in body)
    return (
        f'<table class="mathjax_ignore" style="margin-left:0">'
        f'<caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
    )


def folded(summary: str, body: str, is_open: bool = False) -> str:
    """A block that shows its summary until it is opened; ``body`` is HTML."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{body}</details>"


def _cell(cell: str) -> str:
    text = cell if cell.startswith('<a href="') else escape(cell)
    return f'<td style="text-align:left;vertical-align:top">{text}</td>'


def progress_page() -> Page:
    """Exercises passed, and how well the predictions were calibrated.

    Calibration: the share of revealed intervals that hold the measured value (an interval you would bet on
    at nine to one should hold it nine times in ten), and the median factor between predicted and measured.
    """
    store = progress_store()
    data = store.load()
    checks = [_check_row(record, data["checks"].get(record.id, {})) for record in all_exercises()]
    points = [entry.get("points", 0) for entry in data["checks"].values()]
    earned = sum(float(value) for value in points if _is_number(value))
    total = sum(record.points for record in all_exercises())
    predictions = [_prediction_row(key, entry) for key, entry in sorted(data["predictions"].items())]
    summary = f"{earned:g} of {total:g} points. {calibration(data['predictions'])}"
    parts = [f"<p>{escape(summary)}</p>", *(f"<p>{escape(note)}</p>" for note in store.notes)]
    exercises = table(("Exercise", "State", "Points"), checks, caption="Exercises")
    parts.append(folded(f"{len(checks)} exercises", exercises))
    if predictions:
        head = ("Prediction", "Predicted", "Measured", "Predicted / measured", "Interval")
        parts.append(folded(f"{len(predictions)} predictions", table(head, predictions, caption="Predictions")))
    parts.append(f"<p>Kept in <code>{escape(str(store.path))}</code>. Delete the file to begin again.</p>")
    return Page(html="".join(parts), text=summary)


def calibration(predictions: dict[str, Any]) -> str:
    """One sentence on all revealed predictions."""
    entries = predictions.values()
    revealed = [entry for entry in entries if _is_number(entry.get("measured")) and _is_number(entry.get("value"))]
    if not revealed:
        return "No prediction has been revealed yet."
    factors = sorted(
        max(entry["value"] / entry["measured"], entry["measured"] / entry["value"])
        for entry in revealed
        if entry["measured"] and entry["value"] and entry["value"] / entry["measured"] > 0
    )
    with_interval = [entry for entry in revealed if _is_number(entry.get("low")) and _is_number(entry.get("high"))]
    held = sum(entry["low"] <= entry["measured"] <= entry["high"] for entry in with_interval)
    words = f"{len(revealed)} predictions revealed"
    if factors:
        words += f", median factor {factors[len(factors) // 2]:.3g}"
    return words + (f"; {held} of {len(with_interval)} intervals held the truth." if with_interval else ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    """One notebook on the map, with the points earned in its exercises and those to be earned."""

    part: str
    path: Path
    earned: float
    total: float

    @property
    def state(self) -> str:
        return f"{self.earned:g} of {self.total:g} points" if self.total else ""


def course_map() -> Page:
    """The weeks and the capstone: every notebook that exists, linked, with the points earned, and where to go next."""
    stops = _stops()
    rows = "".join(_part_row(stop) * (i == 0 or stops[i - 1].part != stop.part) + _stop_row(stop)
                   for i, stop in enumerate(stops))  # fmt: skip
    word = "Go on" if any(stop.earned for stop in stops) else "Begin"
    following = next((stop for stop in stops if stop.earned < stop.total), None)
    start = f"<p><strong>{word} with {_link(following.path)}.</strong></p>" if following else ""
    lines = (f"{stop.part}: {stop.path.parent.name}/{stop.path.name} {stop.state}".rstrip() for stop in stops)
    return Page(html=f'{start}<table style="margin-left:0"><tbody>{rows}</tbody></table>', text="\n".join(lines))


def _stops() -> list[_Stop]:
    root = course_root() or Path.cwd()
    points = _points_by_lesson()
    stops = []
    for folder, part in ASSIGNMENTS.items():
        for path in sorted((root / folder).glob("*.ipynb")):
            earned, total = points.get("-".join(path.stem.split("_")[:2]), (0.0, 0.0))
            stops.append(_Stop(part=part, path=path, earned=earned, total=total))
    return stops


def _points_by_lesson() -> dict[str, tuple[float, float]]:
    """Points earned and to be earned in exercises, by the lesson's part of their ids (``w1-2``)."""
    entries = progress_store().load()["checks"]
    sums: dict[str, tuple[float, float]] = {}
    for record in all_exercises():
        lesson = "-".join(record.id.split("-")[:2])
        points = entries.get(record.id, {}).get("points", 0)
        earned, total = sums.get(lesson, (0.0, 0.0))
        sums[lesson] = (earned + (float(points) if _is_number(points) else 0.0), total + record.points)
    return sums


def _part_row(stop: _Stop) -> str:
    style = "text-align:left;padding-top:0.8em"
    return f'<tr><th scope="rowgroup" colspan="2" style="{style}">{escape(stop.part)}</th></tr>'


def _stop_row(stop: _Stop) -> str:
    cell = '<td style="text-align:left;padding-right:2em">'
    return f"<tr>{cell}{_link(stop.path)}</td>{cell}{escape(stop.state)}</td></tr>"


def _link(path: Path) -> str:
    """A relative link, which JupyterLab opens in a tab of its own."""
    target = os.path.relpath(path, Path.cwd()).replace(os.sep, "/")
    return f'<a href="{escape(target, quote=True)}">{escape(_title(path))}</a>'


def _title(path: Path) -> str:
    """A notebook's first heading, or its file name."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = "".join(cells[0]["source"]).splitlines()
        return next(line.lstrip("# ").strip() for line in lines if line.startswith("# "))
    except (OSError, ValueError, KeyError, IndexError, TypeError, StopIteration):
        return path.stem


def _check_row(record: Any, entry: dict[str, Any]) -> tuple[str, str, str]:
    state = "passed" if entry.get("passed") else f"{entry['failures']} tries" if entry.get("failures") else "to do"
    points = entry.get("points", 0)
    return record.id, state, f"{points if _is_number(points) else 0:g} of {record.points:g}"


def _prediction_row(key: str, entry: dict[str, Any]) -> tuple[str, ...]:
    value, measured, unit = entry.get("value"), entry.get("measured"), str(entry.get("unit", ""))
    if not isinstance(value, (int, float)) or not isinstance(measured, (int, float)):
        return key, f"{show(value)} {unit}" if value is not None else "", "not revealed", "", ""
    low, high = entry.get("low"), entry.get("high")
    held = ""
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        held = "held" if low <= measured <= high else "missed"
    ratio = f"{value / measured:.3g}" if measured else ""
    return key, f"{show(value)} {unit}", f"{show(measured)} {unit}", ratio, held


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
