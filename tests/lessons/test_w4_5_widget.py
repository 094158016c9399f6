"""Lesson 4.5: the page of the bill and the controls beside it read one journey, and say what it says."""

import builtins
import re
import sys

import pytest

from course_lib.cost import Tariff
from course_lib.errors import InvalidInputError, TraceATensorError
from course_lib.journey import Journey
from course_lib.plotting.journey import tornado, what_moved_it
from course_lib.plotting.journey_staircase import along, next_step, staircase, sweep_values
from course_lib.plotting.journey_strip import boxes, link_strip
from course_lib.serving import model_shape
from course_lib.widgets.journey import CHARTS, bill_explorer, journey_view
from course_lib.widgets.journey_controls import Explorer
from grading.cells import SOURCES, read_lesson
from grading.running import answer_of

BASE = Journey()
HEADS = BASE.with_shape(num_kv_heads=32)
WIDE = BASE.with_shape(feed_forward_size=16_384)
LESSON = read_lesson(SOURCES / "week4_serving" / "w4_5_dimension_to_bill.py")


@pytest.fixture
def explorer():
    return Explorer(BASE, BASE)


def billed(html):
    return float(re.search(r'data-billed-usd="([0-9.]+)"', html)[1])


def test_the_two_edits_of_the_puzzle_add_the_same_parameters_and_not_the_same_dollars():
    added = [edit["num_parameters"] - BASE["num_parameters"] for edit in (WIDE, HEADS)]
    assert added == [805_306_368, 805_306_368]  # 3 * 4096 * 2048 * 32 and 2 * 4096 * 24 * 128 * 32
    assert [each["billed_usd_per_month"] for each in (BASE, WIDE, HEADS)] == [17_228.0, 17_228.0, 36_609.5]


def test_quoted_numbers_of_the_lesson_are_those_of_the_library():
    short = BASE.with_changes(tpot_seconds=0.01)
    int4 = {"weight_dtype": "int4-g64"}
    journeys = (BASE, BASE.with_changes(**int4), short, short.with_changes(**int4))
    dollars = [journey["continuous_usd_per_month"] for journey in journeys]
    first, last = dollars[1] - dollars[0], dollars[3] - dollars[2]
    assert (round(first), round(last), round(dollars[3] - dollars[0])) == (-70, -15_872, 1_295)
    at = BASE.with_changes(tpot_seconds=0.02)
    assert round(100 * at.with_changes(kv_dtype="fp8").diff(at.with_changes(**int4)).flip_probability) == 20
    relieved = BASE.with_changes(tpot_seconds=0.055), BASE.with_changes(efficiency_compute=0.66)
    assert [round(100 * journey.diff(BASE).relative, 1) for journey in relieved] == [-0.6, -5.6]


def test_the_learner_s_batch_and_room_are_those_of_the_chain():
    for journey in (BASE, HEADS, WIDE):
        shape = journey.shape
        room = answer_of(LESSON, "w4-5-sequences")(
            shape.num_parameters, shape.num_layers, shape.num_heads, shape.num_kv_heads, shape.head_size, 1800, 80
        )
        assert room == journey["memory_batch"]
        one = [1000 * journey[name] / journey["batch"] for name in ("compute_seconds", "kv_read_seconds")]
        whole = [1000 * journey[name] for name in ("weight_read_seconds", "prefill_seconds")]
        batch = answer_of(LESSON, "w4-5-largest-batch")(one[0], whole[0], one[1], whole[1], 0.5, 300, 50, room)
        assert batch == journey["batch"]


@pytest.mark.parametrize("chart", CHARTS.values())
def test_the_static_page_holds_strip_invoice_and_chart_with_words(chart):
    page = journey_view(HEADS, BASE, chart=chart)
    html = page.html()
    assert billed(html) == HEADS["billed_usd_per_month"]
    assert html.count("<img") == html.count('alt="') == 2
    assert page.chart.table
    assert 'class="tt-invoice"' in html
    assert html == page._repr_html_()


