"""Tell-tale ratios: an answer off by exactly 2, 8 or 1.0737 says which mistake was made."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.units import GB, KB, MB, GiB, KiB, MiB

__all__ = ["SIGNATURES", "Signature", "factor_signature", "ratio_signature"]

# Ratios are quotients of numbers that were themselves computed in float64: a few roundings, no more.
RATIO_TOLERANCE = 1e-9
# Printed numbers such as "16.1" are rounded to three or four digits; a unit slip of 2.4 % must still show.
UNIT_TOLERANCE = 2e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: the ratios result / right answer that give the mistake away, and its hint."""

    name: str
    ratios: tuple[float, ...]
    hint: str
    tolerance: float = RATIO_TOLERANCE


_TABLE = (
    Signature(
        name="half",
        ratios=(0.5,),
        hint="Your result is exactly half. Either a multiply-add was counted once (it is two operations: one "
        "multiply, one add), or one of a read and a write was left out.",
    ),
    Signature(
        name="double",
        ratios=(2.0,),
        hint="Your result is exactly double. Something is counted twice: a multiply-add as four, a tensor that "
        "is read once as read twice, or a read and a write where only one happens.",
    ),
    Signature(
        name="grouped-query-heads",
        ratios=(4.0, 8.0, 16.0),
        hint="You ignored grouped-query attention: the cache holds the key/value heads, and several query heads "
        "share one of them. Count num_kv_heads, not num_heads.",
    ),
    Signature(
        name="bits-for-bytes",
        ratios=(8.0, 0.125),
        hint="Your result is off by exactly 8: bits were taken for bytes, or bytes for bits.",
    ),
    Signature(
        name="gib-for-gb",
        ratios=(GB / GiB,),
        tolerance=UNIT_TOLERANCE,
        hint="Your result is 1.0737 times too small: that is GiB (2**30 bytes) where GB (10**9 bytes) is asked.",
    ),
    Signature(
        name="gb-for-gib",
        ratios=(GiB / GB,),
        tolerance=UNIT_TOLERANCE,
        hint="Your result is 1.0737 times too large: that is GB (10**9 bytes) where GiB (2**30 bytes) is asked.",
    ),
    Signature(
        name="binary-prefix",
        ratios=(KB / KiB, MB / MiB),
        tolerance=UNIT_TOLERANCE,
        hint="Your result is off by a power of 1024/1000: a binary prefix stands where a decimal one belongs.",
    ),
    Signature(
        name="decimal-prefix",
        ratios=(KiB / KB, MiB / MB),
        tolerance=UNIT_TOLERANCE,
        hint="Your result is off by a power of 1024/1000: a decimal prefix stands where a binary one belongs.",
    ),
)

SIGNATURES: Mapping[str, Signature] = {row.name: row for row in _TABLE}


def ratio_signature(ratios: Sequence[float], names: Sequence[str]) -> Signature | None:
    """The row of the table that explains every failed case, or None.

    Args:
        ratios: result / right answer of each failed case.
        names: which rows to try, in this order.

    >>> ratio_signature([0.5, 0.5], ["double", "half"]).name
    'half'
    >>> ratio_signature([0.5, 0.7], ["double", "half"]) is None
    True
    """
    for name in names:
        row = SIGNATURES[name]
        if ratios and all(_near_any(ratio, row.ratios, row.tolerance) for ratio in ratios):
            return row
    return None


def factor_signature(
    expected: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], ratios: Sequence[float]
) -> Signature | None:
    """Name the input that was left out of a product, or multiplied in once too often.

    The answer lacks the factor x when ``result / right answer == 1 / x`` in every failed case, and x
    differs between at least two of them (so that a chance agreement of one number is no proof).

    >>> def flops(batch, width): return 2 * batch * width
    >>> factor_signature(flops, [(2, 5), (3, 7)], [1 / 2, 1 / 3]).name
    'missing-factor-batch'
    """
    names = list(inspect.signature(expected).parameters)
    for position, name in enumerate(names):
        values = [case[position] for case in inputs if position < len(case)]
        numeric = all(type(value) in (int, float) and value > 0 for value in values)
        if len(values) != len(ratios) or not numeric or len(set(values)) < 2:
            continue
        if all(math.isclose(r * v, 1.0, rel_tol=RATIO_TOLERANCE) for r, v in zip(ratios, values)):
            return Signature(name=f"missing-factor-{name}", ratios=(), hint=_missing(name))
        if all(math.isclose(r, v, rel_tol=RATIO_TOLERANCE) for r, v in zip(ratios, values)):
            return Signature(name=f"extra-factor-{name}", ratios=(), hint=_extra(name))
    return None


def _near_any(ratio: float, targets: tuple[float, ...], tolerance: float) -> bool:
    return any(math.isclose(ratio, target, rel_tol=tolerance) for target in targets)


def _missing(name: str) -> str:
    if name.lower() in {"b", "batch", "batch_size", "num_sequences"}:
        return (
            f"Your result is too small by exactly the factor {name}: it is the count for one sample. Every sample "
            f"does the work again, so the total grows with {name}."
        )
    return (
        f"Your result is too small by exactly the factor {name} in every case. Ask what is repeated {name} times."
    )


def _extra(name: str) -> str:
    return (
        f"Your result is too large by exactly the factor {name} in every case. Ask which part of the count is "
        f"shared, and so happens once, whatever {name} is."
    )
