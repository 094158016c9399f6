"""The prices file, user files, tariffs and their age."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.cost import Tariff, price, price_template, prices, read_prices, reserved_break_even_fraction
from course_lib.errors import InvalidInputError, UnknownNameError


@pytest.mark.parametrize(
    ("device", "usd"),
    [
        ("h100-sxm", 2.95), ("h100-pcie", 3.29), ("h200", 3.50), ("b200", 5.50), ("l40s", 1.55),
        ("a100-80gb-sxm", 2.79),
        ("tpu-v5e", 1.2), ("a100-80gb-pcie", 1.39),
    ],
)  # fmt: skip
def test_the_default_price_of_a_device_is_the_recorded_one(device: str, usd: float) -> None:
    assert price(device).usd_per_hour == usd


def test_every_price_names_its_source_its_date_and_the_text_as_printed() -> None:
    for tariff in prices():
        assert tariff.citation is not None
        assert tariff.citation.source
        assert tariff.date
        assert tariff.citation.printed, tariff


def test_an_instance_with_eight_devices_is_divided_by_eight() -> None:
    # 55.04 / 8 = 6.88; 22.32 / 8 = 2.79; 27.44705 / 8 = 3.43088125
    assert price("h100-sxm", "aws").usd_per_hour == pytest.approx(55.04 / 8, rel=1e-12)
    assert price("a100-80gb-sxm", "aws").usd_per_hour == pytest.approx(27.44705 / 8, rel=1e-12)


def test_all_disagreeing_prices_are_kept_and_the_default_comes_first() -> None:
    own = [tariff for tariff in prices() if tariff.device == "h100-sxm"]
    assert [tariff.usd_per_hour for tariff in own] == [2.95, 1.25, 6.88, 4.29, 10.8]


def test_unknown_devices_and_providers_offer_near_names() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'h100-pcie' or 'h100-sxm'"):
        price("h100")
    with pytest.raises(UnknownNameError, match="unknown provider of h200"):
        price("h200", "aws")
    with pytest.raises(UnknownNameError, match="Tariff"):
        price("t4")
    with pytest.raises(UnknownNameError, match="unknown pricing"):
        price("b200", pricing="spot")


def test_the_template_is_a_valid_prices_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(price_template("npu-9"), encoding="utf-8")
    assert price("npu-9", path=path).usd_per_hour == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[price]]\ndevice = 'a'", "given: no provider"),
        ("not toml", "a prices file is TOML"),
        ("", "at least one"),
        ("price = 3", "at least one"),
        (price_template("x").replace("usd_per_hour = 1.00", "usd_per_hour = 2.00"), "the printed price over"),
        (price_template("x").replace("usd_per_hour = 1.00", "usd_per_hour = 'two'"), "is a number"),
        (price_template("x").replace("pricing", "pricng"), "Did you mean 'pricing'"),
        (price_template("x").replace("2026-01-31", "soon"), "ISO date"),
        (price_template("x").replace("2026-01-31", "2026-13"), "ISO date"),
        (price_template("x").replace("num_accelerators = 1 ", "num_accelerators = 0 "), "whole number from 1"),
        (price_template("x") + price_template("x"), "at most is the default"),
    ],
)
def test_a_broken_prices_file_is_refused_with_the_place_and_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message):
        read_prices(path)


def test_an_unreadable_prices_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="readable TOML"):
        read_prices(tmp_path / "none.toml")


def test_a_price_grows_old_as_data_and_never_as_output(capsys: pytest.CaptureFixture[str]) -> None:
    tariff = price("h100-sxm")  # dated 2025: counted from 31 December 2025
    assert tariff.age_days(date(2026, 1, 10)) == 10
    assert tariff.warnings(date(2026, 1, 10)) == ()
    assert "375 days old" in tariff.warnings(date(2027, 1, 10))[0]
    assert Tariff(usd_per_hour=1).warnings(date(2026, 1, 1)) == ("the price of this tariff has no date",)
    assert Tariff(usd_per_hour=1, date="2030").age_days(date(2026, 1, 1)) == 0
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize(
    "terms",
    [
        {"usd_per_hour": 0}, {"usd_per_hour": -1}, {"usd_per_hour": float("nan")}, {"usd_per_hour": True},
        {"usd_per_hour": 1, "pricing": "barter"}, {"usd_per_hour": 1, "upfront_usd": 5},
        {"usd_per_hour": 1, "interruptions_per_hour": -1}, {"usd_per_hour": 1, "list_usd_per_hour": 0},
    ],
)  # fmt: skip
def test_impossible_terms_are_refused(terms: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        Tariff(**terms)  # type: ignore[arg-type]


def test_a_spot_machine_pays_for_the_work_it_loses() -> None:
    # 0.2 interruptions an hour, half an hour lost each: 1.25 * (1 + 0.1) = 1.375
    spot = price("h100-sxm", pricing="spot").with_changes(interruptions_per_hour=0.2, hours_lost_per_interruption=0.5)
    assert spot.effective_usd_per_hour == pytest.approx(1.375, rel=1e-12)
    assert spot.list_price == 2.95


@given(st.floats(0.01, 100), st.floats(0.01, 0.99))
def test_a_reservation_breaks_even_at_the_ratio_of_the_prices(usd: float, discount: float) -> None:
    reserved = Tariff(usd_per_hour=usd * discount, pricing="reserved")
    fraction = reserved_break_even_fraction(reserved, Tariff(usd_per_hour=usd))
    assert fraction * usd == pytest.approx(reserved.usd_per_hour)  # paying by the hour for that share costs the same


def test_an_upfront_payment_is_spread_over_its_term() -> None:
    # 8,760 USD over 8,760 h = 1 USD/h on top of 1
    assert Tariff(usd_per_hour=1, upfront_usd=8760, term_hours=8760).effective_usd_per_hour == 2


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 10_000], ids=["nesting", "digits"])
def test_a_file_that_breaks_the_parser_is_refused_as_not_toml(tmp_path, text):
    path = tmp_path / "bomb.toml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="TOML"):
        read_prices(path)


def test_a_byte_order_mark_is_no_reason_to_refuse_a_file(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_text(price_template(), encoding="utf-8-sig")
    read_prices(path)


def test_a_path_with_a_zero_byte_is_refused():
    with pytest.raises(InvalidInputError):
        read_prices("a\0.toml")


def test_a_price_beyond_any_float_is_refused(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(price_template().replace("usd_per_hour = 1.00", "usd_per_hour = " + "9" * 400))
    with pytest.raises(InvalidInputError, match="usd_per_hour"):
        read_prices(path)
