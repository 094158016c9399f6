"""Small number formats as tables of the values their codes stand for, and codes packed bit by bit.

A format of b bits has 2**b codes; a table says what each means. Encoding picks the nearest value (ties to the even
code), and what lies beyond the largest saturates: hardware casts differ there, some give NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError, UnknownNameError

__all__ = ["FLOAT_FORMATS", "FloatFormat", "decode_values", "encode_values", "float_format", "pack_bits", "unpack_bits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFormat:
    """A format of at most 8 bits whose codes stand for fixed values.

    Args:
        name: as in ``course_lib.tensor.dtypes``.
        num_bits: b, bits a code.
        values: what each of the ``2**b`` codes means; NaN and infinities are None.
        group_size: values that share a scale where the format itself says so, else None.
        scale: how a group's scale is stored: ``fp16``, ``fp32``, ``e8m0`` (a power of two in a byte) or ``e4m3``
            (a byte, beside one fp32 scale for the tensor).
        source: where the table is defined.
    """

    name: str
    num_bits: int
    values: tuple[float | None, ...]
    group_size: int | None = None
    scale: str = "fp16"
    source: str = ""

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return max(value for value in self.values if value is not None)


def encode_values(x: NDArray[Any], form: FloatFormat) -> NDArray[np.uint8]:
    """Codes of the nearest values, saturating; ties go to the even code.

    >>> encode_values(np.array([0.0, 2.4, 100.0, -6.0]), FLOAT_FORMATS["fp4"]).tolist()
    [0, 4, 7, 15]
    """
    values, codes = _sorted_values(form.name)
    above = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    is_high = (x - low > high - x) | ((x - low == high - x) & (codes[above] % 2 == 0))
    nearest: NDArray[np.uint8] = codes[np.where(is_high, above, above - 1)]
    return nearest


def decode_values(codes: NDArray[np.uint8], form: FloatFormat) -> NDArray[np.float64]:
    """Values that codes stand for.

    >>> decode_values(np.array([0, 4, 7, 15], np.uint8), FLOAT_FORMATS["fp4"]).tolist()
    [0.0, 2.0, 6.0, -6.0]
    """
    table = np.array([np.nan if value is None else value for value in form.values])
    values: NDArray[np.float64] = table[codes]
    return values


def pack_bits(codes: NDArray[np.uint8], num_bits: int) -> NDArray[np.uint8]:
    """Write codes of ``num_bits`` one after another: ``ceil(n * num_bits / 8)`` bytes.

    >>> pack_bits(np.array([1, 2, 3], np.uint8), 4).tolist()
    [18, 48]
    """
    bits = np.unpackbits(codes.reshape(-1, 1), axis=1)[:, 8 - num_bits :]
    return np.packbits(bits)


def unpack_bits(packed: NDArray[np.uint8], num_bits: int, count: int) -> NDArray[np.uint8]:
    """Read ``count`` codes of ``num_bits`` back.

    >>> unpack_bits(np.array([18, 48], np.uint8), 4, 3).tolist()
    [1, 2, 3]
    """
    bits = np.unpackbits(packed)[: count * num_bits].reshape(count, num_bits)
    padded = np.zeros((count, 8), np.uint8)
    padded[:, 8 - num_bits :] = bits
    return np.packbits(padded, axis=1)[:, 0]


def float_format(name: str) -> FloatFormat:
    """Look up a format.

    Raises:
        UnknownNameError: no such format.
    """
    if name not in FLOAT_FORMATS:
        raise UnknownNameError("number format", name, FLOAT_FORMATS)
    return FLOAT_FORMATS[name]


def _minifloat(exponent_bits: int, mantissa_bits: int, special: str) -> tuple[float | None, ...]:
    """Values of sign-exponent-mantissa codes; ``special``: '' none, 'nan' the last code, 'ieee' the last exponent."""
    bias, last = 2 ** (exponent_bits - 1) - 1, 2**exponent_bits - 1
    positive: list[float | None] = []
    for exponent in range(last + 1):
        for mantissa in range(2**mantissa_bits):
            fraction = mantissa / 2**mantissa_bits
            value = fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
            is_last_code = exponent == last and mantissa == 2**mantissa_bits - 1
            is_special = (special == "nan" and is_last_code) or (special == "ieee" and exponent == last)
            positive.append(None if is_special else value)
    return (*positive, *(None if value is None else -value for value in positive))


def _normal_float() -> tuple[float, ...]:
    """NF4: quantiles of the normal distribution, 8 above zero, 7 below, and zero itself, scaled to [-1, 1]."""
    offset = 0.9677083
    quantile = NormalDist().inv_cdf
    above = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1].tolist()]
    below = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1].tolist()]
    return tuple(sorted(value / max(above) for value in (*above, *below, 0.0)))


_OCP_FP8 = "Micikevicius et al., 2022 (FP8 formats for deep learning); OCP FP8 specification, 2023"
_OCP_MX = "OCP Microscaling Formats (MX) specification v1.0, 2023"
_E2M1 = _minifloat(2, 1, "")

FLOAT_FORMATS: Mapping[str, FloatFormat] = {
    form.name: form
    for form in (
        FloatFormat(name="fp8_e4m3", num_bits=8, values=_minifloat(4, 3, "nan"), source=_OCP_FP8),
        FloatFormat(name="fp8_e5m2", num_bits=8, values=_minifloat(5, 2, "ieee"), source=_OCP_FP8),
        FloatFormat(name="fp4", num_bits=4, values=_E2M1, source=_OCP_MX),
        FloatFormat(name="mxfp4", num_bits=4, values=_E2M1, group_size=32, scale="e8m0", source=_OCP_MX),
        FloatFormat(
            name="nvfp4", num_bits=4, values=_E2M1, group_size=16, scale="e4m3",
            source="NVIDIA, Introducing NVFP4, 2025: E2M1, block 16, E4M3 scale, FP32 tensor scale",
        ),
        FloatFormat(
            name="nf4", num_bits=4, values=_normal_float(), group_size=64, scale="fp32",
            source="Dettmers et al., 2023 (QLoRA), appendix E",
        ),
    )
}  # fmt: skip
"""Formats by name; integers are handled by ``quantize(bits=...)``."""


@cache
def _sorted_values(name: str) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Distinct values in ascending order and their codes (of +0 and -0 the code of +0)."""
    form = float_format(name)
    code_of: dict[float, int] = {}
    for code, value in enumerate(form.values):
        if value is not None:
            code_of.setdefault(value, code)
    ordered = sorted(code_of)
    if len(ordered) < 2:
        raise InvalidInputError("a format has at least two values", given=name)
    return np.array(ordered), np.array([code_of[value] for value in ordered], np.uint8)
