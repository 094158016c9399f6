"""Prove every exercise: ``python -m grading.prove [--lesson w2_2]``. Any gap ends with exit status 1.

For each exercise: the reference earns everything (also when it prints, warns and logs), the untouched cell
earns nothing, junk earns nothing, each named wrong answer loses marks and is told its own misconception, and
at least two further correct styles pass, on public, drawn and extra cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from course_lib.errors import TraceATensorError
from course_lib.lesson import Exercise, exercise, judge
from course_lib.lesson.values import agree, plain
from grading.cells import Lesson, lessons
from grading.proofs import Proof, proofs_of
from grading.running import answer_of, check_exercise

SEEDS = ("0", "proof-1", "proof-2")
"""0 is what self-learners get; a course has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table, with everything that is not as it must be."""

    exercise_id: str
    points: float
    num_mutants: int
    num_caught: int
    num_styles: int
    gaps: tuple[str, ...]


def prove(lesson: Lesson) -> list[Row]:
    """The proof of every exercise of one lesson."""
    proofs = proofs_of(lesson)
    keys = [cell.key for cell in lesson.of_role("exercise")]
    rows = [prove_exercise(lesson, key, proofs.get(key)) for key in keys]
    spare = sorted(set(proofs) - set(keys))
    return rows + [_gap_row(key, "has a proof but no exercise") for key in spare]


def prove_exercise(lesson: Lesson, key: str, proof: Proof | None) -> Row:
    """One exercise's row."""
    record = exercise(key)
    if proof is None:
        return _gap_row(key, "has no proof")
    cell, _ = lesson.exercise_cells(key)
    gaps = []
    if cell.points != record.points:
        gaps.append(f"the source says {cell.points:g} points, the check {record.points:g}")
    reference = answer_of(lesson, key)
    right = {"reference": reference, "noisy reference": noisy(record, reference), **proof.styles}
    gaps += _right(record, right, proof)
    gaps += _through_the_cells(lesson, record)
    gaps += _junk(record)
    missed = list(_missed(record, proof))
    return Row(
        exercise_id=key, points=record.points, num_mutants=len(proof.mutants),
        num_caught=len(proof.mutants) - len(missed), num_styles=len(proof.styles), gaps=tuple(gaps + missed),
    )  # fmt: skip


def _right(record: Exercise, answers: dict[str, Any], proof: Proof) -> Iterable[str]:
    for name, answer in answers.items():
        trials = [(record, seed) for seed in SEEDS]
        if proof.extra_cases:
            trials.append((dataclasses.replace(record, cases=proof.extra_cases, draw=None), "0"))
        for trial, seed in trials:
            result = judge(trial, answer, seed=seed)
            if result.points != record.points:
                yield f"{name} earns {result.points:g} (seed {seed}): {result.message} {result.details}"
                break


def _through_the_cells(lesson: Lesson, record: Exercise) -> Iterable[str]:
    """The check cell itself, after set-up and its own exercise cell only."""
    for solved, points in ((True, record.points), (False, 0.0)):
        result = check_exercise(lesson, record.id, solved=solved)
        if repr(result) != repr(float(points)):
            yield f"the check cell {'solved' if solved else 'untouched'} earns {result!r}, not {points:g}"


def _junk(record: Exercise) -> Iterable[str]:
    """Answers of no worth, by their kind: nothing is earned and nothing raises."""
    values: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "text": "42", "object": _AlwaysEqual()}
    if not _is_zero(record):
        values["zero"] = 0
    for name, value in values.items():
        answer = (lambda *_, value=value: value) if record.kind == "function" else value
        if judge(record, answer).points:
            yield f"junk ({name}) earns points"
    if record.kind == "function" and judge(record, _raises).points:
        yield "junk (raises) earns points"


def _missed(record: Exercise, proof: Proof) -> Iterable[str]:
    for mutant in proof.mutants:
        label = mutant.label or mutant.name
        result = judge(record, mutant.answer)
        if result.points >= record.points:
            yield f"mutant {label} earns full marks"
        elif result.misconception != mutant.name:
            yield f"mutant {label} is told {result.misconception!r}, not {mutant.name!r}"


def noisy(record: Exercise, answer: Any) -> Any:
    """The same answer from a function that prints, warns, logs and writes to stderr."""
    if record.kind != "function" or not callable(answer):
        return answer

    @functools.wraps(answer)
    def loud(*inputs: Any) -> Any:
        print("x" * 100_000)
        print("to stderr", file=sys.stderr)
        warnings.warn("a warning", stacklevel=1)
        logging.getLogger("learner").error("an error line")
        return answer(*inputs)

    return loud


class _AlwaysEqual:
    """An object that claims to equal everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _raises(*_: Any) -> Any:
    raise ValueError("no answer")


def _is_zero(record: Exercise) -> bool:
    return record.same is None and all(not agree(0, plain(record.expected(*case))) for case in record.cases)


def _gap_row(key: str, gap: str) -> Row:
    return Row(exercise_id=key, points=0, num_mutants=0, num_caught=0, num_styles=0, gaps=(gap,))


def table(rows: list[Row]) -> str:
    """The table that is printed."""
    width = max([len("exercise"), *(len(row.exercise_id) for row in rows)])
    lines = [f"{'exercise':<{width}}  points  mutants  caught  styles"]
    lines += [
        f"{row.exercise_id:<{width}}  {row.points:>6g}  {row.num_mutants:>7}  {row.num_caught:>6}  {row.num_styles:>6}"
        for row in rows
    ]
    lines.append(
        f"{len(rows)} exercises, {sum(r.num_mutants for r in rows)} mutants, {sum(r.num_caught for r in rows)} caught"
    )
    lines += [f"GAP {row.exercise_id}: {gap}" for row in rows for gap in row.gaps]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grading.prove", description="Prove every exercise.")
    parser.add_argument("--lesson", default="", help="only notebooks whose name starts so, such as w2_2")
    options = parser.parse_args(arguments)
    chosen = [lesson for lesson in lessons() if lesson.name.startswith(options.lesson) and lesson.of_role("exercise")]
    if not chosen:
        print(f"No lesson with exercises begins with {options.lesson!r}.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRACE_A_TENSOR_HOME"] = home
        try:
            rows = [row for lesson in chosen for row in prove(lesson)]
        except TraceATensorError as error:
            print(error, file=sys.stderr)
            return 1
    print(table(rows))
    return 1 if any(row.gaps for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
