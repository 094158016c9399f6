"""Closed forms against each other, against the literature's numbers, and against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.serving.prefill_queue import mean_wait_seconds
from course_lib.serving.queueing import (
    erlang_c,
    harmonic_number,
    md1_ttft_seconds,
    mg1_wait_seconds,
    mm1_sojourn_quantile_seconds,
    mmc_wait_seconds,
    static_slot_utilization,
)  # fmt: skip


@pytest.mark.parametrize(("batch", "exact"), [(8, (0.3739, 0.3703, 0.3685)), (32, (0.2512, 0.2483, 0.2469))])
def test_static_slots_for_geometric_lengths_have_the_published_values_and_the_harmonic_limit(batch, exact):
    assert tuple(round(static_slot_utilization(mean, batch), 4) for mean in (20, 50, 200)) == exact
    assert static_slot_utilization(1e5, batch) == pytest.approx(1 / harmonic_number(batch), rel=1e-4)


@given(st.floats(1.0, 60.0), st.integers(1, 40))
def test_static_slots_are_used_between_one_in_batch_and_all(mean, batch):
    used = static_slot_utilization(mean, batch)
    assert 1 / batch - 1e-12 <= used <= 1 + 1e-9
    assert static_slot_utilization(mean, 1) == pytest.approx(1, rel=1e-9)


def test_static_slots_equal_a_direct_draw():
    lengths = np.random.default_rng(0).geometric(1 / 30, size=(100_000, 6))
    direct = lengths.sum() / (6 * lengths.max(axis=1).sum())
    assert static_slot_utilization(30, 6) == pytest.approx(direct, rel=0.01)  # some 0.2 % of sampling error


def test_erlang_c_has_the_published_values_and_equals_its_definition():
    for servers, expected in ((1, 0.8), (2, 0.7111), (4, 0.5964), (8, 0.4576), (16, 0.3049)):
        offered = 0.8 * servers
        top = offered**servers / math.factorial(servers) / 0.2
        direct = top / (sum(offered**k / math.factorial(k) for k in range(servers)) + top)
        assert erlang_c(num_servers=servers, load=0.8) == pytest.approx(direct, rel=1e-12)
        assert round(direct, 4) == expected
    waits = [
        mmc_wait_seconds(num_servers=c, arrival_requests_per_second=0.8 * c, service_seconds=1)
        for c in (1, 2, 4, 8, 16)
    ]
    assert [round(wait, 3) for wait in waits] == [4.0, 1.778, 0.746, 0.286, 0.095]


def test_one_exponential_server_is_the_same_in_three_formulas():
    queue = {"arrival_requests_per_second": 0.9, "service_seconds": 0.5}
    expected = mg1_wait_seconds(**queue, squared_variation=1)
    assert mmc_wait_seconds(num_servers=1, **queue) == pytest.approx(expected, rel=1e-12)
    # the mean of the sojourn: integrate its quantiles
    grid = (np.arange(200_000) + 0.5) / 200_000
    sojourn = np.mean([mm1_sojourn_quantile_seconds(q, **queue) for q in grid[::20]])
    assert sojourn == pytest.approx(expected + 0.5, rel=1e-3)
    assert round(mm1_sojourn_quantile_seconds(0.99, arrival_requests_per_second=0.8, service_seconds=1), 2) == 23.03


@given(st.floats(0.01, 0.95), st.floats(0.01, 10), st.floats(1, 8))
def test_distserve_forms_are_the_printed_ones(load, prefill, speed_up):
    rate, d, k = load / prefill, prefill, speed_up
    plain = md1_ttft_seconds(arrival_requests_per_second=rate, prefill_seconds=d)
    assert plain == pytest.approx(d + rate * d * d / (2 * (1 - rate * d)), rel=1e-9)
    assert plain == pytest.approx(d + mean_wait_seconds(arrival_requests_per_second=rate, service_seconds=d), rel=1e-9)
    two = md1_ttft_seconds(arrival_requests_per_second=rate, prefill_seconds=d, pipeline_stages=2)
    assert two == pytest.approx(d + rate * d * d / (4 * (2 - rate * d)), rel=1e-9)
    faster = md1_ttft_seconds(arrival_requests_per_second=rate, prefill_seconds=d, speed_up=k)
    assert faster == pytest.approx(d / k + rate * d * d / (2 * k * (k - rate * d)), rel=1e-9)


def test_an_overloaded_queue_waits_for_ever_and_an_empty_one_not_at_all():
    over, empty = ({"arrival_requests_per_second": rate, "service_seconds": 1.0} for rate in (1.0, 0.0))
    assert mg1_wait_seconds(**over, squared_variation=0) == mmc_wait_seconds(num_servers=1, **over) == math.inf
    assert mm1_sojourn_quantile_seconds(0.5, **over) == math.inf
    assert mg1_wait_seconds(**empty, squared_variation=0) == mmc_wait_seconds(num_servers=3, **empty) == 0.0
    with pytest.raises(InvalidInputError):
        mg1_wait_seconds(arrival_requests_per_second=-1, service_seconds=1, squared_variation=0)
    with pytest.raises(InvalidInputError):
        erlang_c(num_servers=0, load=0.5)
    with pytest.raises(InvalidInputError):
        static_slot_utilization(0.5, 8)
