"""Figures of caches: the LRU stack of a few accesses, miss curves, the tile dial, misses by matrix size.

All numbers are counted by :mod:`course_lib.hardware`; this module only draws them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError
from course_lib.hardware import (
    CacheLevel,
    MissClasses,
    MissCurve,
    matmul_stream,
    miss_classes,
    miss_curve,
    stack_distances,
    transpose_stream,
)
from course_lib.plotting import COLORS, MARKERS, Figure, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "TileCurves", "lru_stack_figure", "miss_curve_figure", "size_sweep_figure", "tile_curves", "tile_dial_figure",
]  # fmt: skip

_SERIES = (("cost", "o"), ("memory", "s"), ("miss", "v"), ("hit", "^"), ("decode", "P"))


def lru_stack_figure(addresses: Sequence[int], *, num_lines: int, line_bytes: int) -> Figure:
    """The lines of a short stream, most recent on top, after each access; a cache holds the top ``num_lines``.

    An access hits exactly when its line stood above the cache's edge before it, that is when its stack distance is
    below ``num_lines``.

    Args:
        addresses: byte addresses in program order, at most 16.
        num_lines: lines of a fully associative LRU cache, 1 or more.
        line_bytes: line, a power of two [B].

    >>> lru_stack_figure([0, 64, 4], num_lines=2, line_bytes=64).table[-1]
    ('3', '4', '0', '1', 'hit', '0, 1')
    """
    if not 1 <= len(addresses) <= 16 or num_lines < 1:
        raise InvalidInputError("a stack of 1 to 16 accesses and a cache of 1 line or more", given=len(addresses))
    lines = [address // line_bytes for address in addresses]
    distances = stack_distances(lines).tolist()
    hits = [0 <= distance < num_lines for distance in distances]
    stacks = [list(dict.fromkeys(reversed(lines[: step + 1]))) for step in range(len(lines))]
    rows = tuple(
        (str(step + 1), str(address), str(line), str(distance) if distance >= 0 else "first touch",
         "hit" if hit else "miss", ", ".join(map(str, stack[:num_lines])))
        for step, (address, line, distance, hit, stack) in enumerate(zip(addresses, lines, distances, hits, stacks))
    )  # fmt: skip
    depth = max(map(len, stacks))
    with canvas(
        alt=f"A grid with one column for each of {len(lines)} accesses and the lines in order of last use from the "
        f"top. {sum(hits)} of {len(lines)} accesses find their line among the top {num_lines} and hit.",
        caption=f"The LRU stack. A cache of {num_lines} lines is everything above the dashed edge; move the edge, and "
        "the stack stays as it is.",
        xlabel="access [byte address]", ylabel="place in the stack [lines]", height=1.6 + 0.5 * max(depth, num_lines),
        table=(("access", "address", "line", "stack distance", "in the cache", "cache after it"), *rows),
    ) as (axes, finish):  # fmt: skip
        _draw_stack(axes, stacks, hits, num_lines)
        axes.set_xticks(range(len(addresses)), [str(address) for address in addresses])
        axes.set_yticks(range(1, max(depth, num_lines) + 1))
        axes.set_ylim(max(depth, num_lines) + 0.6, -0.4)
        axes.grid(False)
        return finish()


def _draw_stack(axes: Axes, stacks: list[list[int]], hits: list[bool], num_lines: int) -> None:
    for step, (stack, hit) in enumerate(zip(stacks, hits)):
        what = "hit" if hit else "miss"
        axes.plot([step - 0.27], [0.1], MARKERS[what], color=COLORS[what], markersize=8)
        axes.text(step - 0.1, 0.1, what, va="center", fontsize=10)
        for place, line in enumerate(stack, start=1):
            inside = place <= num_lines
            box = {"boxstyle": "round,pad=0.3", "facecolor": "white" if inside else "#eeeeee",
                   "edgecolor": COLORS["memory"] if inside else COLORS["assumed"]}  # fmt: skip
            ink = "black" if inside else "#777777"
            axes.text(step, place, f"line {line}", ha="center", va="center", fontsize=10, color=ink, bbox=box)
    edge = num_lines + 0.5
    axes.plot([-0.6, len(stacks) - 0.5], [edge, edge], "--", color=COLORS["memory"], linewidth=1.5)
    axes.text(len(stacks) - 0.45, edge, "edge of\nthe cache", va="center", fontsize=9)
    axes.set_xlim(-0.6, len(stacks) + 0.25)


def miss_curve_figure(curves: Mapping[str, MissCurve], *, num_lines: int) -> Figure:
    """Misses of every capacity for several programs, and the points at one capacity.

    Args:
        curves: name of a program -> its miss curve; at most five, in the order of the legend.
        num_lines: capacity that is marked, in lines.

    >>> scan = miss_curve([0, 64, 0, 64], line_bytes=64)
    >>> miss_curve_figure({"scan": scan}, num_lines=2).table[-1]
    ('scan', '2', '2')
    """
    if not 1 <= len(curves) <= len(_SERIES) or num_lines < 1:
        raise InvalidInputError("one to five curves and one line or more", given=f"{len(curves)}, {num_lines}")
    marked = {name: curve.misses(num_lines * curve.line_bytes) for name, curve in curves.items()}
    words = "; ".join(f"{name} {misses:,}" for name, misses in marked.items())
    rows = tuple((name, str(num_lines), f"{misses:,}") for name, misses in marked.items())
    with canvas(
        alt=f"Misses against capacity for {len(curves)} programs on logarithmic axes. All fall in steps. "
        f"At {num_lines} lines: {words}.",
        caption=f"Misses at every capacity, each curve from one pass over its addresses. Marked: {num_lines} lines.",
        xlabel="capacity [lines]", ylabel="misses [lines]", table=(("program", "lines", "misses"), *rows),
    ) as (axes, finish):  # fmt: skip
        for (name, curve), (meaning, marker) in zip(curves.items(), _SERIES):
            _draw_curve(axes, curve, color=COLORS[meaning])
            axes.plot([num_lines], [marked[name]], marker, color=COLORS[meaning], markersize=8, label=name)
        axes.axvline(num_lines, color=COLORS["assumed"], linewidth=0.8)
        _logarithmic(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return finish()


def _draw_curve(axes: Axes, curve: MissCurve, *, color: str, width: float = 1.8) -> None:
    capacities, misses = curve.steps()
    lines = [1, *(capacities[1:] // curve.line_bytes).tolist()]
    heights = [*misses.tolist(), int(misses[-1])]
    axes.step([*lines, 2 * lines[-1]], heights, where="post", color=color, linewidth=width)


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCurves:
    """Miss curves of a tiled matrix product for all its tiles.

    Args:
        n: rows and columns.
        line_elements: numbers in a line.
        curves: tile -> miss curve of its executed loops.
    """

    n: int
    line_elements: int
    curves: Mapping[int, MissCurve] = field(repr=False)

    def misses(self, tile: int, num_lines: int) -> int:
        """Misses with this tile in a cache of ``num_lines`` lines."""
        curve = self.curves[tile]
        return curve.misses(num_lines * curve.line_bytes)

    def bound(self, num_lines: int) -> float:
        """No order of loops moves fewer lines: ``max(3 n^2, 2 n^3/sqrt(S) - 2 S) / L``, S the cache in numbers.

        Counts loads and stores together; the misses of :meth:`misses` are loads only.
        Source: Smith, Lowery, Langou and van de Geijn, A tight I/O lower bound for matrix multiplication, 2019.
        """
        cells = num_lines * self.line_elements
        moved = 2 * self.n**3 / math.sqrt(cells) - 2 * cells
        return max(3 * self.n**2, moved) / self.line_elements


def tile_curves(n: int, *, element_bytes: int = 4, line_bytes: int = 64) -> TileCurves:
    """Execute the tiled product once for each tile that divides n and is whole lines wide, and keep its curve.

    >>> tile_curves(12, element_bytes=16).misses(4, 16)               # 2 * 12**3 / (4 * 4) + 12**2 / 4
    252
    """
    line_elements = line_bytes // element_bytes
    tiles = [tile for tile in range(line_elements, n + 1, line_elements) if n % tile == 0]
    if not tiles:
        raise InvalidInputError("n is a whole number of lines", given=f"n={n} with {line_elements} numbers in a line")
    return TileCurves(n=n, line_elements=line_elements, curves={
        tile: miss_curve(
            matmul_stream(n, tile=tile, element_bytes=element_bytes, line_bytes=line_bytes).addresses,
            line_bytes=line_bytes,
        ) for tile in tiles
    })  # fmt: skip


def tile_dial_figure(tiled: TileCurves, *, tile: int, num_lines: int) -> Figure:
    """One tile and one capacity: the point on the miss curve, among the curves of the other tiles and the bound.

    Args:
        tiled: curves of all tiles.
        tile: the chosen one.
        num_lines: the chosen capacity in lines, 1 or more.
    """
    if tile not in tiled.curves or num_lines < 1:
        raise InvalidInputError(
            "a tile of these curves, and a line or more", given=f"tile {tile}, {num_lines} lines",
            allowed=f"tiles {', '.join(map(str, tiled.curves))}",
        )  # fmt: skip
    here = {other: tiled.misses(other, num_lines) for other in tiled.curves}
    least = min(here.values())
    rows = tuple((str(other), str(num_lines), f"{misses:,}", f"{misses / least:.2f}") for other, misses in here.items())
    with canvas(
        alt=f"Misses against capacity for each tile of a product of {tiled.n} by {tiled.n} matrices. With tile {tile} "
        f"and {num_lines} lines there are {here[tile]:,} misses; the best tile here has {least:,}.",
        caption=f"n = {tiled.n}, tile {tile}, {num_lines} lines: {here[tile]:,} misses, {here[tile] / least:.2f} times "
        "the best tile at this capacity.",
        xlabel="capacity [lines]", ylabel="misses [lines]",
        table=(("tile", "lines", "misses", "times the best"), *rows),
    ) as (axes, finish):  # fmt: skip
        for other, curve in tiled.curves.items():
            chosen = other == tile
            _draw_curve(axes, curve, color=COLORS["miss" if chosen else "assumed"], width=2.4 if chosen else 1.0)
            _label_cliff(axes, curve, str(other), color=COLORS["miss"] if chosen else "black")
        _draw_bound(axes, tiled)
        axes.plot([num_lines], [here[tile]], MARKERS["miss"], color=COLORS["miss"], markersize=11, label=f"tile {tile}")
        axes.plot([], [], color=COLORS["assumed"], linewidth=1.0, label="other tiles")
        axes.axvline(num_lines, color=COLORS["assumed"], linewidth=0.8)
        _logarithmic(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return finish()


def _label_cliff(axes: Axes, curve: MissCurve, text: str, *, color: str) -> None:
    """Write the name where a curve falls most, as a ratio."""
    capacities, misses = curve.steps()
    falls = [before / after for before, after in pairwise(misses.tolist())]
    at = 1 + max(range(len(falls)), key=lambda i: falls[i]) if falls else 0
    place = (int(capacities[at]) / curve.line_bytes, math.sqrt(misses[max(at - 1, 0)] * misses[at]))
    axes.annotate(text, place, xytext=(3, 0), textcoords="offset points", fontsize=9, va="center", color=color)


def _draw_bound(axes: Axes, tiled: TileCurves) -> None:
    sizes = [2**exponent for exponent in range(13)]
    bounds = [tiled.bound(size) for size in sizes]
    axes.plot(sizes, bounds, "-", color=COLORS["cost"], linewidth=1.4, label="lower bound,\nany program")


def size_sweep_figure(sizes: Sequence[int], level: CacheLevel, *, element_bytes: int = 4) -> Figure:
    """Misses of a matrix transpose by its size, in a real cache and in a fully associative one of equal capacity.

    Args:
        sizes: rows and columns of the matrices.
        level: the cache.
        element_bytes: size of one number [B].

    >>> small = CacheLevel(name="L1", capacity_bytes=32768, line_bytes=64, ways=8)
    >>> size_sweep_figure([132, 128], small).table[1:]
    (('132', '2,178', '99', '0'), ('128', '2,048', '0', '15,360'))
    """
    if not sizes:
        raise InvalidInputError("one size or more", given="none")
    classes = [
        miss_classes(transpose_stream(n, element_bytes=element_bytes, line_bytes=level.line_bytes).addresses, level)
        for n in sizes
    ]
    worst = max(range(len(sizes)), key=lambda i: classes[i].total / classes[i].compulsory)
    times = classes[worst].total / classes[worst].compulsory
    rows = tuple(
        (str(n), *(f"{count:,}" for count in (found.compulsory, found.capacity, found.conflict)))
        for n, found in zip(sizes, classes)
    )
    with canvas(
        alt=f"Misses of a transpose, divided by the lines it touches, for matrix sizes {sizes[0]} to {sizes[-1]}. "
        f"Highest with {level.num_ways} ways: {times:.1f} at size {sizes[worst]}.",
        caption=f"The same transpose at {len(sizes)} sizes, {level.num_ways} ways against fully associative. "
        f"1.0 is the floor: each line fetched once. Peak {times:.1f} at n = {sizes[worst]}.",
        xlabel="n [rows and columns]", ylabel="misses per line touched", height=3.4,
        table=(("n", "compulsory", "capacity", "conflict"), *rows),
    ) as (axes, finish):  # fmt: skip
        _draw_sweep(axes, sizes, classes, level)
        return finish()


def _draw_sweep(axes: Axes, sizes: Sequence[int], classes: list[MissClasses], level: CacheLevel) -> None:
    real = [found.total / found.compulsory for found in classes]
    ideal = [(found.compulsory + found.capacity) / found.compulsory for found in classes]
    axes.vlines(sizes, 0, real, color=COLORS["miss"], linewidth=1.5)
    axes.plot(sizes, real, MARKERS["miss"], color=COLORS["miss"], markersize=8, label=f"{level.num_ways} ways")
    axes.plot(sizes, ideal, MARKERS["hit"], color=COLORS["hit"], markersize=6, label="fully associative")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
