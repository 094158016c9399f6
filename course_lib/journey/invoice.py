"""The bill of a chain: the cost room's invoice, with every dollar that is a link taken from the link."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from course_lib.cost import Bill, FocusRow, bill
from course_lib.journey.links import Chain
from course_lib.units import HOUR, MILLION

__all__ = ["invoice"]

_DOLLARS = (
    "continuous_usd_per_month", "billed_usd_per_month", "usd_per_million_tokens", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
)  # fmt: skip
_ROUNDING = 1e-9


def invoice(chain: Chain, today: date) -> Bill:
    """The bill of one month.

    Args:
        chain: an evaluated chain.
        today: day from which the age of the price is counted.

    A chain whose dollar links were changed gets an adjustment row, so that the rows still sum to what is billed.
    """
    tariff, device = chain["tariff"], chain["device"]
    replicas, rate = chain["num_replicas"], chain["arrival_requests_per_second"]
    made = bill(
        tariff=tariff, num_replicas=replicas, num_devices_per_replica=chain["devices_per_replica"],
        num_spares=chain["num_spares"], hours_per_month=chain["hours"],
        input_tokens_per_second=rate * chain["prompt_tokens"], output_tokens_per_second=rate * chain["output_tokens"],
        prefill_time_fraction=chain["prefill_time_fraction"], tdp_watts=device.tdp_watts,
        busy_fraction=min(1.0, replicas * chain["headroom"] / chain["num_replicas_billed"]),
        warnings=tariff.warnings(today),
    )  # fmt: skip
    gap = chain["billed_usd_per_month"] - made.billed_usd_per_month
    exact = abs(gap) <= _ROUNDING * made.billed_usd_per_month
    rows = made.rows if exact else (*made.rows, _adjustment(gap, made.rows[0]))
    tokens = rate * (chain["prompt_tokens"] + chain["output_tokens"]) * chain["hours"] * HOUR
    dollars: dict[str, Any] = {name: float(chain[name]) for name in _DOLLARS}
    return replace(
        made, rows=rows, num_replicas_continuous=float(replicas), num_replicas_billed=chain["num_replicas_billed"],
        num_devices=chain["num_replicas_billed"] * chain["devices_per_replica"],
        continuous_usd_per_million_tokens=chain["continuous_usd_per_month"] / tokens * MILLION,
        **dollars,
    )  # fmt: skip


def _adjustment(usd: float, like: FocusRow) -> FocusRow:
    return replace(
        like, charge_description="changed formula", charge_category="Adjustment", pricing_quantity=0.0, billed_cost=usd,
        effective_cost=usd, list_cost=0.0, contracted_cost=usd,
    )  # fmt: skip
