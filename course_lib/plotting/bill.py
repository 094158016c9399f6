"""Figures of a bill, drawn fast enough to follow a slider: the staircase, what moved it, what would move it.

They show what :mod:`course_lib.plotting.journey` shows, of the invoice and without a plotting library. Each reads
journeys and computes nothing of its own but places on the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from course_lib.errors import TraceATensorError
from course_lib.journey import Journey, Sensitivity
from course_lib.plotting import COLORS, Figure
from course_lib.plotting.svg import Scale, circle, drawing, line, path, rect, text, ticks
from course_lib.serving import ModelShape
from course_lib.units import format_usd

__all__ = ["SIZE_NAMES", "Point", "along", "next_step", "staircase", "tornado", "what_moved_it"]

SIZE_NAMES = {
    "feed_forward_size": "feed-forward size", "num_kv_heads": "key/value heads", "num_layers": "layers",
    "model_size": "model size", "vocab_size": "vocabulary", "num_heads": "query heads", "head_size": "head size",
    "arrival_requests_per_second": "requests per second", "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens", "tpot_seconds": "promised time between tokens",
    "efficiency_compute": "compute efficiency", "efficiency_bandwidth": "bandwidth efficiency",
    "headroom_fraction": "headroom fraction", "usd_per_hour": "price of a device hour",
    "hours_per_month": "hours in the month", "fixed_seconds": "fixed time of a step",
    "expert_feed_forward_size": "expert feed-forward size",
}  # fmt: skip
"""Words for the names of fields."""

_FEW = 12  # so few points are dots: nothing lies between them
_REAL = ("arrival_requests_per_second",)
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 92.0, 20.0, 22.0, 54.0
_GREY, _FAINT = "#555555", "#dddddd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The dollars of a month at one value of a size."""

    value: float
    num_replicas: float
    continuous_usd: float
    billed_usd: float
    num_replicas_billed: int


def along(journey: Journey, name: str, values: Iterable[float]) -> tuple[Point, ...]:
    """The journey at each value of one size or of one number of its workload; what cannot be served is left out.

    >>> [point.num_replicas_billed for point in along(Journey(), "num_kv_heads", (8, 16, 32))]
    [8, 10, 17]
    """
    points = []
    for value in values:
        try:
            at = _changed(journey, name, value)
        except TraceATensorError:
            continue
        points.append(
            Point(
                value=value, num_replicas=at["num_replicas"], continuous_usd=at["continuous_usd_per_month"],
                billed_usd=at["billed_usd_per_month"], num_replicas_billed=at["num_replicas_billed"],
            )
        )  # fmt: skip
    return tuple(points)


def next_step(journey: Journey, name: str, points: Sequence[Point], value: float) -> float | None:
    """The first value beyond ``value`` at which the invoice is higher than there, or None.

    Found among the points, then by bisection between two of them: to the unit for a size, to 0.01 for a rate.

    >>> values = (8192, 14336, 20480)
    >>> next_step(Journey(), "feed_forward_size", along(Journey(), "feed_forward_size", values), 14336)
    18190.0
    """
    ahead = [point for point in points if point.value > value]
    now = next((point for point in points if point.value == value), None)
    first = next((index for index, p in enumerate(ahead) if now and p.billed_usd > now.billed_usd), None)
    if first is None or now is None:
        return None
    low, high = (ahead[first - 1].value if first else value), ahead[first].value
    whole = float(value).is_integer() and name not in _REAL
    while high - low > (1 if whole else 0.01):
        middle = (low + high) // 2 if whole else (low + high) / 2
        found = along(journey, name, (middle,))
        if not found:
            break  # heads must divide: the points themselves are the finest there are
        low, high = (low, middle) if found[0].billed_usd > now.billed_usd else (middle, high)
    return float(high)


