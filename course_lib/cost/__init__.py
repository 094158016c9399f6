"""Machines cost money: dated prices, tariffs, the bill of a month, and why it moved."""

from course_lib.cost.attribution import Attribution, attribute
from course_lib.cost.bill import Bill, FocusRow, bill, num_billed_replicas
from course_lib.cost.energy import Energy, fleet_energy
from course_lib.cost.prices import price, price_template, prices, read_prices
from course_lib.cost.tariff import PRICING, Tariff, reserved_break_even_fraction

__all__ = [
    "PRICING",
    "Attribution",
    "Bill",
    "Energy",
    "FocusRow",
    "Tariff",
    "attribute",
    "bill",
    "fleet_energy",
    "num_billed_replicas",
    "price",
    "price_template",
    "prices",
    "read_prices",
    "reserved_break_even_fraction",
]
