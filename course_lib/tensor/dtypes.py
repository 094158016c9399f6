"""Data types: how many bits one stored value costs, scales included.

A model's weights cost ``bits(dtype) / 8`` bytes each. Grouped formats keep one scale per group of values,
so a value costs a little more than its code: int4 with an fp16 scale per 64 values costs 4 + 16/64 = 4.25 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError, UnknownNameError

__all__ = ["DType", "dtype", "dtype_bits", "dtype_bytes", "dtype_of_array", "dtypes", "round_to_bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """A data type as it is stored.

    ``bits = element_bits + scale_bits / group_size``

    Args:
        name: the course's name, for example "bf16".
        element_bits: bits of one code.
        storage: the numpy dtype that holds the codes here. bf16 and tf32 are held as float32 values that are
            rounded to the format; formats of 4 bits are held two to a byte.
        kind: "float", "int" or "bool".
        scale_bits: bits of one group's scale, 0 where there is none.
        group_size: values that share one scale.
        computes: whether a `Tensor` can hold it and operations run on it; the others are weight formats.

    >>> dtype("int4-g64").bits
    4.25
    """

    name: str
    element_bits: int
    storage: np.dtype[Any]
    kind: str
    scale_bits: int = 0
    group_size: int = 1
    computes: bool = False

    def __post_init__(self) -> None:
        if self.element_bits < 1 or self.group_size < 1 or self.scale_bits < 0:
            raise InvalidInputError("a dtype needs element_bits >= 1, group_size >= 1 and scale_bits >= 0",
                                    given=f"{self.element_bits}, {self.group_size}, {self.scale_bits}")
        if self.kind not in ("float", "int", "bool"):
            raise InvalidInputError("a dtype needs a kind", allowed="float, int, bool", given=repr(self.kind))

    @property
    def bits(self) -> float:
        """Stored bits of one value, its share of the group's scale included."""
        return self.element_bits + self.scale_bits / self.group_size

    @property
    def bytes(self) -> float:
        """Stored bytes of one value, its share of the group's scale included."""
        return self.bits / 8


def _dtype(name: str, bits: int, storage: type, kind: str, scale: tuple[int, int] = (0, 1),
           computes: bool = False) -> DType:
    return DType(name=name, element_bits=bits, storage=np.dtype(storage), kind=kind, scale_bits=scale[0],
                 group_size=scale[1], computes=computes)


_DTYPES = {record.name: record for record in (
    _dtype("fp64", 64, np.float64, "float", computes=True),
    _dtype("fp32", 32, np.float32, "float", computes=True),
    _dtype("tf32", 32, np.float32, "float"),  # 19 significant bits, but it lies in memory as 4 bytes
    _dtype("bf16", 16, np.float32, "float", computes=True),
    _dtype("fp16", 16, np.float16, "float", computes=True),
    _dtype("fp8", 8, np.uint8, "float"),  # the short name of fp8_e4m3
    _dtype("fp8_e4m3", 8, np.uint8, "float"),
    _dtype("fp8_e5m2", 8, np.uint8, "float"),
    _dtype("fp4", 4, np.uint8, "float"),
    _dtype("nf4", 4, np.uint8, "float", scale=(32, 64)),  # QLoRA: an fp32 absmax per 64 values
    _dtype("mxfp4", 4, np.uint8, "float", scale=(8, 32)),  # OCP MX: an E8M0 scale per 32 values
    _dtype("nvfp4", 4, np.uint8, "float", scale=(8, 16)),  # an E4M3 scale per 16 values (one fp32 a tensor aside)
    _dtype("int4", 4, np.uint8, "int"),
    _dtype("int4-g64", 4, np.uint8, "int", scale=(16, 64)),
    _dtype("int4-g128", 4, np.uint8, "int", scale=(16, 128)),
    _dtype("int8", 8, np.int8, "int", computes=True),
    _dtype("uint8", 8, np.uint8, "int", computes=True),
    _dtype("int16", 16, np.int16, "int", computes=True),
    _dtype("int32", 32, np.int32, "int", computes=True),
    _dtype("int64", 64, np.int64, "int", computes=True),
    _dtype("bool", 8, np.bool_, "bool", computes=True),
)}
_BY_ARRAY = {record.storage: record.name for record in _DTYPES.values()
             if record.computes and record.name != "bf16"}


def dtypes() -> tuple[str, ...]:
    """Names of all data types.

    >>> "bf16" in dtypes()
    True
    """
    return tuple(_DTYPES)


def dtype(name: str) -> DType:
    """The record of a data type.

    Raises:
        UnknownNameError: no such name; near matches are offered.

    >>> dtype("nvfp4").group_size
    16
    """
    try:
        return _DTYPES[name]
    except (KeyError, TypeError):
        raise UnknownNameError("dtype", str(name), _DTYPES) from None


def dtype_bits(name: str) -> float:
    """Stored bits of one value: ``element_bits + scale_bits / group_size``.

    Args:
        name: a name of `dtypes()`. Plain "int4" counts the codes alone; "int4-g64" counts the scales too.

    Returns:
        Bits, a float because scales are shared by a group.

    Raises:
        UnknownNameError: no such name.

    Assumes:
        Symmetric groups: a scale and no zero point. The one fp32 scale of an nvfp4 tensor is left out.

    Source:
        Formats: OCP Microscaling Formats v1.0 (MX), QLoRA (Dettmers 2023) for nf4.

    >>> dtype_bits("bf16"), dtype_bits("int4"), dtype_bits("int4-g64"), dtype_bits("mxfp4")
    (16.0, 4.0, 4.25, 4.25)
    """
    return dtype(name).bits


def dtype_bytes(name: str) -> float:
    """Stored bytes of one value: ``dtype_bits(name) / 8``.

    >>> dtype_bytes("fp8"), dtype_bytes("int4-g128")
    (1.0, 0.515625)
    """
    return dtype(name).bits / 8


def dtype_of_array(array_dtype: np.dtype[Any]) -> str:
    """The course's name of a numpy dtype.

    >>> dtype_of_array(np.dtype("float32"))
    'fp32'
    """
    try:
        return _BY_ARRAY[array_dtype]
    except KeyError:
        allowed = ", ".join(str(known) for known in _BY_ARRAY)
        raise InvalidInputError("a tensor needs numbers of a known numpy dtype", allowed=allowed,
                                given=str(array_dtype), next_step="Convert with .astype(...) first.") from None


def round_to_bf16(values: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Round float32 values to the nearest bf16, ties to even, kept as float32.

    bf16 is the upper half of a float32: add half of the lower half (and the last kept bit, for ties), cut.

    >>> round_to_bf16(np.array([1.00390625, 3.14159265], dtype=np.float32)).tolist()
    [1.0, 3.140625]
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).reshape(values.shape)
