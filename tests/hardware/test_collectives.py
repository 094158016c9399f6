import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.hardware import (
    all_gather_seconds,
    bus_factor,
    reduce_scatter_seconds,
    ring_all_reduce,
    ring_all_reduce_seconds,
    ring_tree_crossover_bytes,
    top_k_break_even_devices,
    tree_all_reduce_seconds,
)

EXACT = 1e-12  # the same products in another order
SUM = 1e-12  # float64 sums of at most 12 terms in another order


def test_140_gb_of_gradients_over_8_devices_take_0_544_s():
    # 2*7/8 * 140e9 / 450e9 = 0.54444
    assert ring_all_reduce_seconds(140e9, 8, bytes_per_second=450e9) == pytest.approx(0.54444, abs=5e-6)


def test_a_tree_of_8_by_hand():
    # 2*3*(1e-6 + 1e6/1e9) = 6.006e-3
    assert tree_all_reduce_seconds(1e6, 8, bytes_per_second=1e9, latency_seconds=1e-6) == pytest.approx(6.006e-3)


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_an_executed_ring_sums_exactly_and_sends_what_the_formula_says(n, length, seed):
    arrays = np.random.default_rng(seed).integers(-9, 9, size=(n, length)).astype(float)
    run = ring_all_reduce(arrays)
    for result in run.results:
        np.testing.assert_allclose(result, arrays.sum(axis=0), rtol=SUM, atol=0)
    assert run.num_steps == 2 * (n - 1)
    if length % n == 0:  # 2(n-1)/n * S, to the byte
        assert run.bytes_sent_per_device * n == 2 * (n - 1) * length * 8
    assert run.bytes_sent_per_device <= 2 * (n - 1) * -(-length // n) * 8


@given(st.integers(1, 4096), st.floats(0, 1e12), st.floats(1e6, 1e12), st.floats(0, 1e-3))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(n, nbytes, rate, alpha):
    kw = {"bytes_per_second": rate, "latency_seconds": alpha}
    parts = reduce_scatter_seconds(nbytes, n, **kw) + all_gather_seconds(nbytes, n, **kw)
    assert ring_all_reduce_seconds(nbytes, n, **kw) == pytest.approx(parts, rel=EXACT)


@given(st.integers(3, 4096), st.floats(1e6, 1e12), st.floats(1e-7, 1e-3))
def test_ring_and_tree_take_equally_long_at_the_crossover(n, rate, alpha):
    kw = {"bytes_per_second": rate, "latency_seconds": alpha}
    size = ring_tree_crossover_bytes(n, **kw)
    assert ring_all_reduce_seconds(size, n, **kw) == pytest.approx(tree_all_reduce_seconds(size, n, **kw), rel=1e-9)
    larger = 2 * size + 1
    assert ring_all_reduce_seconds(larger, n, **kw) <= tree_all_reduce_seconds(larger, n, **kw) * (1 + EXACT)


def test_one_device_needs_no_wire():
    assert ring_all_reduce_seconds(1e9, 1, bytes_per_second=1.0) == 0
    assert tree_all_reduce_seconds(1e9, 1, bytes_per_second=1.0) == 0
    assert ring_all_reduce([[1.0, 2.0]]).bytes_sent_per_device == 0


def test_many_devices_pay_at_most_twice_the_payload():
    assert ring_all_reduce_seconds(1e9, 10**6, bytes_per_second=1e9) == pytest.approx(2, rel=1e-5)  # 2(n-1)/n


def test_bus_factors():
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_gather", 4) == 0.75
    assert bus_factor("broadcast", 4) == 1.0
    with pytest.raises(InvalidInputError, match="all_reduce"):
        bus_factor("all_redoce", 4)


def test_top_k_loses_beyond_67_devices_in_two_bytes_and_100_in_four():
    assert np.ceil(top_k_break_even_devices(0.01, value_bytes=2, index_bytes=4)) == 67  # 4 / .06 = 66.7
    assert top_k_break_even_devices(0.01, value_bytes=4, index_bytes=4) == pytest.approx(100, rel=EXACT)


@pytest.mark.parametrize(
    ("nbytes", "n", "rate", "alpha"),
    [(-1, 2, 1, 0), (1, 0, 1, 0), (1, 1.5, 1, 0), (1, 2, 0, 0), (1, 2, 1, -1), (float("nan"), 2, 1, 0)],
)
def test_impossible_inputs_are_refused(nbytes, n, rate, alpha):
    with pytest.raises(InvalidInputError):
        ring_all_reduce_seconds(nbytes, n, bytes_per_second=rate, latency_seconds=alpha)


def test_rings_of_different_lengths_are_refused():
    with pytest.raises(InvalidInputError):
        ring_all_reduce([])
    with pytest.raises(InvalidInputError):
        ring_all_reduce([[1.0], [1.0, 2.0]])
