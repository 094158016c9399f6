"""Judge an answer: run the cases, recognise the wrong idea, say the next useful thing and no more."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_lib.errors import TraceATensorError
from course_lib.lesson.catalogue import exercise as find_exercise
from course_lib.lesson.diagnosing import Finding, Observation, diagnose
from course_lib.lesson.exercise import Exercise, Raised
from course_lib.lesson.messages import counter_example, ladder, result_html
from course_lib.lesson.progress import is_autograding, now, progress_store
from course_lib.lesson.running import NotAttempted, observe_answer
from course_lib.lesson.values import NOT_A_NUMBER, agree, plain

__all__ = ["CheckResult", "check", "judge"]

SEED_VARIABLE = "TRACE_A_TENSOR_SEED"
NUM_DRAWN = 4
"""Cases drawn beside the public ones, so that a table of the public answers is no solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found.

    In a notebook it shows as a panel. Its plain text is the points earned and nothing else, because that
    is what nbgrader reads as the mark (any other text would count as full marks).
    """

    exercise_id: str
    passed: bool
    points: float
    max_points: float
    misconception: str | None
    message: str
    details: tuple[tuple[str, str], ...] = field(default=())

    def __str__(self) -> str:
        head = f"{self.exercise_id}: {self.points:g} of {self.max_points:g} points"
        return "\n".join([head, self.message, *(f"  {name}: {text}" for name, text in self.details)])

    def __repr__(self) -> str:
        return repr(float(self.points))

    def _repr_html_(self) -> str:
        return result_html(self)


def check(exercise_id: str, answer: Any = None) -> CheckResult:
    """Check an answer to one exercise and say what to look at next.

    Args:
        exercise_id: as printed in the check cell, ``w2-2-misses``.
        answer: your function (its name, without parentheses) or your value.

    Returns:
        The result; as the last line of a cell it shows as a panel.

    Nothing here raises for a wrong answer, an answer that raises, or an unknown id.
    """
    exercise_id = exercise_id if isinstance(exercise_id, str) else type(exercise_id).__name__
    try:
        record = find_exercise(exercise_id)
    except TraceATensorError as error:
        return CheckResult(
            exercise_id=exercise_id, passed=False, points=0.0, max_points=0.0, misconception=None,
            message=str(error),
        )  # fmt: skip
    store = progress_store()
    failures = int(store.entry("checks", record.id).get("failures", 0))
    result = judge(record, answer, seed=_seed(), failures=failures)
    if result.misconception != "not-attempted":
        store.update("checks", record.id, lambda old: _entry(old, result))
    notes = tuple(("Note", note) for note in store.notes)
    return _with_details(result, notes) if notes else result


def judge(record: Exercise, answer: Any, *, seed: str = "0", failures: int = 0) -> CheckResult:
    """The verdict on an answer, with no memory: ``failures`` earlier tries decide how much help is given.

    ``seed`` decides the drawn cases: the same seed gives the same verdict, whoever asks.
    """
    observations = [_observe(record, answer, inputs) for inputs in record.cases]
    if all(isinstance(seen.got, Raised) and isinstance(seen.got.error, NotAttempted) for seen in observations):
        return _not_attempted(record)
    if all(seen.agrees for seen in observations):
        observations += [_observe(record, answer, inputs) for inputs in drawn_cases(record, seed)]
    failed = [seen for seen in observations if not seen.agrees]
    if not failed:
        right = "Right." if len(observations) == 1 else f"Right, on all {len(observations)} cases."
        return CheckResult(
            exercise_id=record.id, passed=True, points=float(record.points), max_points=float(record.points),
            misconception=None, message=f"{right} {record.title}",
        )  # fmt: skip
    finding = diagnose(record, observations)
    return _failed(record, failed[0], finding, failures)


def drawn_cases(record: Exercise, seed: str) -> list[tuple[Any, ...]]:
    """Further cases, drawn by a hash of the seed and the exercise's id."""
    if record.draw is None:
        return []
    digest = hashlib.sha256(f"{seed}/{record.id}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return [record.draw(rng) for _ in range(NUM_DRAWN)]


def _seed() -> str:
    """The course's seed while nbgrader grades; 0 for everyone who learns."""
    return os.environ.get(SEED_VARIABLE, "0") if is_autograding() else "0"


def _observe(record: Exercise, answer: Any, inputs: tuple[Any, ...]) -> Observation:
    expected = record.expected(*inputs)
    expected = expected if record.same else plain(expected)
    try:
        got = observe_answer(record, answer, inputs)
    except NotAttempted:
        got = Raised(error=NotAttempted("no value came back for this case: is a return missing on one path?"))
    if isinstance(got, Raised):
        problem = "it raised an error"
    elif record.same:
        problem = "" if record.same(got, expected) else "not the same"
    else:
        problem = agree(got, expected, record.relative_tolerance)
    return Observation(inputs=inputs, expected=expected, got=got, problem=problem)


def _failed(record: Exercise, first: Observation, finding: Finding | None, failures: int) -> CheckResult:
    details = [*counter_example(record, first), *ladder(record, failures)]
    if finding is not None:
        message = finding.hint
    elif isinstance(first.got, Raised) and isinstance(first.got.error, NotAttempted):
        message = "Your answer gives no value for one of the cases."
    elif isinstance(first.got, Raised):
        message = "Your code raised an error."
    elif isinstance(first.expected, (int, float)) and first.problem.endswith(NOT_A_NUMBER):
        message = "One number is needed here, and your answer is something else."
    else:
        message = "Not a mistake I know. Look at the smallest case that fails."
    return CheckResult(
        exercise_id=record.id, passed=False, points=0.0, max_points=float(record.points),
        misconception=finding.name if finding else None, message=message, details=tuple(details),
    )  # fmt: skip


def _not_attempted(record: Exercise) -> CheckResult:
    what = "There is no value yet"
    if record.kind == "function":
        what = "Your function returns nothing yet (print shows a value, return hands it over)"
    return CheckResult(
        exercise_id=record.id, passed=False, points=0.0, max_points=float(record.points),
        misconception="not-attempted", message=f"{what}. To do: {record.title}",
    )  # fmt: skip


def _entry(old: dict[str, Any], result: CheckResult) -> dict[str, Any]:
    """A pass stays a pass; failures count tries before it."""
    failures = int(old.get("failures", 0)) + (not result.passed)
    return {
        "passed": bool(old.get("passed")) or result.passed,
        "points": max(float(old.get("points", 0.0)), result.points),
        "max_points": result.max_points,
        "failures": failures,
        "misconception": result.misconception,
        "checked_at": now(),
    }


def _with_details(result: CheckResult, more: tuple[tuple[str, str], ...]) -> CheckResult:
    return CheckResult(
        exercise_id=result.exercise_id, passed=result.passed, points=result.points, max_points=result.max_points,
        misconception=result.misconception, message=result.message, details=result.details + more,
    )  # fmt: skip
