"""Figures of the journey carry the numbers of the journey, in words and in a table."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise

import pytest

from course_lib.errors import InvalidInputError
from course_lib.journey import Band, Journey, format_link
from course_lib.plotting import Figure
from course_lib.plotting.journey import change_bands, time_shares_bar, tornado, waterfall, what_moved_it
from course_lib.plotting.journey_staircase import along, current, next_step, staircase, sweep_values
from course_lib.plotting.journey_strip import boxes, link_strip
from course_lib.serving.workload import Workload

BASE = Journey()
WIDE = BASE.with_shape(num_kv_heads=32)
NO_BOUND = Band(low=0.1, nominal=0.2, high=math.inf, num_points=49, num_broken=3)


def stairs(name: str, *values: float) -> Figure:
    return staircase(along(BASE, name, values or sweep_values(BASE, name)), name, current(BASE, name))


FIGURES: list[Callable[[], Figure]] = [
    lambda: link_strip(BASE), lambda: link_strip(WIDE, BASE), lambda: stairs("num_kv_heads"),
    lambda: stairs("tpot_seconds"), lambda: stairs("arrival_requests_per_second"), lambda: stairs("num_layers", 32),
    lambda: what_moved_it(WIDE, BASE)[0], lambda: what_moved_it(BASE, BASE)[0], lambda: tornado(BASE.sensitivity()),
    lambda: time_shares_bar(BASE), lambda: time_shares_bar(BASE.with_changes(tensor_parallel=2)),
    lambda: change_bands([("wide", WIDE.diff(BASE).relative_band), ("breaks", NO_BOUND)]),
]  # fmt: skip


def shapes(figure: Figure, tag: str) -> list[dict[str, str]]:
    return [each.attrib for each in ET.fromstring(figure.svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")]


@pytest.mark.parametrize("make", FIGURES)
def test_a_figure_is_svg_with_a_sentence_a_caption_and_its_numbers(make: Callable[[], Figure]) -> None:
    figure = make()
    assert ET.fromstring(figure.svg).tag.endswith("svg")
    assert figure.alt.endswith(".")
    assert len(figure.table) >= 2
    assert len({len(row) for row in figure.table}) == 1
    assert figure.svg == make().svg  # the same journey draws the same bytes


@pytest.mark.parametrize("make", FIGURES)
def test_nothing_is_drawn_outside_the_picture(make: Callable[[], Figure]) -> None:
    root = ET.fromstring(make().svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 <= float(each.attrib["x"]) <= float(each.attrib["x"]) + float(each.attrib["width"]) <= width + 0.1
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        # DejaVu Sans, the widest family named: a letter of these labels is 0.5 of its size on average, bold 0.61
        long = len(each.text or "") * float(each.attrib["font-size"])
        long *= 0.66 if each.attrib["font-weight"] == "bold" else 0.57
        start = float(each.attrib["x"]) - long * {"start": 0, "middle": 0.5, "end": 1}[each.attrib["text-anchor"]]
        assert start >= 0, each.text
        assert start + long <= width, each.text
        assert 0 < float(each.attrib["y"]) <= height


@pytest.mark.parametrize(
    "changes", [{}, {"max_batch": 16}, {"ttft_seconds": 0.06}, {"tpot_seconds": 0.012}, {"num_spares": 0},
                {"arrival_requests_per_second": 0.01}, {"tpot_seconds": None}, {"kv_dtype": "fp8"}]
)  # fmt: skip
def test_the_strip_says_as_many_bindings_as_the_journey_has(changes: dict[str, object]) -> None:
    for journey in (BASE.with_changes(**changes), WIDE.with_changes(**changes)):
        figure = link_strip(journey)
        binding = [box.title for box in boxes(journey) if box.binds]
        assert len(binding) == len(set(journey.binding))
        assert figure.caption.endswith(f"Binding: {', '.join(binding)}.")
        assert figure.svg.count("BINDS") == len(binding)


def test_the_strip_prints_a_link_as_every_other_page_does() -> None:
    shown = {box.name: box.shown for box in boxes(BASE)}
    assert (shown["batch"], shown["num_replicas"]) == ("211 sequences", "6.071 replicas")
    for link in BASE.links:
        if link.name in shown and link.name not in ("num_parameters", "flops_per_token", "billed_usd_per_month"):
            assert shown[link.name] == format_link(link)


def test_the_strip_follows_an_altered_link() -> None:
    assert link_strip(BASE.with_link("usd_per_hour", lambda: 4.0)).svg != link_strip(BASE).svg


def test_the_staircase_is_the_bills_of_the_journeys_it_names() -> None:
    figure = stairs("num_kv_heads")
    for row, heads in zip(figure.table[1:], (1, 2, 4, 8, 16, 32), strict=True):
        bill = BASE.with_shape(num_kv_heads=heads).bill if heads != 8 else BASE.bill
        usd = f"{bill.continuous_usd_per_month:,.0f}", f"{bill.billed_usd_per_month:,.2f}"
        assert row == (str(heads), *usd)
    black, blue = ([float(each["height"]) for each in shapes(figure, "rect") if each["fill"] == fill]
                   for fill in ("#000000", "#0072B2"))  # fmt: skip
    assert len(black) == len(blue) == 6  # a bar each, for no number of heads lies between
    assert black[5] / black[3] == pytest.approx(36_609.5 / 17_228, rel=2e-3)  # places are printed to 0.1 of a point
    assert all(invoice > continuous for invoice, continuous in zip(black, blue))


def test_a_staircase_without_a_possible_value_is_refused_and_what_is_left_out_is_counted() -> None:
    values = (0.001, 0.02, 0.05)
    points = along(BASE, "tpot_seconds", values)
    figure = staircase(points, "tpot_seconds", 0.05, num_left_out=1)
    assert [row[0] for row in figure.table[1:]] == ["20 ms", "50 ms"]
    assert "cannot be served: 1 of 3 values" in figure.caption
    with pytest.raises(InvalidInputError, match="possible value"):
        staircase((), "tpot_seconds", 0.05)
    with pytest.raises(InvalidInputError, match="needs one"):
        current(BASE.with_changes(tpot_seconds=None), "tpot_seconds")


@pytest.mark.parametrize(
    "name", ["num_layers", "feed_forward_size", "model_size", "vocab_size", "output_tokens", "tpot_seconds"]
)
def test_values_of_a_staircase_go_through_the_present_one(name: str) -> None:
    values, now = sweep_values(BASE, name), current(BASE, name)
    assert any(value == pytest.approx(now, rel=1e-12) for value in values)
    assert min(values) > 0
    assert list(values) == sorted(set(values))
    assert along(BASE, name, (now,))[0].billed_usd == BASE.bill.billed_usd_per_month


def test_the_steps_of_the_drawn_invoice_never_fall_while_a_size_grows() -> None:
    figure = stairs("feed_forward_size")
    drawn = [[float(y) for y in heights(each["points"])] for each in shapes(figure, "polyline")]
    assert all(later <= earlier for each in drawn for earlier, later in pairwise(each))  # upwards is a smaller y


def heights(points: str) -> list[str]:
    return [pair.split(",")[1] for pair in points.split()]


def test_a_shorter_promise_never_costs_less_and_a_longer_one_has_no_rise_ahead() -> None:
    points = along(BASE, "tpot_seconds", sweep_values(BASE, "tpot_seconds"))
    assert all(later.billed_usd <= earlier.billed_usd for earlier, later in pairwise(points))
    assert next_step(BASE, "tpot_seconds", points, 0.05) is None


def test_a_module_without_sizes_has_a_staircase_over_its_load() -> None:
    from course_lib.models.char_lm import CharLM

    load = Workload(arrival_requests_per_second=60, prompt_tokens=64, output_tokens=64)
    journey = Journey(model=CharLM(), workload=load)
    name = "arrival_requests_per_second"
    assert len(along(journey, name, sweep_values(journey, name))) == 49


def test_the_waterfall_goes_from_the_invoice_before_to_the_one_after() -> None:
    diff = WIDE.diff(BASE)
    figure = waterfall(diff.billed_attribution.terms, 17_228.0, 36_609.5)
    rows = {row[0]: row[1] for row in figure.table}
    assert (rows["invoice of the base"], rows["invoice now"]) == ("+17,228.00", "+36,609.50")
    assert rows["KV bytes"] == f"{dict(diff.attribution.terms)['KV bytes']:+,.2f}"
    assert figure == what_moved_it(WIDE, BASE)[0]
    assert what_moved_it(BASE, BASE)[1] == ("nothing", 0.0)


def test_the_tornado_draws_the_largest_and_tables_all_and_dashes_what_is_assumed() -> None:
    found = BASE.sensitivity()
    figure = tornado(found, 3)
    assert len(figure.table) == 1 + len(found.elasticities)
    assert figure.alt.count("+") + figure.alt.count("-") == 3
    assert len(shapes(figure, "rect")) == 4  # three bars on the white
    dashed = [each for each in shapes(tornado(found), "rect") if "stroke-dasharray" in each]
    names = [name for name, _ in found.elasticities[:12]]
    assumed = {"efficiency_compute", "efficiency_bandwidth", "fixed_seconds", "headroom_fraction", "hours_per_month"}
    assert len(dashed) == len(assumed & set(names)) > 0


def test_a_band_without_bound_is_drawn_to_the_edge_and_said() -> None:
    figure = change_bands([("breaks", NO_BOUND)])
    assert figure.table[1] == ("breaks", "+10%", "+20%", "no bound")
    with pytest.raises(InvalidInputError, match="one band"):
        change_bands([])


def test_shares_of_the_bar_sum_to_the_interval_and_fill_it() -> None:
    figure = time_shares_bar(BASE)
    assert sum(float(row[1].rstrip("%")) for row in figure.table[1:]) == pytest.approx(100, abs=0.2)
    widths = [float(each["width"]) for each in shapes(figure, "rect") if each["height"] == "40.0"]
    assert sum(widths) == pytest.approx(840, abs=0.3)  # each is printed to 0.1 of a point
