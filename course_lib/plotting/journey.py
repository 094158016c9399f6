"""Figures of a journey: why a bill moved, what would move it, how sure that is, where the time goes.

They are drawn fast enough to follow a slider, and the same ones stand on the report, in the widget and in the lesson.
Each reads journeys and computes nothing of its own but places on the page; each carries its numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.errors import InvalidInputError
from course_lib.journey import BANDWIDTH_RANGE, COMPUTE_RANGE, Band, Journey, Sensitivity
from course_lib.journey.compare import ROUNDING, attribution
from course_lib.plotting import COLORS, Figure
from course_lib.plotting.svg import Scale, circle, drawing, line, rect, room, text, ticks
from course_lib.units import format_seconds, format_usd

__all__ = ["SIZE_NAMES", "change_bands", "time_shares_bar", "tornado", "waterfall", "what_moved_it"]

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

_ASSUMED = ("efficiency_compute", "efficiency_bandwidth", "fixed_seconds", "headroom_fraction", "hours_per_month")
_SHARE_COLORS = {
    "matmuls of decode": "compute", "KV reads": "memory", "prefill": "prefill", "fixed": "assumed",
    "all-reduces": "miss",
}  # fmt: skip
_WIDTH, _TOP = 860.0, 22.0
_GREY, _FAINT = "#555555", "#dddddd"


def what_moved_it(journey: Journey, base: Journey) -> tuple[Figure, tuple[str, float]]:
    """Waterfall from the base's invoice to this one, and its largest cause; the bars sum to the change."""
    terms = attribution(base.inputs, journey.inputs).terms
    start, end = base["billed_usd_per_month"], journey["billed_usd_per_month"]
    rest = end - start - sum(usd for _, usd in terms)
    return waterfall((*terms, (ROUNDING, rest)), start, end), max(
        terms, key=lambda term: abs(term[1]), default=("nothing", 0.0)
    )


def waterfall(terms: Sequence[tuple[str, float]], start: float, end: float) -> Figure:
    """From one invoice to another, one bar for each cause.

    Args:
        terms: (cause, dollars a month); they sum to ``end - start``.
        start: the invoice of the base.
        end: the invoice now.
    """
    bars = [("invoice of the base", 0.0, start)]
    for name, usd in terms:
        bars.append((name, bars[-1][2], bars[-1][2] + usd))
    bars.append(("invoice now", 0.0, end))
    causes = [term for term in terms if term[0] != ROUNDING]
    largest = max(causes, key=lambda term: abs(term[1]), default=("nothing", 0.0))[0]
    row = 34.0
    return Figure(
        svg=drawing(_WIDTH, _TOP + row * len(bars) + 20, _steps(bars, row)),
        alt=f"A waterfall from an invoice of {format_usd(start)} to {format_usd(end)}: "
        + ", ".join(f"{name} {high - low:+,.0f}" for name, low, high in bars[1:-1]) + " dollars a month.",
        caption=f"Why the invoice moved by {_signed(end - start)}: the largest cause is {largest}. Shapley terms, no "
        "order of the changes is favoured; they sum to the change.",
        table=(("cause", "USD/month"), *((name, f"{high - low:+,.2f}") for name, low, high in bars)),
    )  # fmt: skip


def _steps(bars: Sequence[tuple[str, float, float]], row: float) -> list[str]:
    ends = [edge for _, low, high in bars for edge in (low, high)]
    left = room(name for name, _, _ in bars)
    x = Scale(low=min(0.0, *ends), high=max(ends), start=left, end=_WIDTH - 130)
    parts = []
    for index, (name, low, high) in enumerate(bars):
        total = index in (0, len(bars) - 1)
        y = _TOP + row * index
        fill = COLORS["cost"] if total else COLORS["memory"] if high >= low else COLORS["hit"]
        parts += [
            text(left - 10, y + 16, name, anchor="end"),
            rect(x(min(low, high)), y, max(1.5, abs(x(high) - x(low))), 22, fill=fill),
            text(max(x(low), x(high)) + 8, y + 16, format_usd(high) if total else _signed(high - low)),
        ]
        if not total:
            parts.append(line(x(low), y - row + 22, x(low), y, stroke=_GREY, dash="2 2"))
    return parts


def tornado(sensitivity: Sensitivity, count: int = 12) -> Figure:
    """Elasticities as bars to both sides: by how many percent dollars move when one number grows by 1 %.

    Args:
        sensitivity: of a journey.
        count: the largest so many are drawn; the table has all.
    """
    named = [(SIZE_NAMES.get(name, name.replace("_", " ")), value) for name, value in sensitivity.elasticities]
    assumed = [name in _ASSUMED for name, _ in sensitivity.elasticities[:count]]
    row, left = 26.0, room(name for name, _ in named[:count])
    height = _TOP + row * len(assumed) + 24
    most = max(1.0, *(abs(value) for _, value in named))
    x = Scale(low=-most, high=most, start=left + 60, end=_WIDTH - 70)
    parts = []
    for index, ((name, value), open_bar) in enumerate(zip(named, assumed)):
        y = _TOP + row * index
        ink = COLORS["memory"] if value > 0 else COLORS["hit"]
        look = {"fill": "#ffffff", "stroke": ink, "thick": 2, "dash": "4 3"} if open_bar else {"fill": ink}
        parts += [
            text(left - 10, y + 14, name, anchor="end"),
            rect(min(x(0), x(value)), y + 1, abs(x(value) - x(0)), 18, **look),
            text(x(value) + (6 if value > 0 else -6), y + 15, f"{value:+.2f}", anchor="start" if value > 0 else "end"),
        ]
    parts.append(line(x(0), _TOP - 6, x(0), height - 18, thick=1.5))
    name, value = named[0]
    return Figure(
        svg=drawing(_WIDTH, height, parts),
        alt="Bars of elasticity, largest first: " + ", ".join(f"{each} {v:+.2f}" for each, v in named[:count]) + ".",
        caption="Percent that continuous dollars move when a number grows by 1 %. "
        f"{name[:1].upper()}{name[1:]} leads with {value:+.2f}. A slope is local: a limit just ahead "
        "does not show in it. Dashed bars are assumptions, which calibration replaces.",
        table=(("number", "d ln $ / d ln x"), *((each, f"{v:+.3f}") for each, v in named)),
    )


