"""Reading a device file: TOML in, checked fields out, with a message that names the key that is wrong."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.sources import Citation
from course_lib.units import parse_quantity

__all__ = ["device_template", "read_device_fields"]

_TEXTS = ("name", "title", "vendor", "kind")
_NUMBERS = (
    "memory_bytes", "memory_bytes_per_second", "link_bytes_per_second", "link_latency_seconds", "tdp_watts",
    "transcendentals_per_second", "matmul_tile",
)  # fmt: skip
_BY_FORMAT = ("peak_flops_per_second", "sparse_peak_flops_per_second")
_REQUIRED = (*_TEXTS, "peak_flops_per_second", "memory_bytes", "memory_bytes_per_second")
_KNOWN = (*_TEXTS, *_NUMBERS, *_BY_FORMAT, "on_chip", "sources")
_ENTRY_KEYS = ("value", "printed", "source", "note", "kind", "alternatives")

_TEMPLATE = """\
# A device of your own. Every number names its source and the text as printed there.
# Load it with  device("my-device.toml")  or  --device my-device.toml
name = "my-device"
title = "Example accelerator"
vendor = "Example maker"
kind = "gpu"                      # gpu, tpu, npu or cpu

# Sources, each under a short key that the numbers below refer to.
# kind: vendor (the maker's own text), paper, catalogue, secondary (somebody quoting those),
#       derived (arithmetic on cited numbers: printed may be left out, note says how), assumed.
[sources.sheet]
source = "Example accelerator data sheet, edition 1"
kind = "assumed"                  # replace by "vendor" once these are the maker's numbers
date = "2026"

[memory_bytes]
value = 80_000_000_000            # bytes; GB is 1e9, GiB is 2**30
printed = "80 GB"
source = "sheet"

[memory_bytes_per_second]
value = 2e12
printed = "2 TB/s"
source = "sheet"
# Another text says otherwise? Keep it here, to be shown:
# alternatives = [{ printed = "1.9 TB/s", source = "sheet", note = "edition 2" }]

# DENSE peaks, one table per format that the hardware multiplies; leave out what it lacks.
# Formats: fp64 fp32 tf32 bf16 fp16 fp8 fp4 int16 int8 int4. A multiply-add is 2 operations.
[peak_flops_per_second.bf16]
value = 400e12
printed = "400 TFLOPS"
source = "sheet"

# Peaks with 2:4 structured sparsity, if printed.
# [sparse_peak_flops_per_second.bf16]
# value = 800e12
# printed = "800 TFLOPS"
# source = "sheet"

# Optional: device-to-device bandwidth, one direction, all links of one device.
# [link_bytes_per_second]
# value = 200e9
# source = "sheet"
# kind = "derived"
# note = "half of 400 GB/s, which counts both directions"

# [link_latency_seconds]  [tdp_watts]  [transcendentals_per_second]  [matmul_tile]: the same form;
# matmul_tile has value = [128, 128].

