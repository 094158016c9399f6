"""The report as text for a terminal, at most 100 columns wide: the answer first, then how it came about."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from course_lib.journey import BANDWIDTH_RANGE, COMPUTE_RANGE, Band, Diff, format_link
from course_lib.journey.links import Link
from course_lib.report.record import Report
from course_lib.units import format_usd

__all__ = [
    "WIDTH", "band_text", "change_text", "columns", "efficiencies", "moved_links", "percent_band", "signed_usd",
    "text_report",
]  # fmt: skip

WIDTH = 100
_FACTS = ("batch", "num_replicas_billed", "interval_seconds", "ttft_p50_seconds", "ttft_p99_seconds", "stall_seconds")
_KEY = (
    "  * binds: the bill falls only if this gives way.\n"
    "  counted from shapes or executed code, computed by a formula, cited from a source, or assumed."
)


def text_report(report: Report, *, formulas: bool = False, sensitivity: bool = False) -> str:
    """The whole report.

    Args:
        report: what to print.
        formulas: print each link's formula under it.
        sensitivity: print the elasticities too.

    >>> from course_lib.journey import Journey
    >>> from course_lib.report.record import journey_report
    >>> print(text_report(journey_report(Journey())).splitlines()[2])
      billed      $17,228 a month    band $15,074 to $23,688
    """
    parts = [_answer(report)]
    if report.diff is not None:
        parts.append(_change(report, report.diff))
    parts += [_chain(report, formulas=formulas), _time(report), _invoice(report), _options(report)]
    if sensitivity:
        parts.append("SENSITIVITY\n" + textwrap.indent(report.sensitivity.table(), "  "))
    if report.warnings:
        parts.append("\n".join(_wrapped(f"warning: {warning}") for warning in report.warnings))
    return "\n\n".join(parts)


def band_text(band: Band) -> str:
    """A band of dollars; a promise that breaks inside it is said.

    >>> band_text(Band(low=11330, nominal=13073, high=19593, num_points=49))
    '$11,330 to $19,593'
    """
    high = "no bound (the promise breaks)" if band.num_broken else format_usd(band.high)
    return f"{format_usd(band.low)} to {high}"


def percent_band(band: Band) -> str:
    """A band of relative changes."""
    return f"{band.low:+.0%} to " + ("no bound" if band.num_broken else f"{band.high:+.0%}")


def signed_usd(usd: float) -> str:
    """Dollars with their sign."""
    return ("+" if usd > 0 else "") + format_usd(usd)


def columns(rows: Sequence[Sequence[str]], *, right: Iterable[int] = (), indent: str = "  ") -> str:
    """Rows in aligned columns.

    >>> print(columns([("a", "1"), ("bb", "22")], right=(1,)))
      a    1
      bb  22
    """
    right = set(right)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        for row in rows
    )
    return "\n".join((indent + line).rstrip() for line in lines)


def _wrapped(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


def efficiencies() -> str:
    """The range of the bands, in words."""
    compute, bandwidth = (f"{low:g} to {high:g}" for low, high in (COMPUTE_RANGE, BANDWIDTH_RANGE))
    return f"compute efficiency {compute} and bandwidth efficiency {bandwidth}"


def _answer(report: Report) -> str:
    said, bill = report.explanation, report.explanation.bill
    changed = f", with {report.change}" if report.change else ""
    rows = [
        ("billed", f"{format_usd(bill.billed_usd_per_month)} a month", f"band {band_text(said.billed_band)}"),
        ("continuous", f"{format_usd(bill.continuous_usd_per_month)} a month", f"band {band_text(said.band)}"),
        ("tokens", f"{format_usd(bill.usd_per_million_tokens)} a million",
         f"prompt {format_usd(bill.usd_per_million_input_tokens)}, output "
         f"{format_usd(bill.usd_per_million_output_tokens)} (billed dollars)"),
    ]  # fmt: skip
    bands = _wrapped(f"Bands: {efficiencies()}, assumed until you calibrate them.")
    facts = [(link.title, format_link(link)) for name in _FACTS if (link := report.link(name))]
    return f"{said.title}{changed}\n\n{columns(rows)}\n{bands}\n\n{columns(facts)}"


def change_text(diff: Diff) -> str:
    """One sentence: the change with its band and the chance that the order of the options flips."""
    return (
        f"continuous {signed_usd(diff.usd_per_month)} a month ({diff.relative:+.1%}; "
        f"{percent_band(diff.relative_band)} over the efficiencies), billed {signed_usd(diff.billed_usd_per_month)}. "
        f"The cheaper option changes on {diff.flip_probability:.0%} of the efficiencies tried."
    )


def _change(report: Report, diff: Diff) -> str:
    why = columns([(name, signed_usd(usd)) for name, usd in diff.attribution.terms], right=(1,), indent="    ")
    rows = moved_links(report, diff)
    numbers = sum(2 + max((len(row[column]) for row in rows), default=0) for column in (1, 2, 3))
    moved = [(textwrap.shorten(title, WIDTH - 4 - numbers, placeholder=" ..."), *rest) for title, *rest in rows]
    table = columns(moved, right=(1, 2, 3), indent="    ") if moved else "    none"
    return (
        f"THE CHANGE  {report.change}\n{_wrapped(change_text(diff))}\n"
        f"  Why (Shapley: order-free, sums to the change; continuous dollars a month):\n{why or '    nothing moved'}\n"
        f"  Links that moved (before, after):\n{table}"
    )


def moved_links(report: Report, diff: Diff) -> list[tuple[str, str, str, str]]:
    """(title, before, after, relative change) of every link that the change moved, with units."""
    rows = []
    for moved in diff.links:
        link = report.link(moved.name)
        texts = [
            "none" if value is None else format_link(replace(link, value=value)) if link else f"{value:,.6g}"
            for value in (moved.before, moved.after)
        ]
        rows.append((moved.title, texts[0], texts[1], "" if moved.change is None else f"{moved.change:+.1%}"))
    return rows


def _chain(report: Report, *, formulas: bool) -> str:
    lines = ["THE CHAIN", _KEY]
    width = max(len(link.title) for link in report.explanation.links)
    for title, links in report.stages():
        lines += ["", f"  {title}"]
        for link in links:
            lines.append(_row(link, width))
            if formulas:
                lines.append(_wrapped(f"= {link.formula}" + (f"  [{link.source}]" if link.source else ""), " " * 8))
    return "\n".join(lines)


def _row(link: Link, width: int) -> str:
    mark = "*" if link.binds else " "
    return f"  {mark} {link.title:<{width}}  {format_link(link):<24} {link.basis}".rstrip()


def _time(report: Report) -> str:
    parts = report.explanation.time_shares
    shares = [(name, f"{share:.0%}", "#" * round(40 * share)) for name, share in parts if share]
    return f"WHERE THE TIME BETWEEN TWO TOKENS GOES\n{columns(shares, right=(1,))}"


def _invoice(report: Report) -> str:
    bill = report.explanation.bill
    lines = ["THE INVOICE OF A MONTH", textwrap.indent(bill.table(), "  ")]
    if bill.energy is not None:
        energy = f"energy {bill.energy.kwh_per_month:,.0f} kWh (assumed: {bill.energy.assumptions}); not on the invoice"
        lines.append(_wrapped(energy))
    return "\n".join(lines)


def _options(report: Report) -> str:
    rows = [("option, each alone", "continuous", "band", "billed", "flips")]
    refused = []
    for option in report.options:
        if option.diff is None:
            refused.append(_wrapped(f"{option.what}: not possible. {option.refused}"))
            continue
        diff = option.diff
        rows.append(
            (option.what, f"{diff.relative:+.1%}", percent_band(diff.relative_band),
             signed_usd(diff.billed_usd_per_month), f"{diff.flip_probability:.0%}")
        )  # fmt: skip
    note = "  flips: share of the efficiencies at which the order of the two is the other way (a tie is half)."
    return "\n".join(["WHAT WOULD MOVE IT", columns(rows, right=(1, 2, 3, 4)), *refused, note])
