"""The bill: replicas, dollars, tokens, FOCUS rows, energy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.cost import Tariff, bill, fleet_energy, num_billed_replicas
from course_lib.errors import InvalidInputError

REPLICAS = st.floats(0, 1e4)
USD = st.floats(0.01, 100)


def test_the_flagship_fleet_by_hand() -> None:
    # 6.07 -> 7 whole + 1 spare = 8; 8 * 730 h * 2.95 = 17,228; continuous 6.07 * 730 * 2.95 = 13,071.745
    got = bill(tariff=Tariff(usd_per_hour=2.95), num_replicas=6.07)
    assert got.num_replicas_billed == 8
    assert got.billed_usd_per_month == pytest.approx(17_228, abs=1e-9)
    assert got.continuous_usd_per_month == pytest.approx(13_071.745, abs=1e-9)


def test_tokens_pay_for_the_device_time_of_their_phase() -> None:
    # One replica and no spare, 3,600 USD in 1 h; 1 M tokens in and 1 M out in that hour; prefill holds a quarter.
    got = bill(
        tariff=Tariff(usd_per_hour=3600), num_replicas=1, num_spares=0, hours_per_month=1,
        input_tokens_per_second=1e6 / 3600, output_tokens_per_second=1e6 / 3600, prefill_time_fraction=0.25,
    )  # fmt: skip
    assert got.usd_per_million_input_tokens == pytest.approx(900)
    assert got.usd_per_million_output_tokens == pytest.approx(2700)
    assert got.usd_per_million_tokens == pytest.approx(1800)


@given(REPLICAS, USD, st.floats(0, 1), st.floats(1, 1e5), st.floats(1, 1e5), st.integers(1, 8))
def test_input_and_output_tokens_together_pay_the_bill(
    replicas: float, usd: float, share: float, tokens_in: float, tokens_out: float, devices: int
) -> None:
    got = bill(
        tariff=Tariff(usd_per_hour=usd), num_replicas=replicas, input_tokens_per_second=tokens_in,
        output_tokens_per_second=tokens_out, prefill_time_fraction=share, num_devices_per_replica=devices,
    )  # fmt: skip
    month = 730 * 3600 / 1e6
    paid = month * (tokens_in * got.usd_per_million_input_tokens + tokens_out * got.usd_per_million_output_tokens)
    assert paid == pytest.approx(got.billed_usd_per_month)
    assert math.fsum(row.billed_cost for row in got.rows) == pytest.approx(got.billed_usd_per_month)
    assert got.num_devices == got.num_replicas_billed * devices


@given(REPLICAS, USD)
def test_twice_the_price_is_twice_the_dollars(replicas: float, usd: float) -> None:
    one = bill(tariff=Tariff(usd_per_hour=usd), num_replicas=replicas)
    two = bill(tariff=Tariff(usd_per_hour=2 * usd), num_replicas=replicas)
    assert two.billed_usd_per_month == pytest.approx(2 * one.billed_usd_per_month)
    assert two.continuous_usd_per_month == pytest.approx(2 * one.continuous_usd_per_month)


@given(REPLICAS, st.integers(0, 3))
def test_billed_dollars_cover_the_continuous_ones(replicas: float, spares: int) -> None:
    got = bill(tariff=Tariff(usd_per_hour=1), num_replicas=replicas, num_spares=spares)
    slack = got.num_replicas_billed - spares - replicas
    assert -1e-9 <= slack <= 1 or replicas < 1


def test_no_load_still_rents_one_replica_and_its_spare() -> None:
    got = bill(tariff=Tariff(usd_per_hour=1), num_replicas=0)
    assert (got.num_replicas_billed, got.billed_usd_per_month, got.continuous_usd_per_month) == (2, 1460, 0)
    assert got.usd_per_million_tokens == 0
    assert num_billed_replicas(0, num_spares=0) == 1


def test_a_huge_fleet_keeps_its_dollars_finite() -> None:
    assert bill(tariff=Tariff(usd_per_hour=1), num_replicas=1e12).billed_usd_per_month == pytest.approx(730e12)


def test_rows_carry_the_focus_columns() -> None:
    reserved = Tariff(
        usd_per_hour=1, list_usd_per_hour=3, pricing="reserved", upfront_usd=8760, term_hours=8760,
        provider="p", device="d",
    )  # fmt: skip
    got = bill(tariff=reserved, num_replicas=1, num_spares=1)
    row = got.rows[0].columns()
    # 730 h: billed 730; effective 730 * (1 + 1) = 1,460; list 730 * 3 = 2,190
    assert (row["BilledCost"], row["EffectiveCost"], row["ListCost"], row["ContractedCost"]) == (730, 1460, 2190, 730)
    assert row["ChargeCategory"] == "Usage"
    assert row["PricingCategory"] == "Committed"
    assert row["CommitmentDiscountStatus"] == "Used"
    assert {"BillingCurrency", "ChargeDescription", "PricingQuantity", "PricingUnit", "ProviderName"} <= set(row)
    assert got.effective_usd_per_month == 2 * 1460


def test_interrupted_machines_need_more_of_them() -> None:
    spot = Tariff(usd_per_hour=1, pricing="spot", interruptions_per_hour=0.2, hours_lost_per_interruption=0.5)
    got = bill(tariff=spot, num_replicas=10)  # 10 * 1.1 = 11 replicas and a spare
    assert got.num_replicas_billed == 12
    assert got.continuous_usd_per_month == pytest.approx(11 * 730)


def test_energy_by_hand_and_only_where_the_board_power_is_known() -> None:
    # 2 devices, 1 h, 100 W, half busy, idle .15, PUE 1.2: 2 * 3600 * 100 * (.15 + .5 * .85) * 1.2 = 496,800 J
    energy = fleet_energy(tdp_watts=100, num_devices=2, hours=1, output_tokens=1000, busy_fraction=0.5)
    assert energy.joules_per_month == pytest.approx(496_800)
    assert energy.kwh_per_month == pytest.approx(0.138)
    assert energy.joules_per_output_token == pytest.approx(496.8)
    assert energy.basis == "assumed"
    assert bill(tariff=Tariff(usd_per_hour=1), num_replicas=1).energy is None
    with_power = bill(tariff=Tariff(usd_per_hour=1), num_replicas=1, tdp_watts=700).energy
    assert with_power is not None
    with pytest.raises(InvalidInputError, match="busy_fraction"):
        fleet_energy(tdp_watts=1, num_devices=1, hours=1, output_tokens=1, busy_fraction=2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_replicas": -1}, {"num_replicas": math.inf}, {"num_replicas": 1, "num_spares": -1},
        {"num_replicas": 1, "hours_per_month": 0}, {"num_replicas": 1, "prefill_time_fraction": 1.5},
        {"num_replicas": 1, "num_devices_per_replica": 0},
    ],
)  # fmt: skip
def test_impossible_fleets_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        bill(tariff=Tariff(usd_per_hour=1), **arguments)  # type: ignore[arg-type]
