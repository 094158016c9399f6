"""Everything a report shows, gathered once: text, page and data are three prints of it."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.journey import (
    Diff,
    Explanation,
    Journey,
    Link,
    Sensitivity,
    cost_links,
    machine_links,
    serving_links,
    step_links,
    tensor_links,
)
from course_lib.report.checks import CrossCheck, cross_checks
from course_lib.report.what_if import Option, Switch, options, switches

__all__ = ["STAGES", "Report", "journey_report"]

STAGES = (
    ("Values become tensors, tensors become work", tensor_links),
    ("Work meets a machine", machine_links),
    ("The time of a step", step_links),
    ("Many requests share the machine", serving_links),
    ("Machines cost money", cost_links),
)
"""The rooms of the chain with the links that live in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A journey, ready to be printed; every number on it comes from its links or from a journey beside it.

    Args:
        journey: the one that is reported.
        explanation: its links, bill and bands.
        before, diff, change: the journey that it was changed from, what the change did, and its words.
        options, switches: what would move the bill; the ledger of assumptions.
        sensitivity: elasticities.
        checks: published numbers beside ours.
        command: command line that makes it again.
        notes: what else a reader should know.
    """

    journey: Journey
    explanation: Explanation
    before: Journey | None
    diff: Diff | None
    change: str
    options: tuple[Option, ...]
    switches: tuple[Switch, ...]
    sensitivity: Sensitivity
    checks: tuple[CrossCheck, ...]
    command: str
    notes: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the bill and notes of the caller."""
        return (*self.explanation.bill.warnings, *self.notes)

    def link(self, name: str) -> Link | None:
        """One link by name; None where this journey has none (a promise that was not made)."""
        return next((link for link in self.explanation.links if link.name == name), None)

    def stages(self) -> tuple[tuple[str, tuple[Link, ...]], ...]:
        """The links by room, in order."""
        return tuple(
            (title, tuple(link for link in self.explanation.links if link.name in {rule.name for rule in room.LINKS}))
            for title, room in STAGES
        )


def journey_report(
    journey: Journey, *, before: Journey | None = None, change: str = "", command: str = "", notes: tuple[str, ...] = ()
) -> Report:
    """Evaluate what a report shows.

    Args:
        journey: the journey of the report.
        before: the journey that it was changed from.
        change: the change in words, such as ``"num_kv_heads=32"``.
        command: command line that makes the report again.
        notes: printed with the warnings.

    >>> journey_report(Journey()).link("batch").value
    211.0
    """
    return Report(
        journey=journey, explanation=journey.explain(), before=before, change=change,
        diff=None if before is None else journey.diff(before), options=options(journey), switches=switches(journey),
        sensitivity=journey.sensitivity(), checks=cross_checks(), command=command, notes=notes,
    )  # fmt: skip
