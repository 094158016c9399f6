"""Figures of a trace: where the work is, operation by operation, and what the batch multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.plotting import COLORS, MARKERS, Figure, canvas

if TYPE_CHECKING:
    from course_lib.trace import Trace

__all__ = ["ACTIVATIONS", "network_trace", "scaling_figure", "work_figure", "work_rows"]

Row = tuple[str, int, int, int, int]

ACTIVATIONS = ("none", "relu", "tanh", "gelu", "silu")
"""Activations that :func:`network_trace` puts after each layer but the last."""


def network_trace(
    batch: int, widths: tuple[int, ...], *, activation: str = "relu", dtype: str = "fp32"
) -> Trace:
    """Run linear layers with biases forward on our own tensors, and return what they did.

    ``x (B, widths[0]) -> linear -> activation -> ... -> linear -> (B, widths[-1])``; the input needs no gradient.

    Args:
        batch: B, rows of the input.
        widths: sizes of the layers' inputs and of the last output; two or more.
        activation: one of :data:`ACTIVATIONS`, after every layer but the last.
        dtype: storage format of input, weights and biases.

    Raises:
        UnknownNameError: an activation that is not in :data:`ACTIVATIONS`.
        InvalidInputError: fewer than two widths, or a size below 1.

    >>> network_trace(32, (64, 128, 128, 10)).matmul_flops
    1654784
    """
    import numpy as np

    from course_lib import tensor
    from course_lib.trace import record

    if activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, ACTIVATIONS)
    if batch < 1 or len(widths) < 2 or min(widths) < 1:
        raise InvalidInputError("a network has a batch and two or more widths of at least 1", given=(batch, widths))
    rng = np.random.default_rng(0)
    layers = [tensor.Linear(n, m, rng=rng, dtype=dtype) for n, m in pairwise(widths)]
    x = tensor.Tensor(np.zeros((batch, widths[0])), dtype=dtype)  # the values do not change the count
    with record() as trace:
        for number, layer in enumerate(layers, start=1):
            x = layer(x)
            if activation != "none" and number < len(layers):
                x = getattr(tensor, activation)(x)
    return trace


def work_rows(trace: Trace) -> tuple[Row, ...]:
    """Each operation that moves or keeps something: name, FLOPs, bytes read, bytes written, bytes newly saved.

    A tensor that two operations save is one block of memory and counts at the first, parameters never, so the last
    column adds up to ``trace.saved_bytes``. Views are left out: they have no work.

    >>> work_rows(network_trace(2, (3, 5)))
    (('matmul 1', 60, 84, 40, 24), ('add 1', 10, 60, 40, 0))
    """
    rows: list[Row] = []
    occurrences: dict[str, int] = {}
    seen: set[int] = set()
    for event in trace.events:
        fresh = [number for number in dict.fromkeys(event.saved_storages) if number not in seen]
        seen.update(fresh)
        saved = sum(trace.storages[n].nbytes for n in fresh if trace.storages[n].kind != "parameter")
        if event.is_view and not saved:
            continue
        occurrences[event.op] = occurrences.get(event.op, 0) + 1
        work = event.work
        rows.append((f"{event.op} {occurrences[event.op]}", work.flops, work.bytes_read, work.bytes_written, saved))
    return tuple(rows)


def work_figure(trace: Trace) -> Figure:
    """Share of each operation in the FLOPs, the bytes moved and the bytes saved; the exact counts as a table.

    Args:
        trace: at most a few dozen operations, one bar group each.

    Raises:
        InvalidInputError: the trace holds no operation that moves or keeps a byte.
    """
    rows = work_rows(trace)
    if not rows:
        raise InvalidInputError("a figure of work needs at least one operation that is no view", given=repr(trace))
    series = (
        ("FLOPs", "compute", "", [row[1] for row in rows]),
        ("bytes moved", "memory", "", [row[2] + row[3] for row in rows]),
        ("bytes saved for backward", "memory", "////", [row[4] for row in rows]),
    )
    with canvas(
        alt=_work_words(trace, rows), xlabel="share of the total [%]", ylabel="operation, in order of execution",
        caption="Where the FLOPs are is not where the bytes are. Solid: counted work; hatched: kept memory.",
        height=1.4 + 0.42 * len(rows), table=_work_table(rows),
    ) as (axes, finish):  # fmt: skip
        for place, (label, meaning, hatch, values) in enumerate(series):
            heights = [at + 0.27 * (place - 1) for at in range(len(rows))]
            shares = [100 * value / max(sum(values), 1) for value in values]
            axes.barh(heights, shares, height=0.25, label=label, hatch=hatch, edgecolor=COLORS[meaning],
                      color="white" if hatch else COLORS[meaning])  # fmt: skip
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower right")
        return finish()


def _work_words(trace: Trace, rows: tuple[Row, ...]) -> str:
    most_flops = max(rows, key=lambda row: row[1])[0]
    most_moved = max(rows, key=lambda row: row[2] + row[3])[0]
    most_saved = max(rows, key=lambda row: row[4])[0]
    return (
        f"Bars for {len(rows)} operations, as shares of three totals. The largest part of the {trace.flops:,} FLOPs "
        f"is in {most_flops}, of the {trace.bytes_moved:,} bytes moved in {most_moved}, and of the "
        f"{trace.saved_bytes:,} bytes saved for backward in {most_saved}."
    )


def _work_table(rows: tuple[Row, ...]) -> tuple[tuple[str, ...], ...]:
    totals = [sum(column) for column in zip(*(row[1:] for row in rows))]
    cells = [(row[0], *(f"{count:,}" for count in row[1:])) for row in rows]
    header = ("operation", "FLOPs", "bytes read", "bytes written", "newly saved bytes")
    return (header, *cells, ("total", *(f"{total:,}" for total in totals)))


def scaling_figure(traces: Mapping[int, Trace]) -> Figure:
    """What grows with the batch: FLOPs, bytes moved, bytes saved and parameter bytes, relative to the smallest batch.

    Args:
        traces: traces of one program by batch; two or more.

    Raises:
        InvalidInputError: fewer than two batches, or a program without work, parameters or saved bytes.
    """
    batches = sorted(traces)
    if len(batches) < 2:
        raise InvalidInputError("scaling needs two batches or more", given=batches)
    counts = {
        "FLOPs": [traces[batch].flops for batch in batches],
        "bytes saved for backward": [traces[batch].saved_bytes for batch in batches],
        "bytes moved": [traces[batch].bytes_moved for batch in batches],
        "parameter bytes": [traces[batch].parameter_bytes for batch in batches],
    }
    if any(values[0] < 1 for values in counts.values()):
        raise InvalidInputError("growth needs counts above 0 at the smallest batch", given=batches[0])
    growth = {name: [value / values[0] for value in values] for name, values in counts.items()}
    words = ", ".join(f"{name} {values[-1]:.4g} times" for name, values in growth.items())
    rows = [(f"{batch:,}", *(f"{values[at]:,}" for values in counts.values())) for at, batch in enumerate(batches)]
    with canvas(
        alt=f"Growth from batch {batches[0]} to {batches[-1]}, on logarithmic axes: {words}.",
        caption="Counted, not fitted: work and kept activations follow the batch, weights stay, traffic lies between.",
        xlabel="batch [samples]", ylabel=f"growth since batch {batches[0]} [x]", table=(("batch", *counts), *rows),
    ) as (axes, finish):  # fmt: skip
        for name, style in _LINES.items():
            axes.plot(batches, growth[name], label=name, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.legend()
        return finish()


# Saved bytes often lie exactly on the line of the FLOPs: a larger hollow marker keeps both visible.
_LINES: dict[str, dict[str, Any]] = {
    "FLOPs": {"color": COLORS["compute"], "marker": MARKERS["compute"]},
    "bytes saved for backward": {
        "color": COLORS["memory"], "marker": MARKERS["memory"], "markersize": 11, "markerfacecolor": "none",
        "linestyle": "--",
    },
    "bytes moved": {"color": COLORS["memory"], "marker": MARKERS["memory"]},
    "parameter bytes": {"color": COLORS["hit"], "marker": MARKERS["hit"]},
}  # fmt: skip
