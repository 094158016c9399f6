"""The flagship tables, every row to the printed digits. Inputs and conventions are those of the published table:
Llama-3-8B, H100 SXM at 2.95 USD/h, 60 requests/s, 1,500 tokens in and 300 out, 50 ms a token, P_mm = P - V D."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.journey import Journey

BASE = Journey(model="llama-3-8b", device="h100-sxm")

# shape changes, other changes; parameters [1e9], KV [KiB], batch, replicas, billed ones, USD, change [%], billed USD
ROWS: list[tuple[str, dict[str, int], dict[str, Any], float, int, int, float, int, int, float, int]] = [
    ("base", {}, {}, 8.030, 128, 211, 6.07, 8, 13_073, 0.0, 17_228),
    ("F +1.8 %", {"feed_forward_size": 14592}, {}, 8.131, 128, 209, 6.13, 8, 13_202, 1.0, 17_228),
    ("F 16384", {"feed_forward_size": 16384}, {}, 8.836, 128, 196, 6.56, 8, 14_117, 8.0, 17_228),
    ("D 4224", {"model_size": 4224}, {}, 8.281, 128, 207, 6.21, 8, 13_370, 2.3, 17_228),
    ("K 16", {"num_kv_heads": 16}, {}, 8.299, 256, 111, 8.98, 10, 19_335, 47.9, 21_535),
    ("K 32", {"num_kv_heads": 32}, {}, 8.836, 512, 54, 15.1, 17, 32_502, 148.6, 36_610),
    ("K 1", {"num_kv_heads": 1}, {}, 7.795, 16, 315, 4.08, 6, 8_788, -32.8, 12_921),
    ("L 36", {"num_layers": 36}, {}, 8.903, 144, 186, 6.90, 8, 14_855, 13.6, 17_228),
    ("V x2", {"vocab_size": 256_512}, {}, 9.081, 128, 201, 6.39, 8, 13_751, 5.2, 17_228),
    ("INT8", {}, {"weight_dtype": "int8"}, 8.030, 128, 212, 6.04, 8, 13_004, -0.5, 17_228),
    ("INT4", {}, {"weight_dtype": "int4-g64"}, 8.030, 128, 212, 6.04, 8, 13_004, -0.5, 17_228),
    ("KV FP8", {}, {"kv_dtype": "fp8"}, 8.030, 64, 257, 4.99, 6, 10_746, -17.8, 12_921),
    ("20 ms", {}, {"tpot_seconds": 0.02}, 8.030, 128, 67, 7.67, 9, 16_514, 26.3, 19_382),
    ("batch 16", {}, {"max_batch": 16}, 8.030, 128, 16, 15.1, 17, 32_587, 149.3, 36_610),
]


def edited(shape: dict[str, int], changes: dict[str, Any]) -> Journey:
    journey = BASE.with_changes(**changes) if changes else BASE
    return journey.with_shape(**shape) if shape else journey


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_first_table_is_reproduced_to_the_printed_digits(row: Any) -> None:
    _, shape, changes, billions, kib, batch, replicas, billed, usd, percent, billed_usd = row
    journey = edited(shape, changes)
    assert round(journey["num_parameters"] / 1e9, 3) == billions
    assert round(journey["kv_bytes_per_token"] / 1024) == kib
    assert journey["batch"] == batch
    digits = 2 if replicas < 10 else 1
    assert round(journey["num_replicas"], digits) == replicas
    assert journey.bill.num_replicas_billed == billed
    assert round(journey.bill.continuous_usd_per_month) == usd
    assert round((journey.bill.continuous_usd_per_month / BASE.bill.continuous_usd_per_month - 1) * 100, 1) == percent
    assert round(journey.bill.billed_usd_per_month + 1e-6) == billed_usd  # 36,609.5 is printed as 36,610


@pytest.mark.parametrize(
    ("milliseconds", "usd", "batch", "int8", "int4"),
    [
        (50, 13_073, 211, -0.5, -0.5),
        (20, 16_514, 67, -16.7, -20.0),
        (12, 23_538, 28, -32.3, -41.5),
        (10, 30_241, 18, -43.2, -52.5),
        (8, 49_009, 9, -59.6, -68.8),
    ],
)
def test_every_row_of_the_second_table_is_reproduced(
    milliseconds: int, usd: int, batch: int, int8: float, int4: float
) -> None:
    bf16 = BASE.with_changes(tpot_seconds=milliseconds / 1000)
    assert (round(bf16.bill.continuous_usd_per_month), bf16["batch"]) == (usd, batch)
    for dtype, percent in (("int8", int8), ("int4-g64", int4)):
        narrow = bf16.with_changes(weight_dtype=dtype).bill.continuous_usd_per_month
        assert round((narrow / bf16.bill.continuous_usd_per_month - 1) * 100, 1) == percent


@pytest.mark.parametrize(
    ("changes", "percent"),
    [
        ({"weight_dtype": "fp8", "compute_dtype": "fp8"}, -33),  # W8A8: -32.9 with 1,979e12, the printed peak
        ({"weight_dtype": "fp8", "compute_dtype": "fp8", "kv_dtype": "fp8"}, -50),
        ({"output_tokens": 1500}, 283),
        ({"prefix_hit_fraction": 0.5}, -27),
        ({"prefix_hit_fraction": 0.8}, -43),
        ({"prefix_hit_fraction": 0.9}, -49),
    ],
)
def test_formats_lengths_and_prefix_hits_move_the_bill_as_printed(changes: dict[str, Any], percent: int) -> None:
    change = BASE.with_changes(**changes).bill.continuous_usd_per_month / BASE.bill.continuous_usd_per_month - 1
    assert round(change * 100) == percent


def test_weight_only_fp8_does_not_touch_the_arithmetic() -> None:
    weight_only = BASE.with_changes(weight_dtype="fp8")
    assert weight_only["compute_seconds"] / weight_only["batch"] == BASE["compute_seconds"] / BASE["batch"]
    assert round(weight_only.bill.continuous_usd_per_month) == 13_004  # as INT8


def test_prefill_takes_54_percent_of_each_token_interval() -> None:
    assert round(BASE["prefill_time_fraction"], 2) == 0.54
    assert dict(BASE.time_shares)["prefill"] == pytest.approx(BASE["prefill_time_fraction"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_layers", 1.08), ("model_size", 0.74), ("feed_forward_size", 0.55), ("head_size", 0.52),
        ("vocab_size", 0.05), ("num_kv_heads", 0.42),
    ],
)  # fmt: skip
def test_elasticities_to_the_sizes_are_the_corrected_ones(name: str, value: float) -> None:
    assert round(BASE.sensitivity()[name], 2) == value


def test_the_elasticity_to_heads_has_three_digits() -> None:
    assert round(BASE.sensitivity()["num_heads"], 3) == 0.106


def test_kv_heads_8_to_32_say_kv_bytes_and_flip_nothing() -> None:
    moved = BASE.with_shape(num_kv_heads=32).diff(BASE)
    assert round(moved.relative * 100, 1) == 148.6
    assert moved.attribution.largest == "KV bytes"
    assert moved.attribution.usd_per_month("KV bytes") > 0.9 * moved.usd_per_month
    assert moved.flip_probability == 0


def test_the_band_of_kv_heads_8_to_32_over_the_whole_grid() -> None:
    # "About +111 % to +162 %" holds where only the compute efficiency moves, at a bandwidth efficiency of .8; the
    # corners of the grid reach further: +101 % at (compute .4, bandwidth .9) and +177 % at (.7, .6).
    ends = [BASE.with_changes(efficiency_compute=share) for share in (0.4, 0.7)]
    assert [round(end.with_shape(num_kv_heads=32).diff(end).relative * 100) for end in ends] == [111, 162]
    moved = BASE.with_shape(num_kv_heads=32).diff(BASE).relative_band
    assert (round(moved.low * 100), round(moved.high * 100)) == (101, 177)
    assert (moved.num_points, moved.num_broken) == (49, 0)


def test_a_small_feed_forward_increase_is_free_on_the_invoice_and_not_in_the_fleet() -> None:
    moved = BASE.with_shape(feed_forward_size=14592).diff(BASE)
    assert round(moved.relative * 100, 1) == 1.0
    assert moved.billed_usd_per_month == 0
    assert moved.billed_attribution.total_usd_per_month == pytest.approx(0, abs=1e-9)


def test_fifteen_percent_more_traffic_is_free_and_the_request_past_69_buys_a_replica() -> None:
    # A replica serves 0.7 * 14.119 = 9.883 requests/s, seven of them 69.18/s; the next one costs 730 * 2.95 USD.
    rates = (69, 69.18, 69.19)
    at = {rate: BASE.with_changes(arrival_requests_per_second=rate)["billed_usd_per_month"] for rate in rates}
    assert at[69] == at[69.18] == BASE.bill.billed_usd_per_month
    assert at[69.19] - at[69.18] == pytest.approx(2153.50)
