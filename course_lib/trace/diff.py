"""The difference of two traces, by phase, module and operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.trace.events import TraceEvent
from course_lib.trace.table import Table
from course_lib.trace.work import Work

__all__ = ["DiffRow", "TraceDiff", "trace_diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """Work of one kind of operation before and after.

    Args:
        phase: "forward", "backward" or "update".
        module: dotted module path.
        op: name of the operation.
        calls_before: number of events in the older trace.
        calls_after: number of events in the newer trace.
        before: work in the older trace.
        after: work in the newer trace.
    """

    phase: str
    module: str
    op: str
    calls_before: int
    calls_after: int
    before: Work
    after: Work

    @property
    def flops(self) -> int:
        """Change of FLOPs (after minus before)."""
        return self.after.flops - self.before.flops

    @property
    def bytes_moved(self) -> int:
        """Change of bytes moved."""
        return self.after.bytes_moved - self.before.bytes_moved


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDiff:
    """Rows that changed, and the totals of both traces.

    Args:
        rows: changed kinds of operations, largest change of FLOPs first.
        before: total work of the older trace.
        after: total work of the newer trace.
    """

    rows: tuple[DiffRow, ...]
    before: Work
    after: Work

    @property
    def flops(self) -> int:
        """Change of all FLOPs; equals the sum over the rows."""
        return self.after.flops - self.before.flops

    @property
    def bytes_moved(self) -> int:
        """Change of all bytes moved; equals the sum over the rows."""
        return self.after.bytes_moved - self.before.bytes_moved

    def table(self) -> Table:
        """The rows and their sum, as text, rows and HTML."""
        rows = tuple(
            (row.phase, row.module, row.op, row.calls_after - row.calls_before, row.flops, row.bytes_moved)
            for row in self.rows
        )
        total = ("total", "", "", sum(row[3] for row in rows), self.flops, self.bytes_moved)
        return Table(header=("phase", "module", "op", "calls", "FLOPs", "bytes moved"), rows=(*rows, total))

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


_Groups = dict[tuple[str, str, str], list[Work]]


def _groups(events: Iterable[TraceEvent]) -> _Groups:
    groups: _Groups = {}
    for event in events:
        if not event.is_view:
            groups.setdefault((event.phase, event.module, event.op), []).append(event.work)
    return groups


def trace_diff(after: Iterable[TraceEvent], before: Iterable[TraceEvent]) -> TraceDiff:
    """Match operations by phase, module and name; keep those whose calls or work changed."""
    new, old = _groups(after), _groups(before)
    rows = []
    for key in dict.fromkeys((*old, *new)):
        works_before, works_after = old.get(key, []), new.get(key, [])
        row = DiffRow(
            phase=key[0], module=key[1], op=key[2], calls_before=len(works_before), calls_after=len(works_after),
            before=Work.total(works_before), after=Work.total(works_after),
        )  # fmt: skip
        if row.before != row.after or row.calls_before != row.calls_after:
            rows.append(row)
    rows.sort(key=lambda row: (-abs(row.flops), -abs(row.bytes_moved), row.phase, row.module, row.op))
    return TraceDiff(
        rows=tuple(rows),
        before=Work.total(work for works in old.values() for work in works),
        after=Work.total(work for works in new.values() for work in works),
    )
