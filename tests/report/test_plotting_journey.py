"""Figures of the journey carry the numbers of the journey, in words and in a table."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from course_lib.errors import InvalidInputError
from course_lib.journey import Band, Journey, format_link
from course_lib.plotting import Figure
from course_lib.plotting.journey import (
    attribution_waterfall,
    change_bands,
    links_strip,
    sensitivity_tornado,
    time_shares_bar,
)
from course_lib.plotting.staircase import dollar_staircase, staircase_values, varied
from course_lib.units import format_usd

BASE = Journey()
WIDE = BASE.with_shape(num_kv_heads=32)

FIGURES: list[Callable[[], Figure]] = [
    lambda: links_strip(BASE), lambda: dollar_staircase(BASE, "num_kv_heads"),
    lambda: dollar_staircase(BASE, "tpot_seconds", (0.02, 0.05)), lambda: attribution_waterfall(WIDE.diff(BASE)),
    lambda: sensitivity_tornado(BASE.sensitivity()), lambda: time_shares_bar(BASE),
    lambda: change_bands([("wide", WIDE.diff(BASE).relative_band)]),
]  # fmt: skip


@pytest.mark.parametrize("make", FIGURES)
def test_a_figure_is_svg_with_a_sentence_a_caption_and_its_numbers(make: Callable[[], Figure]) -> None:
    figure = make()
    assert ET.fromstring(figure.svg).tag.endswith("svg")
    assert figure.alt.endswith(".")
    assert len(figure.table) >= 2
    assert len({len(row) for row in figure.table}) == 1
    assert figure.svg == make().svg  # the same journey draws the same bytes


def test_the_strip_shows_every_link_that_binds_and_says_so() -> None:
    for journey in (BASE, WIDE, BASE.with_changes(max_batch=16), BASE.with_changes(ttft_seconds=0.06)):
        figure = links_strip(journey)
        rows = {row[0]: row for row in figure.table}
        for link in journey.links:
            if link.binds:
                assert rows[link.title][1:] == (format_link(link), link.basis, "binds")
                assert link.title in figure.caption


def test_the_strip_follows_an_altered_link() -> None:
    assert links_strip(BASE.with_link("usd_per_hour", lambda: 4.0)).svg != links_strip(BASE).svg


def test_the_staircase_is_the_bills_of_the_journeys_it_names() -> None:
    figure = dollar_staircase(BASE, "num_kv_heads")
    for row, heads in zip(figure.table[1:], (1, 2, 4, 8, 16, 32), strict=True):
        bill = BASE.with_shape(num_kv_heads=heads).bill if heads != 8 else BASE.bill
        assert row == (str(heads), format_usd(bill.billed_usd_per_month), format_usd(bill.continuous_usd_per_month))


def test_a_staircase_leaves_out_what_does_not_work_and_counts_it() -> None:
    figure = dollar_staircase(BASE, "tpot_seconds", (0.001, 0.05))
    assert len(figure.table) == 2
    assert "1 values do not work" in figure.caption
    with pytest.raises(InvalidInputError, match="possible value"):
        dollar_staircase(BASE, "tpot_seconds", (0.001,))
    for name in ("weight_dtype", "ttft_seconds", "colour"):
        with pytest.raises(InvalidInputError, match="varies a number"):
            dollar_staircase(BASE, name)


@pytest.mark.parametrize("name", ["num_layers", "feed_forward_size", "model_size", "vocab_size", "output_tokens"])
def test_values_of_a_staircase_go_through_the_current_one(name: str) -> None:
    values = staircase_values(BASE, name)
    now = getattr(BASE.model, name, None) or getattr(BASE.workload, name)
    assert now in values
    assert min(values) >= 1
    assert list(values) == sorted(set(values))
    assert varied(BASE, name, now).bill.billed_usd_per_month == BASE.bill.billed_usd_per_month


def test_the_waterfall_goes_from_the_dollars_before_to_those_after() -> None:
    rows = dict(attribution_waterfall(WIDE.diff(BASE)).table)
    assert (rows["before"], rows["after"], rows["KV bytes"]) == ("$13,073", "$32,502", "+$18,112")
    with pytest.raises(InvalidInputError, match="no change"):
        attribution_waterfall(BASE.diff(BASE))


def test_the_tornado_draws_the_largest_and_tables_all() -> None:
    found = BASE.sensitivity()
    figure = sensitivity_tornado(found, num_bars=3)
    assert len(figure.table) == 1 + len(found.elasticities)
    assert figure.alt.count("+") + figure.alt.count("-") >= 3


def test_a_band_without_bound_is_drawn_to_the_edge_and_said() -> None:
    figure = change_bands([("breaks", Band(low=0.1, nominal=0.2, high=float("inf"), num_points=49, num_broken=3))])
    assert figure.table[1] == ("breaks", "+10%", "+20%", "no bound")
    with pytest.raises(InvalidInputError, match="one band"):
        change_bands([])


def test_shares_of_the_bar_sum_to_the_interval() -> None:
    rows = time_shares_bar(BASE).table[1:]
    assert sum(float(row[1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.2)
