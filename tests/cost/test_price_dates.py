"""A price dated after today is a slip of the keyboard: the bill says so, whether a year, a month or a day is given."""

from __future__ import annotations

import datetime

import pytest

from course_lib.cost import Tariff

TODAY = datetime.date(2026, 3, 10)


@pytest.mark.parametrize("date", ["2027", "2026-04", "2026-03-11", "2099-01-01"])
def test_a_date_still_to_come_is_said(date: str) -> None:
    assert Tariff(usd_per_hour=1, date=date, device="mine").warnings(TODAY) == (
        f"the price of mine is dated {date}, which is still to come",
    )


@pytest.mark.parametrize("date", ["2026", "2026-03", "2026-03-10", "2025-12"])
def test_today_and_the_running_month_and_year_are_not_still_to_come(date: str) -> None:
    assert Tariff(usd_per_hour=1, date=date).warnings(TODAY) == ()
