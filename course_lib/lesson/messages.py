"""The words and panels of a check: counter-example, ladder of help, HTML."""

from __future__ import annotations

import inspect
from html import escape
from typing import TYPE_CHECKING

from course_lib.lesson.diagnosing import Observation
from course_lib.lesson.exercise import Exercise, Raised
from course_lib.lesson.values import NotComparableError, quotient, show

if TYPE_CHECKING:
    from course_lib.lesson.checking import CheckResult

__all__ = ["counter_example", "ladder", "panel", "result_html"]

Details = list[tuple[str, str]]

# Okabe-Ito green, vermilion and grey; each state has its word too, so nothing depends on the colour.
GOOD, BAD, QUIET = "#009E73", "#D55E00", "#777777"


def counter_example(exercise: Exercise, seen: Observation) -> Details:
    """The smallest public case that fails: inputs, expected, got, ratio, or the learner's own error."""
    details: Details = []
    if seen.inputs:
        details.append(("Case", _call_text(exercise, seen)))
    if isinstance(seen.got, Raised):
        return details + _error_text(seen.got)
    ratio = quotient(seen.got, seen.expected)
    if exercise.kind == "value":
        if ratio is not None:
            details.append(("Yours", f"{show(seen.got)} is too {'high' if ratio > 1 else 'low'}"))
        return details
    unit = f" {exercise.unit}" if exercise.unit and ratio is not None else ""
    if exercise.same is None:
        details.append(("Expected", f"{show(seen.expected)}{unit}"))
        details.append(("Got", f"{show(seen.got)}{unit}"))
    if ratio is not None and ratio > 0:
        details.append(("Ratio", f"{ratio:.6g} (got / expected)"))
    elif ratio is None and exercise.same is None:
        details.append(("Difference", seen.problem))
    return details


def ladder(exercise: Exercise, failures: int) -> Details:
    """Help that grows with the failed tries before this one: none, concept, formula, a worked smaller case."""
    steps = [("Concept", exercise.concept), ("Formula", exercise.formula), ("Worked smaller case", exercise.worked)]
    return [(name, text) for name, text in steps[: max(0, failures)] if text]


def _call_text(exercise: Exercise, seen: Observation) -> str:
    names = list(inspect.signature(exercise.expected).parameters)
    pairs = zip(names, seen.inputs)
    return ", ".join(f"{name} = {_input_text(value)}" for name, value in pairs)


def _input_text(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10_000 else show(
        tuple(value) if isinstance(value, list) else value
    )


def _error_text(raised: Raised) -> Details:
    if isinstance(raised.error, NotComparableError):
        return [("Got", str(raised.error))]
    try:
        text = " ".join(str(raised.error).split())[:300]
    except Exception:  # an error of the learner's own whose words cannot be had
        text = ""
    details = [("Error", f"{type(raised.error).__name__}: {text}" if text else type(raised.error).__name__)]
    return [*details, ("Where", raised.where)] if raised.where else details


def panel(color: str, word: str, head: str, body: str) -> str:
    """A bordered block: a coloured edge, a word for the state, a heading and a body (already HTML).

    Its class keeps notebooks from reading two dollar amounts as the ends of a formula.
    """
    return (
        f'<div role="status" class="mathjax_ignore" '
        f'style="border-left:6px solid {color};padding:0.4em 0.9em;margin:0.3em 0;max-width:54em">'
        f"<strong>{escape(word)}</strong> <span>{escape(head)}</span>{body}</div>"
    )


def rows(details: tuple[tuple[str, str], ...] | Details) -> str:
    """Name and text pairs as a small table; line breaks in the text are kept."""
    if not details:
        return ""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;vertical-align:top;padding-right:1em">{escape(name)}</th>'
        f'<td style="text-align:left;white-space:pre-wrap">{escape(text)}</td></tr>'
        for name, text in details
    )
    return f'<table style="margin-left:0">{cells}</table>'


def result_html(result: CheckResult) -> str:
    """A check's panel."""
    todo = result.misconception == "not-attempted"
    color, word = (GOOD, "Passed") if result.passed else (QUIET, "To do") if todo else (BAD, "Not yet")
    head = f"{result.exercise_id}, {result.points:g} of {result.max_points:g} points"
    return panel(color, word, head, f"<p style='margin:0.4em 0'>{escape(result.message)}</p>{rows(result.details)}")