def staircase(points: Sequence[Point], name: str, value: float, step: float | None = None) -> Figure:
    """Billed and continuous dollars against one size, with the present value marked.

    Args:
        points: from :func:`along`, smallest value first.
        name: of the size.
        value: the present one.
        step: where the invoice rises next, from :func:`next_step`.
    """
    words, height = SIZE_NAMES.get(name, name), 330.0
    x = Scale(low=points[0].value, high=points[-1].value, start=_LEFT, end=_WIDTH - _RIGHT)
    top = max(max(p.billed_usd, p.continuous_usd) for p in points) * 1.08
    y = Scale(low=0, high=top, start=height - _BOTTOM, end=_TOP)
    parts, steps = _axes(x, y, words, height), [(x(at), y(usd)) for at, usd in _stairs(points)]
    if len(points) <= _FEW:
        parts += [circle(x(p.value), y(usd), 3, fill=_GREY) for p in points for usd in (p.billed_usd, p.continuous_usd)]
    parts += [
        path([(x(p.value), y(p.continuous_usd)) for p in points], stroke=COLORS["compute"], thick=2),
        path(steps, stroke=COLORS["cost"], thick=3),
    ]
    now = min(points, key=lambda point: abs(point.value - value))
    parts += [
        line(x(now.value), y(0), x(now.value), _TOP, stroke=COLORS["memory"], dash="5 4"),
        circle(x(now.value), y(now.billed_usd), 6, fill=COLORS["cost"]),
        circle(x(now.value), y(now.continuous_usd), 5, fill=COLORS["compute"]),
        text(_WIDTH - _RIGHT - 6, y(0) - 30, "thick: the invoice (whole replicas and spares)", size=12, anchor="end"),
        text(
            _WIDTH - _RIGHT - 6, y(0) - 12, "thin: continuous dollars (what the load needs)", size=12, anchor="end",
            fill=COLORS["compute"],
        ),
    ]
    ahead = f"The next step stands at {step:,.6g}." if step else "No step lies ahead in this range."
    said = f"At {now.value:,.6g} the invoice is {format_usd(now.billed_usd)}"
    rows = [(f"{p.value:,.6g}", f"{p.continuous_usd:,.0f}", f"{p.billed_usd:,.2f}") for p in points]
    return Figure(
        svg=drawing(_WIDTH, height, parts),
        alt=f"A staircase: the invoice of a month against {words} from {points[0].value:,.6g} to "
        f"{points[-1].value:,.6g} rises in steps of whole replicas over a smooth line of continuous dollars. "
        f"{said}. {ahead}",
        caption=f"Dollars a month against {words}. {said}, continuous {format_usd(now.continuous_usd)}. {ahead}",
        table=((words, "continuous USD/month", "invoice USD/month"), *rows),
    )


def what_moved_it(journey: Journey, base: Journey) -> tuple[Figure, tuple[str, float]]:
    """Waterfall from the base's invoice to this one, and its largest cause; the bars sum to the change."""
    from course_lib.journey.compare import ROUNDING, attribution

    terms = list(attribution(base.inputs, journey.inputs).terms)
    start, end = base["billed_usd_per_month"], journey["billed_usd_per_month"]
    rest = end - start - sum(usd for _, usd in terms)
    bars = [("invoice of the base", 0.0, start)]
    for name, usd in [*terms, (ROUNDING, rest)]:
        bars.append((name, bars[-1][2], bars[-1][2] + usd))
    bars.append(("invoice now", 0.0, end))
    row, left = 34.0, 230.0
    height = _TOP + row * len(bars) + 20
    ends = [edge for _, low, high in bars for edge in (low, high)]
    x = Scale(low=min(0.0, *ends), high=max(ends), start=left, end=_WIDTH - 130)
    parts = []
    for index, (name, low, high) in enumerate(bars):
        total = index in (0, len(bars) - 1)
        y = _TOP + row * index
        fill = COLORS["cost"] if total else COLORS["memory"] if high >= low else COLORS["hit"]
        signed = format_usd(high) if total else ("+" if high > low else "") + format_usd(high - low)
        parts += [
            text(left - 10, y + 16, name, anchor="end"),
            rect(x(min(low, high)), y, max(1.5, abs(x(high) - x(low))), 22, fill=fill),
            text(max(x(low), x(high)) + 8, y + 16, signed),
        ]
        if not total:
            parts.append(line(x(low), y - row + 22, x(low), y, stroke=_GREY, dash="2 2"))
    largest = max(terms, key=lambda term: abs(term[1]), default=("nothing", 0.0))
    change = ("+" if end > start else "") + format_usd(end - start)
    figure = Figure(
        svg=drawing(_WIDTH, height, parts),
        alt=f"A waterfall from an invoice of {format_usd(start)} to {format_usd(end)}: "
        + ", ".join(f"{name} {high - low:+,.0f}" for name, low, high in bars[1:-1]) + " dollars a month.",
        caption=f"Why the invoice moved by {change}: the largest cause is {largest[0]}. Shapley terms, no order of "
        "the changes is favoured; they sum to the change.",
        table=(("cause", "USD/month"), *((name, f"{high - low:+,.2f}") for name, low, high in bars)),
    )  # fmt: skip
    return figure, largest


