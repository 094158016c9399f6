"""From a matrix dimension to the monthly bill: the page that answers each move of a slider, and its static twin.

``journey_view`` is the whole page as HTML, without a widget; ``bill_explorer`` puts controls beside the same page.
Everything shown is read from :class:`Journey`; nothing is computed here.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.errors import InvalidInputError
from course_lib.journey import Journey
from course_lib.plotting import Figure
from course_lib.plotting.journey import SIZE_NAMES, tornado, what_moved_it
from course_lib.plotting.journey_staircase import along, current, next_step, staircase, sweep_values
from course_lib.plotting.journey_strip import link_strip
from course_lib.serving import ModelShape
from course_lib.units import format_usd

__all__ = [
    "CHARTS", "Page", "bill_explorer", "invoice_html", "journey_view", "message_html", "question",
]  # fmt: skip

CHARTS = {"staircase": "staircase", "why it moved": "why", "what would move it": "tornado"}
"""Words on the buttons, and the name of each chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is shown of one setting.

    Args:
        strip: the twelve links.
        invoice: the invoice as HTML, in an element of class ``tt-invoice``.
        chart: the chosen chart, or None while a prediction is asked for.
        ask: the question, or the prediction beside the truth.
    """

    strip: Figure
    invoice: str
    chart: Figure | None
    ask: str

    def html(self) -> str:
        """The page, top to bottom."""
        chart = self.chart.to_html() if self.chart else ""
        shown = f"{self.strip.to_html()}{self.invoice}<p>{escape(self.ask)}</p>{chart}"
        return f'<div class="tt-journey mathjax_ignore">{shown}</div>'

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return f"Page({self.strip.caption!r})"


def journey_view(
    journey: Journey, base: Journey | None = None, *, chart: str = "staircase", size: str = "num_kv_heads",
    predicted: float | None = None, predict_first: bool = False,
) -> Page:  # fmt: skip
    """The page of one journey; the same for the widget, the notebook without widgets, and the tests.

    Args:
        journey: the setting to show.
        base: what it is compared with; itself when None.
        chart: ``"staircase"``, ``"why"`` or ``"tornado"``.
        size: the number on the staircase's axis.
        predicted: the reader's answer to :func:`question`, if given.
        predict_first: hide the chart until there is a prediction.

    >>> journey_view(Journey()).chart.caption[:48]
    'Dollars a month against key/value heads. At 8 th'
    """
    if chart not in CHARTS.values():
        raise InvalidInputError("a chart has a name", given=repr(chart), allowed=", ".join(CHARTS.values()))
    base = base or journey
    drawn, ask = None, question(chart, size)
    if predicted is not None or not predict_first:
        drawn, truth = _chart(journey, base, chart, size)
        ask = truth if predicted is None else f"You said {predicted:,.6g}. {truth}"
    return Page(strip=link_strip(journey, base), invoice=invoice_html(journey, base), chart=drawn, ask=ask)


def question(chart: str, size: str) -> str:
    """What to predict before a chart is shown.

    >>> question("staircase", "num_layers")
    'Predict first: the next value of layers at which the invoice rises.'
    """
    words = SIZE_NAMES.get(size, size)
    return {
        "staircase": f"Predict first: the next value of {words} at which the invoice rises.",
        "why": "Predict first: the dollars that the largest cause added to the invoice (negative if it saved).",
        "tornado": f"Predict first: by how many percent 1 % more {words} moves the dollars.",
    }[chart]


def invoice_html(journey: Journey, base: Journey) -> str:
    """The invoice: rows, total with its band, continuous dollars, price of tokens, energy; and the change."""
    bill = journey.bill
    continuous, billed = journey.bands("continuous_usd_per_month", "billed_usd_per_month")
    rows = "".join(
        f"<tr><td>{escape(row.charge_description)}</td><td>{row.pricing_quantity:,.0f} {escape(row.pricing_unit)}s"
        f"</td><td>${row.contracted_unit_price:,.2f}</td><td><b>${row.billed_cost:,.2f}</b></td></tr>"
        for row in bill.rows
    )
    change = bill.billed_usd_per_month - base.bill.billed_usd_per_month
    moved = bill.continuous_usd_per_month / base.bill.continuous_usd_per_month - 1
    energy = f", {bill.energy.kwh_per_month:,.0f} kWh (assumed load)" if bill.energy else ""
    words = [
        f"The invoice lies between {_range(billed)} over compute efficiency 0.4-0.7 and bandwidth efficiency 0.6-0.9.",
        f"Continuous: {format_usd(bill.continuous_usd_per_month)} for {bill.num_replicas_continuous:.2f} replicas "
        f"(between {_range(continuous)}); {bill.num_replicas_billed} replicas are rented.",
        f"Since the base: invoice {change:+,.2f} USD, continuous {moved:+.1%}.",
        f"A million output tokens cost {format_usd(bill.usd_per_million_output_tokens)}, of prompt "
        f"{format_usd(bill.usd_per_million_input_tokens)}{energy}.", *bill.warnings,
    ]  # fmt: skip
    return (
        f'<div class="tt-invoice" role="status" data-billed-usd="{bill.billed_usd_per_month:.2f}">'
        '<table style="border-collapse:collapse;margin:0.4em 0"><caption style="text-align:left;font-weight:bold">'
        "Invoice of a month</caption><thead><tr>"
        + "".join(f'<th scope="col">{name}</th>' for name in ("charge", "quantity", "unit price", "USD"))
        + f"</tr></thead><tbody>{rows}<tr><td><b>billed in the month</b></td><td></td><td></td>"
        f"<td><b>${bill.billed_usd_per_month:,.2f}</b></td></tr></tbody></table>"
        + "".join(f"<div>{escape(sentence)}</div>" for sentence in words) + "</div>"
    )  # fmt: skip


def message_html(message: str) -> str:
    """What stands in the invoice's place when there is none: the library's own words."""
    return f'<div class="tt-invoice tt-message" role="alert"><b>No invoice.</b> {escape(message)}</div>'


def bill_explorer(base: Journey | None = None, start: Journey | None = None) -> Any:
    """Sliders beside the page; without ipywidgets, or for a traced module that has no sizes to edit, the page alone.

    Args:
        base: what every setting is compared with; the flagship journey when None.
        start: the setting to begin with; the base when None.
    """
    base = base or Journey()
    start = start or base
    if importlib.util.find_spec("ipywidgets") is None or not isinstance(start.model, ModelShape):
        return journey_view(start, base)
    from course_lib.widgets.journey_controls import Explorer

    return Explorer(base, start).box


def _chart(journey: Journey, base: Journey, chart: str, size: str) -> tuple[Figure, str]:
    """A chart, and the answer to its question."""
    words = SIZE_NAMES.get(size, size)
    if chart == "staircase":
        value, tried = current(journey, size), sweep_values(journey, size)
        points = along(journey, size, tried)
        step = next_step(journey, size, points, value)
        truth = f"The invoice rises at {step:,.6g}." if step else f"It does not rise up to {points[-1].value:,.6g}."
        return staircase(points, size, value, step, num_left_out=len(tried) - len(points)), truth
    if chart == "why":
        figure, (cause, usd) = what_moved_it(journey, base)
        return figure, f"The largest cause is {cause}: {usd:+,.0f} USD a month."
    found = journey.sensitivity()
    slope = dict(found.elasticities).get(size)
    none = f"No neighbour with other {words} exists to take a slope."
    return tornado(found), none if slope is None else f"1 % more {words} moves the dollars by {slope:+.2f} %."


def _range(band: Any) -> str:
    high = "no end (at some efficiencies the promise breaks)" if band.num_broken else format_usd(band.high)
    return f"{format_usd(band.low)} and {high}"