def test_the_chart_is_hidden_until_a_number_is_committed():
    hidden = journey_view(HEADS, BASE, predict_first=True)
    assert hidden.chart is None
    assert hidden.ask.startswith("Predict first")
    shown = journey_view(HEADS, BASE, predict_first=True, predicted=30.0)
    assert shown.chart is not None
    assert shown.ask.startswith("You said 30.")


def test_an_unknown_chart_is_named():
    with pytest.raises(InvalidInputError, match="pie"):
        journey_view(BASE, chart="pie")


def test_the_strip_marks_what_binds_and_only_that():
    assert [box.name for box in boxes(BASE) if box.binds] == ["matmul_seconds", "interval_seconds"]
    assert [box.name for box in boxes(HEADS) if box.binds] == ["memory_batch", "matmul_seconds"]
    assert link_strip(HEADS, BASE).svg.count("BINDS") == 2
    idle = BASE.with_changes(arrival_requests_per_second=0.01)
    assert "num_replicas" in [box.name for box in boxes(idle) if box.binds]


def test_changes_on_the_strip_are_relative_to_the_base():
    change = {box.name: box.change for box in boxes(HEADS, BASE)}
    assert change["kv_bytes_per_token"] == 3.0
    assert change["num_parameters"] == pytest.approx(0.1003, abs=1e-4)


def test_changing_a_link_changes_the_page():
    altered = BASE.with_link("headroom", lambda: 1.0)
    assert billed(journey_view(altered, BASE).html()) == altered["billed_usd_per_month"] != BASE["billed_usd_per_month"]


@pytest.mark.parametrize("name", ["feed_forward_size", "num_layers", "arrival_requests_per_second", "output_tokens"])
def test_the_next_step_is_the_first_value_that_costs_more(name):
    values = sweep_values(BASE, name)
    now = float(BASE.shape.num_layers if name == "num_layers" else getattr(BASE.shape, name, 0) or BASE[name])
    step = next_step(BASE, name, along(BASE, name, values), now)
    before = step - (0.02 if name == "arrival_requests_per_second" else 1)
    low, high = along(BASE, name, (before, step))
    assert low.billed_usd == BASE["billed_usd_per_month"] < high.billed_usd


def test_seven_replicas_serve_69_18_requests_a_second():
    name = "arrival_requests_per_second"
    step = next_step(BASE, name, along(BASE, name, sweep_values(BASE, name)), 60)
    assert step == pytest.approx(7 * 0.7 * BASE["requests_per_second"], abs=0.01)
    (beyond,) = along(BASE, name, (step,))
    assert beyond.billed_usd - BASE["billed_usd_per_month"] == pytest.approx(2153.5)


def test_no_step_ahead_is_said():
    last = BASE.with_shape(num_kv_heads=32)
    assert "does not rise" in journey_view(last, BASE, predicted=1.0).ask


def test_figures_carry_the_numbers_that_they_draw():
    figure, (cause, usd) = what_moved_it(HEADS, BASE)
    rows = dict(figure.table[1:])
    parts = [float(rows[name].replace(",", "")) for name in list(rows)[1:-1]]
    assert sum(parts) == pytest.approx(19_381.5, abs=0.05)  # printed to the cent, four terms
    assert cause == "KV bytes"
    assert f"{usd:+,.2f}" == rows["KV bytes"]
    assert ("layers", "+1.076") in tornado(BASE.sensitivity()).table
    points = along(BASE, "num_layers", (16, 32, 64))
    assert staircase(points, "num_layers", 32).table[2][2] == "17,228.00"


def test_a_slider_moves_the_invoice(explorer):
    assert billed(explorer.invoice.value) == 17_228.0
    explorer.controls["num_kv_heads"].value = 32
    assert billed(explorer.invoice.value) == 36_609.5
    explorer.controls["num_kv_heads"].value = 8
    explorer.controls["kv_dtype"].value = "fp8"
    assert billed(explorer.invoice.value) == BASE.with_changes(kv_dtype="fp8")["billed_usd_per_month"]


