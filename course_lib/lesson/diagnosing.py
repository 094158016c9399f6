"""From results to the idea behind them: which known mistake explains everything that was observed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.lesson.exercise import Diagnosis, Exercise, Raised
from course_lib.lesson.signatures import factor_signature, ratio_signature
from course_lib.lesson.values import agree, plain, quotient

__all__ = ["Finding", "Observation", "diagnose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One case: the inputs, what is right, what came, and how they differ ("" when they agree)."""

    inputs: tuple[Any, ...]
    expected: Any
    got: Any
    problem: str

    @property
    def agrees(self) -> bool:
        """Whether the answer is right here."""
        return not self.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The name of the misconception and what to say about it."""

    name: str
    hint: str


def diagnose(exercise: Exercise, observations: Sequence[Observation]) -> Finding | None:
    """The first known mistake that explains every observation, or None.

    The exercise's own diagnoses are tried in their order, then the input left out of a product, then the
    table of tell-tale ratios.
    """
    failed = [seen for seen in observations if not seen.agrees]
    for diagnosis in exercise.diagnoses:
        if _explains(diagnosis, exercise, observations, failed):
            return Finding(name=diagnosis.name, hint=diagnosis.hint)
    ratios = [quotient(seen.got, seen.expected) for seen in failed]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(failed):
        return None
    row = factor_signature(exercise.expected, [seen.inputs for seen in failed], known)
    row = row or ratio_signature(known, exercise.signatures)
    return Finding(name=row.name, hint=row.hint) if row else None


def _explains(
    diagnosis: Diagnosis, exercise: Exercise, observations: Sequence[Observation], failed: Sequence[Observation]
) -> bool:
    try:
        if diagnosis.wrong is not None:
            return all(_equals_wrong(diagnosis, exercise, seen) for seen in observations)
        if diagnosis.predicate is not None:
            return all(diagnosis.predicate(seen.got, seen.expected, *seen.inputs) for seen in failed)
        ratios = [quotient(seen.got, seen.expected) for seen in failed]
        return all(ratio is not None and math.isclose(ratio, diagnosis.ratio or 0, rel_tol=1e-9) for ratio in ratios)
    except (TypeError, ValueError, ArithmeticError, AttributeError, KeyError, IndexError):
        return False  # a wrong idea that cannot even be computed here explains nothing


def _equals_wrong(diagnosis: Diagnosis, exercise: Exercise, seen: Observation) -> bool:
    if isinstance(seen.got, Raised) or diagnosis.wrong is None:
        return False
    wrong = plain(diagnosis.wrong(*seen.inputs))
    return not agree(seen.got, wrong, exercise.relative_tolerance)
