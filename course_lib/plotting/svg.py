"""Figures written as SVG by hand: a page that answers each move of a slider has no time for a plotting library.

Five primitives and a scale; the figures themselves stand in :mod:`course_lib.plotting.journey` and beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

__all__ = ["Scale", "circle", "drawing", "line", "path", "rect", "room", "text", "ticks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A straight line from values to points: ``low`` lands on ``start``, ``high`` on ``end``.

    >>> Scale(low=0, high=10, start=100, end=200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The point of a value."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them.

    >>> ticks(0, 38_000)
    (0.0, 10000.0, 20000.0, 30000.0)
    """
    rough = (high - low) / count or 1.0
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def room(words: Iterable[str], *, size: float = 13, most: float = 400) -> float:
    """Points that the longest of some words needs on the left of a picture, at most ``most``.

    >>> room(["layers", "key/value heads"])
    131.0
    """
    return min(most, 20 + 7.4 * max(len(each) for each in words) * size / 13)


def text(
    x: float, y: float, words: str, *, size: float = 13, anchor: str = "start", weight: str = "normal",
    fill: str = "#000000",
) -> str:  # fmt: skip
    """One line of words; ``anchor`` is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{fill}">{escape(words)}</text>'
    )


def rect(
    x: float, y: float, width: float, height: float, *, fill: str = "none", stroke: str = "none", thick: float = 1,
    dash: str = "",
) -> str:  # fmt: skip
    """A rectangle."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="{thick:g}"{dashed}/>'
    )


def line(
    x1: float, y1: float, x2: float, y2: float, *, stroke: str = "#000000", thick: float = 1, dash: str = ""
) -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
        f'stroke-width="{thick:g}"{dashed}/>'
    )


def path(points: Iterable[tuple[float, float]], *, stroke: str = "#000000", thick: float = 2) -> str:
    """A line through points."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{stroke}" stroke-width="{thick:g}"/>'


def circle(x: float, y: float, radius: float, *, fill: str) -> str:
    """A dot."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="#ffffff" stroke-width="1.5"/>'


def drawing(width: float, height: float, parts: Iterable[str]) -> str:
    """A whole picture on white."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="DejaVu Sans, Verdana, Arial, sans-serif">'
        + rect(0, 0, width, height, fill="#ffffff") + "".join(parts) + "</svg>"
    )  # fmt: skip
