"""A number and its unit read as a person would say them."""

from __future__ import annotations

import pytest

from course_lib.journey import Journey, Link, format_link


@pytest.mark.parametrize(
    ("value", "unit", "basis", "said"),
    [
        (1, "device", "assumed", "1 device"),
        (8, "replica", "computed", "8 replicas"),
        (0, "sequence", "computed", "0 sequences"),
        (0.5, "replica", "computed", "0.5 replicas"),
        (1.00001, "replica", "computed", "1 replica"),  # as it is printed, with four digits
        (1, "request/s", "assumed", "1 request/s"),
        (60, "request/s", "assumed", "60 requests/s"),
        (1, "parameter", "counted", "1 parameter"),
        (465_600, "parameter", "counted", "465,600 parameters"),
        (730, "h", "assumed", "730 h"),
        (2, "B", "counted", "2 B"),
        (12, "FLOP", "counted", "12 FLOP"),
        (0.7, "1", "assumed", "0.7"),
    ],
)
def test_things_that_are_counted_take_the_plural_and_symbols_do_not(
    value: float, unit: str, basis: str, said: str
) -> None:
    link = Link(name="x", title="x", value=value, unit=unit, formula="", basis=basis)
    assert format_link(link) == said


def test_no_link_of_the_flagship_says_many_in_the_singular() -> None:
    for link in Journey().links:
        if format_link(link).endswith(("device", "parameter", "replica", "request/s", "sequence", "token")):
            assert format_link(link).startswith("1 ")
