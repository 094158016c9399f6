"""Data types: the table, its scales, and bf16 rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.tensor import DType, dtype, dtype_bits, dtype_bytes, dtypes, round_to_bf16

BITS = {  # code bits + scale bits / group size, by hand
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp4": 4,
    "nf4": 4 + 32 / 64, "mxfp4": 4 + 8 / 32, "nvfp4": 4 + 8 / 16, "int4": 4, "int4-g64": 4 + 16 / 64,
    "int4-g128": 4 + 16 / 128, "int8": 8, "uint8": 8, "int16": 16, "int32": 32, "int64": 64, "bool": 8,
}


def test_the_table_is_exactly_the_hand_worked_one():
    assert {name: dtype_bits(name) for name in dtypes()} == BITS


def test_bytes_are_an_eighth_of_the_bits():
    for name, bits in BITS.items():
        assert dtype_bytes(name) == bits / 8


def test_an_8b_model_in_int4_g64_costs_a_sixteenth_more_than_its_codes():
    assert 8_000_000_000 * dtype_bytes("int4-g64") == 4_250_000_000  # 8e9 * 4.25 / 8


def test_computing_dtypes_agree_with_numpy_on_their_size():
    for name in dtypes():
        record = dtype(name)
        if record.computes and name != "bf16":
            assert record.bytes == record.storage.itemsize


def test_an_unknown_name_offers_near_matches():
    with pytest.raises(UnknownNameError, match=r"Did you mean .*bf16"):
        dtype_bits("bfloat16")


def test_a_dtype_without_bits_is_refused():
    with pytest.raises(InvalidInputError, match="element_bits"):
        DType(name="x", element_bits=0, storage=np.dtype("int8"), kind="int")


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_bf16_rounding_is_that_of_ml_dtypes(values):
    array = np.array(values, dtype=np.float32)
    with np.errstate(all="ignore"):
        expected = array.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(round_to_bf16(array), expected)


def test_bf16_rounding_of_nothing_is_nothing():
    assert round_to_bf16(np.zeros((0, 3), dtype=np.float32)).shape == (0, 3)
