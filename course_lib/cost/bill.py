"""The bill of a month: integer replicas and continuous dollars, both printed, with FOCUS columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from course_lib.cost.energy import Energy, fleet_energy
from course_lib.cost.tariff import Tariff
from course_lib.errors import InvalidInputError
from course_lib.units import HOUR, MILLION, format_usd

__all__ = ["Bill", "FocusRow", "bill", "num_billed_replicas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusRow:
    """One line of the invoice, with the columns of the FinOps Open Cost and Usage Specification (FOCUS).

    ``billed_cost`` is what the invoice asks for in the month; ``effective_cost`` spreads an upfront payment
    over its term; ``list_cost`` is the public price; ``contracted_cost`` the agreed one. :meth:`columns` gives
    the specification's own column names.
    """

    charge_description: str
    pricing_quantity: float
    billed_cost: float
    effective_cost: float
    list_cost: float
    contracted_cost: float
    list_unit_price: float
    contracted_unit_price: float
    provider_name: str
    resource_type: str
    pricing_category: str
    charge_category: str = "Usage"
    commitment_discount_status: str = ""
    pricing_unit: str = "accelerator hour"
    billing_currency: str = "USD"
    service_category: str = "AI and Machine Learning"

    def columns(self) -> dict[str, str | float]:
        """The row under FOCUS column names (``BilledCost``, ``ChargeCategory``, ...)."""
        names = FocusRow.__dataclass_fields__
        return {"".join(part.capitalize() for part in name.split("_")): getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Dollars of one month, and what they buy.

    Args:
        continuous_usd_per_month: as if a fraction of a replica could be rented and no spare were kept.
        billed_usd_per_month: whole replicas and the spare ones, as an invoice asks for them.
        num_replicas_continuous, num_replicas_billed: the same two for replicas.
        num_devices: accelerators rented: billed replicas times devices per replica.
        usd_per_million_tokens: billed dollars over all tokens, prompt and output together.
        usd_per_million_input_tokens, usd_per_million_output_tokens: billed dollars split by the share of
            device time that each phase occupies (prefill and decode), over the tokens of that phase.
        rows: the lines of the invoice.
        energy: joules of the month, when the device's board power is known.
        warnings: what a reader should know about the tariff.
    """

    continuous_usd_per_month: float
    billed_usd_per_month: float
    num_replicas_continuous: float
    num_replicas_billed: int
    num_devices: int
    usd_per_million_tokens: float
    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    continuous_usd_per_million_tokens: float
    rows: tuple[FocusRow, ...]
    energy: Energy | None = None
    warnings: tuple[str, ...] = ()

    @property
    def effective_usd_per_month(self) -> float:
        """Sum of the rows' effective costs."""
        return math.fsum(row.effective_cost for row in self.rows)

    def table(self) -> str:
        """The invoice as text, one line a row.

        >>> print(bill(tariff=Tariff(usd_per_hour=2), num_replicas=1.5).table())
        serving replicas          1,460 accelerator hours      $2,920
        spare replicas              730 accelerator hours      $1,460
        billed in the month                                    $4,380
        """
        lines = [
            f"{row.charge_description:<22}{row.pricing_quantity:>9,.0f} {row.pricing_unit + 's':<20}"
            f"{format_usd(row.billed_cost):>10}"
            for row in self.rows
        ]
        total = f"{'billed in the month':<52}{format_usd(self.billed_usd_per_month):>10}"
        return "\n".join([*lines, total])


def num_billed_replicas(num_replicas: float, num_spares: int = 1, min_replicas: int = 1) -> int:
    """Whole replicas to rent: ``max(ceil(n), minimum) + spares``.

    A float that misses a whole number by rounding alone (1e-9) is taken as that number.

    >>> num_billed_replicas(6.07), num_billed_replicas(0.0), num_billed_replicas(7.0000000001)
    (8, 2, 8)
    """
    return max(math.ceil(num_replicas - 1e-9), min_replicas) + num_spares