def tornado(sensitivity: Sensitivity, count: int = 12) -> Figure:
    """Elasticities as bars to both sides: by how many percent dollars move when one number grows by 1 %."""
    found = sensitivity.elasticities[:count]
    row, left = 26.0, 240.0
    height = _TOP + row * len(found) + 24
    most = max(1.0, *(abs(value) for _, value in found))
    x = Scale(low=-most, high=most, start=left + 60, end=_WIDTH - 70)
    parts = []
    for index, (name, value) in enumerate(found):
        y = _TOP + row * index
        fill = COLORS["memory"] if value > 0 else COLORS["hit"]
        parts += [
            text(left - 10, y + 14, SIZE_NAMES.get(name, name), anchor="end"),
            rect(min(x(0), x(value)), y + 1, abs(x(value) - x(0)), 18, fill=fill),
            text(x(value) + (6 if value > 0 else -6), y + 15, f"{value:+.2f}", anchor="start" if value > 0 else "end"),
        ]
    parts.append(line(x(0), _TOP - 6, x(0), height - 18, thick=1.5))
    name, value = found[0]
    return Figure(
        svg=drawing(_WIDTH, height, parts),
        alt="Bars of elasticity, largest first: "
        + ", ".join(f"{SIZE_NAMES.get(each, each)} {size:+.2f}" for each, size in found) + ".",
        caption=f"Percent that continuous dollars move when a number grows by 1 %. {SIZE_NAMES.get(name, name)} leads "
        f"with {value:+.2f}. A slope is local: a limit just ahead does not show in it.",
        table=(("number", "d ln $ / d ln x"), *((SIZE_NAMES.get(each, each), f"{v:+.3f}") for each, v in found)),
    )  # fmt: skip


def _stairs(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Corners of the invoice's steps: each stands where the real number of replicas passes a whole one."""
    corners = [(points[0].value, points[0].billed_usd)]
    for a, b in pairwise(points):
        one = a.billed_usd / a.num_replicas_billed
        rising = b.num_replicas_billed > a.num_replicas_billed
        for count in range(abs(b.num_replicas_billed - a.num_replicas_billed) if len(points) > _FEW else 0):
            whole = math.ceil(a.num_replicas) + count if rising else math.ceil(a.num_replicas) - 1 - count
            share = (whole - a.num_replicas) / (b.num_replicas - a.num_replicas or 1.0)
            at = a.value + min(1.0, max(0.0, share)) * (b.value - a.value)
            usd = corners[-1][1]
            corners += [(at, usd), (at, usd + one if rising else usd - one)]
        corners += [(b.value, corners[-1][1]), (b.value, b.billed_usd)]
    return corners


def _axes(x: Scale, y: Scale, words: str, height: float) -> list[str]:
    parts = []
    for value in ticks(y.low, y.high):
        parts += [
            line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), stroke=_FAINT),
            text(_LEFT - 8, y(value) + 4, f"${value:,.0f}", anchor="end", size=12),
        ]
    for value in ticks(x.low, x.high, 8):
        parts += [
            line(x(value), height - _BOTTOM, x(value), height - _BOTTOM + 5, stroke=_GREY),
            text(x(value), height - _BOTTOM + 20, f"{value:,.6g}", anchor="middle", size=12),
        ]
    return [
        *parts, line(_LEFT, y(0), _WIDTH - _RIGHT, y(0), thick=1.5),
        text((_LEFT + _WIDTH) / 2, height - 12, words, anchor="middle"),
        text(8, _TOP - 6, "USD / month", size=12, fill=_GREY),
    ]  # fmt: skip


def _changed(journey: Journey, name: str, value: float) -> Journey:
    number = int(value) if float(value).is_integer() else value
    if isinstance(journey.model, ModelShape) and name in ModelShape.__dataclass_fields__:
        return journey if getattr(journey.model, name) == number else journey.with_shape(**{name: number})
    return journey.with_changes(**{name: number})
