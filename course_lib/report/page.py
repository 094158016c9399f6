"""The report as one HTML file: no script, no request to anywhere, every link with its basis."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from course_lib.journey import Diff, format_link
from course_lib.report.figures import report_figures
from course_lib.report.limits import LIMITS
from course_lib.report.parts import cards, link_rows, paragraph, section, table
from course_lib.report.record import Report
from course_lib.report.sources import device_rows, price_rows
from course_lib.report.text import band_text, change_text, efficiencies, moved_links, percent_band, signed_usd
from course_lib.units import format_usd

__all__ = ["html_report"]

_BASES = (
    ("counted", "from the shape or from executed code, to the last digit"),
    ("computed", "by the formula beside it"),
    ("cited", "from the source beside it"),
    ("assumed", "by you or by a default; change it"),
)


def html_report(report: Report) -> str:
    """The page.

    Args:
        report: what to print.

    Returns:
        A complete HTML document.
    """
    figures = report_figures(report)
    sections = [
        _change(report, report.diff, figures) if report.diff is not None else "",
        _chain(report, figures),
        _invoice(report, figures),
        _options(report, figures),
        _ledger(report, figures),
        _validity(report),
        _sources(report),
        _again(report),
    ]
    css = (files("course_lib.report") / "style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.explanation.title)}: the bill</title><style>\n{css}</style></head>\n<body>"
        f"{_answer(report, figures)}\n<main>{''.join(sections)}</main>\n{_footer()}</body></html>\n"
    )


def _answer(report: Report, figures: dict[str, str]) -> str:
    said, bill = report.explanation, report.explanation.bill
    changed = f", with {report.change}" if report.change else ""
    big = [
        ("billed, a month", format_usd(bill.billed_usd_per_month), f"band {band_text(said.billed_band)}"),
        ("continuous, a month", format_usd(bill.continuous_usd_per_month), f"band {band_text(said.band)}"),
        ("a million tokens", format_usd(bill.usd_per_million_tokens),
         f"prompt {format_usd(bill.usd_per_million_input_tokens)}, output "
         f"{format_usd(bill.usd_per_million_output_tokens)}"),
        ("time between tokens", _value(report, "interval_seconds"),
         f"promised {_value(report, 'tpot_promise_seconds')}; a prompt stalls it for {_value(report, 'stall_seconds')} "
         "when not chunked"),
        ("time to first token", _value(report, "ttft_p50_seconds"),
         f"median; 99th percentile {_value(report, 'ttft_p99_seconds')}"),
        ("replicas", f"{bill.num_replicas_billed:,}",
         f"rented; {bill.num_replicas_continuous:.3g} needed, batch {_value(report, 'batch')}"),
    ]  # fmt: skip
    pages = (("chain", "chain"), ("invoice", "invoice"), ("options", "options"), ("assumptions", "assumptions"),
             ("validity", "validity"), ("sources", "sources"), ("again", "reproduce"))  # fmt: skip
    menu = " ".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in pages)
    warnings = "".join(paragraph(warning, "warning") for warning in report.warnings)
    band = f"Bands run over {efficiencies()}: they are assumed until you calibrate them."
    return (
        f"<header><h1>{escape(said.title + changed)}</h1>"
        f'{paragraph("What serving costs, and every number between the tensor and the bill.", "soft")}'
        f'<nav aria-label="Sections">{menu}</nav>{cards(big)}{paragraph(band, "soft")}{warnings}'
        f'<div class="strip">{figures["strip"]}</div></header>'
    )


def _value(report: Report, name: str) -> str:
    link = report.link(name)
    return format_link(link) if link else "nothing"


def _change(report: Report, diff: Diff, figures: dict[str, str]) -> str:
    terms = [(name, signed_usd(usd)) for name, usd in diff.attribution.terms]
    billed = [(name, signed_usd(usd)) for name, usd in diff.billed_attribution.terms]
    return section(
        "change", f"The change: {report.change}", paragraph(change_text(diff)), figures["waterfall"],
        '<div class="pair">',
        table("Why the continuous dollars moved (Shapley)", ("cause", "USD/month"), terms, numbers=(1,)),
        table("Why the billed dollars moved", ("cause", "USD/month"), billed, numbers=(1,)),
        "</div>",
        table("Links that moved", ("link", "before", "after", "change"), moved_links(report, diff), numbers=(1, 2, 3)),
    )  # fmt: skip


def _chain(report: Report, figures: dict[str, str]) -> str:
    key = "".join(f'<span class="basis {name}">{name}</span> {escape(words)}. ' for name, words in _BASES)
    stages = (f"<h3>{escape(title)}</h3>{link_rows(f'{title}: every link', links)}" for title, links in report.stages())
    return section(
        "chain", "The chain", f"<p>{key}A row marked <strong>binds</strong> keeps the bill from falling.</p>",
        figures["time"], *stages,
    )  # fmt: skip


def _invoice(report: Report, figures: dict[str, str]) -> str:
    bill = report.explanation.bill
    rows = [
        (row.charge_description, row.charge_category, f"{row.pricing_quantity:,.0f} {row.pricing_unit}s",
         format_usd(row.contracted_unit_price), format_usd(row.billed_cost), format_usd(row.effective_cost))
        for row in bill.rows
    ]  # fmt: skip
    rows.append(("billed in the month", "", "", "", format_usd(bill.billed_usd_per_month), ""))
    header = ("charge", "category", "quantity", "unit price", "billed", "effective")
    energy = ""
    if bill.energy is not None:
        joules = f"{bill.energy.joules_per_output_token:.3g} J an output token"
        energy = f"Energy (assumed: {bill.energy.assumptions}): {bill.energy.kwh_per_month:,.0f} kWh a month, {joules}."
    steps = "Billed dollars move in whole replicas: a change can cost nothing, or a machine."
    return section(
        "invoice", "The invoice", table("FOCUS columns, USD", header, rows, numbers=(2, 3, 4, 5)),
        paragraph(energy, "soft") if energy else "", paragraph(steps), figures["stairs"],
        figures.get("promise", ""),
    )  # fmt: skip


def _options(report: Report, figures: dict[str, str]) -> str:
    rows, refused = [], []
    for option in report.options:
        diff = option.diff
        if diff is None:
            refused.append(paragraph(f"{option.what}: not possible. {option.refused}", "soft"))
        else:
            rows.append(
                (option.what, f"{diff.relative:+.1%}", percent_band(diff.relative_band),
                 signed_usd(diff.billed_usd_per_month), f"{diff.flip_probability:.0%}")
            )  # fmt: skip
    header = ("option, each alone", "continuous", "band", "billed", "order flips")
    flips = (
        "Order flips: share of the efficiencies tried at which the other option is the cheaper one; a tie counts half. "
        "Weight-only formats save bytes and no arithmetic."
    )
    return section(
        "options", "What would move it",
        table("Options against this journey", header, rows, numbers=(1, 2, 3, 4)), *refused,
        paragraph(flips, "soft"),
        figures.get("options", ""), "<h3>What the bill depends on</h3>",
        figures["tornado"],
    )  # fmt: skip


def _ledger(report: Report, figures: dict[str, str]) -> str:
    rows = [
        (each.what, each.value, each.flag, each.other, "does not work" if each.relative is None else
         f"{each.relative:+.1%}", "" if each.journey is None else
         format_usd(each.journey.bill.billed_usd_per_month))
        for each in report.switches
    ]  # fmt: skip
    header = ("assumption", "now", "switch", "tried", "continuous", "billed")
    words = "Each is flipped alone. Efficiencies of 1 and no fixed time are the speed of light: a floor, no prediction."
    return section(
        "assumptions", "Assumptions and their switches", paragraph(words),
        table("The ledger of assumptions", header, rows, numbers=(1, 3, 4, 5)),
    )  # fmt: skip


def _validity(report: Report) -> str:
    checks = [(check.what, *check.texts(), check.source) for check in report.checks]
    limits = [(limit.what, limit.effect) for limit in LIMITS]
    return section(
        "validity", "How far to trust it",
        table("Published numbers, computed by the same functions when this page was made",
              ("quantity", "published", "computed", "residual", "source"), checks, numbers=(1, 2, 3)),
        "<h3>Known failures: what is not modelled</h3>",
        table("What is left out", ("left out", "the true bill"), limits),
    )  # fmt: skip


def _sources(report: Report) -> str:
    model = getattr(report.journey.model, "source", "") or "counted from the module you gave"
    header = ("number", "value", "as printed", "source", "kind", "date", "note")
    return section(
        "sources", "Sources", table("The price", header, price_rows(report.journey)),
        table(f"{report.journey.machine.title}; where texts disagree, the others follow", header,
              device_rows(report.journey)),
        paragraph(f"Model: {model}.", "soft"),
    )  # fmt: skip


def _again(report: Report) -> str:
    command = f"<pre>{escape(report.command)}</pre>" if report.command else ""
    code = "from course_lib.journey import Journey\nprint(Journey(model=..., device=...).explain())"
    return section(
        "again", "Make it again", command, paragraph("The same in Python; explain() prints this chain:"),
        f"<pre>{escape(code)}</pre>",
    )  # fmt: skip


def _footer() -> str:
    from importlib.metadata import version

    words = f"Trace a Tensor {version('trace-a-tensor')}. This page holds no script and asks nothing of any server."
    return f"<footer>{words}</footer>"