def change_bands(changes: Sequence[tuple[str, Band]]) -> Figure:
    """Relative changes of the dollars as bands over the efficiencies, the value at the given ones as a mark.

    Args:
        changes: (what was changed, band of the relative change); infinite ends are drawn to the edge.

    Raises:
        InvalidInputError: no change given.
    """
    if not changes:
        raise InvalidInputError("a figure of bands has one band at least", given="none")
    ends = [each for _, band in changes for each in (band.low, band.nominal, band.high) if each < math.inf]
    left, row = room(name for name, _ in changes), 30.0
    height = _TOP + row * len(changes) + 46
    x = Scale(low=min(0.0, *ends), high=max(0.05, *ends), start=left + 12, end=_WIDTH - 180)
    said = "; ".join(f"{name} {_percent(b.nominal)} ({_percent(b.low)} to {_percent(b.high)})" for name, b in changes)
    parts = []
    for value in ticks(x.low, x.high):
        parts += [
            line(x(value), _TOP - 8, x(value), height - 46, stroke=_FAINT),
            text(x(value), height - 30, _percent(value) if value else "0%", anchor="middle", size=12),
        ]
    parts.append(line(x(0), _TOP - 8, x(0), height - 46, thick=1.5))
    for index, (name, band) in enumerate(changes):
        parts += _band(x, _TOP + row * index, left, name, band)
    parts.append(text((x.start + x.end) / 2, height - 10, "change of the continuous dollars", anchor="middle"))
    compute, bandwidth = (f"{low:g} to {high:g}" for low, high in (COMPUTE_RANGE, BANDWIDTH_RANGE))
    return Figure(
        svg=drawing(_WIDTH, height, parts),
        alt=f"Bands of the relative change of continuous dollars: {said}.",
        caption="Each change against the same journey: the dot at the given efficiencies, the bar over compute "
        f"efficiency {compute} and bandwidth efficiency {bandwidth}.",
        table=(
            ("option", "low", "given", "high"),
            *((name, _percent(b.low), _percent(b.nominal), _percent(b.high)) for name, b in changes),
        ),
    )


def _band(x: Scale, y: float, left: float, name: str, band: Band) -> list[str]:
    low, high = x(band.low), x.end + 8 if band.high == math.inf else x(band.high)
    ends = _percent(band.low), _percent(band.high)
    words = f"{_percent(band.nominal)}" + (f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else "")
    return [
        text(left - 2, y + 14, name, anchor="end"),
        rect(low, y + 5, max(2.0, high - low), 9, fill=COLORS["assumed"]),
        circle(x(band.nominal), y + 9.5, 6, fill=COLORS["cost"]),
        text(max(high, x(band.nominal), x(0)) + 10, y + 14, words, size=12),
    ]


def time_shares_bar(journey: Journey) -> Figure:
    """Where the time between two tokens goes, as one stacked bar."""
    shares = [(name, share) for name, share in journey.time_shares if share > 0]
    interval = float(journey["interval_seconds"])
    said = ", ".join(f"{name} {share:.0%}" for name, share in shares)
    x = Scale(low=0, high=1, start=10, end=_WIDTH - 10)
    parts, start, place = [], 0.0, x.start
    for name, share in shares:
        words = f"{name}, {format_seconds(share * interval)}"
        parts += [
            rect(x(start), 44, x(share) - x(0), 40, fill=COLORS[_SHARE_COLORS[name]], stroke="#ffffff", thick=2),
            rect(place, 14, 14, 14, fill=COLORS[_SHARE_COLORS[name]]), text(place + 20, 26, words),
        ]  # fmt: skip
        if share > 0.05:
            parts.append(text(x(start + share / 2), 69, f"{share:.0%}", anchor="middle", weight="bold"))
        start, place = start + share, place + 44 + room([words], most=math.inf) - 20
    return Figure(
        svg=drawing(max(_WIDTH, place), 96, parts),
        alt=f"One bar of the {format_seconds(interval)} between two tokens: {said}.",
        caption=f"The {format_seconds(interval)} between two tokens of a request: {said}.",
        table=(("part", "share", "time"), *((n, f"{s:.1%}", format_seconds(s * interval)) for n, s in shares)),
    )


def _signed(usd: float) -> str:
    return ("+" if usd > 0 else "") + format_usd(usd)


def _percent(value: float) -> str:
    return "no bound" if value == math.inf else f"{value:+.0%}"
