"""Closed forms that lesson 2.2 shows or asks for, against the counters; those of the library are in tests/hardware."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.hardware import (
    CacheLevel,
    cyclic_scan_stream,
    matmul_stream,
    miss_classes,
    miss_curve,
    simulate_cache,
    transpose_stream,
)
from grading.cells import SOURCES, read_lesson
from grading.proofs import load
from grading.running import answer_of

LINE = 64
LESSON = read_lesson(SOURCES / "week2_hardware" / "w2_2_memory_hierarchy.py")
SIZES = st.tuples(st.integers(2, 6), st.sampled_from([2, 4, 8])).map(lambda size: (size[0] * size[1], size[1]))


@cache
def solution(key):
    return answer_of(LESSON, key)


@cache
def curve(n, elements, order):
    return miss_curve(matmul_stream(n, order=order, element_bytes=LINE // elements).addresses, line_bytes=LINE)


@given(SIZES, st.sampled_from(["ijk", "ikj", "jik", "kij", "jki"]))
@settings(max_examples=40, deadline=None)
def test_the_forms_of_five_orders_are_the_counts_at_both_ends_of_the_region_asked_for(size, order):
    n, elements = size
    smallest, largest = n + n // elements + 3, 2 * n
    if n < 4 or smallest > largest:
        return  # n = 4, L = 2 asks for 9 lines of at most 8: no such cache
    form = solution("w2-2-misses")(order, n, elements)
    assert curve(n, elements, order).misses(smallest * LINE) == form
    assert curve(n, elements, order).misses(largest * LINE) == form


@given(SIZES)
@settings(max_examples=40, deadline=None)
def test_the_region_of_kij_is_exact_at_every_capacity(size):
    n, elements = size
    smallest, largest = solution("w2-2-region")(n, elements)
    form = n**3 // elements + n**2 // elements + n**2
    for lines in range(1, 3 * n * n // elements + 2):
        assert (curve(n, elements, "kij").misses(lines * LINE) == form) == (smallest <= lines <= largest), lines


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 7), st.booleans())
@settings(deadline=None)
def test_the_scan_fraction_is_the_counted_one(num_scanned, num_lines, passes, alternate):
    level = CacheLevel(name="L1", capacity_bytes=num_lines * LINE, line_bytes=LINE)
    scan = cyclic_scan_stream(num_scanned, passes=passes, alternate=alternate)
    counted = simulate_cache(scan.addresses, [level]).levels[0]
    share = solution("w2-2-scan")(num_scanned, num_lines, passes, alternate)
    assert round(share * num_scanned * passes, 6) == counted.num_hits


@given(st.lists(st.tuples(st.integers(0, 700), st.booleans()), max_size=80), st.integers(1, 6))
@settings(deadline=None)
def test_the_lessons_own_cache_counts_as_the_simulator(accesses, num_lines):
    addresses, writes = [a for a, _ in accesses], [w for _, w in accesses]
    level = CacheLevel(name="L1", capacity_bytes=num_lines * LINE, line_bytes=LINE)
    stats = simulate_cache(addresses, [level], is_write=writes).levels[0]
    assert solution("w2-2-lru")(addresses, writes, num_lines, LINE) == (stats.num_misses, stats.writebacks)


def test_the_numbers_of_the_puzzle():
    level = CacheLevel(name="L1", capacity_bytes=32 * 1024, line_bytes=LINE, ways=8)
    square, padded = (miss_classes(transpose_stream(n).addresses, level) for n in (128, 132))
    # 2 matrices of 128 * 128 / 16 lines; every one of 16,384 writes misses beside A's 1,024 lines
    assert (square.compulsory, square.capacity, square.conflict) == (2_048, 0, 15_360)
    assert square.total == 128 * 128 + 128 * 128 // 16 == 17_408
    assert padded.total == 2_277
    assert round(square.total / padded.total, 1) == 7.6


def test_the_numbers_quoted_in_the_text():
    ijk = curve(48, 16, "ijk")
    assert (ijk.misses(51 * LINE), ijk.misses(52 * LINE)) == (110_880, 7_200)
    assert (ijk.misses(150 * LINE), ijk.misses(151 * LINE)) == (7_200, 7_106)
    assert curve(48, 16, "ikj").misses(8 * LINE) == 7_200 < curve(48, 16, "ikj").misses(7 * LINE)
    checks = load(SOURCES.parents[1] / "checks" / "week2_hardware" / "w2_2_memory_hierarchy.py")
    assert checks.kij_region(48, 16) == (8, 192)
