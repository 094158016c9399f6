"""Where the cited numbers of a journey were read, as rows."""

from __future__ import annotations

from course_lib.journey import Journey
from course_lib.sources import Citation
from course_lib.units import format_bytes, format_quantity

__all__ = ["Row", "device_rows", "price_rows"]

Row = tuple[str, str, str, str, str, str, str]


def price_rows(journey: Journey) -> list[Row]:
    """The tariff and its citation."""
    tariff = journey.inputs["tariff"]
    what = f"{tariff.device or 'any device'}, {tariff.provider or 'provider not named'}, {tariff.pricing}"
    value = f"${tariff.usd_per_hour:,.4g} an hour"
    if tariff.citation is None:
        return [(what, value, "", "given by the caller", "assumed", tariff.date, "")]
    return [_row(what, value, tariff.citation)]


def device_rows(journey: Journey) -> list[Row]:
    """Every number of the device that the chain may use, each followed by what other texts print for it."""
    machine, rows = journey.machine, []
    for name, value in machine.numbers().items():
        if name.startswith(("on_chip", "sparse")):
            continue
        rows.append(_row(name, _value(name, value), machine.citations[name]))
        rows += [_row(f"{name}, another text", "", other) for other in machine.alternatives.get(name, ())]
    return rows


def _row(name: str, value: str, cited: Citation) -> Row:
    return (name, value, cited.printed, cited.source, cited.kind, cited.date, cited.note)


def _value(name: str, value: float) -> str:
    if name == "memory_bytes":
        return format_bytes(value)
    for prefix, unit in (("peak_flops", "FLOP/s"), ("memory_bytes_per", "B/s"), ("link_bytes", "B/s")):
        if name.startswith(prefix):
            return format_quantity(value, unit)
    return f"{value:,.6g}"
