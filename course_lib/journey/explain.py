"""The chain as text, rows and a page; all from the same link objects."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from course_lib.cost import Bill
from course_lib.journey.links import Link
from course_lib.journey.uncertainty import Band
from course_lib.units import format_bytes, format_quantity, format_seconds, format_usd

__all__ = ["Explanation", "format_link"]

_COLUMNS = ("link", "value", "basis", "binds", "formula", "source")
_THINGS = ("device", "parameter", "replica", "request", "sequence", "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Every link of a journey, ready to print or to show.

    Args:
        title: the model and the machine.
        links: the links, in order.
        bill: the invoice.
        band, billed_band: dollars over the range of efficiencies.
        time_shares: where the time between two tokens goes.
    """

    title: str
    links: tuple[Link, ...]
    bill: Bill
    band: Band
    billed_band: Band
    time_shares: tuple[tuple[str, float], ...]

    def headline(self) -> str:
        """Dollars, never without their band."""
        return (
            f"{self.title}: billed {format_usd(self.bill.billed_usd_per_month)} a month "
            f"({_range(self.billed_band)}), continuous {format_usd(self.bill.continuous_usd_per_month)} "
            f"({_range(self.band)}) over compute efficiency 0.4-0.7 and bandwidth efficiency 0.6-0.9"
        )

    def rows(self) -> tuple[tuple[str, ...], ...]:
        """(title, value, basis, binds, formula, source) of every link, as text."""
        return tuple(
            (link.title, format_link(link), link.basis, "binds" if link.binds else "", link.formula, link.source)
            for link in self.links
        )

    def text(self) -> str:
        """The headline, a table of the links, where the time goes, and the invoice."""
        rows = [row[:5] for row in (_COLUMNS, *self.rows())]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]).rstrip() for row in rows]
        time = ", ".join(f"{name} {share:.0%}" for name, share in self.time_shares if share)
        notes = [f"warning: {warning}" for warning in self.bill.warnings]
        parts = [self.headline(), "", *lines, "", f"time between two tokens: {time}", "", self.bill.table(), *notes]
        return "\n".join(parts)

    def html(self) -> str:
        """The same as a table for a page."""
        head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
        body = "".join(
            f'<tr class="{link.basis}{" binds" if link.binds else ""}" data-link="{link.name}">'
            + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for link, row in zip(self.links, self.rows())
        )  # fmt: skip
        return (
            f"<p>{escape(self.headline())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<pre>{escape(self.bill.table())}</pre>"
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()


def format_link(link: Link) -> str:
    """A link's value with its unit; counts are printed to the last digit.

    >>> format_link(Link(name="x", title="x", value=8_030_261_248, unit="parameter", formula="", basis="counted"))
    '8,030,261,248 parameters'
    """
    value, unit = link.value, link.unit
    if link.basis == "counted":
        return _counted(f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}", unit)
    if unit == "s":
        return format_seconds(value)
    if unit.startswith("USD"):
        return format_usd(value) + unit[3:]
    if unit == "B":
        return format_bytes(value)
    if unit in ("B/s", "FLOP", "FLOP/s"):
        return format_quantity(value, unit)
    number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
    return number if unit == "1" else _counted(number, unit)


def _counted(number: str, unit: str) -> str:
    """A number with its unit; things that are counted take the plural: 1 device, 8 replicas, 60 requests/s."""
    thing, slash, rest = unit.partition("/")
    many = "s" if thing in _THINGS and number != "1" else ""
    return f"{number} {thing}{many}{slash}{rest}"


def _range(band: Band) -> str:
    high = "unbounded: the promise breaks" if band.num_broken else format_usd(band.high)
    return f"{format_usd(band.low)} to {high}"
