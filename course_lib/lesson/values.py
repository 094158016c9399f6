"""Learners answer with Python numbers, NumPy scalars, lists, arrays, torch or course tensors: all are welcome.

``plain`` brings an answer to built-in numbers and NumPy arrays before anything is compared, so that no
method of a learner's own class (an ``__eq__`` that is always true) takes part in the comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["NOT_A_NUMBER", "NotComparableError", "Plain", "agree", "is_finite", "plain", "quotient", "show"]

# A float64 result of a handful of operations; a float32 result of the same.
FLOAT64_TOLERANCE = 1e-12
FLOAT32_TOLERANCE = 1e-6
# bf16 and fp16 keep 8 and 11 bits: no exact count can be checked through them, so they get none extra.
NOT_A_NUMBER = "(a number is needed)"
_SHOWN_ITEMS = 6
_LARGEST = 1e300

Plain = Any
"""int, float, bool, str, None, np.ndarray, or a tuple or dict of these."""


class NotComparableError(Exception):
    """An answer of a kind that no right answer has; the message is for the learner."""


def plain(value: Any) -> Plain:
    """The value as built-in numbers, strings, tuples, dicts and arrays.

    >>> import numpy as np
    >>> plain(np.float64(2.5)), plain([1, np.int64(2)]), plain(np.array([7]))
    (2.5, (1, 2), array([7]))
    """
    kind = type(value)
    # By identity: a class may claim, through its metaclass, to equal int.
    if value is None or any(kind is known for known in (bool, int, float, str)):
        return value
    if kind is Fraction or kind is Decimal:
        return _real(value)
    if isinstance(value, np.generic):
        return _scalar(value)
    if any(kind is known for known in (list, tuple, range)):
        return tuple(plain(item) for item in value)
    if isinstance(value, tuple):  # named tuples
        return tuple(plain(item) for item in tuple.__iter__(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return _array(value)


def _real(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError):
        raise NotComparableError(f"the {type(value).__name__} fits no float") from None


def _scalar(value: np.generic) -> Plain:
    if isinstance(value, (np.bool_, np.integer, np.floating)):  # NumPy's own item(), not one of a learner's subclass
        return np.generic.item(value) if not isinstance(value, np.longdouble) else float(value)
    if isinstance(value, np.str_):
        return str.__str__(value)
    raise NotComparableError(f"a NumPy {type(value).__name__} is no real number")


def _array(value: Any) -> Plain:
    """Arrays and tensors as NumPy arrays; those without dimensions as numbers."""
    if hasattr(value, "detach"):  # torch: leave the graph, come to the CPU, know bf16
        value = value.detach().cpu()
        value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    elif isinstance(getattr(value, "data", None), np.ndarray) and not isinstance(value, np.ndarray):
        value = value.data
    if not isinstance(value, np.ndarray):
        what = "a function; call it" if callable(value) else f"of type {type(value).__name__}"
        raise NotComparableError(f"the result is {what}, but a number or an array is needed")
    value = np.asarray(value)
    if value.dtype.kind not in "biuf":
        raise NotComparableError(f"the array has dtype {value.dtype}, but real numbers are needed")
    return value.item() if value.ndim == 0 else value


def agree(got: Plain, expected: Plain, relative_tolerance: float = 0.0) -> str:
    """Empty when the two plain values agree; otherwise where and how they differ, in words.

    Whole numbers agree only when equal. A whole number given as a float is welcome, at the float's own
    precision. NaN agrees with NaN.

    >>> agree(1654784.0, 1654784), agree(3, 4)
    ('', 'got 3, expected 4')
    """
    if isinstance(expected, Mapping):
        return _agree_mapping(got, expected, relative_tolerance)
    if isinstance(expected, (tuple, np.ndarray)):
        return _agree_sequence(got, expected, relative_tolerance)
    if isinstance(expected, (bool, str)) or expected is None:
        return "" if type(got) is type(expected) and got == expected else _differ(got, expected)
    if isinstance(got, np.ndarray) and got.size == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return f"{_differ(got, expected)} {NOT_A_NUMBER}"
    return "" if _close(got, expected, relative_tolerance) else _differ(got, expected)


def _close(got: float, expected: float, tolerance: float) -> bool:
    if isinstance(got, int) and isinstance(expected, int) and tolerance == 0:
        return got == expected
    if got != got or expected != expected:  # NaN differs from itself
        return got != got and expected != expected
    if not is_finite(got) or not is_finite(expected):
        return got == expected
    wanted = max(tolerance, _own_precision(got))
    return abs(got - expected) <= wanted * abs(expected)


def _own_precision(got: float) -> float:
    """float32 numbers are recognised: casting them to float32 changes nothing, and they need its tolerance."""
    if isinstance(got, float) and abs(got) < 3e38 and float(np.float32(got)) == got and not got.is_integer():
        return FLOAT32_TOLERANCE
    if isinstance(got, float) and got.is_integer() and abs(got) > 2**24 and float(np.float32(got)) == got:
        return FLOAT32_TOLERANCE
    return FLOAT64_TOLERANCE


def _agree_mapping(got: Plain, expected: Mapping[str, Any], tolerance: float) -> str:
    if not isinstance(got, Mapping):
        return f"{_differ(got, expected)} (a dict is needed)"
    missing = [key for key in expected if key not in got]
    if missing:
        return f"the entry {missing[0]!r} is missing"
    for key, value in expected.items():
        problem = agree(got[key], value, tolerance)
        if problem:
            return f"entry {key!r}: {problem}"
    return ""


def _agree_sequence(got: Plain, expected: Plain, tolerance: float) -> str:
    if isinstance(got, (str, Mapping)) or not isinstance(got, (tuple, np.ndarray)):
        return f"{_differ(got, expected)} ({len(expected)} values are needed)"
    if isinstance(expected, np.ndarray) and isinstance(got, tuple):
        try:
            got = np.asarray(got, dtype=np.float64)
        except (TypeError, ValueError):
            return "the rows have different lengths"
    if isinstance(expected, np.ndarray):
        return _agree_array(got, expected, tolerance)
    if len(got) != len(expected):
        return f"{len(got)} values came, {len(expected)} are expected"
    for position, (left, right) in enumerate(zip(got, expected)):
        problem = agree(plain(left), right, tolerance)
        if problem:
            return f"at position {position}: {problem}"
    return ""


def _agree_array(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    if got.shape != expected.shape:
        return f"shape {got.shape} came, {expected.shape} is expected"
    precision = FLOAT32_TOLERANCE if got.dtype.kind == "f" and got.dtype.itemsize <= 4 else FLOAT64_TOLERANCE
    if expected.dtype.kind in "biu" and got.dtype.kind in "biu":
        precision = 0.0
    close = np.isclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=max(tolerance, precision), atol=0.0, equal_nan=True
    )
    if close.all():
        return ""
    where = tuple(int(i) for i in np.argwhere(~close)[0])
    bad = int((~close).sum())
    return f"{bad} of {close.size} entries differ; at {where}: {_differ(got[where].item(), expected[where].item())}"


def quotient(got: Plain, expected: Plain) -> float | None:
    """got / expected where both are numbers and the quotient says something; otherwise None."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (got, expected))
    if not numbers or not expected or not is_finite(got) or not is_finite(expected):
        return None
    ratio = Fraction(got) / Fraction(expected)
    return float(ratio) if abs(ratio) < _LARGEST else None


def is_finite(value: float) -> bool:
    """Whether a number is finite and fits a float (a Python integer may be larger than any)."""
    return abs(value) < _LARGEST


def show(value: Plain) -> str:
    """A value as a learner reads it: grouped thousands, few digits, long sequences cut.

    >>> show(1654784), show(0.1 + 0.2), show((1, 2))
    ('1,654,784', '0.3', '(1, 2)')
    """
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        if abs(value) < 10**30:
            return f"{value:,}"
        return f"{float(value):.6g}" if is_finite(value) else f"a number of {value.bit_length():,} bits"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}" if value.size > _SHOWN_ITEMS else show(plain(value.tolist()))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in list(value.items())[:_SHOWN_ITEMS]) + "}"
    if isinstance(value, tuple):
        cut = ", ..." if len(value) > _SHOWN_ITEMS else ""
        return "(" + ", ".join(show(item) for item in value[:_SHOWN_ITEMS]) + cut + ")"
    return type(value).__name__ if not hasattr(value, "__dataclass_fields__") else repr(value)[:120]


def _differ(got: Plain, expected: Plain) -> str:
    return f"got {show(got)}, expected {show(expected)}"
