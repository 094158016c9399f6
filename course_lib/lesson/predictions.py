"""Predict first, then look: a number is committed before the cell that reveals the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.lesson.messages import BAD, GOOD, QUIET, panel, rows
from course_lib.lesson.progress import is_autograding, now, progress_store
from course_lib.lesson.values import NotComparableError, is_finite, plain, quotient, show

__all__ = ["Notice", "Revealed", "predict", "reveal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A short message from the course, shown as a panel."""

    word: str
    message: str
    color: str = QUIET

    def __str__(self) -> str:
        return f"{self.word}: {self.message}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return panel(self.color, self.word, self.message, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """Predicted beside measured. Its plain text is the mark: 1 for a committed prediction, else 0.

    The mark never depends on how near the prediction was.
    """

    prediction_id: str
    committed: bool
    message: str
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    measured: Any = None
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """Predicted / measured; None where either is missing or the measured value is 0."""
        return None if self.predicted is None else quotient(self.predicted, self.measured)

    @property
    def inside(self) -> bool | None:
        """Whether the measured value lies in the predicted interval; None where there is none."""
        return _inside(self.low, self.high, self.measured)

    def __str__(self) -> str:
        return "\n".join([f"{self.prediction_id}: {self.message}", *(f"  {n}: {t}" for n, t in self._details())])

    def __repr__(self) -> str:
        return "1.0" if self.committed else "0.0"

    def _repr_html_(self) -> str:
        word, color = ("Revealed", GOOD) if self.committed else ("Predict first", BAD)
        return panel(color, word, self.prediction_id, f"<p>{escape(self.message)}</p>{rows(self._details())}")

    def _details(self) -> list[tuple[str, str]]:
        if self.predicted is None or self.measured is None:
            return []
        unit = f" {self.unit}" if self.unit else ""
        interval = "" if self.low is None or self.high is None else f" (from {show(self.low)} to {show(self.high)})"
        details = [("Predicted", f"{show(self.predicted)}{unit}{interval}")]
        details.append(("Measured", f"{show(self.measured)}{unit}"))
        if self.ratio is not None:
            details.append(("Ratio", f"{self.ratio:.4g} (predicted / measured)"))
        if self.inside is not None:
            details.append(("Interval", "holds the measured value" if self.inside else "misses the measured value"))
        return details


def predict(
    prediction_id: str, value: Any = None, *, unit: str = "", low: Any = None, high: Any = None
) -> Notice:
    """Commit a prediction. It can be changed until it has been revealed; then the first one stands.

    Args:
        prediction_id: as printed in the cell.
        value: your number.
        unit: of the number.
        low, high: an interval you would bet on at nine to one; optional, given together.

    Returns:
        A notice of what was stored, or of what is still missing.
    """
    try:
        numbers = _numbers(value, low, high)
    except ValueError as error:
        return Notice(word="Not stored yet", message=str(error), color=BAD)
    prediction_id, unit = str(prediction_id), str(unit)
    store = progress_store()
    old = store.entry("predictions", prediction_id)
    if "revealed_at" in old:
        return Notice(
            word="Already revealed",
            message=f"Your prediction {show(old.get('value'))} {old.get('unit', '')} stays on record.",
        )
    entry = {"value": numbers[0], "low": numbers[1], "high": numbers[2], "unit": unit, "predicted_at": now()}
    store.update("predictions", prediction_id, lambda _: entry)
    interval = "" if numbers[1] is None else f", between {show(numbers[1])} and {show(numbers[2])}"
    message = f"{show(numbers[0])} {unit}".strip() + interval + ". Run on to see what happens."
    return Notice(word="Committed", message=" ".join([message, *store.notes]), color=GOOD)


def reveal(prediction_id: str, measured: Any | Callable[[], Any]) -> Revealed:
    """Show predicted beside measured; refuses, politely, before a prediction is committed.

    Args:
        prediction_id: that of the ``predict`` cell.
        measured: the value, or a function of no arguments that yields it (it is not called before there
            is a prediction, so nothing is given away).
    """
    store = progress_store()
    entry = store.entry("predictions", prediction_id)
    if not isinstance(entry.get("value"), (int, float)):
        message = "Commit a number in the predict cell above and run it; then run this cell again."
        return Revealed(prediction_id=prediction_id, committed=False, message=message)
    if is_autograding():
        return Revealed(prediction_id=prediction_id, committed=True, message="A prediction was committed.")
    try:
        value = plain(measured() if callable(measured) else measured)
    except NotComparableError as error:
        return Revealed(prediction_id=prediction_id, committed=True, message=f"Nothing to compare: {error}.")
    except Exception as error:
        message = f"The measurement did not run ({type(error).__name__}: {error}). Run the cells above it first."
        return Revealed(prediction_id=prediction_id, committed=True, message=message)
    number = value if isinstance(value, (int, float)) and is_finite(value) else None
    seen = {"measured": number, "revealed_at": entry.get("revealed_at", now())}
    store.update("predictions", prediction_id, lambda old: {**old, **seen})
    return Revealed(
        prediction_id=prediction_id, committed=True, message=_comment(entry, value), predicted=entry["value"],
        low=entry.get("low"), high=entry.get("high"), measured=value, unit=str(entry.get("unit", "")),
    )  # fmt: skip


def _numbers(value: Any, low: Any, high: Any) -> tuple[float, float | None, float | None]:
    if value is ... or value is None:
        raise ValueError("Replace the first ... by your number and run the cell. A wrong number costs nothing.")
    low, high = (None if end is ... or end is None else _number(end) for end in (low, high))
    number = _number(value)
    if (low is None) != (high is None):
        raise ValueError("An interval needs both ends: give low and high, or neither.")
    if low is not None and high is not None and not low <= number <= high:
        raise ValueError(f"Your number should lie inside your interval: {show(low)} <= {show(number)} <= {show(high)}.")
    return number, low, high


def _number(value: Any) -> float:
    try:
        number = plain(value)
    except NotComparableError as error:
        raise ValueError(f"A prediction is one number, but {error}.") from None
    except Exception:  # a tensor without values, an object that answers every question with an error
        raise ValueError(f"A prediction is one number; a {type(value).__name__} could not be read as one.") from None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not is_finite(number):
        raise ValueError(f"A prediction is one finite number, such as 3e6; got {show(number)}.")
    return number


def _inside(low: float | None, high: float | None, measured: Any) -> bool | None:
    if low is None or high is None or not isinstance(measured, (int, float)):
        return None
    return low <= measured <= high


def _comment(entry: dict[str, Any], value: Any) -> str:
    """One sentence on the size of the gap; the gap itself is the lesson."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value or not is_finite(value):
        return "Here is what happened."
    ratio = entry["value"] / value
    if 0.9 <= ratio <= 1.1:
        return "Within 10 %. Can you say which term you might still have missed?"
    if ratio <= 0:
        return "The sign or a zero is off. Which term decides it?"
    factor = max(ratio, 1 / ratio)
    return f"Off by a factor of {factor:.3g}. Which term explains it?"
