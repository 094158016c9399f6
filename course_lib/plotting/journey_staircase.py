"""The staircase: the invoice moves in whole replicas while a size, the load or the promise moves smoothly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from course_lib.errors import InvalidInputError, TraceATensorError
from course_lib.journey import Journey
from course_lib.plotting import COLORS, Figure
from course_lib.plotting.journey import SIZE_NAMES
from course_lib.plotting.svg import Scale, circle, drawing, line, path, rect, text, ticks
from course_lib.serving import ModelShape
from course_lib.units import format_seconds, format_usd

__all__ = ["Point", "along", "current", "next_step", "staircase", "sweep_values"]

_FEW = 12  # so few points are bars side by side: nothing lies between them
_STEPS = 32  # values of a sweep, about
_REAL = ("arrival_requests_per_second", "tpot_seconds")
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 92.0, 34.0, 30.0, 54.0
_GREY, _FAINT = "#555555", "#dddddd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The dollars of a month at one value of a size."""

    value: float
    num_replicas: float
    continuous_usd: float
    billed_usd: float
    num_replicas_billed: int


def current(journey: Journey, name: str) -> float:
    """The value of one size of the model, or of one number of the promise or the workload.

    >>> current(Journey(), "num_kv_heads"), current(Journey(), "tpot_seconds")
    (8.0, 0.05)
    """
    if name in ModelShape.__dataclass_fields__:
        return float(getattr(journey.shape, name))
    if name == "tpot_seconds" and journey.slo.tpot_seconds is None:
        raise InvalidInputError("a staircase over the promise needs one", given="no tpot_seconds")
    return float(journey["tpot_promise_seconds" if name == "tpot_seconds" else name])


