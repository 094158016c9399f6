import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.hardware import CacheLevel, matmul_misses_closed_form, matmul_stream, miss_curve, simulate_cache
from course_lib.plotting.caches import (
    lru_stack_figure,
    miss_curve_figure,
    size_sweep_figure,
    tile_curves,
    tile_dial_figure,
)
from course_lib.widgets.caches import tile_dial

LINE = 64
TILED = tile_curves(24, element_bytes=16)  # L = 4: tiles 4, 8, 12, 24


def test_six_accesses_by_hand():
    # lines 0 1 0 2 1 0 in two places: miss, miss, hit, miss (1 out), miss (0 out), miss (2 out)
    rows = lru_stack_figure([0, 64, 4, 128, 68, 8], num_lines=2, line_bytes=LINE).table[1:]
    assert [row[4] for row in rows] == ["miss", "miss", "hit", "miss", "miss", "miss"]
    assert [row[5] for row in rows] == ["0", "1, 0", "0, 1", "2, 0", "1, 2", "0, 1"]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=16), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_the_stack_shows_the_simulators_hits(addresses, num_lines):
    figure = lru_stack_figure(addresses, num_lines=num_lines, line_bytes=LINE)
    level = CacheLevel(name="L1", capacity_bytes=num_lines * LINE, line_bytes=LINE)
    assert sum(row[4] == "hit" for row in figure.table) == simulate_cache(addresses, [level]).levels[0].num_hits
    assert all(len(row[5].split(", ")) <= num_lines for row in figure.table[1:])


def test_curves_are_marked_with_counted_misses_and_told_in_words():
    curve = miss_curve(matmul_stream(8, element_bytes=16).addresses, line_bytes=LINE)
    figure = miss_curve_figure({"ijk": curve, "again": curve}, num_lines=12)
    assert figure.table[1:] == (("ijk", "12", "160"), ("again", "12", "160"))  # n^3/L + 2 n^2/L = 128 + 32
    assert "ijk 160" in figure.alt


@pytest.mark.parametrize(("tile", "num_lines"), [(4, 16), (8, 70), (12, 150)])
def test_tile_curves_reach_the_closed_form_inside_its_region(tile, num_lines):
    assert TILED.misses(tile, num_lines) == matmul_misses_closed_form(24, line_elements=4, tile=tile)


@given(st.sampled_from([4, 8, 12, 24]), st.integers(1, 600))
@settings(deadline=None)
def test_no_tile_moves_less_than_the_bound(tile, num_lines):
    stores = 24**2 / 4  # each line of the result is written back at least once
    assert TILED.misses(tile, num_lines) + stores >= TILED.bound(num_lines)


def test_the_dial_names_the_best_tile():
    figure = tile_dial_figure(TILED, tile=4, num_lines=46)
    assert figure.table[1:] == (
        ("4", "46", "1,872", "2.17"),
        ("8", "46", "1,296", "1.50"),
        ("12", "46", "864", "1.00"),
        ("24", "46", "3,744", "4.33"),
    )
    assert "2.17 times" in figure.caption


def test_moving_a_slider_redraws_the_same_picture_as_the_static_twin():
    dial = tile_dial(TILED, tile=8, num_lines=30)
    tiles, lines, picture = dial.children
    before = picture.value
    assert before == tile_dial_figure(TILED, tile=8, num_lines=30).to_html()
    tiles.value, lines.value = 12, 46
    assert picture.value == tile_dial_figure(TILED, tile=12, num_lines=46).to_html() != before


def test_power_of_two_sizes_stand_out():
    level = CacheLevel(name="L1", capacity_bytes=32 * 1024, line_bytes=LINE, ways=8)
    figure = size_sweep_figure([124, 128, 132], level)
    assert figure.table[2] == ("128", "2,048", "0", "15,360")
    assert "at size 128" in figure.alt
    assert re.search(r"Peak 8\.5 at n = 128", figure.caption)


def test_limits_one_access_one_line_and_bad_input():
    assert lru_stack_figure([7], num_lines=1, line_bytes=LINE).table[1][4] == "miss"
    assert miss_curve_figure({"one": miss_curve([0], line_bytes=LINE)}, num_lines=1).table[1] == ("one", "1", "1")
    for bad in (
        lambda: lru_stack_figure([], num_lines=1, line_bytes=LINE),
        lambda: miss_curve_figure({}, num_lines=1),
        lambda: tile_dial_figure(TILED, tile=5, num_lines=8),
        lambda: tile_curves(10),
        lambda: size_sweep_figure([], CacheLevel(name="L1", capacity_bytes=64, line_bytes=64)),
    ):
        with pytest.raises(InvalidInputError):
            bad()
