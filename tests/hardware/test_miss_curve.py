import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.hardware import (
    CacheLevel,
    cyclic_scan_stream,
    matmul_stream,
    miss_classes,
    miss_curve,
    simulate_cache_reference,
    stack_distances,
    stack_distances_numpy,
)

LINE = 64
lines = st.lists(st.integers(0, 30), max_size=150)


def level(num_lines, ways=None):
    return CacheLevel(name="L1", capacity_bytes=num_lines * LINE, line_bytes=LINE, ways=ways)


def naive_distances(ids):
    """Distinct other lines since the last access, straight from the definition."""
    out = []
    for i, line in enumerate(ids):
        earlier = [j for j in range(i) if ids[j] == line]
        out.append(len(set(ids[earlier[-1] + 1 : i])) if earlier else -1)
    return out


def test_distances_by_hand():
    # a b b c a: the last a sees b and c
    assert stack_distances([0, 1, 1, 2, 0]).tolist() == [-1, -1, 0, -1, 2]


@given(lines)
@settings(deadline=None)
def test_three_routes_to_the_distances_agree(ids):
    expected = naive_distances(ids)
    assert stack_distances(ids).tolist() == expected
    assert stack_distances_numpy(np.array(ids, dtype=np.int64)).tolist() == expected


@given(lines, st.integers(0, 35))
@settings(deadline=None)
def test_the_curve_equals_a_simulation_at_every_capacity(ids, num_lines):
    addresses = np.array(ids, dtype=np.int64) * LINE
    curve = miss_curve(addresses, line_bytes=LINE)
    if num_lines == 0:
        assert curve.misses(0) == len(ids)
    else:
        simulated = simulate_cache_reference(addresses, [level(num_lines)]).levels[0]
        assert curve.misses(num_lines * LINE) == simulated.num_misses
    assert curve.misses(10**9) == curve.compulsory == len(set(ids))


@given(lines, st.sampled_from([(1, 1), (4, 1), (4, 2), (8, 2), (8, 8)]))
@settings(deadline=None)
def test_the_three_classes_sum_to_the_misses(ids, shape):
    addresses = np.array(ids, dtype=np.int64) * LINE
    cache = level(*shape)
    classes = miss_classes(addresses, cache)
    assert classes.total == simulate_cache_reference(addresses, [cache]).levels[0].num_misses
    assert classes.compulsory == len(set(ids))
    assert classes.capacity >= 0
    if shape[0] == shape[1]:
        assert classes.conflict == 0  # fully associative by name


def test_conflicts_can_be_negative_where_few_ways_keep_what_lru_drops():
    # scan of 5 lines in 4: LRU misses all 20; four direct-mapped sets lose only set 0 (lines 0 and 4): 3 + 2*4 = 11
    scan = cyclic_scan_stream(5, passes=4).addresses
    classes = miss_classes(scan, level(4, ways=1))
    assert (classes.compulsory, classes.capacity, classes.conflict) == (5, 15, -9)


def test_goldens_from_one_pass():
    curve = miss_curve(matmul_stream(48).addresses, line_bytes=LINE)
    assert curve.misses(64 * LINE) == 7_200
    assert curve.compulsory == 3 * 48 * 48 // 16  # each line of A, B, C once
    assert curve.capacity(64 * LINE) == 7_200 - 432


def test_the_cliff_in_the_curve():
    curve = miss_curve(cyclic_scan_stream(65, passes=10).addresses, line_bytes=LINE)
    assert (curve.misses(64 * LINE), curve.misses(65 * LINE)) == (650, 65)
    capacities, misses = curve.steps()
    assert (capacities.tolist(), misses.tolist()) == ([0, 65 * LINE], [650, 65])


@given(lines)
@settings(deadline=None)
def test_the_steps_are_the_curve(ids):
    curve = miss_curve(np.array(ids, dtype=np.int64) * LINE, line_bytes=LINE)
    capacities, misses = curve.steps()
    assert all(np.diff(misses) < 0)
    for capacity, count in zip(capacities, misses):
        assert curve.misses(int(capacity)) == count


def test_far_apart_lines_and_long_repeats():
    ids = [0, 2**40, 0, 2**40, 2**40, 5]
    assert stack_distances(ids).tolist() == naive_distances(ids)
    assert stack_distances(np.zeros(100_000, dtype=np.int64)).sum() == -1  # one first touch, then zeros


def test_limits_and_bad_input():
    empty = miss_curve([], line_bytes=LINE)
    assert (empty.misses(0), empty.misses(64), empty.compulsory) == (0, 0, 0)
    assert stack_distances_numpy([]).size == 0
    assert miss_curve([7], line_bytes=LINE).misses(63) == 1  # less than a line holds nothing
    with pytest.raises(InvalidInputError):
        empty.misses(-1)
    with pytest.raises(InvalidInputError):
        miss_curve([1], line_bytes=60)
    with pytest.raises(InvalidInputError):
        miss_curve([-5], line_bytes=64)


def test_without_numba_the_curve_is_the_same(monkeypatch):
    addresses = matmul_stream(24).addresses
    fast = miss_curve(addresses, line_bytes=LINE).hits_by_distance
    monkeypatch.setattr("course_lib.hardware.jit.find_spec", lambda name: None)
    np.testing.assert_array_equal(miss_curve(addresses, line_bytes=LINE).hits_by_distance, fast)
