"""How sure a dollar is: bands over the efficiencies, and how often two options change places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import DoesNotFitError
from course_lib.journey.links import Chain

__all__ = ["BANDWIDTH_RANGE", "COMPUTE_RANGE", "Band", "band", "dollars", "efficiency_grid", "flip_probability"]

Grid = NDArray[np.float64]
COMPUTE_RANGE = (0.4, 0.7)
"""Share of the compute peak that serving engines reach, until you calibrate yours."""
BANDWIDTH_RANGE = (0.6, 0.9)
"""Share of the memory bandwidth."""
_NUM = 7  # points in each direction: the given .6 and .8 lie on this grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A number over the grid of efficiencies.

    Args:
        low, nominal, high: smallest, at the given efficiencies, largest; a promise that cannot be kept at some
            efficiencies makes ``high`` infinite.
        num_points: efficiencies tried.
        num_broken: of these, how many cannot keep the promise.
    """

    low: float
    nominal: float
    high: float
    num_points: int
    num_broken: int = 0


def dollars(inputs: Mapping[str, Any], name: str = "continuous_usd_per_month") -> float:
    """One link of a chain over these inputs."""
    return float(Chain(inputs["rules"], inputs)[name])


def efficiency_grid(chain: Chain, *names: str) -> list[Grid]:
    """Links at 7 x 7 efficiencies: compute 0.4 to 0.7 by bandwidth 0.6 to 0.9; infinite where nothing fits."""
    grids = [np.full((_NUM, _NUM), math.inf) for _ in names]
    for i, compute in enumerate(np.linspace(*COMPUTE_RANGE, _NUM)):
        for j, bandwidth in enumerate(np.linspace(*BANDWIDTH_RANGE, _NUM)):
            point = chain.with_inputs(efficiency_compute=float(compute), efficiency_bandwidth=float(bandwidth))
            try:
                for name, grid in zip(names, grids):
                    grid[i, j] = point[name]
            except DoesNotFitError:
                continue
    return grids


def band(nominal: float, grid: Grid) -> Band:
    """Low and high of a grid around a nominal value."""
    broken = int(np.count_nonzero(~np.isfinite(grid)))
    return Band(
        low=float(np.min(grid)), nominal=nominal, high=float(np.max(grid)), num_points=grid.size, num_broken=broken
    )


def flip_probability(one: Grid, two: Grid, nominal_difference: float) -> float:
    """Share of the grid on which the cheaper of two options is not the one that is cheaper as given.

    Both options meet the same efficiencies, each point as likely as another; a tie counts as half.
    """
    if nominal_difference == 0:
        return 0.5
    with np.errstate(invalid="ignore"):
        signs = np.nan_to_num(np.sign(one - two)) * np.sign(nominal_difference)
    return float(np.mean((1 - signs) / 2))
