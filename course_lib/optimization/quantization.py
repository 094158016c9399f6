"""Quantization: weights as small codes and scales, really packed, so that their bytes can be counted.

``x ~ s * (q - z)``: a code q of b bits, a scale s shared by a group, and a zero point z where codes are asymmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError
from course_lib.optimization.number_formats import (
    FloatFormat,
    decode_values,
    encode_values,
    float_format,
    pack_bits,
    unpack_bits,
)

__all__ = ["QuantizedTensor", "dequantize", "quantize", "sqnr_db"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedTensor:
    """Packed codes with what is needed to read them.

    Args:
        packed: uint8, codes one after another without gaps.
        scales: one a group, as stored (fp16, fp32, or a byte of E8M0 or E4M3).
        zeros: zero points, one byte a group; None for symmetric codes.
        tensor_scale: one fp32 factor for the tensor (NVFP4); None elsewhere.
        format: ``int2`` to ``int8`` or the name of a float format.
        num_bits: bits a code.
        shape: of the tensor.
        axis: along which groups lie; None: one scale for the tensor.
        group_size: values a group.
    """

    packed: NDArray[np.uint8]
    scales: NDArray[Any]
    zeros: NDArray[np.uint8] | None
    tensor_scale: np.float32 | None
    format: str
    num_bits: int
    shape: tuple[int, ...]
    axis: int | None
    group_size: int

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales, zero points and the tensor scale: what a file or a memory would hold."""
        parts = (self.packed, self.scales, self.zeros, self.tensor_scale)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def bits_per_value(self) -> float:
        """Effective bits: ``b + scale bits / group size`` for whole groups."""
        return 8 * self.nbytes / prod(self.shape)


def quantize(
    w: NDArray[Any], *, bits: int | None = None, format: str | None = None, group_size: int | None = None,
    axis: int | None = -1, symmetric: bool = True,
) -> QuantizedTensor:  # fmt: skip
    """Round a tensor to b-bit codes with a scale for each group.

    Integers, symmetric: ``s = max|x| / (2**(b-1) - 1)``, ``q = round(x / s)``; asymmetric:
    ``s = (max - min) / (2**b - 1)``, ``z = round(-min / s)``, ``q = round(x / s) + z``, the range made to hold 0.
    Float formats: ``s = max|x| / largest value``, MXFP4 ``s = 2**(floor(log2 max|x|) - 2)``.

    Args:
        w: finite values.
        bits: 2 to 8, integer codes; give either bits or format.
        format: ``fp8_e4m3``, ``fp8_e5m2``, ``fp4``, ``nf4``, ``mxfp4`` or ``nvfp4``.
        group_size: values along ``axis`` that share a scale; None: the format's own, else the whole axis.
        axis: along which groups lie; None: one scale for the whole tensor.
        symmetric: integer codes without a zero point.

    Raises:
        InvalidInputError: no or two formats, bits or groups that cannot be used, values not finite, or scales
            outside fp16.

    Assumes: scales are fp16 unless the format says otherwise; values are rounded half to even and saturate.

    Source: Jacob et al., 2018 (affine integers); the sources of each float format in ``number_formats``.

    >>> w = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    >>> q = quantize(w, bits=4, group_size=128)
    >>> q.nbytes, q.bits_per_value
    (528, 4.125)
    """
    form = _require(w, bits, format, symmetric)
    group_size = form.group_size if form is not None and group_size is None and axis is not None else group_size
    groups, group_size = _groups(np.asarray(w, np.float64), axis, group_size)
    tensor_scale: np.float32 | None = None
    zeros: NDArray[np.uint8] | None = None
    if form is None:
        assert bits is not None
        codes, scales, zeros = _integers(groups, bits, symmetric)
        name, num_bits = f"int{bits}", bits
    else:
        scales, tensor_scale = _float_scales(groups, form)
        codes = encode_values(groups / _wide(scales, tensor_scale, form.scale)[:, None], form)
        name, num_bits = form.name, form.num_bits
    return QuantizedTensor(
        packed=pack_bits(codes, num_bits), scales=scales, zeros=zeros, tensor_scale=tensor_scale, format=name,
        num_bits=num_bits, shape=w.shape, axis=axis, group_size=group_size,
    )  # fmt: skip


