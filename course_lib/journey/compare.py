"""Two journeys side by side: which links moved, and what each cause did to the dollars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.cost import Attribution, attribute
from course_lib.errors import TraceATensorError
from course_lib.journey.inputs import CAUSES
from course_lib.journey.uncertainty import Band, band, dollars, efficiency_grid, flip_probability
from course_lib.units import format_usd

if TYPE_CHECKING:
    from course_lib.journey.record import Journey

__all__ = ["ROUNDING", "Diff", "LinkChange", "attribution", "compare"]

ROUNDING = "whole replicas and spares"
"""The term of the billed dollars that no continuous cause explains: rounding up, the minimum fleet, the spares."""

_MACHINE = ("weight bytes", "KV bytes", "FLOPs", "tensor parallelism", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """One link before and after; ``change`` is the relative change, None when it was zero or absent."""

    name: str
    title: str
    unit: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """``after / before - 1``."""
        return None if not self.before or self.after is None else self.after / self.before - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What an edit did.

    Args:
        links: every link whose value changed.
        usd_per_month, billed_usd_per_month: change of the continuous and of the billed dollars.
        relative: change of the continuous dollars over the dollars before.
        attribution: Shapley terms of the continuous change; they sum to it.
        billed_attribution: the same terms and one for rounding to whole replicas and spares.
        relative_band: the relative change over the grid of efficiencies.
        flip_probability: share of the grid on which the cheaper option is the other one.
    """

    links: tuple[LinkChange, ...]
    usd_per_month: float
    billed_usd_per_month: float
    relative: float
    attribution: Attribution
    billed_attribution: Attribution
    relative_band: Band
    flip_probability: float

    def table(self) -> str:
        """The change, its band, its causes and the links that moved, as text."""
        low, high = self.relative_band.low, self.relative_band.high
        lines = [
            f"continuous {_signed(self.usd_per_month)} a month ({self.relative:+.1%}; {low:+.0%} to {high:+.0%} over "
            f"the efficiencies), billed {_signed(self.billed_usd_per_month)}; "
            f"the order of the two options flips on {self.flip_probability:.0%} of the grid",
            "why (Shapley, continuous dollars a month):",
            *(f"  {name:<28}{_signed(usd):>12}" for name, usd in self.attribution.terms),
            "links that moved:",
        ]
        for moved in self.links:
            change = "" if moved.change is None else f"{moved.change:+.1%}"
            lines.append(f"  {moved.title:<58}{_number(moved.before):>14} -> {_number(moved.after):>14} {change:>9}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return f"<pre>{self.table()}</pre>"


def compare(after: Journey, before: Journey) -> Diff:
    """What happened between two journeys."""
    old, new = before.bill, after.bill
    change = new.continuous_usd_per_month - old.continuous_usd_per_month
    billed_change = new.billed_usd_per_month - old.billed_usd_per_month
    continuous = attribution(before.inputs, after.inputs)
    rest = billed_change - continuous.total_usd_per_month
    grids = [efficiency_grid(journey.chain, "continuous_usd_per_month")[0] for journey in (before, after)]
    relative = change / old.continuous_usd_per_month
    return Diff(
        links=_moved(before, after), usd_per_month=change, billed_usd_per_month=billed_change, relative=relative,
        attribution=continuous, billed_attribution=Attribution(terms=(*continuous.terms, (ROUNDING, rest))),
        relative_band=_relative_band(relative, *grids),
        flip_probability=flip_probability(grids[1], grids[0], change),
    )  # fmt: skip


def attribution(before: Mapping[str, Any], after: Mapping[str, Any]) -> Attribution:
    """Shapley terms of the change in continuous dollars, one for each cause that changed.

    Every mix of old and new causes must itself be a machine that works. Where one is not (new weights on the old,
    smaller device), model, device and parallelism are taken as one cause; if that is not enough, all of them.
    """
    changed = [cause for cause, names in CAUSES.items() if any(before[name] != after[name] for name in names)]
    machine = [cause for cause in changed if cause in _MACHINE]
    others = [cause for cause in changed if cause not in _MACHINE]
    partitions = (
        {cause: (cause,) for cause in changed},
        {"model and device": tuple(machine), **{cause: (cause,) for cause in others}},
        {"all changes together": tuple(changed)},
    )
    for partition in partitions:
        try:
            return _attribute(before, after, partition)
        except TraceATensorError:
            continue
    raise AssertionError("both ends were evaluated before they were compared")


def _attribute(
    before: Mapping[str, Any], after: Mapping[str, Any], partition: Mapping[str, tuple[str, ...]]
) -> Attribution:
    groups = {name: [field for cause in causes for field in CAUSES[cause]] for name, causes in partition.items()}

    def packed(side: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {name: {field: side[field] for field in fields} for name, fields in groups.items()}

    def value(links: Mapping[str, dict[str, Any]]) -> float:
        mixed = dict(before)
        for fields in links.values():
            mixed.update(fields)
        return dollars(mixed)

    return attribute(packed(before), packed(after), list(groups), value)


def _moved(before: Journey, after: Journey) -> tuple[LinkChange, ...]:
    old, new = ({link.name: link for link in journey.links} for journey in (before, after))
    changes = []
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was is None or now is None or was.value != now.value:
            said = was or now
            assert said is not None
            old_value, new_value = (each.value if each else None for each in (was, now))
            changes.append(
                LinkChange(name=name, title=said.title, unit=said.unit, before=old_value, after=new_value)
            )
    return tuple(changes)


def _relative_band(nominal: float, before: Any, after: Any) -> Band:
    """Relative change over the grid; a point where the old option is broken tells nothing and is counted."""
    works = np.isfinite(before)
    found = band(nominal, after[works] / before[works] - 1)
    return Band(
        low=found.low, nominal=nominal, high=found.high, num_points=before.size,
        num_broken=found.num_broken + int(np.count_nonzero(~works)),
    )  # fmt: skip


def _signed(usd: float) -> str:
    return ("+" if usd > 0 else "") + format_usd(usd)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.6g}"
