"""What one accelerator costs for one hour, and on what terms."""

from __future__ import annotations

import calendar
import datetime
import math
from dataclasses import dataclass, replace

from course_lib.errors import InvalidInputError
from course_lib.sources import Citation

__all__ = ["PRICING", "Tariff", "reserved_break_even_fraction"]

PRICING = ("on-demand", "reserved", "spot")
"""Pay by the hour; promise a term for a lower price; or accept that the machine may be taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """The terms of renting one accelerator.

    ``effective = (usd_per_hour + upfront_usd / term_hours) * (1 + interruptions_per_hour * hours_lost)``

    Args:
        usd_per_hour: price of one accelerator for one hour on these terms, above 0 [USD/h].
        device: name of the device that the price is for ("" for any).
        provider: who sells it.
        pricing: one of :data:`PRICING`.
        list_usd_per_hour: the public on-demand price; ``None`` means ``usd_per_hour``.
        upfront_usd: paid once for the term, on top of the hours [USD].
        term_hours: length of the promise [h]; needed when there is an upfront payment.
        interruptions_per_hour: how often a spot machine is taken away [1/h].
        hours_lost_per_interruption: work to repeat each time [h].
        date: ISO day, month or year in which the price was current ("" when unknown).
        citation: where the number was read; ``None`` for a price that the caller made up.

    >>> Tariff(usd_per_hour=1.25, pricing="spot", interruptions_per_hour=0.2,
    ...        hours_lost_per_interruption=0.5).effective_usd_per_hour
    1.375
    """

    usd_per_hour: float
    device: str = ""
    provider: str = ""
    pricing: str = "on-demand"
    list_usd_per_hour: float | None = None
    upfront_usd: float = 0.0
    term_hours: float = 0.0
    interruptions_per_hour: float = 0.0
    hours_lost_per_interruption: float = 0.0
    date: str = ""
    citation: Citation | None = None

    def __post_init__(self) -> None:
        """Refuse prices and terms that mean nothing."""
        _positive("a price per hour is a finite number of dollars above zero", self.usd_per_hour)
        if self.list_usd_per_hour is not None:
            _positive("a list price is a finite number of dollars above zero", self.list_usd_per_hour)
        if self.pricing not in PRICING:
            raise InvalidInputError("a tariff has a pricing", given=repr(self.pricing), allowed=", ".join(PRICING))
        for name in ("upfront_usd", "term_hours", "interruptions_per_hour", "hours_lost_per_interruption"):
            value = getattr(self, name)
            if not (_is_number(value) and value >= 0):
                raise InvalidInputError(f"{name} is a finite number, zero or more", given=repr(value))
        if self.upfront_usd and not self.term_hours:
            raise InvalidInputError(
                "an upfront payment is spread over a term", given="term_hours=0",
                next_step="Give term_hours, 8760 for a year.",
            )  # fmt: skip
        if self.date:
            last_day(self.date)

    @property
    def amortized_usd_per_hour(self) -> float:
        """Dollars for one rented hour with the upfront payment spread over its term."""
        return self.usd_per_hour + (self.upfront_usd / self.term_hours if self.upfront_usd else 0.0)

    @property
    def repeated_work_fraction(self) -> float:
        """Hours of work done again for each hour of useful work, because machines were taken away."""
        return self.interruptions_per_hour * self.hours_lost_per_interruption

    @property
    def effective_usd_per_hour(self) -> float:
        """Dollars for one useful hour: the upfront payment spread over the term, lost work repeated."""
        return self.amortized_usd_per_hour * (1 + self.repeated_work_fraction)

    @property
    def list_price(self) -> float:
        """The public on-demand price of one hour [USD/h]."""
        return self.usd_per_hour if self.list_usd_per_hour is None else self.list_usd_per_hour

    def age_days(self, today: datetime.date) -> int | None:
        """Days since the price was last known to be current; ``None`` when it has no date.

        A date of a year or a month counts from its last day, so the age is never overstated.

        >>> Tariff(usd_per_hour=1.2, date="2025-02").age_days(datetime.date(2025, 3, 10))
        10
        """
        return max(0, (today - last_day(self.date)).days) if self.date else None

    def warnings(self, today: datetime.date, *, stale_after_days: int = 180) -> tuple[str, ...]:
        """What a reader of the bill should know about this price; data, never written to stderr.

        >>> Tariff(usd_per_hour=1.2, date="2025-02", device="tpu-v5e").warnings(datetime.date(2026, 2, 28))
        ('the price of tpu-v5e is 365 days old (2025-02); look it up again before you rely on it',)
        """
        name = self.device or "this tariff"
        age = self.age_days(today)
        if age is None:
            return (f"the price of {name} has no date",)
        if self.date > today.isoformat()[: len(self.date)]:
            return (f"the price of {name} is dated {self.date}, which is still to come",)
        if age > stale_after_days:
            return (f"the price of {name} is {age} days old ({self.date}); look it up again before you rely on it",)
        return ()

    def with_changes(self, **changes: object) -> Tariff:
        """The same terms with some fields changed.

        >>> Tariff(usd_per_hour=2.95).with_changes(usd_per_hour=5.9).usd_per_hour
        5.9
        """
        return replace(self, **changes)  # type: ignore[arg-type]


def last_day(text: str) -> datetime.date:
    """The last day that an ISO year, month or day names.

    >>> last_day("2025"), last_day("2024-02"), last_day("2025-06-01")
    (datetime.date(2025, 12, 31), datetime.date(2024, 2, 29), datetime.date(2025, 6, 1))
    """
    try:
        parts = [int(part) for part in text.split("-")]
        year, month = parts[0], (parts[1] if len(parts) > 1 else 12)
        day = parts[2] if len(parts) > 2 else calendar.monthrange(year, month)[1]
        return datetime.date(year, month, day)
    except (ValueError, IndexError, calendar.IllegalMonthError):
        raise InvalidInputError(
            "a price has an ISO date", given=repr(text), allowed="a year, a month or a day such as 2025-06-01"
        ) from None


def reserved_break_even_fraction(reserved: Tariff, on_demand: Tariff) -> float:
    """The share of hours in use above which a reservation is cheaper than paying by the hour.

    ``fraction = reserved.effective / on_demand.effective``: a reservation is paid for every hour.

    >>> round(reserved_break_even_fraction(Tariff(usd_per_hour=1.77, pricing="reserved"), Tariff(usd_per_hour=2.95)), 3)
    0.6
    """
    return reserved.effective_usd_per_hour / on_demand.effective_usd_per_hour


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _positive(asked: str, value: object) -> None:
    if not (_is_number(value) and value > 0):  # type: ignore[operator]
        raise InvalidInputError(asked, given=repr(value))
