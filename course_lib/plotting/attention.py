"""Figures of lesson 3.1: what a tile does to attention's traffic, and what traffic does to its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.errors import DoesNotFitError
from course_lib.hardware import Device, Roofline, roofline
from course_lib.optimization import (
    AttentionShape,
    break_even_block_q,
    flash_flops,
    flash_hbm_bytes,
    largest_block_q,
    standard_flops,
    standard_hbm_bytes,
    tile_bytes,
)
from course_lib.plotting import COLORS, MARKERS, Figure, canvas
from course_lib.trace.work import Work
from course_lib.units import MB, format_bytes, format_seconds

__all__ = ["AttentionTime", "attention_times", "times_figure", "traffic_figure"]

_ROWS = tuple(int(rows) for rows in 2 ** np.arange(3, 10))  # 8 to 512


def traffic_figure(
    shape: AttentionShape, *, block_k: int, itemsize: int = 2, sram_bytes: int | None = None,
    counted: Sequence[tuple[int, int]] = (), block_q: int | None = None,
) -> Figure:  # fmt: skip
    """Draw bytes moved by flash attention (fa2, forward) against its query tile, beside the standard algorithm.

    Args:
        shape: sizes; not causal.
        block_k: keys a tile.
        itemsize: bytes of an element.
        sram_bytes: on-chip memory; tiles that do not fit are shaded.
        counted: (query rows, bytes) of executed runs, drawn as filled points.
        block_q: one more tile to mark and to list, such as a slider's.

    >>> traffic_figure(AttentionShape(num_queries=4096, head_size=128), block_k=64).table[3][:3]
    ('32', '270.5 MB', '0.51')
    """
    standard = standard_hbm_bytes(shape, itemsize=itemsize)
    rows = sorted({*_ROWS, *(row for row, _ in counted), *([block_q] if block_q else [])})
    moved = [flash_hbm_bytes(shape, block_q=row, block_k=block_k, itemsize=itemsize) for row in rows]
    tie = break_even_block_q(shape.num_queries, shape.head_size)
    fits = [_fits(row, block_k, shape.head_size, itemsize, sram_bytes) for row in rows]
    with canvas(
        alt=f"Bytes moved against query rows a tile, both axes logarithmic. The flash line falls from "
        f"{format_bytes(moved[0])} at {rows[0]} rows to {format_bytes(moved[-1])} at {rows[-1]}; the standard "
        f"algorithm is a level line at {format_bytes(standard)}. They cross at {tie:.1f} rows. "
        + ("All these tiles fit." if all(fits) else "The tallest tiles are shaded: they do not fit on the chip."),
        caption=f"{shape.num_queries:,} queries and {shape.num_keys:,} keys of size {shape.head_size}, {itemsize} "
        "bytes an element. Lines: closed form." + (" Points: counted on the machine." if counted else ""),
        xlabel="query rows a tile [row]", ylabel="traffic of outer memory [MB]", height=3.8,
        table=_traffic_table(rows, moved, standard, fits, block_k, shape.head_size, itemsize),
    ) as (axes, finish):  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.plot(rows, [each / MB for each in moved], color=COLORS["memory"], label="flash attention")
        axes.axhline(standard / MB, color=COLORS["cost"], label="standard attention")
        axes.axvline(tie, color=COLORS["assumed"], linestyle=":", label=f"tie at {tie:.1f} rows")
        points = [(row, count / MB) for row, count in counted]
        if points:
            axes.plot(*zip(*points), MARKERS["memory"], color=COLORS["memory"], label="counted")
        if block_q:
            here = flash_hbm_bytes(shape, block_q=block_q, block_k=block_k, itemsize=itemsize) / MB
            axes.plot([block_q], [here], MARKERS["miss"], color=COLORS["miss"], markersize=9, label="your tile")
        if not all(fits):
            first = _first_unfit(sram_bytes or 0, block_k, shape.head_size, itemsize)
            label = f"no room from {first} rows on"
            axes.axvspan(max(first, rows[0]), rows[-1], color=COLORS["assumed"], alpha=0.25, label=label)
        axes.set_xticks(_ROWS, [str(row) for row in _ROWS])
        axes.legend(loc="lower left", fontsize=9)
        return finish()


def _fits(block_q: int, block_k: int, head_size: int, itemsize: int, sram_bytes: int | None) -> bool:
    needed = tile_bytes(block_q=block_q, block_k=block_k, head_size=head_size, itemsize=itemsize).total
    return sram_bytes is None or needed <= sram_bytes


def _first_unfit(sram_bytes: int, block_k: int, head_size: int, itemsize: int) -> int:
    try:
        return 1 + largest_block_q(sram_bytes, head_size=head_size, block_k=block_k, itemsize=itemsize)
    except DoesNotFitError:  # not even one row
        return 1


def _traffic_table(
    rows: Sequence[int], moved: Sequence[int], standard: int, fits: Sequence[bool], block_k: int, head_size: int,
    itemsize: int,
) -> tuple[tuple[str, ...], ...]:  # fmt: skip
    table = [("query rows", "bytes moved", "standard / flash", "on-chip bytes", "fits")]
    for row, each, fit in zip(rows, moved, fits):
        chip = tile_bytes(block_q=row, block_k=block_k, head_size=head_size, itemsize=itemsize).total
        table.append((str(row), f"{each / MB:.1f} MB", f"{standard / each:.2f}", f"{chip:,}", "yes" if fit else "no"))
    return tuple(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTime:
    """One way of attention on one machine.

    Args:
        device: its catalogue name.
        way: what ran, such as ``"standard"``.
        bounds: its roofline at full speed: lower bounds of the time, no prediction.
    """

    device: str
    way: str
    bounds: Roofline


def attention_times(
    shape: AttentionShape, machines: Sequence[Device], *, tiles: Sequence[int], block_k: int
) -> tuple[AttentionTime, ...]:
    """Roofline of the standard algorithm and of flash tiles on each machine (fp16, or fp32 where there is none).

    FLOPs are those of the matrix products; exponentials bind where the machine's rate is recorded.

    >>> from course_lib.hardware import device
    >>> shape = AttentionShape(num_queries=4096, head_size=128)
    >>> [round(each.bounds.seconds_floor * 1e6, 1) for each in
    ...  attention_times(shape, (device("h100-sxm"),), tiles=(256,), block_k=64)]
    [41.3, 10.6]
    """
    times = []
    for machine in machines:
        dtype = "fp16" if "fp16" in machine.formats else "fp32"
        itemsize = 2 if dtype == "fp16" else 4
        scores = shape.num_heads * shape.num_queries * shape.num_keys
        passes = -(-shape.num_keys // block_k)
        works = [("standard", standard_flops(shape), standard_hbm_bytes(shape, itemsize=itemsize), scores)]
        for rows in tiles:
            moved = flash_hbm_bytes(shape, block_q=rows, block_k=block_k, itemsize=itemsize)
            exponentials = scores + shape.num_heads * shape.num_queries * passes
            flops = flash_flops(shape, block_q=rows, block_k=block_k)
            works.append((f"flash, {rows} rows", flops, moved, exponentials))
        for way, flops, moved, exponentials in works:
            work = Work(flops, flops // 2, moved, 0, exponentials)
            times.append(AttentionTime(device=machine.name, way=way, bounds=roofline(work, machine, dtype)))
    return tuple(times)


def times_figure(times: Sequence[AttentionTime]) -> Figure:
    """Draw each time as a bar from "everything overlaps" to "nothing overlaps", at the machine's full speed."""
    table = [("machine", "way", "all overlap", "none overlaps", "binds", "ridge [FLOP/B]")]
    for each in times:
        low, high = format_seconds(each.bounds.seconds_lower), format_seconds(each.bounds.seconds_upper)
        table.append((each.device, each.way, low, high, each.bounds.bound, f"{each.bounds.ridge_point:.0f}"))
    words = "; ".join(f"{row[1]} on {row[0]} {row[2]} to {row[3]}, {row[4]}-bound" for row in table[1:])
    with canvas(
        alt=f"Bars of least time, logarithmic: {words}.",
        caption="Speed of light, not a prediction: left end all engines overlap, right end none does. Colour and "
        "marker: what binds.",
        xlabel="time [ms]", ylabel="", height=0.34 * len(times) + 1.2, table=tuple(table),
    ) as (axes, finish):  # fmt: skip
        axes.set_xscale("log")
        colors = {"memory": "memory", "compute": "compute", "transcendental": "prefill"}
        for height, each in enumerate(times):
            name = colors[each.bounds.bound]
            left, right = each.bounds.seconds_lower * 1e3, each.bounds.seconds_upper * 1e3
            axes.barh(height, right - left, left=left, height=0.55, color=COLORS[name], alpha=0.35)
            axes.plot([left], [height], MARKERS[name], color=COLORS[name])
        for bound in dict.fromkeys(each.bounds.bound for each in times):
            axes.plot([], [], MARKERS[colors[bound]], color=COLORS[colors[bound]], label=f"{bound} binds")
        axes.set_yticks(range(len(times)), [f"{each.device}: {each.way}" for each in times], fontsize=9)
        axes.set_xlim(min(each.bounds.seconds_lower for each in times) * 700, None)
        axes.invert_yaxis()
        axes.legend(loc="upper right", fontsize=9)
        return finish()
