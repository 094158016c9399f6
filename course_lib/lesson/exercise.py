"""What an exercise is: inputs, the right answer, and the wrong ideas that can be recognised.

A lesson's exercises stand in ``grading/checks/<assignment>/<notebook>.py`` as ``EXERCISES``, a tuple of
these records. Nothing here runs a check; :mod:`course_lib.lesson.checking` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from course_lib.errors import InvalidInputError
from course_lib.lesson.signatures import SIGNATURES

__all__ = ["Diagnosis", "Exercise", "Raised"]

_ID = re.compile(r"^(w[0-9]+-[0-9]+|capstone)(-[a-z0-9]+)+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """Stands in for a value when the learner's code raised: the error, and where it was raised."""

    error: BaseException
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One named wrong idea, how to recognise it, and what to say about it.

    Exactly one of the three ways to recognise it is given:

    Args:
        name: short and hyphenated; what :attr:`CheckResult.misconception` will say ("forgot-bias").
        hint: two or three sentences to the learner that name the misconception, not the answer.
        wrong: ``wrong(*inputs)`` is what a learner with this idea would compute. It is the diagnosis when
            every observed result equals it, and at least one of them is not the right answer.
        ratio: result divided by the right answer, the same in every case that failed.
        predicate: ``predicate(got, expected, *inputs)`` holds in every case that failed. ``got`` may be
            a :class:`Raised`.
    """

    name: str
    hint: str
    wrong: Callable[..., Any] | None = None
    ratio: float | None = None
    predicate: Callable[..., bool] | None = None

    def __post_init__(self) -> None:
        ways = sum(way is not None for way in (self.wrong, self.ratio, self.predicate))
        if ways != 1:
            raise InvalidInputError(
                f"diagnosis {self.name!r} needs exactly one of wrong, ratio, predicate", given=ways
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One graded exercise, everything about it that a learner may read.

    Args:
        id: ``w{week}-{lesson}-{noun}``, the nbgrader grade id of its check cell.
        title: what is asked, in one line.
        points: full marks. There is no part credit inside one exercise: a formula that holds for square
            shapes only is a wrong formula.
        expected: ``expected(*inputs)`` is the right answer. Count executed library code where that can be
            done; its parameter names are used in messages ("you left out the factor batch").
        cases: public inputs, the smallest first; each a tuple of arguments. The first that fails is the
            counter-example shown.
        draw: ``draw(rng)`` returns one further case. Self-learners get seed 0; a course draws from its own.
        kind: ``"function"``: the learner's function is called with each case. ``"value"``: the answer is
            itself the result (one case, no inputs), and the right value is never printed.
        probe: how to observe an answer, ``probe(answer, *inputs)``; by default the call (or the value).
            Use it to run a learner's scheduler, kernel or quantizer on an instrumented machine.
        relative_tolerance: 0 means equal; whole numbers are compared exactly.
        same: a comparison of one's own, ``same(got, expected) -> bool``, for what numbers cannot say.
        diagnoses: the wrong ideas known, most specific first.
        signatures: which tell-tale ratios of :data:`SIGNATURES` make sense here.
        forbidden: operation names of course_lib.tensor that the answer must not call (it must build them).
        unit: of the result, for messages.
        concept, formula, worked: the ladder, climbed one step with every failed try after the first.
    """

    id: str
    title: str
    points: float
    expected: Callable[..., Any]
    concept: str
    formula: str
    worked: str
    cases: tuple[tuple[Any, ...], ...] = ((),)
    draw: Callable[..., tuple[Any, ...]] | None = None
    kind: Literal["function", "value"] = "function"
    probe: Callable[..., Any] | None = None
    relative_tolerance: float = 0.0
    same: Callable[[Any, Any], bool] | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    signatures: tuple[str, ...] = field(
        default=("half", "double", "gib-for-gb", "gb-for-gib", "binary-prefix", "decimal-prefix")
    )
    forbidden: tuple[str, ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise InvalidInputError(
                "an exercise id names week, lesson and a noun", given=self.id, allowed="for example w2-2-misses"
            )
        if not self.points > 0:
            raise InvalidInputError(f"exercise {self.id} needs points", given=self.points, allowed="above 0")
        if not self.cases:
            raise InvalidInputError(f"exercise {self.id} needs at least one public case")
        for name in self.signatures:
            if name not in SIGNATURES:
                raise InvalidInputError(
                    f"{self.id} names an unknown signature", given=name, allowed=", ".join(SIGNATURES)
                )
        names = [diagnosis.name for diagnosis in self.diagnoses]
        if len(set(names)) != len(names):
            raise InvalidInputError(f"exercise {self.id} names a diagnosis twice", given=names)