def sweep_values(journey: Journey, name: str) -> tuple[float, ...]:
    """About 32 values from half to twice the present one, the present one among them; heads take their divisors.

    >>> sweep_values(Journey(), "num_kv_heads")
    (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    """
    now = current(journey, name)
    if name == "num_kv_heads" and isinstance(journey.model, ModelShape):
        heads = journey.model.num_heads
        return tuple(float(n) for n in range(1, heads + 1) if heads % n == 0)
    if name in _REAL:
        return tuple(now * (0.5 + 1.5 * index / 48) for index in range(49))
    step = max(1.0, round(1.5 * now / _STEPS))
    below = int(now / 2 // step)
    return tuple(now + step * index for index in range(-below, _STEPS - below + 1) if now + step * index >= 1)


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

    Found among the points, then by bisection between two of them: to the unit for a size, to a 6,000th for the rest.

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
    while high - low > (1 if whole else value / 6000):
        middle = (low + high) // 2 if whole else (low + high) / 2
        found = along(journey, name, (middle,))
        if not found:
            break  # heads must divide: the points themselves are the finest there are
        low, high = (low, middle) if found[0].billed_usd > now.billed_usd else (middle, high)
    return float(high)


def staircase(
    points: Sequence[Point], name: str, value: float, step: float | None = None, *, num_left_out: int = 0
) -> Figure:
    """Billed and continuous dollars against one size, with the present value marked.

    Args:
        points: from :func:`along`, smallest value first.
        name: of the size.
        value: the present one.
        step: where the invoice rises next, from :func:`next_step`.
        num_left_out: values that were tried and cannot be served.

    Raises:
        InvalidInputError: no point given.
    """
    if not points:
        raise InvalidInputError(f"a staircase over {name} has one possible value at least", given="none")
    words, height = SIZE_NAMES.get(name, name.replace("_", " ")), 330.0
    top = max(max(p.billed_usd, p.continuous_usd) for p in points) * 1.08
    y = Scale(low=0, high=top, start=height - _BOTTOM, end=_TOP)
    draw = _bars if len(points) <= _FEW else _curves
    now = min(points, key=lambda point: abs(point.value - value))
    ahead = f"The next step stands at {_text(name, step)}." if step else "No rise lies ahead in this range."
    if num_left_out:
        ahead += f" Left out, for they cannot be served: {num_left_out} of {num_left_out + len(points)} values."
    said = f"At {_text(name, now.value)} the invoice is {format_usd(now.billed_usd)}"
    rows = [(_text(name, p.value), f"{p.continuous_usd:,.0f}", f"{p.billed_usd:,.2f}") for p in points]
    return Figure(
        svg=drawing(_WIDTH, height, [*_grid(y, words, height), *draw(y, points, name, now)]),
        alt=f"A staircase: the invoice of a month against {words} from {rows[0][0]} to {rows[-1][0]} moves in steps of "
        f"whole replicas along a smooth line of continuous dollars. {said}. {ahead}",
        caption=f"Dollars a month against {words}. {said}, continuous {format_usd(now.continuous_usd)}. {ahead}",
        table=((words, "continuous USD/month", "invoice USD/month"), *rows),
    )


def _curves(y: Scale, points: Sequence[Point], name: str, now: Point) -> list[str]:
    x = Scale(low=points[0].value, high=points[-1].value, start=_LEFT, end=_WIDTH - _RIGHT)
    parts = []
    for value in ticks(x.low, x.high, 8):
        parts += [
            line(x(value), y(0), x(value), y(0) + 5, stroke=_GREY),
            text(x(value), y(0) + 20, _text(name, value), anchor="middle", size=12),
        ]
    return [
        *parts,
        path([(x(p.value), y(p.continuous_usd)) for p in points], stroke=COLORS["compute"], thick=2),
        path([(x(at), y(usd)) for at, usd in _stairs(points)], stroke=COLORS["cost"], thick=3),
        line(x(now.value), y(0), x(now.value), _TOP, stroke=COLORS["memory"], dash="5 4"),
        circle(x(now.value), y(now.billed_usd), 6, fill=COLORS["cost"]),
        circle(x(now.value), y(now.continuous_usd), 5, fill=COLORS["compute"]),
        *_key("thick: the invoice (whole replicas and spares)", "thin: continuous dollars (what the load needs)"),
    ]  # fmt: skip


def _bars(y: Scale, points: Sequence[Point], name: str, now: Point) -> list[str]:
    """Two bars for each value; the present one stands in a dashed frame."""
    each = (_WIDTH - _RIGHT - _LEFT) / len(points)
    wide, parts = min(56.0, 0.36 * each), []
    for index, point in enumerate(points):
        middle = _LEFT + each * (index + 0.5)
        for usd, left, fill in (
            (point.billed_usd, middle - wide, COLORS["cost"]), (point.continuous_usd, middle, COLORS["compute"])
        ):  # fmt: skip
            parts.append(rect(left + 1, y(usd), wide - 2, y(0) - y(usd), fill=fill))
        parts.append(text(middle, y(0) + 20, _text(name, point.value), anchor="middle", size=12))
        if point is now:
            parts.append(
                rect(middle - wide - 6, _TOP, 2 * wide + 12, y(0) - _TOP, stroke=COLORS["memory"], dash="5 4")
            )
    return [
        *parts,
        *_key("left: the invoice (whole replicas and spares)", "right: continuous dollars (what the load needs)"),
    ]


def _key(invoice: str, continuous: str) -> list[str]:
    """Above the picture, where no curve runs."""
    return [
        text(_LEFT + 60, 16, invoice, size=12),
        text(_WIDTH - _RIGHT, 16, continuous, size=12, anchor="end", fill=COLORS["compute"]),
    ]


def _stairs(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Corners of the invoice's steps: each stands where the real number of replicas passes a whole one."""
    corners = [(points[0].value, points[0].billed_usd)]
    for a, b in pairwise(points):
        one = a.billed_usd / a.num_replicas_billed
        rising = b.num_replicas_billed > a.num_replicas_billed
        for count in range(abs(b.num_replicas_billed - a.num_replicas_billed)):
            whole = math.ceil(a.num_replicas) + count if rising else math.ceil(a.num_replicas) - 1 - count
            share = (whole - a.num_replicas) / (b.num_replicas - a.num_replicas or 1.0)
            at = a.value + min(1.0, max(0.0, share)) * (b.value - a.value)
            usd = corners[-1][1]
            corners += [(at, usd), (at, usd + one if rising else usd - one)]
        corners += [(b.value, corners[-1][1]), (b.value, b.billed_usd)]
    return corners


def _grid(y: Scale, words: str, height: float) -> list[str]:
    parts = []
    for value in ticks(y.low, y.high):
        parts += [
            line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), stroke=_FAINT),
            text(_LEFT - 8, y(value) + 4, f"${value:,.0f}", anchor="end", size=12),
        ]
    return [
        *parts, line(_LEFT, y(0), _WIDTH - _RIGHT, y(0), thick=1.5),
        text((_LEFT + _WIDTH - _RIGHT) / 2, height - 12, words, anchor="middle"),
        text(8, 16, "USD / month", size=12, fill=_GREY),
    ]  # fmt: skip


def _changed(journey: Journey, name: str, value: float) -> Journey:
    number = int(value) if float(value).is_integer() else value
    if isinstance(journey.model, ModelShape) and name in ModelShape.__dataclass_fields__:
        return journey if getattr(journey.model, name) == number else journey.with_shape(**{name: number})
    return journey.with_changes(**{name: number})


def _text(name: str, value: float) -> str:
    return format_seconds(value) if name.endswith("_seconds") else f"{value:,.6g}"