def test_the_explorer_and_the_static_page_are_the_same_html(explorer):
    explorer.controls["num_kv_heads"].value = 32
    page = journey_view(HEADS, BASE)
    assert (explorer.strip.value, explorer.invoice.value) == (page.strip.to_html(), page.invoice)


def test_the_chart_waits_for_a_number_and_a_new_question_hides_it_again(explorer):
    assert explorer.chart.value == ""
    explorer.commit.click()
    assert "number first" in explorer.ask.value
    explorer.guess.value = "1,000"
    explorer.commit.click()
    assert "<figure" in explorer.chart.value
    assert explorer.ask.value.startswith("You said 1,000.")
    explorer.controls["chart"].value = "why"
    assert explorer.chart.value == ""


def test_what_cannot_be_served_is_said_in_place_and_the_page_recovers(explorer):
    explorer.controls["model"].value = "llama-3-70b"
    assert 'role="alert"' in explorer.invoice.value
    assert "does not fit" in explorer.invoice.value
    assert "Traceback" not in explorer.invoice.value
    explorer.controls["degree"].value = "auto"
    assert billed(explorer.invoice.value) > 17_228
    explorer.controls["degree"].value = 1
    explorer.controls["model"].value = "llama-3-8b"
    assert billed(explorer.invoice.value) == 17_228.0


def test_snapping_rounds_a_size_up_as_padding_does(explorer):
    explorer.controls["snap"].value = 1
    explorer.controls["feed_forward_size"].value = 14_337
    explorer.controls["snap"].value = 128
    assert explorer.controls["feed_forward_size"].value == 14_464
    explorer.controls["snap"].value = 256
    assert explorer.controls["feed_forward_size"].value == 14_592


def test_every_model_and_device_of_the_menus_gives_an_invoice_or_a_message(explorer):
    explorer.controls["degree"].value = "auto"
    for name in explorer.controls["model"].options:
        explorer.controls["model"].value = name
        assert 'class="tt-invoice' in explorer.invoice.value
    explorer.controls["model"].value = "llama-3-8b"
    for name in explorer.controls["device"].options:
        explorer.controls["device"].value = name
        assert 'class="tt-invoice' in explorer.invoice.value
        assert all(tariff.device == name for _, tariff in explorer.controls["price"].options)


def test_every_control_has_words(explorer):
    assert all(control.description for control in explorer.controls.values())
    assert explorer.controls["num_kv_heads"].description == "key/value heads"


def test_making_a_setting_the_base_takes_the_changes_to_zero(explorer):
    explorer.controls["num_kv_heads"].value = 32
    explorer.rebase.click()
    assert "invoice +0.00 USD, continuous +0.0%" in explorer.invoice.value


def test_one_s_own_shape_and_price_are_offered():
    shape = model_shape({**CONFIG, "name": "mine"})
    own = Explorer(*[Journey(model=shape, tariff=Tariff(usd_per_hour=1.0))] * 2)
    assert own.controls["model"].value == shape.name
    assert own.controls["price"].value.usd_per_hour == 1.0
    assert billed(own.invoice.value) == own.journey["billed_usd_per_month"]


CONFIG = {
    "model_type": "llama", "vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}  # fmt: skip


def test_without_ipywidgets_the_explorer_is_the_static_page(monkeypatch):
    import importlib.util

    found = importlib.util.find_spec

    def without(name, *rest):
        return None if name == "ipywidgets" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert bill_explorer(BASE, HEADS).html() == journey_view(HEADS, BASE).html()


def test_the_page_itself_never_imports_ipywidgets(monkeypatch):
    imported = builtins.__import__

    def refuse(name, *rest):
        assert not name.startswith("ipywidgets")
        return imported(name, *rest)

    for name in [name for name in sys.modules if name.startswith(("course_lib.widgets.journey", "ipywidgets"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    from course_lib.widgets.journey import journey_view as fresh

    assert fresh(BASE).strip.table


def test_impossible_values_are_left_out_of_a_staircase():
    points = along(BASE, "num_kv_heads", (7, 8, 64))
    assert [point.value for point in points] == [8]
    with pytest.raises(TraceATensorError):
        BASE.with_shape(num_kv_heads=7)
