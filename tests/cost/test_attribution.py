"""Shapley attribution: exact, order-free, complete."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.cost import Attribution, attribute
from course_lib.errors import InvalidInputError

NAMES = ("a", "b", "c", "d")
VALUES = st.fixed_dictionaries({name: st.floats(0.1, 10) for name in NAMES})


def tangled(links: Mapping[str, float]) -> float:
    """A value with interactions, a maximum and a step: nothing additive about it."""
    return 1e4 * max(links["a"] * links["b"], links["c"]) + 100 * math.ceil(links["d"] * links["a"])


def test_two_causes_of_a_product_share_the_interaction() -> None:
    # 10 * 2 = 20 -> 20 * 3 = 60. a: ((20-10)*2 + (20-10)*3)/2 = 25; b: (10*1 + 20*1)/2 = 15; 25 + 15 = 40.
    got = attribute({"a": 10.0, "b": 2.0}, {"a": 20.0, "b": 3.0}, ["a", "b"], lambda x: x["a"] * x["b"])
    assert got.terms == (("a", 25.0), ("b", 15.0))
    assert got.largest == "a"


@given(VALUES, VALUES)
def test_terms_sum_to_the_change(before: dict[str, float], after: dict[str, float]) -> None:
    change = tangled(after) - tangled(before)
    assert abs(attribute(before, after, NAMES, tangled).total_usd_per_month - change) <= 1e-9 * max(1, abs(change))


@given(VALUES, VALUES)
def test_the_shares_are_the_mean_over_all_orders(before: dict[str, float], after: dict[str, float]) -> None:
    totals = dict.fromkeys(NAMES, 0.0)  # the definition, by brute force over 4! orders
    for order in itertools.permutations(NAMES):
        now = dict(before)
        for name in order:
            was = tangled(now)
            now[name] = after[name]
            totals[name] += (tangled(now) - was) / 24
    for name, share in attribute(before, after, NAMES, tangled).terms:
        assert share == pytest.approx(totals[name], rel=1e-9, abs=1e-6)


@given(VALUES, VALUES, st.permutations(NAMES))
def test_the_order_of_the_names_changes_nothing(
    before: dict[str, float], after: dict[str, float], order: list[str]
) -> None:
    one = dict(attribute(before, after, NAMES, tangled).terms)
    two = dict(attribute(before, after, order, tangled).terms)
    for name in NAMES:
        assert one[name] == pytest.approx(two[name], rel=1e-9, abs=1e-6)


def test_a_cause_that_did_not_change_gets_exactly_nothing() -> None:
    before = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    got = attribute(before, {**before, "a": 5.0}, NAMES, tangled)
    assert [usd for name, usd in got.terms if name != "a"] == [0.0, 0.0, 0.0]


def test_no_links_make_an_empty_attribution() -> None:
    got = attribute({}, {}, [], lambda _: 1.0)
    assert got == Attribution(terms=())
    assert (got.total_usd_per_month, got.largest) == (0.0, "")


def test_missing_repeated_and_too_many_links_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="in before and in after"):
        attribute({"a": 1}, {}, ["a"], lambda _: 1.0)
    with pytest.raises(InvalidInputError, match="named once"):
        attribute({"a": 1}, {"a": 1}, ["a", "a"], lambda _: 1.0)
    many = {str(index): 0 for index in range(15)}
    with pytest.raises(InvalidInputError, match="at most 14"):
        attribute(many, many, list(many), lambda _: 1.0)