# Optional: on-chip memories.
# [[on_chip]]
# name = "L2"
# value = 50_000_000
# scope = "device"
# printed = "50 MB"
# source = "sheet"
"""


def device_template() -> str:
    """A commented device file that is itself valid: fill in your numbers and load it by path.

    >>> device_template().splitlines()[1]
    '# Load it with  device("my-device.toml")  or  --device my-device.toml'
    """
    return _TEMPLATE


def read_device_fields(path: Path) -> dict[str, Any]:
    """Fields of a Device from one TOML file.

    Raises:
        InvalidInputError: unreadable, not TOML, a key missing or unknown, a number that contradicts its printed text.
    """
    raw = _load(path)
    for key in raw:
        if key not in _KNOWN:
            raise UnknownNameError(f"key in {path.name}", key, _KNOWN)
    missing = [key for key in _REQUIRED if key not in raw]
    if missing:
        asked = f"{path.name} needs {', '.join(missing)}"
        raise InvalidInputError(asked, next_step="device_template() shows the form.")
    reader = _Reader(path.name, raw.get("sources", {}))
    fields: dict[str, Any] = {key: _text(path.name, key, raw[key]) for key in _TEXTS}
    for key in _NUMBERS:
        if key in raw:
            fields[key] = reader.number(key, raw[key])
    for key in _BY_FORMAT:
        fields[key] = {dtype: reader.number(f"{key}.{dtype}", entry) for dtype, entry in raw.get(key, {}).items()}
    fields["on_chip"] = tuple(reader.level(entry) for entry in raw.get("on_chip", ()))
    return fields | {"citations": reader.citations, "alternatives": reader.alternatives}


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: bytes that are not UTF-8, a NUL in the path
        raise InvalidInputError(f"the device file {path} cannot be read: {error}") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # malformed, a number of 5,000 digits, endless nesting
        raise InvalidInputError(f"{path.name} is not valid TOML: {error}") from error


def _text(file: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{key} in {file} is a text in quotes", given=repr(value))
    return value


class _Reader:
    """Collects the citations of one file while its numbers are read."""

    def __init__(self, file: str, sources: Mapping[str, Mapping[str, str]]) -> None:
        self.file, self.sources = file, sources
        self.citations: dict[str, Citation] = {}
        self.alternatives: dict[str, tuple[Citation, ...]] = {}

    def number(self, key: str, entry: Any) -> Any:
        """The value of one entry; its citation and alternatives are kept under ``key``."""
        if not isinstance(entry, dict) or "value" not in entry:
            raise InvalidInputError(
                f"{key} in {self.file} is a table with value, printed and source", given=repr(entry)
            )
        for name in entry:
            if name not in _ENTRY_KEYS:
                raise UnknownNameError(f"key of {key} in {self.file}", name, _ENTRY_KEYS)
        value = self._checked(key, entry["value"])
        self.citations[key] = self._citation(key, entry, value)
        if others := entry.get("alternatives"):
            self.alternatives[key] = tuple(self._citation(key, other, None) for other in others)
        return value

    def level(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """One on-chip memory."""
        name = _text(self.file, "name of an on_chip memory", entry.get("name"))
        scope = _text(self.file, f"scope of {name}", entry.get("scope"))
        rest = {key: value for key, value in entry.items() if key not in ("name", "scope")}
        return {"name": name, "scope": scope, "bytes": self.number(f"on_chip.{name}", rest)}

    def _checked(self, key: str, value: Any) -> Any:
        if key == "matmul_tile":
            if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int and v > 0 for v in value)):
                raise InvalidInputError(f"matmul_tile in {self.file} is [rows, columns]", given=repr(value))
            return tuple(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise InvalidInputError(f"{key} in {self.file} must be a positive number", given=repr(value))
        is_size = key == "memory_bytes" or key.startswith("on_chip.")
        if is_size and value != int(value):
            raise InvalidInputError(f"{key} in {self.file} is a whole number of bytes", given=repr(value))
        return int(value) if is_size else float(value)

    def _citation(self, key: str, entry: Mapping[str, Any], value: Any) -> Citation:
        name = entry.get("source")
        if not name:
            raise InvalidInputError(
                f"{key} in {self.file} has no source",
                next_step="Add source = \"KEY\" with a matching [sources.KEY]; kind may be 'assumed', if you say so.",
            )
        if name not in self.sources:
            raise UnknownNameError(f"source of {key} in {self.file}", str(name), self.sources)
        source = self.sources[name]
        note = "; ".join(text for text in (entry.get("note", ""), source.get("note", "")) if text)
        kind, printed = entry.get("kind", source.get("kind", "vendor")), str(entry.get("printed", ""))
        if not printed and kind not in ("derived", "assumed"):
            raise InvalidInputError(f"{key} in {self.file} needs the text as printed in its source", given="none")
        if printed and value is not None and key != "matmul_tile":
            self._agree(key, printed, value)
        return Citation(source=source["source"], printed=printed, kind=kind, date=source.get("date", ""), note=note)

    def _agree(self, key: str, printed: str, value: float) -> None:
        number = parse_quantity(printed)[0]
        if not math.isclose(number, value, rel_tol=1e-12):  # both are exact decimals; only float rounding differs
            asked = f"{key} in {self.file} differs from its printed text {printed!r}"
            raise InvalidInputError(asked, given=f"{value:g}", next_step="Mend whichever was mistyped.")
