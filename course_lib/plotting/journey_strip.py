"""The strip of links: twelve numbers from the shape to the invoice, with the one that binds marked."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.journey import Journey, Link, format_link
from course_lib.plotting import COLORS, Figure
from course_lib.plotting.svg import drawing, rect, text
from course_lib.units import format_seconds, format_usd

__all__ = ["STRIP", "Box", "boxes", "link_strip"]

_WIDTH, _HEIGHT, _GAP, _ACROSS = 140.0, 92.0, 4.0, 6
_STEP = ("compute_seconds", "weight_read_seconds")

STRIP = (
    ("num_parameters", "parameters"),
    ("flops_per_token", "FLOPs of a token"),
    ("kv_bytes_per_token", "KV of a token"),
    ("memory_batch", "fit in memory"),
    ("prefill_seconds", "one prefill"),
    ("matmul_seconds", "matmuls of a step"),
    ("kv_read_seconds", "KV reads of a step"),
    ("interval_seconds", "time between tokens"),
    ("batch", "batch"),
    ("requests_per_second", "load of one replica"),
    ("num_replicas", "replicas"),
    ("billed_usd_per_month", "invoice of a month"),
)
"""(link, words) of each box, in the order of the chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One box of the strip.

    Args:
        name: the link.
        title: its words.
        shown: its value with a unit.
        change: relative change since the base, None without a base.
        note: a second line, such as the limit it is held against.
        binds: this link keeps the bill from being smaller.
    """

    name: str
    title: str
    shown: str
    change: float | None
    note: str
    binds: bool


def boxes(journey: Journey, base: Journey | None = None) -> tuple[Box, ...]:
    """The boxes of a journey, each with its change since the base.

    >>> [box.name for box in boxes(Journey()) if box.binds]
    ['matmul_seconds', 'interval_seconds']
    """
    made, links = [], {link.name: link for link in journey.links}
    for name, title in STRIP:
        value = _value(journey, name)
        change = None if base is None else value / _value(base, name) - 1
        made.append(
            Box(
                name=name, title=title, shown=_shown(name, value, links.get(name)), change=change,
                note=_note(journey, name), binds=_binds(journey, name),
            )
        )  # fmt: skip
    return tuple(made)


def link_strip(journey: Journey, base: Journey | None = None) -> Figure:
    """The strip as a figure; a thick frame and the word BINDS mark what keeps the bill from falling."""
    made = boxes(journey, base)
    parts = []
    for index, box in enumerate(made):
        row, column = divmod(index, _ACROSS)
        parts += _draw(box, 3 + column * (_WIDTH + _GAP), 12 + row * (_HEIGHT + 16))
    binding = [box.title for box in made if box.binds]
    since = "" if base is None else " Changes are since the base."
    rows = [(box.title, box.shown, _percent(box.change), box.note, "binds" if box.binds else "") for box in made]
    return Figure(
        svg=drawing(_ACROSS * (_WIDTH + _GAP) + 4, 2 * _HEIGHT + 36, parts),
        alt="Twelve links from the shape to the invoice. "
        + "; ".join(f"{box.title} {box.shown} {_percent(box.change)}".strip() for box in made)
        + f". Binding: {', '.join(binding)}.",
        caption=f"{journey.shape.name} on {journey.machine.title}. Binding: {', '.join(binding)}.{since}",
        table=(("link", "value", "change", "note", "binds"), *rows),
    )  # fmt: skip


def _draw(box: Box, x: float, y: float) -> list[str]:
    middle = x + _WIDTH / 2
    parts = [
        rect(
            x, y, _WIDTH, _HEIGHT, fill="#fff4ec" if box.binds else "#f7f7f7",
            stroke=COLORS["memory"] if box.binds else "#bbbbbb", thick=3 if box.binds else 1,
        ),
        text(middle, y + 20, box.title, anchor="middle", size=12),
        text(middle, y + 43, box.shown, anchor="middle", size=_fitting(box.shown), weight="bold"),
        text(middle, y + 61, box.note, anchor="middle", size=11, fill="#555555"),
        text(middle, y + 80, _percent(box.change), anchor="middle", size=12, weight="bold", fill=_ink(box.change)),
    ]  # fmt: skip
    if box.binds:
        parts += [
            rect(middle - 27, y - 11, 54, 17, fill=COLORS["memory"]),
            text(middle, y + 2, "BINDS", anchor="middle", size=11, weight="bold", fill="#ffffff"),
        ]
    return parts


def _fitting(words: str) -> float:
    """The largest size, up to 16, at which bold words stay inside a box."""
    return min(16.0, (_WIDTH - 10) / (0.66 * len(words)))


def _value(journey: Journey, name: str) -> float:
    if name == "matmul_seconds":
        return max(float(journey[each]) for each in _STEP)
    return float(journey[name])


def _binds(journey: Journey, name: str) -> bool:
    binding = journey.binding
    return {
        "matmul_seconds": any(each in binding for each in _STEP),
        "interval_seconds": "tpot_promise_seconds" in binding,
        "prefill_seconds": "ttft_promise_seconds" in binding,
        "batch": "batch_limit" in binding,
        "num_replicas": "num_replicas_billed" in binding,
    }.get(name, name in binding)


def _note(journey: Journey, name: str) -> str:
    promise = journey.slo.tpot_seconds
    if name == "matmul_seconds":
        computes = journey["compute_seconds"] >= journey["weight_read_seconds"]
        return "wait for arithmetic" if computes else "wait for weights"
    if name == "interval_seconds":
        return f"promised {format_seconds(promise)}" if promise else "no promise"
    return {
        "batch": f"engine limit {journey['batch_limit']:,}",
        "num_replicas": f"{journey['num_replicas_billed']} rented",
        "billed_usd_per_month": f"continuous {format_usd(journey['continuous_usd_per_month'])}",
    }.get(name, "")  # fmt: skip


def _shown(name: str, value: float, link: Link | None) -> str:
    """As everywhere, but for what a box is too narrow for, and for the invoice, which goes to the cent."""
    if name == "billed_usd_per_month":
        return f"${value:,.2f}"
    if name in ("num_parameters", "flops_per_token"):
        return f"{value / 1e9:,.3f} G"
    return format_seconds(value) if link is None else format_link(link)


def _percent(change: float | None) -> str:
    if change is None:
        return ""
    return "as the base" if change == 0 else f"{change:+.1%}"


def _ink(change: float | None) -> str:
    return "#777777" if not change else "#000000"
