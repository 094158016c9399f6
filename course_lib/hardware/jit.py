"""Compiling with numba where it is installed; imported only by code that is about to simulate."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

__all__ = ["compiled", "has_numba"]

Function = TypeVar("Function", bound=Callable[..., Any])


def has_numba() -> bool:
    """Whether numba can be imported; asked at each call, so that a test can take it away."""
    return find_spec("numba") is not None


def compiled(function: Function) -> Function:
    """``function`` compiled by numba; the machine code is cached beside the package or in the user's cache.

    Where neither place can be written, numba refuses to cache; the function is then compiled anew in each process.
    """
    import numba

    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # "cannot cache function: no locator available"
        return cast(Function, numba.njit(nogil=True)(function))
