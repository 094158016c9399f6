"""Quantization: packed bytes, error bounds, SQNR goldens, formats against ml_dtypes, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.optimization import FLOAT_FORMATS, dequantize, float_format, quantize, sqnr_db
from course_lib.optimization.number_formats import decode_values, encode_values, pack_bits, unpack_bits
from course_lib.tensor.dtypes import dtype_bits

GOLDEN_TOLERANCE_DB = 0.1  # a million normal values fix SQNR to a few hundredths; the goldens have one digit
FP16_EPS = 2.0**-11  # largest relative error of rounding a scale to fp16


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def reached_db(w: np.ndarray, **options) -> float:
    return sqnr_db(w, dequantize(quantize(w, **options), dtype=np.float64))


def test_four_values_by_hand():
    # s = 7/7 = 1; codes -7, 2, 4, 7 are stored with 8 added: 1, 10, 12, 15 -> bytes 0x1a, 0xcf. 3.5 rounds to even 4.
    q = quantize(np.array([[-7.0, 2.0, 3.5, 7.0]]), bits=4)
    assert q.packed.tolist() == [0x1A, 0xCF]
    assert q.scales.tolist() == [1.0]
    assert dequantize(q).tolist() == [[-7.0, 2.0, 4.0, 7.0]]


def test_asymmetric_codes_by_hand():
    # range -1 to 2: s = 3/3 = 1, z = 1; codes 0, 1, 2, 3 in 2 bits: 00 01 10 11 = 0x1b
    q = quantize(np.array([[-1.0, 0.0, 1.0, 2.0]]), bits=2, symmetric=False)
    assert (q.packed.tolist(), q.zeros.tolist()) == ([0x1B], [1])
    assert dequantize(q).tolist() == [[-1.0, 0.0, 1.0, 2.0]]


@pytest.mark.parametrize(("bits", "db"), [(8, 44.5), (6, 32.3), (5, 26.0), (4, 19.3), (3, 12.0), (2, 2.9)])
def test_integer_sqnr_of_normal_values_in_groups_of_64(bits, db):
    assert reached_db(normal(4096, 256), bits=bits, group_size=64) == pytest.approx(db, abs=GOLDEN_TOLERANCE_DB)


@pytest.mark.parametrize(
    ("name", "db"),
    [("nf4", 20.7), ("fp4", 19.5), ("fp8_e4m3", 32.0), ("fp8_e5m2", 26.0), ("mxfp4", 18.8), ("nvfp4", 20.4)],
)
def test_float_format_sqnr_of_normal_values(name, db):
    group_size = None if FLOAT_FORMATS[name].group_size else 64
    assert reached_db(normal(4096, 256), format=name, group_size=group_size) == pytest.approx(
        db, abs=GOLDEN_TOLERANCE_DB
    )


def test_a_bit_is_worth_six_decibels_until_an_outlier():
    w = normal(1024, 512)
    per_row = [reached_db(w, bits=bits) for bits in (2, 3, 4, 5, 6, 8)]
    assert per_row == pytest.approx([1.5, 10.1, 17.4, 24.0, 30.3, 42.6], abs=GOLDEN_TOLERANCE_DB)
    w[7] *= 50
    others = np.arange(1024) != 7

    def of_the_others(**options) -> float:
        return sqnr_db(w[others], dequantize(quantize(w, **options))[others])

    # one scale for all is set by the outlier row: 34 dB are lost, and at 4 bits all others round to 0
    assert of_the_others(bits=8, axis=None) == pytest.approx(8.3, abs=0.6)  # depends on one row's maximum
    assert of_the_others(bits=4, axis=None) == pytest.approx(0.0, abs=GOLDEN_TOLERANCE_DB)
    assert of_the_others(bits=8) == pytest.approx(42.6, abs=GOLDEN_TOLERANCE_DB)
    assert of_the_others(bits=4, group_size=32) == pytest.approx(20.3, abs=GOLDEN_TOLERANCE_DB)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.integers(2, 8), rows=st.integers(1, 5), num_groups=st.integers(1, 4), group_size=st.integers(1, 33),
    symmetric=st.booleans(), axis=st.sampled_from([0, 1, -1]), seed=st.integers(0, 99),
)  # fmt: skip
def test_bytes_are_codes_and_scales_and_errors_are_at_most_a_step(
    bits, rows, num_groups, group_size, symmetric, axis, seed
):
    w = normal(rows, num_groups * group_size, seed=seed)
    w = w.T if axis == 0 else w
    q = quantize(w, bits=bits, group_size=group_size, axis=axis, symmetric=symmetric)
    scales = rows * num_groups
    # codes to whole bytes, 2 bytes a scale, 1 a zero point
    assert q.nbytes == -(-w.size * bits // 8) + scales * (2 if symmetric else 3)
    error = np.abs(np.moveaxis(dequantize(q, dtype=np.float64) - w, axis, -1)).reshape(-1, group_size)
    step = q.scales.astype(np.float64)[:, None]
    # half a step; asymmetric up to a whole one (x and z round apart), and the fp16 scale shortens the range a little
    bound = (0.5 if symmetric else 1.0) + 2**bits * FP16_EPS
    assert (error <= step * bound).all()


@settings(max_examples=30, deadline=None)
@given(bits=st.integers(1, 8), codes=st.lists(st.integers(0, 255), max_size=50))
def test_unpacking_undoes_packing(bits, codes):
    array = (np.array(codes, np.uint8) & (2**bits - 1)).astype(np.uint8)
    packed = pack_bits(array, bits)
    assert packed.nbytes == -(-len(codes) * bits // 8)
    assert np.array_equal(unpack_bits(packed, bits, len(codes)), array)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("int4-g64", {"bits": 4, "group_size": 64}), ("int4-g128", {"bits": 4, "group_size": 128}),
        ("nf4", {"format": "nf4"}), ("mxfp4", {"format": "mxfp4"}),
    ],
)  # fmt: skip
def test_packed_bytes_are_what_the_dtype_table_says(name, options):
    assert quantize(normal(8, 256), **options).bits_per_value == dtype_bits(name)


def test_nvfp4_costs_four_bytes_more_for_its_tensor_scale():
    q = quantize(normal(8, 256), format="nvfp4")
    assert q.nbytes == 8 * 256 * dtype_bits("nvfp4") / 8 + 4


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2), ("fp4", ml_dtypes.float4_e2m1fn),
    ],
)  # fmt: skip
def test_tables_and_rounding_equal_ml_dtypes(name, oracle):
    form = float_format(name)
    codes = np.arange(2**form.num_bits, dtype=np.uint8)
    theirs = codes.view(oracle).astype(np.float64)
    finite = np.isfinite(theirs)
    assert np.array_equal(decode_values(codes, form)[finite], theirs[finite])
    assert np.isnan(decode_values(codes, form)[~finite]).all()
    assert form.largest == float(ml_dtypes.finfo(oracle).max)
    x = np.concatenate([normal(4000) * form.largest / 4, (theirs[finite][1:] + theirs[finite][:-1]) / 2])
    x = x[np.abs(x) <= form.largest]  # beyond it the oracle gives NaN or infinity, we saturate
    assert np.array_equal(decode_values(encode_values(x, form), form), x.astype(oracle).astype(np.float64))


def test_values_beyond_the_largest_saturate():
    form = float_format("fp8_e4m3")
    assert decode_values(encode_values(np.array([465.0, -1e9, 448.0]), form), form).tolist() == [448, -448, 448]


def test_nf4_levels_are_the_published_ones():
    published = [
        -1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0, 0.0795803, 0.1609302, 0.2461123,
        0.3379152, 0.4407098, 0.5626170, 0.7229568, 1,
    ]  # fmt: skip
    assert FLOAT_FORMATS["nf4"].values == pytest.approx(published, abs=2e-7)  # printed to 7 digits


@pytest.mark.parametrize(
    "options", [{"bits": 4}, {"bits": 3, "symmetric": False}, *({"format": name} for name in FLOAT_FORMATS)]
)
def test_zeros_stay_zeros(options):
    assert (dequantize(quantize(np.zeros((2, 64)), **options)) == 0).all()


def test_mxfp4_scales_are_powers_of_two_from_its_definition():
    w = np.zeros((1, 32))
    w[0, :3] = [12.0, 3.0, -0.4]  # floor(log2 12) - 2 = 1: scale 2, code values 6, 1.5, -0.2 -> 0 (below .25)
    q = quantize(w, format="mxfp4")
    assert q.scales.tolist() == [128]  # 127 + 1
    assert dequantize(q)[0, :3].tolist() == [12.0, 3.0, 0.0]


def test_a_real_model_at_eight_and_four_bits_loses_what_its_bits_say():
    from course_lib.models.char_lm import evaluation_loss, evaluation_slice, load_char_lm

    windows = evaluation_slice()[::4]
    choices = {"fp16": None, "int8": {"bits": 8}, "int4": {"bits": 4}, "int4 tensor": {"bits": 4, "axis": None}}
    losses = {}
    for name, options in choices.items():
        model = load_char_lm()
        for parameter in model.blocks.parameters():
            if options and parameter.ndim == 2:
                values = dequantize(quantize(parameter.detach().numpy(), **options))
                parameter.data.copy_(parameter.new_tensor(values))
        losses[name] = evaluation_loss(model, windows)
    assert abs(losses["int8"] - losses["fp16"]) < 0.005  # 42 dB: below what the text can tell
    assert 0.005 < losses["int4"] - losses["fp16"] < 0.15
    assert losses["int4 tensor"] > losses["int4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either bits or format"), ({"bits": 4, "format": "nf4"}, "either bits or format"), ({"bits": 1}, "2 to 8"),
        ({"bits": 9}, "2 to 8"), ({"bits": 4, "group_size": 5}, "divides the 8"), ({"bits": 4, "axis": 2}, "2 axes"),
        ({"bits": 4, "axis": None, "group_size": 4}, "groups lie along an axis"),
        ({"format": "nf4", "symmetric": False}, "no zero point"), ({"format": "nf4"}, "divides the 8"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        quantize(np.ones((4, 8)), **options)


def test_unknown_formats_bad_values_and_scales_outside_fp16_are_refused():
    with pytest.raises(UnknownNameError, match="nvfp4"):
        quantize(np.ones((4, 16)), format="nvfp")
    with pytest.raises(InvalidInputError, match="finite"):
        quantize(np.array([[np.nan]]), bits=4)
    with pytest.raises(InvalidInputError, match="finite and not empty"):
        quantize(np.zeros((0, 4)), bits=4)
    for value in (1e9, 1e-9):
        with pytest.raises(InvalidInputError, match="scales fit fp16"):
            quantize(np.full((1, 4), value), bits=4)


def test_sqnr_without_noise_or_signal():
    assert sqnr_db(np.ones(3), np.ones(3)) == float("inf")
    assert sqnr_db(np.zeros(3), np.ones(3)) == float("-inf")


@pytest.mark.parametrize("w", [np.array(["a", "b"]), np.array([1, None]), np.array([1j, 2])], ids=repr)
def test_what_is_no_real_number_is_refused_and_no_imaginary_part_is_dropped(w):
    with pytest.raises(InvalidInputError, match="real numbers"):
        quantize(w, bits=4)
