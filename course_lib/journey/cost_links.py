"""Machines cost money: dollars of the month and of a million tokens."""

from __future__ import annotations

from course_lib.cost import Tariff
from course_lib.journey.links import LinkRule, link
from course_lib.units import HOUR, MILLION

__all__ = ["LINKS"]


@link("price of one device hour", "USD/h", "the tariff", basis="cited")
def usd_per_hour(tariff: Tariff) -> float:
    return tariff.usd_per_hour


@link("hours in a month", "h", "given", basis="assumed")
def hours(hours_per_month: float) -> float:
    return hours_per_month


@link("continuous dollars", "USD/month", "replicas * devices * hours * price")
def continuous_usd_per_month(
    num_replicas: float, devices_per_replica: int, hours: float, usd_per_hour: float, tariff: Tariff
) -> float:
    upfront = tariff.amortized_usd_per_hour - tariff.usd_per_hour
    return num_replicas * (1 + tariff.repeated_work_fraction) * devices_per_replica * hours * (usd_per_hour + upfront)


@link("billed dollars", "USD/month", "replicas rented * devices * hours * price")
def billed_usd_per_month(
    num_replicas_billed: int, devices_per_replica: int, hours: float, usd_per_hour: float
) -> float:
    return num_replicas_billed * devices_per_replica * hours * usd_per_hour


@link("price of a million tokens", "USD", "billed dollars / all tokens of the month")
def usd_per_million_tokens(
    billed_usd_per_month: float, arrival_requests_per_second: float, prompt_tokens: float, output_tokens: float,
    hours: float,
) -> float:  # fmt: skip
    tokens = arrival_requests_per_second * (prompt_tokens + output_tokens) * hours * HOUR
    return billed_usd_per_month / tokens * MILLION


@link("price of a million prompt tokens", "USD", "billed dollars * share of time in prefill / prompt tokens")
def usd_per_million_input_tokens(
    billed_usd_per_month: float, prefill_time_fraction: float, arrival_requests_per_second: float,
    prompt_tokens: float, hours: float,
) -> float:  # fmt: skip
    tokens = arrival_requests_per_second * prompt_tokens * hours * HOUR
    return billed_usd_per_month * prefill_time_fraction / tokens * MILLION


@link("price of a million output tokens", "USD", "billed dollars * share of time in decode / output tokens")
def usd_per_million_output_tokens(
    billed_usd_per_month: float, prefill_time_fraction: float, arrival_requests_per_second: float,
    output_tokens: float, hours: float,
) -> float:  # fmt: skip
    tokens = arrival_requests_per_second * output_tokens * hours * HOUR
    return billed_usd_per_month * (1 - prefill_time_fraction) / tokens * MILLION


LINKS: tuple[LinkRule, ...] = tuple(rule for rule in list(globals().values()) if isinstance(rule, LinkRule))
"""These links, in the order in which they are written above."""
