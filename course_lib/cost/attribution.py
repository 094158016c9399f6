"""Why did the bill move? An order-free answer that sums exactly to the change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from course_lib.errors import InvalidInputError

__all__ = ["MAX_LINKS", "Attribution", "attribute"]

T = TypeVar("T")
MAX_LINKS = 14
"""All 2**n coalitions are evaluated; above this many links that is too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The change of a value split over its causes: ``sum(terms) = value(after) - value(before)``.

    Args:
        terms: (name of the cause, its share in dollars a month), in the order given.

    >>> Attribution(terms=(("KV bytes", 12.0), ("FLOPs", -2.0))).total_usd_per_month
    10.0
    """

    terms: tuple[tuple[str, float], ...]

    @property
    def total_usd_per_month(self) -> float:
        """The whole change."""
        return math.fsum(usd for _, usd in self.terms)

    @property
    def largest(self) -> str:
        """The cause with the largest share, up or down ("" when nothing changed)."""
        name, usd = max(self.terms, key=lambda term: abs(term[1]), default=("", 0.0))
        return name if usd else ""

    def usd_per_month(self, name: str) -> float:
        """The share of one cause; 0 when it did not change.

        >>> Attribution(terms=(("price", 3.0),)).usd_per_month("FLOPs")
        0.0
        """
        return math.fsum(usd for term, usd in self.terms if term == name)


def attribute(
    before: Mapping[str, T], after: Mapping[str, T], links: Sequence[str], value: Callable[[Mapping[str, T]], float]
) -> Attribution:
    """Shapley attribution of ``value(after) - value(before)`` to the links.

    ``phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! * (value(S and i) - value(S))``

    where ``value(S)`` takes the links in S from ``after`` and all others from ``before``. No order of the
    changes is favoured, a link that changes nothing gets exactly 0, and the terms sum to the change.

    Args:
        before, after: the links by name.
        links: the names to attribute to, n <= 14; anything else in ``after`` is ignored.
        value: dollars a month of a complete set of links.

    Returns:
        One term for each link, in the order of ``links``.

    Raises:
        InvalidInputError: a link is missing on one side, twice, or there are too many.

    Source: Shapley (1953), A Value for n-Person Games.

    >>> cost = lambda links: links["requests"] * links["usd"]
    >>> attribute({"requests": 10, "usd": 2}, {"requests": 20, "usd": 3}, ["requests", "usd"], cost).terms
    (('requests', 25.0), ('usd', 15.0))
    """
    num = len(links)
    if len(set(links)) != num or num > MAX_LINKS:
        allowed = f"at most {MAX_LINKS} names"
        raise InvalidInputError("links are named once each", given=str(list(links)), allowed=allowed)
    for name in links:
        if name not in before or name not in after:
            raise InvalidInputError("every link is in before and in after", given=repr(name))
    values = []
    for coalition in range(1 << num):
        chosen = {name: after[name] for bit, name in enumerate(links) if coalition >> bit & 1}
        values.append(float(value({**before, **chosen})))
    weights = [math.factorial(size) * math.factorial(num - size - 1) / math.factorial(num) for size in range(num)]
    terms = []
    for bit, name in enumerate(links):
        without = (coalition for coalition in range(1 << num) if not coalition >> bit & 1)
        share = math.fsum(weights[c.bit_count()] * (values[c | 1 << bit] - values[c]) for c in without)
        terms.append((name, share))
    return Attribution(terms=tuple(terms))
