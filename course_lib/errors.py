"""Errors that say what was asked, what is allowed, what was given and the next step."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["DoesNotFitError", "InvalidInputError", "TraceATensorError", "UnknownNameError", "UnsupportedError"]


class TraceATensorError(Exception):
    """Base class: catch this to catch everything the library raises on purpose."""


class InvalidInputError(TraceATensorError, ValueError):
    """A caller gave something the function cannot use.

    Args:
        asked: what the function needs, a full clause ("matmul needs inner sizes to agree").
        given: what it got instead.
        allowed: what would be accepted, if that is a list or a range.
        next_step: what to try next.

    >>> print(InvalidInputError("tokens must be positive", given="-3", next_step="Use 1 or more."))
    tokens must be positive; given: -3. Use 1 or more.
    """

    def __init__(self, asked: str, *, given: object = None, allowed: str = "", next_step: str = "") -> None:
        self.asked, self.given, self.allowed, self.next_step = asked, given, allowed, next_step
        text = asked.rstrip(".")
        if allowed:
            text += f"; allowed: {allowed}"
        if given is not None:
            text += f"; given: {given}"
        text += "."
        if next_step:
            text += f" {next_step}"
        super().__init__(text)


class UnknownNameError(InvalidInputError):
    """A name that is in no catalogue; near matches are offered.

    >>> print(UnknownNameError("device", "h100", ["h100-sxm", "h100-pcie", "t4"]))
    unknown device; given: 'h100'. Did you mean 'h100-pcie' or 'h100-sxm'? All 3: h100-pcie, h100-sxm, t4.
    """

    def __init__(self, kind: str, given: str, known: Iterable[str], *, next_step: str = "") -> None:
        known = sorted(known)
        near = get_close_matches(given.lower(), known, n=3, cutoff=0.5)
        near = sorted({*near, *(name for name in known if given and name.startswith(given.lower()))})[:4]
        hint = f"Did you mean {' or '.join(repr(name) for name in near)}? " if near else ""
        hint += f"All {len(known)}: {', '.join(known)}."
        if next_step:
            hint += f" {next_step}"
        self.known, self.near = tuple(known), tuple(near)
        super().__init__(f"unknown {kind}", given=repr(given), next_step=hint)


class DoesNotFitError(TraceATensorError, ValueError):
    """Something larger than the memory, the budget or the promise that should hold it."""


class UnsupportedError(TraceATensorError, ValueError):
    """A real thing that is not modelled here; named, never approximated in silence."""
