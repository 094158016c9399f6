"""The timetable of a few requests: which row of the batch computes for whom, iteration by iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError
from course_lib.plotting import COLORS, Figure, canvas
from course_lib.serving import PagedKVCache, Policy, Request

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Timetable", "timetable", "timetable_figure"]

EMPTY, FINISHED = "", "-"
"""A row that computes nothing, and one that computes for a request that has already finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Rows of a batch over iterations.

    Args:
        policy: name of the policy.
        names: a letter for each request.
        cells: for each iteration, what each row computes: a request's letter, :data:`FINISHED` or :data:`EMPTY`.
            # (iterations, rows)
    """

    policy: str
    names: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...] = field(repr=False)

    @property
    def num_iterations(self) -> int:
        """Iterations until the last token."""
        return len(self.cells)

    @property
    def num_useful(self) -> int:
        """Cells that give a token to a request."""
        return sum(cell in self.names for row in self.cells for cell in row)

    @property
    def num_wasted(self) -> int:
        """Cells computed for a request that has finished."""
        return sum(cell == FINISHED for row in self.cells for cell in row)

    @property
    def num_empty(self) -> int:
        """Cells that compute nothing."""
        return sum(cell == EMPTY for row in self.cells for cell in row)


def timetable(arrivals: Sequence[int], lengths: Sequence[int], policy: Policy) -> Timetable:
    """Drive a policy's own scheduler one iteration a second and write down who is computed in which row.

    A request keeps its row; a new one takes the lowest free row. Which row it is changes no time.

    Args:
        arrivals: whole seconds, ascending, the first 0.
        lengths: output tokens; every prompt is one token, so that a request of n tokens takes n iterations.
        policy: who runs when.

    >>> from course_lib.serving import continuous_batching
    >>> timetable((0, 0, 1), (1, 3, 2), continuous_batching(2)).cells
    (('A', 'B'), ('C', 'B'), ('C', 'B'))
    """
    if len(arrivals) != len(lengths) or not 1 <= len(lengths) <= 26 or list(arrivals) != sorted(arrivals):
        raise InvalidInputError("1 to 26 requests with ascending arrivals", given=(tuple(arrivals), tuple(lengths)))
    names = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(lengths)])
    scheduler = policy.scheduler(PagedKVCache(sum(lengths) + len(lengths)))
    rows: list[str] = [EMPTY] * policy.num_slots
    cells: list[tuple[str, ...]] = []
    added = 0
    while added < len(lengths) or scheduler.num_unfinished:
        while added < len(lengths) and arrivals[added] <= len(cells):
            scheduler.add(Request(request_id=added, prompt_tokens=1, max_output_tokens=lengths[added]))
            added += 1
        step = scheduler.schedule()
        running = [names[chunk.request_id] for chunk in step.chunks]
        for name in running:
            if name not in rows:
                free = [place for place, who in enumerate(rows) if who not in running]
                rows[free[0]] = name
        idle = FINISHED if step.num_idle_rows else EMPTY
        cells.append(tuple(who if who in running else idle for who in rows))
        finished = [names[request_id] for request_id in scheduler.complete(step)]
        rows = [who if who in running and who not in finished else EMPTY for who in rows]
    return Timetable(policy=policy.name, names=names, cells=tuple(cells))


def timetable_figure(tables: Sequence[Timetable]) -> Figure:
    """Timetables under each other, on one clock: coloured cells give a token, hatched ones are thrown away.

    >>> from course_lib.serving import continuous_batching, static_batching
    >>> policies = static_batching(2), continuous_batching(2)
    >>> timetable_figure([timetable((0, 0, 1), (1, 3, 2), p) for p in policies]).table[1]
    ('static(2)', 'row 0', 'A', '-', '-', 'C', 'C')
    """
    if not tables:
        raise InvalidInputError("one timetable or more", given="none")
    span = max(table.num_iterations for table in tables)
    rows = tuple(
        (table.policy, f"row {place}", *(cell[place] for cell in table.cells), *[""] * (span - table.num_iterations))
        for table in tables
        for place in range(len(table.cells[0]))
    )
    words = "; ".join(
        f"{t.policy} takes {t.num_iterations} iterations and computes {t.num_wasted} cells for finished requests"
        for t in tables
    )
    with canvas(
        alt=f"Timetables of {len(tables[0].names)} requests. {words}.",
        caption="Who is computed in which row. A coloured cell is one token; a hatched cell is computed for a request "
        "that has finished, and thrown away; a blank one is not computed.",
        xlabel="time [iterations]", ylabel="", height=0.9 + 0.55 * (len(rows) + len(tables)),
        table=(("policy", "row", *(f"{i} to {i + 1}" for i in range(span))), *rows),
    ) as (axes, finish):  # fmt: skip
        ticks, labels, top = [], [], 0.0
        for table in tables:
            ticks += [top + place for place in range(len(table.cells[0]))]
            labels += [f"{table.policy}  row {place}" for place in range(len(table.cells[0]))]
            _draw_table(axes, table, top)
            top += len(table.cells[0]) + 0.6
        axes.set_yticks(ticks, labels)
        axes.set_ylim(top - 0.9, -0.7)
        axes.set_xlim(0, span)
        axes.set_xticks(range(span + 1))
        axes.grid(axis="y", visible=False)
        return finish()


_FILLS = ("prefill", "decode", "hit", "miss", "memory", "compute")


def _draw_table(axes: Axes, table: Timetable, top: float) -> None:
    for time, row in enumerate(table.cells):
        for place, cell in enumerate(row):
            if cell == EMPTY:
                continue
            wasted = cell == FINISHED
            color = "white" if wasted else COLORS[_FILLS[table.names.index(cell) % len(_FILLS)]]
            axes.barh(top + place, 1, left=time, height=0.82, color=color, edgecolor=COLORS["assumed"],
                      hatch="///" if wasted else "", linewidth=1)  # fmt: skip
            if not wasted:
                axes.text(time + 0.5, top + place, cell, ha="center", va="center", fontsize=12)
