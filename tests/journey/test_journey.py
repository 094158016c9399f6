"""The journey: one chain of links behind text, page and bill; properties of the dollars; bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.cost import Tariff
from course_lib.errors import DoesNotFitError, InvalidInputError, TraceATensorError, UnknownNameError, UnsupportedError
from course_lib.hardware import device
from course_lib.journey import LINKS, Journey
from course_lib.journey.served_model import Blend, decode_weight_fractions
from course_lib.serving.model_shape import model_shape
from course_lib.serving.roofline_step_time import RooflineStepTime
from course_lib.serving.slo import SLO
from course_lib.serving.step_time import StepBatch
from course_lib.serving.token_lengths import LogNormal
from course_lib.serving.workload import Workload

BASE = Journey(as_of=date(2026, 1, 1))
SHOWN = [rule.name for rule in LINKS if rule.shown]
FEW = settings(max_examples=25, deadline=None)


def scaled(name: str) -> Journey:
    """The journey with one link 1 % larger; whole numbers grow by one."""
    rule = next(rule for rule in LINKS if rule.name == name)

    def altered(*values: Any) -> Any:
        value = rule.function(*values)
        return value + 1 if isinstance(value, int) else value * 1.01

    names = ", ".join(rule.needs)
    function: Callable[..., Any] = eval(f"lambda {names}: altered({names})", {"altered": altered})
    return BASE.with_link(name, function)


# One chain behind everything


@pytest.mark.parametrize("name", [name for name in SHOWN if name != "ttft_promise_seconds"])
def test_altering_any_link_changes_its_row_in_the_text_and_in_the_page(name: str) -> None:
    before, after = BASE.explain(), scaled(name).explain()
    was, now = ({link.name: link.value for link in each.links} for each in (before, after))
    if name != "all_reduce_seconds":  # zero on one device
        assert was[name] != now[name]
    for index, link in enumerate(after.links):
        assert after.rows()[index][0] in after.text()
        assert f'data-link="{link.name}"' in after.html()
        assert after.rows()[index][1] in after.text()


@pytest.mark.parametrize(
    "name",
    [
        "flops_per_token", "kv_bytes_per_token", "arrival_requests_per_second", "prompt_tokens", "prefill_seconds",
        "memory_bytes_per_second", "peak_flops_per_second", "compute_efficiency", "step_seconds", "interval_seconds",
        "weight_read_seconds", "kv_read_seconds", "tpot_promise_seconds", "batch", "requests_per_second", "headroom",
        "num_replicas", "usd_per_hour", "hours", "continuous_usd_per_month", "devices_per_replica", "num_parameters",
    ],
)  # fmt: skip
def test_altering_a_link_of_the_dollars_changes_text_page_and_bill_alike(name: str) -> None:
    journey = BASE.with_changes(tpot_seconds=0.0501) if name == "tpot_promise_seconds" else scaled(name)
    if name == "devices_per_replica":
        journey = BASE.with_link(name, lambda: 2)
    usd = f"${journey.bill.continuous_usd_per_month:,.0f}"
    assert journey.bill.continuous_usd_per_month != BASE.bill.continuous_usd_per_month
    assert usd in journey.explain().text()
    assert usd in journey.explain().html()


def test_an_altered_bill_link_shows_as_an_adjustment_and_the_rows_still_sum() -> None:
    journey = scaled("billed_usd_per_month")
    assert [row.charge_category for row in journey.bill.rows] == ["Usage", "Usage", "Adjustment"]
    assert sum(row.billed_cost for row in journey.bill.rows) == pytest.approx(1.01 * BASE.bill.billed_usd_per_month)


def test_every_link_says_where_it_comes_from() -> None:
    for link in BASE.links:
        assert link.formula
        assert link.basis in ("counted", "computed", "assumed", "cited")
        if link.basis == "cited":
            assert link.source
        if link.basis == "computed":
            assert link.inputs or link.name in ("batch", "all_reduce_seconds"), link.name
    assert [link.name for link in BASE.links if link.binds] == ["weight_read_seconds", "tpot_promise_seconds"]


def test_links_hold_the_inputs_that_their_formula_names() -> None:
    replicas = next(link for link in BASE.links if link.name == "num_replicas")
    numbers = dict(replicas.inputs)
    by_hand = numbers["arrival_requests_per_second"] / (numbers["headroom"] * numbers["requests_per_second"])
    assert replicas.value == by_hand


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({}, "tpot_promise_seconds"),
        ({"max_batch": 16}, "batch_limit"),
        ({"tpot_seconds": 0.5}, "memory_batch"),
        ({"ttft_seconds": 0.06}, "ttft_promise_seconds"),
    ],
)
def test_the_binding_constraint_is_named(changes: dict[str, Any], bound: str) -> None:
    assert bound in BASE.with_changes(**changes).binding


def test_the_promised_time_to_first_token_is_kept_at_the_planned_load() -> None:
    journey = BASE.with_changes(ttft_seconds=0.1)
    assert journey["ttft_p99_seconds"] <= 0.1 < BASE["ttft_p99_seconds"]
    assert journey.bill.continuous_usd_per_month > BASE.bill.continuous_usd_per_month


def test_an_idle_fleet_is_the_minimum_fleet() -> None:
    journey = BASE.with_changes(arrival_requests_per_second=1e-6)
    assert journey.bill.num_replicas_billed == 2
    assert journey.bill.continuous_usd_per_month < 1e-2
    assert "num_replicas_billed" in journey.binding


# Dollars


@FEW
@given(st.floats(0.1, 50))
def test_twice_the_price_is_twice_the_dollars(usd: float) -> None:
    one, two = (BASE.with_changes(tariff=Tariff(usd_per_hour=price)).bill for price in (usd, 2 * usd))
    assert two.continuous_usd_per_month == pytest.approx(2 * one.continuous_usd_per_month)
    assert two.billed_usd_per_month == pytest.approx(2 * one.billed_usd_per_month)


@FEW
@given(st.sampled_from([10, 15, 20, 50, 200]), st.floats(1, 500), st.integers(100, 4000), st.integers(10, 1500))
def test_more_kv_heads_never_cost_less(milliseconds: int, rate: float, prompt: int, output: int) -> None:
    try:
        journey = BASE.with_changes(
            tpot_seconds=milliseconds / 1000, arrival_requests_per_second=rate, prompt_tokens=prompt,
            output_tokens=output,
        )  # fmt: skip
        usd = [journey.with_shape(num_kv_heads=heads)["continuous_usd_per_month"] for heads in (1, 2, 4, 8, 16, 32)]
    except DoesNotFitError:
        return  # a promise that even the smallest cache breaks has no dollars
    assert all(more >= less for less, more in pairwise(usd))


@FEW
@given(st.floats(1, 3), st.sampled_from([0.012, 0.02, 0.05]))
def test_more_bandwidth_never_costs_more(factor: float, tpot: float) -> None:
    slow = device("h100-sxm")
    fast = replace(slow, memory_bytes_per_second=slow.memory_bytes_per_second * factor)
    journey = BASE.with_changes(tpot_seconds=tpot)
    faster = journey.with_changes(device=fast, tariff=2.95)
    assert faster["continuous_usd_per_month"] <= journey["continuous_usd_per_month"]


@FEW
@given(
    st.sampled_from([1, 4, 8, 32]), st.sampled_from([14336, 16384]), st.sampled_from(["bf16", "fp8"]),
    st.sampled_from([0.02, 0.05]), st.floats(1, 200), st.sampled_from(["bf16", "int4-g64"]),
)  # fmt: skip
def test_attribution_sums_to_the_change(
    kv: int, ff: int, kv_dtype: str, tpot: float, rate: float, weights: str
) -> None:
    after = BASE.with_shape(num_kv_heads=kv, feed_forward_size=ff).with_changes(
        kv_dtype=kv_dtype, tpot_seconds=tpot, arrival_requests_per_second=rate, weight_dtype=weights
    )
    moved = after.diff(BASE)
    assert abs(moved.attribution.total_usd_per_month - moved.usd_per_month) <= 1e-9 * max(1, abs(moved.usd_per_month))
    assert abs(moved.billed_attribution.total_usd_per_month - moved.billed_usd_per_month) <= 1e-6


def test_a_change_of_price_alone_is_attributed_to_price_alone() -> None:
    moved = BASE.with_changes(tariff=5.90).diff(BASE)
    assert moved.attribution.terms == (("price", pytest.approx(BASE.bill.continuous_usd_per_month)),)


def test_causes_that_cannot_be_mixed_are_taken_together() -> None:
    big = Journey(model="llama-3-70b", tensor_parallel=8)  # its weights on one device do not fit
    moved = big.diff(BASE)
    assert [name for name, _ in moved.attribution.terms] == ["model and device"]
    assert moved.attribution.total_usd_per_month == pytest.approx(moved.usd_per_month)


def test_a_changed_formula_is_a_cause_of_its_own() -> None:
    moved = BASE.with_link("headroom", lambda: 1.0).diff(BASE)
    assert [name for name, _ in moved.attribution.terms] == ["formulas"]


def test_bands_hold_the_nominal_and_two_close_options_may_change_places() -> None:
    assert BASE.band.low < BASE.band.nominal < BASE.band.high
    assert BASE.billed_band.low <= BASE.billed_band.nominal <= BASE.billed_band.high
    close = BASE.with_changes(device="h200", tariff=2.95 * 1.13).diff(BASE)
    assert 0 < close.flip_probability < 1
    low, high = BASE.band.low, BASE.band.high
    assert f"${low:,.0f} to ${high:,.0f}" in BASE.explain().headline()


def test_a_band_with_broken_promises_says_so() -> None:
    tight = BASE.with_changes(tpot_seconds=0.0072)
    assert tight.band.num_broken > 0
    assert tight.band.high == float("inf")
    assert "unbounded" in tight.explain().text()


# Oracles: other routes to the same number


@pytest.mark.parametrize(
    ("model", "degree", "device_name"),
    [
        ("llama-3-8b", 1, "h100-sxm"), ("llama-3-70b", 8, "h100-sxm"), ("mixtral-8x7b", 4, "h200"),
        ("llama-2-13b", 2, "a100-80gb-sxm"),
    ],
)  # fmt: skip
def test_a_decode_step_equals_the_simulators_step_time(model: str, degree: int, device_name: str) -> None:
    journey = Journey(model=model, device=device_name, tensor_parallel=degree, slo=SLO(), tariff=1.0)
    step = RooflineStepTime(shape=model_shape(model), device=device(device_name), tensor_parallel=degree)
    batch = int(journey["batch"])
    assert journey["step_seconds"] == pytest.approx(step(StepBatch(decode_contexts=(1650,) * batch)), rel=1e-9)


def test_elasticities_by_shape_steps_of_whole_numbers_agree_to_first_order() -> None:
    # Independent of the blend: F 14336 +- 128, each a whole shape, continuous batch.
    inputs = {**BASE.inputs, "continuous_batch": True}
    from course_lib.journey.uncertainty import dollars

    usd = []
    for size in (14336 - 128, 14336 + 128):
        shape = model_shape("llama-3-8b").with_changes(feed_forward_size=size)
        usd.append(dollars({**inputs, "weight_model": shape, "kv_model": shape, "work_model": shape}))
    slope = np.log(usd[1] / usd[0]) / np.log((14336 + 128) / (14336 - 128))
    assert BASE.sensitivity()["feed_forward_size"] == pytest.approx(slope, abs=1e-4)


@given(st.floats(0, 3))
def test_a_blend_between_two_depths_is_the_depth_in_between(t: float) -> None:
    shape = model_shape("llama-3-8b")
    blend = Blend(start=shape, end=shape.with_changes(num_layers=64), t=t)
    layer = 218_112_000  # 2*4096*4096 + 2*4096*1024 + 3*4096*14336 + 2*4096
    assert blend.num_parameters == pytest.approx(8_030_261_248 + 32 * t * layer, rel=1e-12)
    assert blend.kv_bytes_per_token("bf16") == pytest.approx(131_072 * (1 + t))


@given(st.integers(1, 500))
def test_expert_weights_read_follow_the_expected_number_of_distinct_experts(batch: int) -> None:
    shape = model_shape("mixtral-8x7b")
    most, idle, ratio = decode_weight_fractions(shape)
    read = (most - idle * ratio ** (batch - 1)) * shape.weight_bytes("bf16")
    assert read == pytest.approx(shape.decode_weight_bytes(batch, "bf16"), rel=1e-9)


def test_price_elasticity_is_one_and_headroom_minus_one() -> None:
    found = BASE.sensitivity()
    assert found["usd_per_hour"] == pytest.approx(1, abs=1e-9)
    assert found["headroom_fraction"] == pytest.approx(-1, abs=1e-9)
    with pytest.raises(UnknownNameError, match="elasticity"):
        found["colour"]
    assert "num_layers" in found.table()


# Switches


@pytest.mark.parametrize(
    ("changes", "direction"),
    [
        ({"prefill_attention": True}, 1), ({"kv_block_tokens": 16, "tpot_seconds": 1.0, "prompt_tokens": 1495}, 1),
        ({"disaggregated": True}, -1), ({"headroom_fraction": 1.0}, -1), ({"prefix_hit_fraction": 0.5}, -1),
    ],
)  # fmt: skip
def test_every_convention_is_a_switch_that_moves_the_bill(changes: dict[str, Any], direction: int) -> None:
    reference = {name: value for name, value in changes.items() if name in ("tpot_seconds", "prompt_tokens")}
    before = BASE.with_changes(**reference) if reference else BASE
    change = BASE.with_changes(**changes)["continuous_usd_per_month"] - before["continuous_usd_per_month"]
    assert change * direction > 0


def test_distributions_enter_with_their_means() -> None:
    workload = Workload(arrival_requests_per_second=60, prompt_tokens=1500, output_tokens=LogNormal(300, 1.0))
    assert BASE.with_changes(workload=workload)["continuous_usd_per_month"] == BASE["continuous_usd_per_month"]


def test_windowed_layers_hold_less_than_full_ones() -> None:
    journey = Journey(model="gpt-oss-20b", device="h100-sxm")
    full = journey["kv_bytes_per_token"] * 1800
    assert journey["kv_bytes_held"] < full


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lama-3-8b"}, "Did you mean .*'llama-3-8b'"),
        ({"device": "h100"}, "Did you mean"),
        ({"weight_dtype": "int5"}, "int5"),
        ({"compute_dtype": "fp4"}, "fp4"),
        ({"efficiency_compute": 0}, "is a share"),
        ({"headroom_fraction": 1.5}, "is a share"),
        ({"hours_per_month": 0}, "above zero"),
        ({"fixed_seconds": -1}, "0 or more"),
        ({"max_batch": 0}, "1 or more"),
        ({"tensor_parallel": 0}, "number of devices"),
        ({"tensor_parallel": 3}, "degrees"),
        ({"tariff": -1.0}, "above zero"),
        ({"tariff": "nobody"}, "provider"),
        ({"workload": 3}, "Workload"),
        ({"arrival_requests_per_second": 0}, "above zero"),
        ({"output_tokens": 0}, "1 or more"),
        ({"tpot_seconds": 0.001}, "a batch of one already takes"),
        ({"ttft_seconds": 0.001}, "first token cannot be kept"),
        ({"prompt_tokens": 9000}, "sees at most 8,192"),
        ({"modle": "llama-3-8b"}, "Did you mean 'model'"),
        ({"model": 3}, "torch module"),
        ({"device": 3}, "path to a device file"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceATensorError, match=message):
        BASE.with_changes(**changes)


def test_a_model_that_does_not_fit_is_told_the_smallest_degree_that_holds_it() -> None:
    # 141.1 GB of weights; two devices hold 2 * (72 - 3) = 138 GB, four hold 276 GB.
    with pytest.raises(DoesNotFitError, match="tensor_parallel=4 is the smallest degree"):
        Journey(model="llama-3-70b")
    assert Journey(model="llama-3-70b", tensor_parallel="auto").degree == 4
    with pytest.raises(DoesNotFitError, match="tensor_parallel=4"):
        Journey(model="llama-3-70b", tensor_parallel=2)
    with pytest.raises(DoesNotFitError, match="No tensor-parallel degree"):
        Journey(model="llama-3-70b", device="t4", tensor_parallel="auto", tariff=0.5)


def test_unknown_links_and_shape_fields_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="link"):
        BASE.with_link("batches", lambda: 1)
    with pytest.raises(UnknownNameError, match="unknown link"):
        BASE["bach"]
    with pytest.raises(InvalidInputError, match="divide"):
        BASE.with_shape(num_kv_heads=5)


# Data


@pytest.mark.parametrize(
    "journey",
    [
        BASE,
        BASE.with_shape(num_kv_heads=32),
        BASE.with_changes(tariff=Tariff(usd_per_hour=2), output_tokens=LogNormal(300, 1.0)),
        Journey(model="deepseek-v3", device="h200", tensor_parallel="auto", weight_dtype="fp8", slo=SLO()),
        BASE.with_changes(device=replace(device("h100-sxm"), name="mine"), tariff=1.0),
    ],
    ids=["base", "edited", "tariff", "experts", "own device"],
)
def test_a_journey_survives_json(journey: Journey) -> None:
    again = Journey.from_dict(json.loads(json.dumps(journey.to_dict())))
    assert again.bill.billed_usd_per_month == journey.bill.billed_usd_per_month
    assert [link.value for link in again.links] == [link.value for link in journey.links]


def test_what_is_no_data_is_not_written_and_broken_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="function"):
        BASE.with_link("headroom", lambda: 1.0).to_dict()
    path = tmp_path / "workload.csv"
    path.write_text("arrival_at_seconds,prompt_tokens,output_tokens\n0,100,10\n1,100,10\n", encoding="utf-8")
    with pytest.raises(UnsupportedError, match="Recorded"):
        BASE.with_changes(workload=Workload.from_csv(path)).to_dict()
    with pytest.raises(InvalidInputError, match="format"):
        Journey.from_dict({"format": "other"})
    broken = BASE.to_dict()
    del broken["inputs"]["model"]
    with pytest.raises(InvalidInputError, match="fields of a journey"):
        Journey.from_dict(broken)


def test_an_old_price_is_a_warning_on_the_bill() -> None:
    assert BASE.bill.warnings == ()
    old = BASE.with_changes(as_of=date(2027, 1, 1))
    assert "365 days" in old.bill.warnings[0] or "366 days" in old.bill.warnings[0]
    assert old.bill.warnings[0] in old.explain().text()


def test_energy_is_shown_where_the_board_power_is_known() -> None:
    energy = BASE.bill.energy
    assert energy is not None
    # busy share: 6.0707 * 0.7 / 8 = 0.5312; 8 * 730 h * 700 W * (.15 + .85 * .5312) * 1.2 = 2,950.8 kWh
    assert energy.kwh_per_month == pytest.approx(8 * 730 * 0.7 * (0.15 + 0.85 * 6.07073 * 0.7 / 8) * 1.2, rel=1e-5)


def test_prompts_on_replicas_of_their_own_wait_for_prompts_alone():
    # 60/s * 37.942 ms / 0.7 = 3.25 prefill replicas; 4 run at 15/s: load 0.569, mean wait D * 0.569 / (2 * 0.431)
    apart = Journey(disaggregated=True)
    load = 15 * apart["prefill_seconds"]
    mean = apart["prefill_seconds"] * (1 + load / (2 * (1 - load)))
    assert apart["prefill_seconds"] < apart["ttft_p50_seconds"] < mean < apart["ttft_p99_seconds"] < 10 * mean
    slow_steps = replace(apart, fixed_seconds=0.02)
    for name in ("ttft_p50_seconds", "ttft_p99_seconds"):  # no decode step is ever under way on those replicas
        assert slow_steps[name] == apart[name]


def test_prefill_replicas_at_their_limit_still_have_a_time_to_first_token():
    assert math.isfinite(Journey(disaggregated=True, headroom_fraction=1.0)["ttft_p99_seconds"])


@pytest.mark.parametrize("changes", [{"num_spares": 0.5}, {"num_spares": True}, {"max_batch": True}], ids=str)
def test_machines_and_sequences_come_in_whole_numbers(changes):
    with pytest.raises(InvalidInputError, match="whole number"):
        Journey(**changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", None), ("model", []), ("workload", "x"), ("as_of", "x"), ("compute_dtype", 3),
     ("fixed_seconds", 10**400)],
)
def test_a_tampered_journey_file_is_refused(name, value):
    data = BASE.to_dict()
    data["inputs"] = {**data["inputs"], name: value}
    with pytest.raises(TraceATensorError):
        Journey.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "x"], ids=str)
def test_what_is_no_object_is_no_journey_file(data):
    with pytest.raises(InvalidInputError, match="journey file"):
        Journey.from_dict(data)
