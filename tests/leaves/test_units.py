"""Units, errors and citations: the leaves every room stands on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.sources import Citation
from course_lib.units import GB, GiB, format_bytes, format_quantity, format_seconds, format_usd, parse_quantity


def test_a_gigabyte_is_decimal_and_a_gibibyte_is_binary() -> None:
    # 2**30 / 10**9 = 1.0737: taking one for the other is a 7.4 % mistake.
    assert GiB / GB == pytest.approx(1.073741824, abs=1e-12)
    assert parse_quantity("80GB") == (80e9, "byte")
    assert parse_quantity("80 GiB") == (85_899_345_920, "byte")


@pytest.mark.parametrize(
    ("printed", "value", "unit"),
    [
        ("3.35TB/s", 3.35e12, "byte/s"),
        ("1,979 teraFLOPS".replace(" teraFLOPS", " TFLOPS"), 1979e12, "FLOP/s"),
        ("989.4 TFLOPS", 989.4e12, "FLOP/s"),
        ("2 PFLOPS", 2e15, "FLOP/s"),
        ("700W", 700, "W"),
        ("256 KiB", 262_144, "byte"),
        ("42", 42, ""),
    ],
)
def test_a_printed_quantity_is_read_in_base_units(printed: str, value: float, unit: str) -> None:
    assert parse_quantity(printed) == (value, unit)


@pytest.mark.parametrize("text", ["", "fast", "12 parsecs", "3.35 XB/s", "--3 GB", "GB"])
def test_what_is_no_quantity_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInputError, match="80 GB"):
        parse_quantity(text)


@given(st.floats(1e-3, 9.99e17), st.sampled_from(["B", "FLOP", "B/s"]))
def test_printing_then_reading_keeps_seven_digits(value: float, unit: str) -> None:
    again, _ = parse_quantity(format_quantity(value, unit, digits=12))
    # parse_quantity rounds to 1e-6, half of which is the largest error of a value near 1e-3.
    assert again == pytest.approx(value, rel=1e-9, abs=1e-6)


def test_formats_at_the_limits() -> None:
    assert format_bytes(0) == "0 B"
    assert format_seconds(0) == "0 s"
    assert format_usd(0) == "$0.00"
    assert format_usd(-1234.5) == "-$1,234"
    assert format_usd(99.5) == "$99.50"


def test_an_unknown_name_offers_near_matches_and_the_whole_list() -> None:
    error = UnknownNameError("model", "lama-3-8b", ["llama-3-8b", "gpt2"])
    assert error.near == ("llama-3-8b",)
    assert "Did you mean 'llama-3-8b'?" in str(error)
    assert "gpt2" in str(error)


def test_a_citation_needs_a_source_and_a_known_kind() -> None:
    with pytest.raises(InvalidInputError, match="names its source"):
        Citation(source=" ")
    with pytest.raises(InvalidInputError, match="vendor, paper"):
        Citation(source="a page", kind="rumour")
