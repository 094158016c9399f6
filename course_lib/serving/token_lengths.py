"""Distributions of prompt and output lengths, in whole tokens, one or more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError

__all__ = ["Constant", "Empirical", "Geometric", "LogNormal", "TokenLengths", "token_lengths"]


class TokenLengths(Protocol):
    """A distribution of lengths: its mean, and samples of it."""

    @property
    def mean(self) -> float:
        """Expected tokens."""

    def sample(self, rng: np.random.Generator, num: int) -> NDArray[np.int64]:
        """``num`` lengths, each 1 or more."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Each length is the same.

    >>> Constant(300).mean
    300.0
    """

    tokens: int

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, int) or isinstance(self.tokens, bool) or self.tokens < 1:
            raise InvalidInputError("a length is a whole number of tokens, 1 or more", given=repr(self.tokens))

    @property
    def mean(self) -> float:
        """The length."""
        return float(self.tokens)

    def sample(self, rng: np.random.Generator, num: int) -> NDArray[np.int64]:
        """``num`` times the same length."""
        return np.full(num, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Each token is the last with probability ``p = 1 / mean``: ``P(length > k) = (1 - p)**k``.

    The memoryless length; with it the slots of a static batch have a closed form
    (:func:`course_lib.serving.queueing.static_slot_utilization`).

    >>> Geometric(20.0).mean
    20.0
    """

    mean_tokens: float

    def __post_init__(self) -> None:
        if not 1 <= self.mean_tokens < math.inf:
            raise InvalidInputError("a geometric length has a mean of 1 token or more", given=self.mean_tokens)

    @property
    def mean(self) -> float:
        """Expected tokens."""
        return float(self.mean_tokens)

    def sample(self, rng: np.random.Generator, num: int) -> NDArray[np.int64]:
        """``num`` independent lengths."""
        return rng.geometric(1.0 / self.mean_tokens, size=num).astype(np.int64)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Logarithms of lengths are normal: many short answers, a long tail; rounded to whole tokens.

    ``length = max(1, round(exp(mu + sigma Z)))`` with ``mu = ln(mean) - sigma**2 / 2``.

    Args:
        mean_tokens: mean before rounding, 1 or more.
        sigma: standard deviation of the logarithm, 0 or more (1 gives a p99 of 6.2 means).

    Assumes: rounding moves the mean by less than half a token; :attr:`mean` is the mean before it.

    >>> LogNormal(300, sigma=1.0).mean
    300.0
    """

    mean_tokens: float
    sigma: float

    def __post_init__(self) -> None:
        if not 1 <= self.mean_tokens < math.inf or not 0 <= self.sigma < math.inf:
            raise InvalidInputError("a log-normal length needs mean_tokens >= 1 and sigma >= 0", given=self)

    @property
    def mean(self) -> float:
        """Expected tokens before rounding."""
        return float(self.mean_tokens)

    def sample(self, rng: np.random.Generator, num: int) -> NDArray[np.int64]:
        """``num`` independent lengths."""
        mu = math.log(self.mean_tokens) - self.sigma**2 / 2
        return np.maximum(1, np.rint(np.exp(mu + self.sigma * rng.standard_normal(num)))).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths drawn, with replacement, from observed ones.

    >>> Empirical((10, 20, 30)).mean
    20.0
    """

    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        if not self.tokens:
            raise InvalidInputError("an empirical distribution needs one observed length or more", given="none")
        for tokens in self.tokens:
            Constant(tokens)

    @property
    def mean(self) -> float:
        """Mean of the observed lengths."""
        return sum(self.tokens) / len(self.tokens)

    def sample(self, rng: np.random.Generator, num: int) -> NDArray[np.int64]:
        """``num`` independent lengths."""
        return np.asarray(self.tokens, dtype=np.int64)[rng.integers(len(self.tokens), size=num)]


def token_lengths(value: int | TokenLengths) -> TokenLengths:
    """A distribution from a distribution or from one number of tokens.

    >>> token_lengths(300)
    Constant(tokens=300)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Constant(value)
    if hasattr(value, "sample") and hasattr(value, "mean"):
        return value
    raise InvalidInputError(
        "lengths are a whole number of tokens or a distribution",
        allowed="an int, Constant, Geometric, LogNormal, Empirical",
        given=repr(value),
    )