def dequantize(tensor: QuantizedTensor, *, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Read values back from codes: ``s * (q - z)``, or ``s * value(code)``.

    >>> dequantize(quantize(np.array([[-7.0, 0.0, 3.0]]), bits=4)).tolist()
    [[-7.0, 0.0, 3.0]]
    """
    codes = unpack_bits(tensor.packed, tensor.num_bits, prod(tensor.shape)).reshape(-1, tensor.group_size)
    values: Floats
    if tensor.format.startswith("int"):
        offset = 2 ** (tensor.num_bits - 1) if tensor.zeros is None else tensor.zeros[:, None].astype(np.float64)
        values, scale_kind = codes.astype(np.float64) - offset, "fp16"
    else:
        form = float_format(tensor.format)
        values, scale_kind = decode_values(codes, form), form.scale
    values = values * _wide(tensor.scales, tensor.tensor_scale, scale_kind)[:, None]
    if tensor.axis is None:
        return values.reshape(tensor.shape).astype(dtype)
    moved = list(tensor.shape)
    moved.append(moved.pop(tensor.axis))
    return np.moveaxis(values.reshape(moved), -1, tensor.axis).astype(dtype)


def sqnr_db(exact: NDArray[Any], rounded: NDArray[Any]) -> float:
    """Signal to quantization noise: ``10 * log10(sum x**2 / sum (x - x')**2)`` [dB]; infinite without noise.

    >>> round(sqnr_db(np.array([1.0, 1.0]), np.array([1.1, 0.9])), 1)
    20.0
    """
    signal = float((np.asarray(exact, np.float64) ** 2).sum())
    noise = float(((np.asarray(exact, np.float64) - rounded) ** 2).sum())
    if noise == 0:
        return float("inf")
    return 10 * log10(signal / noise) if signal else float("-inf")


def _require(w: NDArray[Any], bits: int | None, format: str | None, symmetric: bool) -> FloatFormat | None:
    if (bits is None) == (format is None):
        raise InvalidInputError("give either bits or format", given=f"bits={bits}, format={format!r}")
    if bits is not None and (isinstance(bits, bool) or bits not in range(2, 9)):
        raise InvalidInputError("integer codes have 2 to 8 bits", given=bits)
    w = np.asarray(w)
    if w.dtype.kind in "cOSUMm":
        raise InvalidInputError("weights are real numbers", given=f"an array of {w.dtype}")
    if w.size == 0 or not np.isfinite(w).all():
        raise InvalidInputError("weights are finite and not empty", given=f"shape {w.shape}")
    if format is not None and not symmetric:
        raise InvalidInputError("float formats have no zero point", given=f"{format} with symmetric=False")
    return None if format is None else float_format(format)


def _groups(w: Floats, axis: int | None, group_size: int | None) -> tuple[Floats, int]:
    """Values as (groups, group_size)."""
    if axis is None:
        if group_size is not None:
            raise InvalidInputError("groups lie along an axis", given=f"group_size={group_size} with axis=None")
        return w.reshape(1, -1), w.size
    if w.ndim == 0 or not -w.ndim <= axis < w.ndim:
        raise InvalidInputError(f"axis is one of the {w.ndim} axes", given=axis)
    length = w.shape[axis]
    size = length if group_size is None else group_size
    if size < 1 or length % size:
        raise InvalidInputError(
            f"group_size divides the {length} values of the axis", given=group_size or size,
            next_step="Pick a divisor, or pad the tensor.",
        )  # fmt: skip
    return np.moveaxis(w, axis, -1).reshape(-1, size), size


def _integers(groups: Floats, bits: int, symmetric: bool) -> tuple[NDArray[np.uint8], NDArray[Any], Any]:
    """Codes, fp16 scales and zero points (None when symmetric); symmetric codes are stored with ``2**(b-1)`` added."""
    if symmetric:
        scales = _half(np.abs(groups).max(1) / (2 ** (bits - 1) - 1))
        largest = 2 ** (bits - 1) - 1
        codes = np.clip(np.rint(groups / _nonzero(scales)), -largest, largest) + largest + 1
        return codes.astype(np.uint8), scales, None
    low, high = np.minimum(groups.min(1), 0), np.maximum(groups.max(1), 0)
    scales = _half((high - low) / (2**bits - 1))
    zeros = np.clip(np.rint(-low / _nonzero(scales)[:, 0]), 0, 2**bits - 1)
    codes = np.clip(np.rint(groups / _nonzero(scales)) + zeros[:, None], 0, 2**bits - 1)
    return codes.astype(np.uint8), scales, zeros.astype(np.uint8)


def _float_scales(groups: Floats, form: FloatFormat) -> tuple[NDArray[Any], np.float32 | None]:
    """Scales of the groups as stored, and the tensor scale of NVFP4."""
    peaks = np.abs(groups).max(1)
    if form.scale == "e8m0":
        exponents = np.floor(np.log2(np.where(peaks > 0, peaks, 1))) - np.floor(np.log2(form.largest))
        return np.clip(exponents + 127, 0, 254).astype(np.uint8), None
    if form.scale == "e4m3":
        e4m3 = float_format("fp8_e4m3")
        tensor_scale = np.float32(peaks.max() / form.largest / e4m3.largest or 1)
        return encode_values(peaks / form.largest / float(tensor_scale), e4m3), tensor_scale
    scales = peaks / form.largest
    return (scales.astype(np.float32) if form.scale == "fp32" else _half(scales)), None


def _wide(scales: NDArray[Any], tensor_scale: np.float32 | None, kind: str) -> Floats:
    """Stored scales as numbers to multiply with; a group of zeros has scale 1."""
    if kind == "e8m0":
        return np.ldexp(1.0, scales.astype(np.int64) - 127)
    if kind == "e4m3":
        assert tensor_scale is not None
        return _nonzero(decode_values(scales, float_format("fp8_e4m3")) * float(tensor_scale))[:, 0]
    return _nonzero(scales)[:, 0]


def _half(scales: Floats) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):  # found and named below
        stored = scales.astype(np.float16)
    if np.isinf(stored).any() or ((stored == 0) & (scales > 0)).any():
        raise InvalidInputError(
            "scales fit fp16", allowed="6e-8 to 65504", given=f"{scales[scales > 0].min():.3g} to {scales.max():.3g}",
            next_step="Multiply the tensor by a power of two first.",
        )  # fmt: skip
    return stored


def _nonzero(scales: NDArray[Any]) -> Floats:
    wide = scales.astype(np.float64)
    column: Floats = np.where(wide > 0, wide, 1.0)[:, None]
    return column
