"""The staircase: billed dollars move in whole replicas while a size or a promise moves smoothly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError, TraceATensorError
from course_lib.journey import Journey
from course_lib.plotting import COLORS, MARKERS, Figure, canvas
from course_lib.plotting.bill import SIZE_NAMES
from course_lib.plotting.journey import dollar_axis
from course_lib.serving.shape_record import ModelShape
from course_lib.units import format_usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["dollar_staircase", "staircase_values", "varied"]

_STEPS = 12  # points on each side of the current one
_FEW = ("num_kv_heads", "num_heads")  # only some values are possible


def staircase_values(journey: Journey, name: str) -> tuple[int | float, ...]:
    """Values to try on both sides of the current one: divisors for heads, whole steps for sizes, else a range.

    >>> staircase_values(Journey(), "num_kv_heads")
    (1, 2, 4, 8, 16, 32)
    """
    now = _current(journey, name)
    model = journey.model
    if name == "num_kv_heads" and isinstance(model, ModelShape):
        return tuple(k for k in range(1, model.num_heads + 1) if model.num_heads % k == 0)
    if isinstance(now, int):
        step = max(1, round(now / 16 / 64) * 64 if now >= 1024 else now // 16)
        low = max(1, now - _STEPS * step)
        return tuple(range(now - (now - low) // step * step, now + _STEPS * step + 1, step))
    return tuple(now * 2 ** (k / 8) for k in range(-_STEPS, _STEPS + 1))


def varied(journey: Journey, name: str, value: float) -> Journey:
    """The journey with one size of the model, or one of its own fields, set to a value."""
    if isinstance(journey.model, ModelShape) and name in {each.name for each in fields(ModelShape)}:
        return journey if getattr(journey.model, name) == value else journey.with_shape(**{name: value})
    return journey.with_changes(**{name: value})


def dollar_staircase(journey: Journey, name: str, values: Sequence[float] | None = None) -> Figure:
    """Billed dollars move in whole replicas, continuous ones do not; the journey's own point is marked.

    Args:
        journey: the current point.
        name: a size of the model or a field of the journey.
        values: what to try; :func:`staircase_values` by default. Impossible ones are left out and counted.

    Raises:
        InvalidInputError: no value works.
    """
    tried = staircase_values(journey, name) if values is None else tuple(values)
    points = [(value, found) for value in tried if (found := _attempt(journey, name, value)) is not None]
    if not points:
        raise InvalidInputError(f"a staircase over {name} has one possible value at least", given=str(tried))
    xs = [value for value, _ in points]
    billed = [found.bill.billed_usd_per_month for _, found in points]
    continuous = [found.bill.continuous_usd_per_month for _, found in points]
    now, bill = _current(journey, name), journey.bill
    left_out = f" {len(tried) - len(points)} values do not work and are left out." if len(points) < len(tried) else ""
    title = SIZE_NAMES.get(name, name.replace("_", " "))
    with canvas(
        alt=f"Dollars a month against {title} from {xs[0]:,.6g} to {xs[-1]:,.6g}. Billed dollars go from "
            f"{format_usd(billed[0])} to {format_usd(billed[-1])} in steps of whole replicas; continuous dollars from "
            f"{format_usd(continuous[0])} to {format_usd(continuous[-1])}. Now at {now:,.6g}: billed "
            f"{format_usd(bill.billed_usd_per_month)}, continuous {format_usd(bill.continuous_usd_per_month)}.",
        caption=f"Dollars against {title}: billed in whole replicas and spares, continuous as if a fraction could be "
                f"rented. The open ring is this journey.{left_out}",
        xlabel=f"{title} [{_unit(name)}]", ylabel="cost [USD / month]",
        table=(
            (name, "billed [USD/month]", "continuous [USD/month]"),
            *((f"{x:,.6g}", format_usd(b), format_usd(c)) for x, b, c in zip(xs, billed, continuous)),
        ),
    ) as (axes, finish):  # fmt: skip
        if name in _FEW:
            _bars(axes, xs, billed, continuous, xs.index(now) if now in xs else None)
        else:
            axes.step(xs, billed, where="mid", color=COLORS["cost"], label="billed")
            axes.plot(xs, billed, MARKERS["cost"], color=COLORS["cost"], markersize=4)
            axes.plot(xs, continuous, marker=MARKERS["decode"], color=COLORS["decode"], ms=5, label="continuous")
            for usd in (bill.billed_usd_per_month, bill.continuous_usd_per_month):
                _ring(axes, now, usd)
        dollar_axis(axes.yaxis)
        axes.set_ylim(bottom=0)
        axes.legend(loc="best")
        return finish()


def _bars(
    axes: Axes, xs: Sequence[float], billed: Sequence[float], continuous: Sequence[float], now: int | None
) -> None:
    """Few possible values, far apart: no line between them, so bars."""
    places = range(len(xs))
    axes.bar([place - 0.2 for place in places], billed, 0.38, color=COLORS["cost"], label="billed")
    axes.bar([place + 0.2 for place in places], continuous, 0.38, color=COLORS["decode"], hatch="//",
             edgecolor="white", label="continuous")  # fmt: skip
    axes.set_xticks(places, [f"{x:g}" for x in xs])
    if now is not None:
        _ring(axes, now - 0.2, billed[now])
        _ring(axes, now + 0.2, continuous[now])


def _ring(axes: Axes, x: float, usd: float) -> None:
    axes.plot([x], [usd], "o", markersize=13, markerfacecolor="none", markeredgecolor=COLORS["memory"], mew=2)


def _attempt(journey: Journey, name: str, value: float) -> Journey | None:
    try:
        return varied(journey, name, value)
    except TraceATensorError:
        return None


def _current(journey: Journey, name: str) -> int | float:
    for record in (journey.model, journey, journey.workload, journey.slo):
        if name in {each.name for each in fields(record)}:
            value = getattr(record, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
            break
    raise InvalidInputError("a staircase varies a number of the model or of the journey", given=repr(name))


def _unit(name: str) -> str:
    endings = {"_per_second": "1/s", "_seconds": "s", "_tokens": "token", "_bytes": "B", "_fraction": "1"}
    return next((unit for ending, unit in endings.items() if name.endswith(ending)), "1")
