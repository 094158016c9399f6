import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.hardware import (
    LOOP_ORDERS,
    CacheLevel,
    cyclic_scan_stream,
    matmul_misses_closed_form,
    matmul_misses_validity,
    matmul_stream,
    miss_curve,
    simulate_cache,
    transpose_stream,
)

LINE = 64


@st.composite
def nests(draw):
    elements = draw(st.sampled_from([2, 4, 8, 16]))
    rows = draw(st.integers(1, 4 if elements == 16 else 6))
    n = rows * elements
    tiles = [b for b in range(elements, n + 1, elements) if n % b == 0 and b >= 3]
    tile = draw(st.sampled_from([None, *tiles]))
    order = "ijk" if tile else draw(st.sampled_from(["ijk", "ikj", "jki"]))
    return max(n, 4), elements, order, tile


@given(nests())
@settings(max_examples=60, deadline=None)
def test_closed_forms_equal_the_executed_loops_inside_their_region_and_nowhere_else(nest):
    n, elements, order, tile = nest
    stream = matmul_stream(n, order=order, tile=tile, element_bytes=LINE // elements)
    curve = miss_curve(stream.addresses, line_bytes=LINE)
    form = matmul_misses_closed_form(n, line_elements=elements, order=order, tile=tile)
    smallest, largest = matmul_misses_validity(n, line_elements=elements, order=order, tile=tile)
    for num_lines in range(3 * n * n // elements + 8):
        inside = num_lines >= smallest and (largest is None or num_lines <= largest)
        assert (curve.misses(num_lines * LINE) == form) == inside, num_lines


def test_the_golden_cache_lies_inside_all_four_regions_and_one_line_fewer_outside_the_tiled_one():
    level = CacheLevel(name="L1", capacity_bytes=64 * LINE, line_bytes=LINE)
    for order, tile in (("ijk", None), ("ikj", None), ("jki", None), ("ijk", 16)):
        smallest, largest = matmul_misses_validity(48, line_elements=16, order=order, tile=tile)
        assert smallest <= 64 <= largest
        form = matmul_misses_closed_form(48, line_elements=16, order=order, tile=tile)
        assert simulate_cache(matmul_stream(48, order=order, tile=tile).addresses, [level]).levels[0].num_misses == form
    less = CacheLevel(name="L1", capacity_bytes=63 * LINE, line_bytes=LINE)
    tiled = matmul_stream(48, tile=16).addresses
    assert simulate_cache(tiled, [less]).levels[0].num_misses > 1_008


@pytest.mark.parametrize("order", LOOP_ORDERS)
@pytest.mark.parametrize("tile", [None, 3, 12])
def test_every_order_really_multiplies_the_matrices(order, tile):
    n = 12
    stream = matmul_stream(n, order=order, tile=tile)
    index = np.arange(n * n)
    a = (index * 7 % 11 - 5.0).reshape(n, n)
    b = (index * 5 % 13 - 6.0).reshape(n, n)
    np.testing.assert_array_equal(stream.result, a @ b)  # small whole numbers: exact in any order
    assert len(stream) == 3 * n**3
    assert stream.is_write.sum() == n**3


@pytest.mark.parametrize("order", LOOP_ORDERS)
def test_all_orders_touch_the_same_addresses(order):
    stream = matmul_stream(6, order=order, tile=2)
    np.testing.assert_array_equal(np.sort(stream.addresses), np.sort(matmul_stream(6).addresses))


def test_the_innermost_letter_moves_fastest():
    def steps(order):
        touched = matmul_stream(4, order=order, element_bytes=4).addresses.reshape(-1, 3)
        return (touched[1] - touched[0]).tolist()

    assert steps("ijk") == [4, 16, 0]  # k: A one element on, B one row on, C stays
    assert steps("ikj") == [0, 4, 4]
    assert steps("jki") == [16, 0, 16]


def test_tiling_a_transpose_saves_misses_and_changes_nothing_else():
    level = CacheLevel(name="L1", capacity_bytes=32 * LINE, line_bytes=LINE)
    plain, tiled = transpose_stream(64), transpose_stream(64, tile=16)
    np.testing.assert_array_equal(plain.result, tiled.result)
    index = np.arange(64 * 64)
    np.testing.assert_array_equal(plain.result, (index * 7 % 11 - 5.0).reshape(64, 64).T)
    # 64 lines of B a column in 32: A n^2/L = 256, B n^2 = 4096; tiles of 16 touch 16 + 16 lines: 2 n^2/L = 512
    assert simulate_cache(plain.addresses, [level]).levels[0].num_misses == 256 + 4096
    assert simulate_cache(tiled.addresses, [level]).levels[0].num_misses == 512


def test_scans_by_hand_and_their_limits():
    assert cyclic_scan_stream(2, passes=2).addresses.tolist() == [0, 64, 0, 64]
    assert len(cyclic_scan_stream(0, passes=5)) == len(cyclic_scan_stream(5, passes=0)) == 0
    with pytest.raises(InvalidInputError):
        cyclic_scan_stream(-1, passes=1)


def test_one_by_one_and_bases_on_lines():
    stream = matmul_stream(1)
    assert stream.addresses.tolist() == [0, 64, 128]
    assert stream.result.tolist() == [[30.0]]  # -5 * -6
    assert matmul_stream(5).addresses.reshape(-1, 3)[0].tolist() == [0, 128, 256]  # 100 B round up to 128


@pytest.mark.parametrize("bad", [{"n": 0}, {"order": "iij"}, {"tile": 5}, {"tile": 0}, {"element_bytes": 0}])
def test_impossible_nests_are_refused(bad):
    with pytest.raises(InvalidInputError):
        matmul_stream(**{"n": 8, **bad})


@pytest.mark.parametrize(
    "bad", [{"order": "kij"}, {"n": 50}, {"line_elements": 1}, {"tile": 8}, {"tile": 16, "order": "ikj"}]
)
def test_nests_without_a_closed_form_are_named(bad):
    with pytest.raises(UnsupportedError, match="Simulate"):
        matmul_misses_closed_form(**{"n": 48, "line_elements": 16, **bad})


def test_compiled_and_interpreted_nests_write_the_same_stream(monkeypatch):
    fast = matmul_stream(10, order="kji", tile=5)
    monkeypatch.setattr("course_lib.hardware.loops.has_numba", lambda: False)
    slow = matmul_stream(10, order="kji", tile=5)
    np.testing.assert_array_equal(fast.addresses, slow.addresses)
    np.testing.assert_array_equal(fast.result, slow.result)