def bill(
    *, tariff: Tariff, num_replicas: float, num_devices_per_replica: int = 1, num_spares: int = 1,
    hours_per_month: float = 730, input_tokens_per_second: float = 0.0, output_tokens_per_second: float = 0.0,
    prefill_time_fraction: float = 0.0, tdp_watts: float | None = None, busy_fraction: float | None = None,
    warnings: tuple[str, ...] = (),
) -> Bill:  # fmt: skip
    """The bill of a month for a fleet of equal replicas.

    ``billed = (max(ceil(n), 1) + spares) * devices * hours * price``; ``continuous = n * devices * hours * price``

    Input and output tokens apart: a device-second belongs to the phase that occupies it, so input tokens pay
    ``prefill_time_fraction`` of the dollars and output tokens the rest. This is one rule of many; it is stated
    because it decides both prices.

    A spot tariff that is interrupted needs ``1 + interruptions_per_hour * hours_lost`` times the replicas. An
    upfront payment is in the effective cost, spread over its term, and in no month's billed cost.

    Args:
        tariff: price of one device for one hour.
        num_replicas: replicas that the load needs, a real number >= 0.
        num_devices_per_replica: devices that serve one copy of the model (tensor parallelism).
        num_spares: replicas kept for a failure.
        hours_per_month: hours billed.
        input_tokens_per_second, output_tokens_per_second: tokens of the whole load.
        prefill_time_fraction: share of busy device time spent in prefill, 0..1.
        tdp_watts: board power of a device [W]; ``None`` leaves energy out.
        busy_fraction: share of time that a rented device works; ``None`` takes n over the billed replicas.

    >>> bill(tariff=Tariff(usd_per_hour=2.95), num_replicas=6.07).billed_usd_per_month
    17228.0
    """
    _check(num_replicas, num_devices_per_replica, num_spares, hours_per_month, prefill_time_fraction)
    num_replicas = num_replicas * (1 + tariff.repeated_work_fraction)  # spot machines repeat what they lose
    billed_replicas = num_billed_replicas(num_replicas, num_spares)
    hours = hours_per_month * num_devices_per_replica
    rows = [_usage_row(tariff, "serving replicas", (billed_replicas - num_spares) * hours)]
    if num_spares:
        rows.append(_usage_row(tariff, "spare replicas", num_spares * hours))
    billed = math.fsum(row.billed_cost for row in rows)
    continuous = num_replicas * hours * tariff.amortized_usd_per_hour
    seconds = hours_per_month * HOUR
    tokens_in, tokens_out = input_tokens_per_second * seconds, output_tokens_per_second * seconds
    busy = min(1.0, num_replicas / billed_replicas) if busy_fraction is None else busy_fraction
    num_devices = billed_replicas * num_devices_per_replica
    energy = tdp_watts and fleet_energy(
        tdp_watts=tdp_watts, num_devices=num_devices, hours=hours_per_month,
        output_tokens=tokens_out, busy_fraction=busy,
    )  # fmt: skip
    return Bill(
        continuous_usd_per_month=continuous, billed_usd_per_month=billed,
        num_replicas_continuous=num_replicas, num_replicas_billed=billed_replicas, num_devices=num_devices,
        usd_per_million_tokens=_per_million(billed, tokens_in + tokens_out),
        usd_per_million_input_tokens=_per_million(billed * prefill_time_fraction, tokens_in),
        usd_per_million_output_tokens=_per_million(billed * (1 - prefill_time_fraction), tokens_out),
        continuous_usd_per_million_tokens=_per_million(continuous, tokens_in + tokens_out),
        rows=tuple(rows), energy=energy or None, warnings=warnings,
    )  # fmt: skip


def _usage_row(tariff: Tariff, description: str, quantity: float) -> FocusRow:
    """Accelerator hours at a tariff; interruptions cost hours, so they are in the quantity already."""
    category = {"on-demand": "Standard", "reserved": "Committed", "spot": "Dynamic"}[tariff.pricing]
    return FocusRow(
        charge_description=description, pricing_quantity=quantity, billed_cost=quantity * tariff.usd_per_hour,
        effective_cost=quantity * tariff.amortized_usd_per_hour, list_cost=quantity * tariff.list_price,
        contracted_cost=quantity * tariff.usd_per_hour, list_unit_price=tariff.list_price,
        contracted_unit_price=tariff.usd_per_hour, provider_name=tariff.provider or "not named",
        resource_type=tariff.device or "accelerator", pricing_category=category,
        commitment_discount_status="Used" if tariff.pricing == "reserved" else "",
    )  # fmt: skip


def _per_million(usd: float, tokens: float) -> float:
    return usd / tokens * MILLION if tokens else 0.0


def _check(replicas: float, devices: int, spares: int, hours: float, fraction: float) -> None:
    if not (math.isfinite(replicas) and replicas >= 0):
        raise InvalidInputError("replicas are a finite number, zero or more", given=replicas)
    if devices < 1 or spares < 0:
        asked = "a fleet has 1 or more devices a replica and 0 or more spares"
        raise InvalidInputError(asked, given=f"{devices}, {spares}")
    if not (math.isfinite(hours) and hours > 0):
        raise InvalidInputError("hours in a month are above zero", given=hours)
    if not 0 <= fraction <= 1:
        raise InvalidInputError("prefill_time_fraction is a share", given=fraction, allowed="0 to 1")
