"""Units, written once: ``GB`` is 1e9 bytes and ``GiB`` is 2**30, and only this module knows both.

Base units everywhere in the library: byte, second, FLOP, USD, joule, watt.
"""

from __future__ import annotations

import re

from course_lib.errors import InvalidInputError

__all__ = [
    "GB", "GFLOP", "HOUR", "KB", "MB", "MILLION", "TB", "TFLOP", "GiB", "KiB", "MiB", "TiB",
    "format_bytes", "format_quantity", "format_seconds", "format_usd", "parse_quantity",
]  # fmt: skip

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
GFLOP, TFLOP = 10**9, 10**12
MILLION = 10**6
HOUR = 3600

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": KiB, "Mi": MiB, "Gi": GiB, "Ti": TiB, "Pi": 2**50}
_BASE = {
    "B": "byte", "byte": "byte", "bytes": "byte", "B/s": "byte/s", "Bps": "byte/s", "FLOP": "FLOP", "FLOPs": "FLOP",
    "FLOPS": "FLOP/s", "FLOP/s": "FLOP/s", "FLOPs/s": "FLOP/s", "OP/s": "FLOP/s", "OPS": "FLOP/s", "OPs": "FLOP/s",
    "W": "W", "Hz": "Hz", "s": "s",
}  # fmt: skip
_QUANTITY = re.compile(r"^\s*([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*([A-Za-z/]*)\s*$")


def parse_quantity(text: str) -> tuple[float, str]:
    """Read a printed quantity as (value in base units, base unit).

    ``value = number * prefix``, with decimal prefixes k M G T P E and binary prefixes Ki Mi Gi Ti Pi.

    Args:
        text: number and unit as a vendor prints them, such as ``"3.35TB/s"`` or ``"989.4 TFLOPS"``.

    Raises:
        InvalidInputError: the text is no number followed by a known unit.

    >>> parse_quantity("3.35TB/s")
    (3350000000000.0, 'byte/s')
    >>> parse_quantity("80 GiB")
    (85899345920.0, 'byte')
    """
    match = _QUANTITY.match(text)
    if match:
        number, unit = float(match[1].replace(",", "")), match[2]
        for length in (2, 1, 0):
            prefix, base = unit[:length], unit[length:]
            scale = _BINARY.get(prefix) or (_DECIMAL.get(prefix) if length < 2 else None)
            if scale and base in _BASE:
                return round(number * scale, 6), _BASE[base]
        if not unit:
            return number, ""
    raise InvalidInputError(
        "a quantity is a number and a unit", given=repr(text), allowed="for example '80 GB', '3.35TB/s', '989.4 TFLOPS'"
    )


def format_quantity(value: float, unit: str, *, digits: int = 3) -> str:
    """Print a value with a decimal prefix, such as ``3.35 TB/s``.

    >>> format_quantity(3.35e12, "B/s")
    '3.35 TB/s'
    >>> format_quantity(0, "FLOP")
    '0 FLOP'
    """
    magnitude = abs(value)
    for prefix, scale in reversed(_DECIMAL.items()):
        if prefix != "K" and scale > 1 and magnitude >= scale:
            scaled = value / scale
            return f"{scaled:.{digits}g} {prefix}{unit}" if abs(scaled) < 1000 else f"{value:.{digits}g} {unit}"
    return f"{value:.{digits}g} {unit}"


def format_bytes(num_bytes: float) -> str:
    """Print bytes in decimal units: GB is 1e9.

    >>> format_bytes(16_060_522_496)
    '16.1 GB'
    """
    return format_quantity(num_bytes, "B")


def format_seconds(seconds: float) -> str:
    """Print a duration in the unit a reader would use.

    >>> format_seconds(0.0214), format_seconds(3e-6), format_seconds(2.5)
    ('21.4 ms', '3 µs', '2.5 s')
    """
    if seconds == 0 or abs(seconds) >= 1:
        return f"{seconds:.3g} s" if abs(seconds) < 1000 else f"{seconds:,.0f} s"
    for scale, unit in ((1e3, "ms"), (1e6, "µs")):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def format_usd(usd: float) -> str:
    """Print dollars: whole ones from 100 up, cents or more digits below.

    >>> format_usd(17227.6), format_usd(2.95), format_usd(0.0713)
    ('$17,228', '$2.95', '$0.0713')
    """
    sign, magnitude = ("-" if usd < 0 else ""), abs(usd)
    if magnitude >= 100:
        return f"{sign}${magnitude:,.0f}"
    return f"{sign}${magnitude:.2f}" if magnitude >= 1 or magnitude == 0 else f"{sign}${magnitude:.3g}"
