"""Pages for the start notebook: progress with calibration, the map of the course, the environment with cures."""

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

__all__ = ["ASSIGNMENTS", "Page", "course_map", "progress_page", "table"]

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
        f'<table style="margin-left:0"><caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
    )


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
    parts.append(table(("Exercise", "State", "Points"), checks, caption="Exercises"))
    head = ("Prediction", "Predicted", "Measured", "Predicted / measured", "Interval")
    parts.append(table(head, predictions, caption="Predictions"))
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


def course_map() -> Page:
    """The four weeks and the capstone: title and link of every notebook that exists."""
    root = course_root() or Path.cwd()
    rows: list[tuple[str, str, str]] = []
    for folder, title in ASSIGNMENTS.items():
        for path in sorted((root / folder).glob("*.ipynb")):
            link = os.path.relpath(path, Path.cwd()).replace(os.sep, "/")
            anchor = f'<a href="{escape(link, quote=True)}">{escape(_title(path))}</a>'
            rows.append((title, anchor, f"{folder}/{path.name}"))
    html = table(("Part", "Notebook", "File"), [_once(rows, i) for i in range(len(rows))], caption="Map of the course")
    return Page(html=html, text="\n".join(f"{part}: {file}" for part, _, file in rows))


def _once(rows: list[tuple[str, str, str]], i: int) -> tuple[str, str, str]:
    """The row, its part named only where it begins."""
    return rows[i] if i == 0 or rows[i - 1][0] != rows[i][0] else ("", *rows[i][1:])


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
