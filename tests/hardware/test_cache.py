import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import course_lib.errors as errors
from course_lib.hardware import (
    CacheLevel,
    LevelStats,
    cyclic_scan_stream,
    matmul_stream,
    simulate_cache,
    simulate_cache_python,
    simulate_cache_reference,
)

LINE = 64
IMPLEMENTATIONS = (simulate_cache, simulate_cache_python, simulate_cache_reference)


def full(num_lines, name="L1"):
    return CacheLevel(name=name, capacity_bytes=num_lines * LINE, line_bytes=LINE)


@st.composite
def streams_and_levels(draw):
    lines = draw(st.lists(st.integers(0, 40), max_size=120))
    offsets = draw(st.lists(st.integers(0, LINE - 1), min_size=len(lines), max_size=len(lines)))
    writes = draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    shapes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
    levels = [
        CacheLevel(name=f"L{i}", capacity_bytes=sets * ways * LINE, line_bytes=LINE, ways=ways)
        for i, (sets, ways) in enumerate(shapes)
    ]
    return np.array(lines, dtype=np.int64) * LINE + np.array(offsets, dtype=np.int64), writes, levels


@given(streams_and_levels(), st.booleans())
@settings(max_examples=200, deadline=None)  # the first example compiles
def test_three_implementations_give_the_same_counts(case, with_writes):
    addresses, writes, levels = case
    flags = writes if with_writes else None
    results = [simulate(addresses, levels, is_write=flags) for simulate in IMPLEMENTATIONS]
    assert results[0] == results[1] == results[2]


