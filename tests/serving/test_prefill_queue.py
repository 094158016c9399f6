"""Time to first token: M/D/1 exactly, with the decode step as a vacation, against a simulated queue."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.serving.prefill_queue import mean_wait_seconds, ttft_quantile_seconds, wait_at_most_probability

# 400,000 correlated waits: four standard errors of a probability near 1/2 at a load of 0.8.
SIMULATED = 0.01
LOADS = st.floats(0.01, 0.95)


def simulated_waits(load: float, num: int = 400_000) -> np.ndarray:
    """Lindley's recursion, unrolled: the wait is the walk above its running minimum. Service takes 1 s."""
    steps = 1.0 - np.random.default_rng(7).exponential(1 / load, num)
    walk = np.concatenate(([0.0], np.cumsum(steps)))
    return walk - np.minimum.accumulate(walk)


def test_waits_by_hand() -> None:
    # load .8: mean .8 / (2 * .2) = 2; P(no wait) = 1 - .8 = .2; P(W <= t) = .2 exp(.8 t) for t < 1 (Erlang)
    assert mean_wait_seconds(arrival_requests_per_second=0.8, service_seconds=1) == pytest.approx(2.0)
    got = wait_at_most_probability(np.array([0.0, 0.5]), arrival_requests_per_second=0.8, service_seconds=1)
    assert got.tolist() == pytest.approx([0.2, 0.2 * math.exp(0.4)], rel=1e-12)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_the_distribution_is_that_of_a_simulated_queue(load: float) -> None:
    waits = simulated_waits(load)
    times = np.array([0.0, 0.4, 1.0, 1.7, 3.3, 6.0])
    got = wait_at_most_probability(times, arrival_requests_per_second=load, service_seconds=1)
    assert np.abs(got - [(waits <= t).mean() for t in times]).max() < SIMULATED


@given(LOADS)
def test_the_area_above_the_distribution_is_the_mean_wait(load: float) -> None:
    # E[W] = integral of P(W > t); the tail beyond 40 / (1 - load) services is below 1e-9
    times = np.linspace(0, min(40 / (1 - load), 250), 4001)
    above = 1 - wait_at_most_probability(times, arrival_requests_per_second=load, service_seconds=1)
    mean = mean_wait_seconds(arrival_requests_per_second=load, service_seconds=1)
    assert np.trapezoid(above, times) == pytest.approx(mean, rel=0.02, abs=1e-3)


@given(LOADS, st.floats(0.01, 20))
def test_probabilities_rise_with_time_and_stay_in_range(load: float, most: float) -> None:
    got = wait_at_most_probability(np.linspace(0, most, 50), arrival_requests_per_second=load, service_seconds=1)
    assert np.all(np.diff(got) >= -1e-9)
    assert np.all((got >= 0) & (got <= 1 + 1e-9))


@pytest.mark.parametrize(("load", "quantile"), [(0.38, 0.5), (0.38, 0.99), (0.8, 0.5), (0.8, 0.9)])
def test_quantiles_of_the_time_to_first_token_are_those_of_a_simulated_engine(load: float, quantile: float) -> None:
    waits = simulated_waits(load)
    total = waits + np.random.default_rng(8).uniform(0, 0.5, waits.size) + 1.0
    got = ttft_quantile_seconds(quantile, arrival_requests_per_second=load, prefill_seconds=1.0, step_seconds=0.5)
    assert got == pytest.approx(np.quantile(total, quantile), rel=0.03)  # the simulated quantile's own noise


@given(st.floats(0.05, 0.9), st.floats(0.1, 0.99))
def test_time_to_first_token_grows_with_load_and_holds_the_prefill(load: float, quantile: float) -> None:
    light, heavy = (
        ttft_quantile_seconds(quantile, arrival_requests_per_second=rate, prefill_seconds=1.0, step_seconds=0.3)
        for rate in (load / 2, load)
    )
    assert 1.0 <= light <= heavy + 1e-9


def test_limits_of_the_queue() -> None:
    common = {"prefill_seconds": 1.0, "step_seconds": 0.2}
    assert ttft_quantile_seconds(0.5, arrival_requests_per_second=0.0, **common) == pytest.approx(1.1)
    assert ttft_quantile_seconds(0.5, arrival_requests_per_second=1.0, **common) == math.inf
    assert mean_wait_seconds(arrival_requests_per_second=2.0, service_seconds=1.0) == math.inf
    no_step = ttft_quantile_seconds(0.15, arrival_requests_per_second=0.8, prefill_seconds=1.0, step_seconds=0.0)
    assert no_step == pytest.approx(1.0, abs=0.02)  # a fifth of requests do not wait at all
    overloaded = wait_at_most_probability(np.array([5.0]), arrival_requests_per_second=2.0, service_seconds=1.0)
    assert overloaded.tolist() == [0.0]
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        ttft_quantile_seconds(1.0, arrival_requests_per_second=0.1, **common)


@pytest.mark.parametrize("step_seconds", [0.0, 0.5])
def test_the_heavy_traffic_form_meets_the_exact_one_and_answers_at_once_beyond(step_seconds):
    # 1.5 * load / (2 (1 - load)) * ln 100 services: 860 at load 0.996 are summed exactly, 1148 at 0.997 are not
    def scaled(load: float) -> float:
        found = ttft_quantile_seconds(
            0.99, arrival_requests_per_second=load, prefill_seconds=1.0, step_seconds=step_seconds
        )
        return (found - step_seconds / 2 - 1) * 2 * (1 - load) / load / math.log(100)

    assert scaled(0.996) == pytest.approx(scaled(0.997), rel=3e-3)  # the exact one is about 1 - load higher
    assert scaled(1 - 1e-9) == pytest.approx(1, rel=1e-3)  # 1e9 prefills: exponential, the grid's rounding apart
