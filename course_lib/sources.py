"""Citations: where a number comes from, with the text as printed there."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.errors import InvalidInputError
from course_lib.units import parse_quantity

__all__ = ["KINDS", "Citation"]

KINDS = ("vendor", "paper", "catalogue", "secondary", "derived", "assumed")
"""How sure a citation is: a vendor's own text, a paper, a dated price catalogue, somebody quoting those,
arithmetic on cited values, or an assumption of this course that a reader may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One number's origin.

    Args:
        source: author or organisation, title, edition; enough to find it again.
        printed: the number with its unit exactly as the source prints it (may be empty for ``derived``).
        kind: one of :data:`KINDS`.
        date: ISO date (or year) of the source.
        note: what a reader should know (a conflict, a convention, the derivation).

    >>> Citation(source="NVIDIA H100 data sheet", printed="3.35TB/s", kind="vendor", date="2023").value
    3350000000000.0
    """

    source: str
    printed: str = ""
    kind: str = "vendor"
    date: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInputError("a citation has a known kind", allowed=", ".join(KINDS), given=repr(self.kind))
        if not self.source.strip():
            raise InvalidInputError("a citation names its source", given="an empty text")

    @property
    def value(self) -> float:
        """The printed number in base units."""
        return parse_quantity(self.printed)[0]
