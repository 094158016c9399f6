"""Service-level objective: what each request was promised, and whether it was kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError

__all__ = ["SLO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SLO:
    """Promise on time to first token (TTFT) and time per output token (TPOT).

    A request is good when ``TTFT <= ttft_seconds`` and ``TPOT <= tpot_seconds``; the promise is kept when the
    share of good requests is at least ``attainment``.

    Args:
        ttft_seconds: promised time to first token, queueing included [s], or None.
        tpot_seconds: promised mean time between tokens of a request [s], or None.
        attainment: share of requests that must be good, above 0 and at most 1.

    Raises:
        InvalidInputError: a promise that is not above zero, an attainment outside (0, 1].

    Source: Zhong et al. (2024), DistServe, section 2.

    >>> SLO(ttft_seconds=0.2, tpot_seconds=0.05).is_met_by(ttft_seconds=0.1, tpot_seconds=0.06)
    False
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    attainment: float = 1.0

    def __post_init__(self) -> None:
        for name in ("ttft_seconds", "tpot_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InvalidInputError(f"{name} is a time above zero, or None for no promise", given=value)
        if not 0 < self.attainment <= 1:
            raise InvalidInputError(
                "attainment is a share of requests", allowed="above 0, at most 1", given=self.attainment
            )

    def is_met_by(self, *, ttft_seconds: float, tpot_seconds: float) -> bool:
        """Whether one request was good; a TPOT of nan (a single token) cannot break the promise."""
        ttft_kept = self.ttft_seconds is None or ttft_seconds <= self.ttft_seconds
        return ttft_kept and (self.tpot_seconds is None or not tpot_seconds > self.tpot_seconds)

    def good(self, ttft_seconds: NDArray[np.float64], tpot_seconds: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which requests were good.

        >>> SLO(tpot_seconds=0.05).good(np.array([9.0, 9.0]), np.array([0.04, np.nan])).tolist()
        [True, True]
        """
        kept = np.ones(ttft_seconds.shape, dtype=bool)
        if self.ttft_seconds is not None:
            kept &= ttft_seconds <= self.ttft_seconds
        if self.tpot_seconds is not None:
            kept &= ~(tpot_seconds > self.tpot_seconds)
        return kept