@given(streams_and_levels())
@settings(deadline=None)
def test_accesses_are_conserved_through_the_hierarchy(case):
    addresses, writes, levels = case
    stats = simulate_cache(addresses, levels, is_write=writes)
    assert stats.levels[0].num_accesses == len(addresses)
    for inner, outer in zip(stats.levels, stats.levels[1:]):
        assert outer.num_accesses == inner.num_misses
    for level in stats.levels:
        assert level.num_hits + level.num_misses == level.num_accesses
    assert stats.levels[0].num_misses >= len(np.unique(addresses // LINE))
    assert stats.memory_bytes_read == stats.levels[-1].num_misses * LINE


@given(streams_and_levels())
@settings(deadline=None)
def test_a_read_only_program_writes_nothing_back_and_writes_change_no_miss_of_one_level(case):
    addresses, writes, levels = case
    assert all(level.writebacks == 0 for level in simulate_cache(addresses, levels).levels)
    written = simulate_cache(addresses, levels[:1], is_write=writes).levels[0]
    assert written.num_misses == simulate_cache(addresses, levels[:1]).levels[0].num_misses
    assert written.writebacks <= min(written.num_misses, sum(writes))


@pytest.mark.parametrize(
    ("order", "tile", "misses"),
    [("ijk", None, 7_200), ("ikj", None, 7_200), ("jki", None, 223_488), ("ijk", 16, 1_008)],
)
def test_golden_misses_of_a_48_by_48_matmul_in_64_lines(order, tile, misses):
    stream = matmul_stream(48, order=order, tile=tile)
    for simulate in (simulate_cache, simulate_cache_python):
        stats = simulate(stream.addresses, [full(64)], is_write=stream.is_write)
        assert stats.levels[0].num_misses == misses
        assert stats.levels[0].num_accesses == 3 * 48**3


def test_the_reference_reads_the_goldens_too():
    stream = matmul_stream(48, tile=16)
    assert simulate_cache_reference(stream.addresses, [full(64)]).levels[0].num_misses == 1_008


def test_the_lru_cliff_one_line_too_many_and_every_access_misses():
    assert simulate_cache(cyclic_scan_stream(64, passes=10).addresses, [full(64)]).levels[0].hit_rate == 0.9
    assert simulate_cache(cyclic_scan_stream(65, passes=10).addresses, [full(64)]).levels[0].hit_rate == 0.0
    # running every second pass backwards keeps 64 of the 65 lines: 9 * 64 hits of 650
    back = cyclic_scan_stream(65, passes=10, alternate=True).addresses
    assert simulate_cache(back, [full(64)]).levels[0].num_hits == 9 * 64


def test_write_backs_by_hand_in_two_levels():
    # L1 one line, L2 two lines. w0: miss, miss. r1: evicts dirty 0 into L2 where 0 lies: no access there.
    # r2: L2 evicts 0 (least recent, dirty) to memory. r0: fetched again.
    levels = [full(1, "L1"), full(2, "L2")]
    stats = simulate_cache([0, 64, 128, 0], levels, is_write=[True, False, False, False])
    assert stats.levels[0] == LevelStats(name="L1", num_accesses=4, num_hits=0, num_misses=4, writebacks=1)
    assert stats["L2"] == LevelStats(name="L2", num_accesses=4, num_hits=0, num_misses=4, writebacks=1)
    assert (stats.memory_bytes_read, stats.memory_bytes_written) == (4 * 64, 64)


def test_a_write_back_of_a_line_that_the_outer_level_dropped_is_inserted_there():
    # L1 two lines, L2 one line. w0 r1 leaves L2 = {1}; r2 evicts 0 (dirty) from L1: L2 drops 2 and keeps dirty 0.
    levels = [full(2, "L1"), full(1, "L2")]
    stats = simulate_cache([0, 64, 128, 0], levels, is_write=[True, False, False, False])
    assert stats["L1"].writebacks == 1
    assert stats["L2"].num_hits == 1  # the last access finds 0 in L2
    for simulate in IMPLEMENTATIONS:
        assert simulate([0, 64, 128, 0], levels, is_write=[True, False, False, False]) == stats


def test_direct_mapped_lines_a_capacity_apart_fight_for_one_set():
    level = CacheLevel(name="L1", capacity_bytes=4096, line_bytes=64, ways=1)
    ping_pong = np.tile([0, 4096], 50)
    assert simulate_cache(ping_pong, [level]).levels[0].num_misses == 100
    assert simulate_cache(ping_pong, [full(64)]).levels[0].num_misses == 2


@given(st.lists(st.integers(0, 10**6), max_size=200), st.integers(1, 20))
@settings(deadline=None)
def test_a_larger_fully_associative_lru_cache_never_misses_more(addresses, num_lines):
    smaller = simulate_cache(addresses, [full(num_lines)]).levels[0].num_misses
    assert simulate_cache(addresses, [full(num_lines + 1)]).levels[0].num_misses <= smaller


def test_limits_empty_single_and_huge_addresses():
    for simulate in IMPLEMENTATIONS:
        assert simulate([], [full(4)], is_write=[]).levels[0] == LevelStats(
            name="L1", num_accesses=0, num_hits=0, num_misses=0, writebacks=0
        )
        assert simulate([2**62 - 1, 2**62 - 64], [full(1)]).levels[0].num_hits == 1
    assert simulate_cache([], [full(4)]).levels[0].hit_rate == 0.0
    assert simulate_cache(np.array([5], dtype=np.uint8), [full(4)]).levels[0].num_misses == 1


@pytest.mark.parametrize("simulate", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("addresses", "flags"),
    [([-1], None), ([1.5], None), ([[1]], None), ([2**62], None), ([1, 2], [True]), ([-(2**40), 3], None)],
)
def test_bad_streams_are_refused(simulate, addresses, flags):
    with pytest.raises(errors.InvalidInputError):
        simulate(addresses, [full(4)], is_write=flags)


@pytest.mark.parametrize(
    "fields",
    [{"capacity_bytes": 0}, {"capacity_bytes": 100}, {"line_bytes": 48}, {"line_bytes": 0}, {"ways": 0}, {"ways": 3}],
)
def test_impossible_caches_are_refused(fields):
    with pytest.raises(errors.InvalidInputError):
        CacheLevel(**{"name": "L1", "capacity_bytes": 1024, "line_bytes": 64, "ways": 2, **fields})


def test_what_is_not_modelled_is_named():
    with pytest.raises(errors.UnsupportedError, match="fifo"):
        CacheLevel(name="L1", capacity_bytes=1024, line_bytes=64, policy="fifo")
    with pytest.raises(errors.UnsupportedError, match="line"):
        simulate_cache([0], [full(4), CacheLevel(name="L2", capacity_bytes=1024, line_bytes=128)])
    with pytest.raises(errors.InvalidInputError, match="level"):
        simulate_cache([0], [])
    with pytest.raises(KeyError):
        simulate_cache([0], [full(4)])["L9"]


def test_without_numba_the_same_call_still_works(monkeypatch):
    stream = matmul_stream(16)
    fast = simulate_cache(stream.addresses, [full(8), full(32, "L2")], is_write=stream.is_write)
    monkeypatch.setattr("course_lib.hardware.jit.find_spec", lambda name: None)
    slow_stream = matmul_stream(16)
    np.testing.assert_array_equal(slow_stream.addresses, stream.addresses)
    assert simulate_cache(stream.addresses, [full(8), full(32, "L2")], is_write=stream.is_write) == fast


def test_a_place_that_cannot_be_written_compiles_without_a_cache(monkeypatch):
    import numba

    from course_lib.hardware.jit import compiled

    real, asked = numba.njit, []

    def refusing(**options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", refusing)
    assert compiled(lambda x: x + 1)(1) == 2
    assert asked == [True, False]
