"""Figures of the journey: the strip of links, why a bill moved, what it depends on, where the time goes.

Each figure is drawn from evaluated journeys and computes no dollar of its own; each carries its numbers as a table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError
from course_lib.journey import Band, Diff, Journey, Link, Sensitivity, format_link
from course_lib.plotting import COLORS, MARKERS, Figure, canvas
from course_lib.plotting.bill import SIZE_NAMES
from course_lib.units import format_seconds, format_usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "STRIP", "attribution_waterfall", "change_bands", "dollar_axis", "links_strip", "sensitivity_tornado",
    "time_shares_bar",
]  # fmt: skip

STRIP = (
    "num_parameters", "kv_bytes_per_token", "flops_per_token", "memory_batch", "step_seconds", "prefill_seconds",
    "interval_seconds", "batch", "requests_per_second", "num_replicas", "num_replicas_billed", "billed_usd_per_month",
)  # fmt: skip
"""Links of the strip; any other link that binds is put in at its place."""

_ASSUMED = ("efficiency_compute", "efficiency_bandwidth", "fixed_seconds", "headroom_fraction", "hours_per_month")
_ROW = 7  # boxes in a row of the strip
_SHARE_COLORS = {
    "matmuls of decode": ("compute", ""), "KV reads": ("memory", "//"), "prefill": ("prefill", "xx"),
    "fixed": ("assumed", ".."), "all-reduces": ("miss", "\\\\"),
}  # fmt: skip


def links_strip(journey: Journey) -> Figure:
    """The chain as a strip of boxes from tensor to dollars; links that bind have a thick frame and say so.

    Args:
        journey: the evaluated chain.
    """
    shown = [link for link in journey.links if link.name in STRIP or link.binds]
    rows = [shown[start : start + _ROW] for start in range(0, len(shown), _ROW)]
    binding = " and ".join(f"{link.title} ({format_link(link)})" for link in shown if link.binds)
    said = "; ".join(f"{link.title} {format_link(link)}" for link in shown)
    table = (("link", "value", "basis", "binds"), *_strip_rows(shown))
    with canvas(
        alt=f"Chain of {len(shown)} links from tensor to bill: {said}. What binds: {binding}.",
        caption=f"From the tensor to the bill, left to right. Thick frames bind: {binding}.",
        xlabel="", ylabel="", width=11.0, height=1.55 * len(rows), table=table,
    ) as (axes, finish):  # fmt: skip
        axes.set_axis_off()
        axes.set_xlim(0, _ROW)
        axes.set_ylim(-len(rows), 0)
        for row, links in enumerate(rows):
            for column, link in enumerate(links):
                _box(axes, column, -row, link, arrow=link is not shown[-1])
        return finish()


def _strip_rows(links: Sequence[Link]) -> list[tuple[str, ...]]:
    return [(link.title, format_link(link), link.basis, "binds" if link.binds else "") for link in links]


def _box(axes: Axes, column: int, top: int, link: Link, *, arrow: bool) -> None:
    from matplotlib.patches import Rectangle

    color = COLORS["memory"] if link.binds else COLORS["cost"] if "usd" in link.name else COLORS["compute"]
    face = "#fff1e6" if link.binds else "white"
    axes.add_patch(
        Rectangle((column + 0.05, top - 0.93), 0.83, 0.86, facecolor=face, edgecolor=color, lw=3 if link.binds else 1.2)
    )
    middle = column + 0.465
    title = "\n".join(textwrap.wrap(link.title, 17)[:3])
    value = "\n".join(textwrap.wrap(format_link(link), 15))
    axes.text(middle, top - 0.13, title, ha="center", va="top", fontsize=8, color="#333333")
    axes.text(middle, top - 0.66, value, ha="center", va="center", fontsize=9.5, weight="bold")
    if link.binds:
        axes.text(middle, top - 0.9, "binds", ha="center", va="bottom", fontsize=8, color=COLORS["memory"])
    if arrow:
        axes.annotate(
            "", (column + 1.04, top - 0.5), (column + 0.89, top - 0.5), arrowprops={"arrowstyle": "->", "lw": 1.2}
        )


def dollar_axis(axis: Any) -> None:
    """Label an axis in whole dollars."""
    axis.set_major_formatter(lambda value, _: f"${value:,.0f}")


def attribution_waterfall(diff: Diff) -> Figure:
    """From the dollars before to the dollars after, one bar for each cause (Shapley); the bars sum to the change.

    Raises:
        InvalidInputError: the continuous dollars did not move, so there is nothing to explain.
    """
    moved = next((link for link in diff.links if link.name == "continuous_usd_per_month"), None)
    if moved is None or moved.before is None or moved.after is None:
        raise InvalidInputError("a waterfall explains a change of the continuous dollars", given="no change")
    terms = diff.attribution.terms
    why = ", ".join(f"{name} {_signed(usd)}" for name, usd in terms)
    with canvas(
        alt=f"Waterfall of continuous dollars a month from {format_usd(moved.before)} to {format_usd(moved.after)}: "
            f"{why}.",
        caption=f"Why the bill moved by {_signed(diff.usd_per_month)} a month ({diff.relative:+.1%}): the parts are "
                "order-free (Shapley) and sum to the change.",
        xlabel="continuous cost [USD / month]", ylabel="", height=1.2 + 0.5 * (len(terms) + 2),
        table=(
            ("cause", "USD/month"), ("before", format_usd(moved.before)),
            *((name, _signed(usd)) for name, usd in terms), ("after", format_usd(moved.after)),
        ),
    ) as (axes, finish):  # fmt: skip
        labels = ["before", *(name for name, _ in terms), "after"]
        axes.barh(0, moved.before, color=COLORS["assumed"])
        total = moved.before
        for row, (_, usd) in enumerate(terms, 1):
            color, hatch = (COLORS["memory"], "") if usd > 0 else (COLORS["hit"], "//")
            axes.barh(row, usd, left=total, color=color, hatch=hatch, edgecolor="white")
            end = max(total, total + usd)
            axes.annotate(_signed(usd), (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=10)
            total += usd
        axes.barh(len(labels) - 1, moved.after, color=COLORS["cost"])
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.set_xlim(left=0)
        dollar_axis(axes.xaxis)
        return finish()


def sensitivity_tornado(sensitivity: Sensitivity, *, num_bars: int = 12) -> Figure:
    """Elasticities, largest first: how many percent of dollars one percent more of each number costs.

    Args:
        sensitivity: of a journey.
        num_bars: the largest so many are drawn; the table has all.
    """
    shown = sensitivity.elasticities[:num_bars]
    first, slope = SIZE_NAMES.get(shown[0][0], shown[0][0]), shown[0][1]
    with canvas(
        alt=f"Bars of the elasticity of continuous dollars to {len(shown)} numbers, largest first: "
            + ", ".join(f"{name} {value:+.2f}" for name, value in shown) + ".",
        caption=f"1 % more of each changes the continuous dollars by so many percent (largest: {first}, {slope:+.2f}). "
                "Hatched grey: assumptions, which calibration replaces.",
        xlabel="elasticity, d ln USD / d ln x [1]", ylabel="", width=8.0, height=1.0 + 0.34 * len(shown),
        table=(("number", "elasticity"), *((name, f"{value:+.3f}") for name, value in sensitivity.elasticities)),
    ) as (axes, finish):  # fmt: skip
        for row, (name, value) in enumerate(shown):
            assumed = name in _ASSUMED
            color = COLORS["assumed"] if assumed else COLORS["compute"]
            axes.barh(row, value, color=color, hatch="//" if assumed else "", edgecolor="white")
        axes.axvline(0, color="black", lw=1)
        axes.set_yticks(range(len(shown)), [SIZE_NAMES.get(name, name) for name, _ in shown])
        axes.invert_yaxis()
        return finish()


def change_bands(changes: Sequence[tuple[str, Band]]) -> Figure:
    """Relative changes of the dollars as bands over the efficiencies, the value at the given ones as a mark.

    Args:
        changes: (what was changed, band of the relative change); infinite ends are drawn to the edge.

    Raises:
        InvalidInputError: no change given.
    """
    if not changes:
        raise InvalidInputError("a figure of bands has one band at least", given="none")
    edge = max([1.0, *(band.high for _, band in changes if band.high < float("inf"))]) * 1.1
    said = "; ".join(f"{name} {_percent(b.nominal)} ({_percent(b.low)} to {_percent(b.high)})" for name, b in changes)
    with canvas(
        alt=f"Bands of the relative change of continuous dollars: {said}.",
        caption="Each option against this journey: the mark at the given efficiencies, the bar over compute efficiency "
                "0.4 to 0.7 and bandwidth efficiency 0.6 to 0.9.",
        xlabel="change of continuous cost [%]", ylabel="", height=1.1 + 0.4 * len(changes),
        table=(
            ("option", "low", "given", "high"),
            *((name, _percent(b.low), _percent(b.nominal), _percent(b.high)) for name, b in changes),
        ),
    ) as (axes, finish):  # fmt: skip
        for row, (_, band) in enumerate(changes):
            high = min(band.high, edge)
            axes.plot([100 * band.low, 100 * high], [row, row], color=COLORS["assumed"], lw=7, solid_capstyle="butt")
            axes.plot([100 * band.nominal], [row], MARKERS["cost"], color=COLORS["cost"], markersize=8)
        axes.axvline(0, color="black", lw=1)
        axes.set_yticks(range(len(changes)), [name for name, _ in changes])
        axes.invert_yaxis()
        return finish()


def time_shares_bar(journey: Journey) -> Figure:
    """Where the time between two tokens goes, as one stacked bar."""
    shares = [(name, share) for name, share in journey.time_shares if share > 0]
    interval = float(journey["interval_seconds"])
    said = ", ".join(f"{name} {share:.0%}" for name, share in shares)
    with canvas(
        alt=f"One bar of the {format_seconds(interval)} between two tokens: {said}.",
        caption=f"The {format_seconds(interval)} between two tokens of a request: {said}.",
        xlabel="time between two tokens [ms]", ylabel="", height=1.7,
        table=(("part", "share", "time"), *((n, f"{s:.1%}", format_seconds(s * interval)) for n, s in shares)),
    ) as (axes, finish):  # fmt: skip
        start = 0.0
        for name, share in shares:
            color, hatch = _SHARE_COLORS[name]
            width = 1e3 * share * interval
            axes.barh(0, width, left=start, color=COLORS[color], hatch=hatch, edgecolor="white", label=name)
            start += width
        axes.set_yticks([])
        axes.legend(ncols=len(shares), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
        return finish()


def _signed(usd: float) -> str:
    return ("+" if usd > 0 else "") + format_usd(usd)


def _percent(value: float) -> str:
    return "no bound" if value == float("inf") else f"{value:+.0%}"
