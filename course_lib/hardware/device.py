"""Devices: what a machine can do at most, each number with the text it was read from.

A device is a data record. The catalogue is the folder ``data``, one commented TOML file per device; a file of your
own works the same way (``device("my-chip.toml")``), so that adding a device needs no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from course_lib.errors import InvalidInputError, UnknownNameError, UnsupportedError
from course_lib.hardware.device_file import device_template, read_device_fields
from course_lib.hardware.frozen import FrozenDict
from course_lib.sources import Citation

__all__ = ["COMPUTE_FORMATS", "KINDS", "Device", "MemoryLevel", "device", "device_template", "devices"]

KINDS = ("gpu", "tpu", "npu", "cpu")
COMPUTE_FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int16", "int8", "int4")
"""Number formats that an arithmetic unit may multiply; each has its own peak, and none where it is missing."""

# Storage names that multiply at the peak of another name.
_SAME_UNIT = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
# Formats that only store: no unit multiplies them, they are turned into another format first.
_WEIGHT_ONLY = ("int4-g64", "int4-g128", "nf4")
_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One on-chip memory: its name, size in bytes, and what shares it ("device", "SM", "core", "column")."""

    name: str
    bytes: int
    scope: str

    def __post_init__(self) -> None:
        if self.bytes <= 0:
            raise InvalidInputError(f"on-chip memory {self.name} has a positive size", given=f"{self.bytes} B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A machine as its makers describe it.

    Args:
        name: catalogue name, such as ``"h100-sxm"``.
        title: full product name.
        vendor: who makes it.
        kind: ``"gpu"``, ``"tpu"``, ``"npu"`` or ``"cpu"``.
        peak_flops_per_second: DENSE peak by format [FLOP/s; a multiply-add is 2]; no entry, no hardware support.
        sparse_peak_flops_per_second: peak with 2:4 structured sparsity, counted as the vendor does (zeros count).
        memory_bytes: capacity of the main memory [B].
        memory_bytes_per_second: its bandwidth [B/s].
        on_chip: on-chip memories.
        link_bytes_per_second: device-to-device bandwidth, one direction, all links of one device [B/s] or None.
        link_latency_seconds: time of an empty message [s] or None.
        tdp_watts: thermal design power [W] or None.
        matmul_tile: rows and columns of one matrix unit, or None where it is not a fixed array.
        transcendentals_per_second: exponentials and their like [1/s] or None where no text states it.
        citations: where each number was read, keyed by field (``"peak_flops_per_second.bf16"``).
        alternatives: other numbers that other texts print for the same field, kept to be shown.

    Raises:
        InvalidInputError: a rate or size that is not positive, a number without a citation, an unknown format.

    >>> device("h100-sxm").peak("bf16") / device("h100-sxm").memory_bytes_per_second
    295.2...
    """

    name: str
    title: str
    vendor: str
    kind: str
    peak_flops_per_second: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_second: float
    sparse_peak_flops_per_second: Mapping[str, float] = field(default_factory=dict)
    on_chip: tuple[MemoryLevel, ...] = ()
    link_bytes_per_second: float | None = None
    link_latency_seconds: float | None = None
    tdp_watts: float | None = None
    matmul_tile: tuple[int, int] | None = None
    transcendentals_per_second: float | None = None
    citations: Mapping[str, Citation] = field(default_factory=dict)
    alternatives: Mapping[str, tuple[Citation, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("peak_flops_per_second", "sparse_peak_flops_per_second", "citations", "alternatives"):
            object.__setattr__(self, name, FrozenDict(getattr(self, name)))
        if self.kind not in KINDS:
            raise InvalidInputError("a device has a known kind", allowed=", ".join(KINDS), given=repr(self.kind))
        if not self.peak_flops_per_second:
            raise InvalidInputError(f"{self.name} needs a peak of some format", allowed=", ".join(COMPUTE_FORMATS))
        for dtype in (*self.peak_flops_per_second, *self.sparse_peak_flops_per_second):
            if dtype not in COMPUTE_FORMATS:
                raise UnknownNameError("compute format", dtype, COMPUTE_FORMATS)
        for key, value in self.numbers().items():
            if not 0 < value < float("inf"):
                raise InvalidInputError(f"{key} of {self.name} must be positive", given=value)
            if key not in self.citations:
                raise InvalidInputError(
                    f"every number of a device names its source, and {key} of {self.name} has none",
                    next_step="Add a citation; its kind may be 'assumed' or 'derived', if you say so.",
                )

    def numbers(self) -> dict[str, float]:
        """Every number of the record, keyed as in ``citations``; absent values are left out."""
        found: dict[str, float | None] = {
            "memory_bytes": self.memory_bytes,
            "memory_bytes_per_second": self.memory_bytes_per_second,
            "link_bytes_per_second": self.link_bytes_per_second,
            "link_latency_seconds": self.link_latency_seconds,
            "tdp_watts": self.tdp_watts,
            "transcendentals_per_second": self.transcendentals_per_second,
            "matmul_tile": None if self.matmul_tile is None else self.matmul_tile[0] * self.matmul_tile[1],
        }
        found |= {f"peak_flops_per_second.{dtype}": peak for dtype, peak in self.peak_flops_per_second.items()}
        found |= {f"sparse_peak_flops_per_second.{d}": p for d, p in self.sparse_peak_flops_per_second.items()}
        found |= {f"on_chip.{level.name}": level.bytes for level in self.on_chip}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats that the hardware multiplies, widest first."""
        return tuple(dtype for dtype in COMPUTE_FORMATS if dtype in self.peak_flops_per_second)

    def peak(self, dtype: str = "bf16") -> float:
        """Dense peak of one format [FLOP/s].

        Args:
            dtype: compute format; ``fp8_e4m3`` and ``fp8_e5m2`` share the peak of ``fp8``, ``nvfp4`` and ``mxfp4``
                that of ``fp4``.

        Raises:
            UnsupportedError: the hardware does not multiply this format, or no text states its peak.
            UnknownNameError: no such format.

        >>> device("a100-80gb-sxm").peak("fp8")
        Traceback (most recent call last):
            ...
        course_lib.errors.UnsupportedError: NVIDIA A100 80GB SXM has no fp8 peak; it multiplies ...
        """
        unit = _SAME_UNIT.get(dtype, dtype)
        if unit in self.peak_flops_per_second:
            return self.peak_flops_per_second[unit]
        have = ", ".join(self.formats)
        if dtype in _WEIGHT_ONLY:
            raise UnsupportedError(
                f"{dtype} only stores numbers: they are turned into a wider format to be multiplied. "
                f"Ask for the peak of that format; {self.title} multiplies {have}."
            )
        if unit not in COMPUTE_FORMATS:
            raise UnknownNameError("number format", dtype, (*COMPUTE_FORMATS, *_SAME_UNIT, *_WEIGHT_ONLY))
        raise UnsupportedError(
            f"{self.title} has no {dtype} peak; it multiplies {have}. "
            "Store in the narrow format and compute in one of these: bytes fall, FLOP/s do not rise."
        )

    def ridge_point(self, dtype: str = "bf16") -> float:
        """Arithmetic intensity at which compute and memory take equally long, ``peak / bandwidth`` [FLOP/B].

        >>> round(device("h200").ridge_point("bf16"), 1)
        206.0
        """
        return self.peak(dtype) / self.memory_bytes_per_second

    def with_alternative(self, key: str, index: int = 0) -> Device:
        """The same device with another source's number in one field.

        Args:
            key: a key of ``alternatives``, such as ``"peak_flops_per_second.bf16"``.
            index: which of them.

        Raises:
            UnknownNameError: no alternative is recorded for the field.

        >>> device("h100-sxm").with_alternative("memory_bytes").memory_bytes == 80 * 2**30
        True
        """
        if key not in self.alternatives or not 0 <= index < len(self.alternatives[key]):
            raise UnknownNameError("alternative number", f"{key} [{index}]", self.alternatives)
        citation = self.alternatives[key][index]
        name, _, dtype = key.partition(".")
        value = citation.value
        change: object = int(value) if name == "memory_bytes" else value
        if dtype:
            change = {**getattr(self, name), dtype: value}
        citations = {**self.citations, key: citation}
        return replace(self, **{name: change, "citations": citations})  # type: ignore[arg-type]


def devices() -> tuple[str, ...]:
    """Names of the catalogue, sorted.

    >>> "h100-sxm" in devices()
    True
    """
    return tuple(sorted(path.stem for path in _DATA.glob("*.toml")))


def device(name_or_path: str | Path) -> Device:
    """A device of the catalogue by name, or of your own by the path of its TOML file.

    Args:
        name_or_path: a name of :func:`devices`, or a path ending in ``.toml``.

    Raises:
        UnknownNameError: no such name; near matches are offered.
        InvalidInputError: the file is unreadable, incomplete, or has an unknown key; the message names the key.

    >>> device("t4").peak("fp16")
    65000000000000.0
    """
    text = str(name_or_path)
    path = Path(text) if text.endswith(".toml") else _DATA / f"{text.lower()}.toml"
    if not text.endswith(".toml") and text.lower() not in devices():
        raise UnknownNameError("device", text, devices(), next_step="A path to a .toml file works too.")
    fields = read_device_fields(path)
    levels = tuple(MemoryLevel(**level) for level in fields.pop("on_chip", ()))
    return Device(**fields, on_chip=levels)
