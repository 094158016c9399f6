"""A table is rows first; text and HTML are made from the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Table"]

Cell = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Header, rows and notes.

    Args:
        header: column names with units.
        rows: cells; whole numbers stay whole numbers.
        notes: lines printed under the table.

    >>> print(Table(header=("op", "FLOPs"), rows=(("mm", 524288),), notes=("complete",)))
    op    FLOPs
    mm  524,288
    complete
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        cells = [self.header, *(tuple(_text(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.header))]
        numeric = [all(isinstance(row[column], int) for row in self.rows) for column in range(len(self.header))]
        lines = [_line(row, widths, numeric) for row in cells]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _text(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric)]
    return "  ".join(parts).rstrip()
