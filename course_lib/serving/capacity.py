"""How many requests a second one replica serves: memory, step time, and the best batch under the promise.

Every function is a closed form over plain numbers and takes a whole array of batch sizes at once. What they leave
out is said in each; what is a convention and not a law is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import DoesNotFitError, InvalidInputError

__all__ = [
    "BestBatch",
    "best_batch",
    "free_bytes",
    "interval_seconds",
    "memory_batch",
    "requests_per_second",
    "step_seconds",
]

Array = NDArray[np.float64]
_POINTS, _ROUNDS = 513, 5  # a continuous batch is found to (512 / 512**5), far below any printed digit


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """The batch that serves most requests, and what keeps it from being larger.

    Args:
        batch: requests decoded together.
        bound: "memory", "promise" (time between tokens), "ttft" (time to first token) or "batch limit".
    """

    batch: float
    bound: str


def free_bytes(
    *, memory_bytes: float, weight_bytes: float, memory_fraction: float = 0.9, reserve_bytes: float = 3e9
) -> float:
    """Bytes left for the KV cache on a device; negative when the weights do not fit.

    ``free = fraction * memory - weights - reserve``

    Args:
        memory_bytes: memory of one device [B].
        weight_bytes: weights stored on it [B].
        memory_fraction: share of memory that the engine may take, 0..1.
        reserve_bytes: activations, workspace and runtime [B].

    >>> free_bytes(memory_bytes=80e9, weight_bytes=16_060_522_496)
    52939477504.0
    """
    return memory_fraction * memory_bytes - weight_bytes - reserve_bytes


def memory_batch(free: float, kv_bytes_per_sequence: float, *, continuous: bool = False) -> float:
    """Sequences whose KV cache fits: ``floor(free / bytes per sequence)``; below zero is zero.

    >>> memory_batch(52_939_477_504.0, 131_072 * 1800)
    224.0
    """
    if free <= 0:
        return 0.0
    if kv_bytes_per_sequence <= 0:
        return math.inf
    batch = free / kv_bytes_per_sequence
    return batch if continuous else float(math.floor(batch))


def step_seconds(
    compute_seconds: Array, weight_read_seconds: Array, kv_read_seconds: Array, *, fixed_seconds: float = 0.0,
    all_reduce: Array | float = 0.0,
) -> Array:  # fmt: skip
    """One decode step: ``max(compute, weights) + KV + fixed + all-reduce``.

    The matmuls overlap arithmetic with reading weights; attention reads the KV cache of every sequence at an
    intensity so low that its arithmetic is free, and nothing hides it.

    Source: How to Scale Your Model (2025), inference: ``B KV / BW + max(2 B P / F, bytes(P) / BW)``.

    >>> step_seconds(np.array([2.0]), np.array([3.0]), np.array([1.0]), fixed_seconds=0.5).item()
    4.5
    """
    return np.maximum(compute_seconds, weight_read_seconds) + kv_read_seconds + fixed_seconds + all_reduce


def interval_seconds(step: Array, batch: Array, *, output_tokens: float, prefill_seconds: float) -> Array:
    """Mean time between tokens when prefills run between decode steps: ``step + B / o * prefill``.

    In a steady state each of the B sequences ends after ``o`` steps and another one is prefilled in its place.

    >>> interval_seconds(np.array([0.02]), np.array([300.0]), output_tokens=300, prefill_seconds=0.03).item()
    0.05
    """
    return step + batch / output_tokens * prefill_seconds


def requests_per_second(batch: Array, interval: Array, *, output_tokens: float) -> Array:
    """Little's law for a full batch: ``B / (o * interval)``.

    >>> requests_per_second(np.array([150.0]), np.array([0.05]), output_tokens=300).item()
    10.0
    """
    return batch / (output_tokens * interval)


def best_batch(
    interval_of: Callable[[Array], Array], *, output_tokens: float, memory_limit: float, batch_limit: float,
    tpot_seconds: float | None = None, ttft_within: Callable[[float], bool] | None = None, continuous: bool = False,
) -> BestBatch:  # fmt: skip
    """The batch with the largest ``B / (o * interval(B))`` whose interval keeps the promise.

    Args:
        interval_of: seconds between tokens for an array of batch sizes.
        output_tokens: o, tokens generated for a request.
        memory_limit: sequences that fit in memory.
        batch_limit: the engine's own limit, such as 512.
        tpot_seconds: promised time between tokens; ``None`` for no promise.
        ttft_within: whether a batch keeps the promised time to first token.
        continuous: search real batch sizes from 1 up (for derivatives), not whole ones.

    Raises:
        DoesNotFitError: not one sequence fits, or even one breaks the promise.
    """
    limit = min(memory_limit, batch_limit)
    if limit < 1:
        raise DoesNotFitError(f"the KV cache of one sequence does not fit: room for {memory_limit:.3g} sequences.")
    grid = np.arange(1.0, math.floor(limit) + 1) if not continuous else np.linspace(1.0, limit, _POINTS)
    index = _best_index(interval_of, grid, output_tokens, tpot_seconds)
    for _ in range(_ROUNDS if continuous else 0):
        if index == grid.size - 1:
            break
        grid = np.linspace(grid[index], grid[index + 1], _POINTS)
        index = _best_index(interval_of, grid, output_tokens, tpot_seconds)
    batch = float(grid[index])
    if ttft_within is not None and not ttft_within(batch):
        return BestBatch(batch=_largest_within(ttft_within, grid[: index + 1], batch, continuous), bound="ttft")
    return BestBatch(batch=batch, bound=_bound(batch, memory_limit, batch_limit, index == grid.size - 1))


def _best_index(
    interval_of: Callable[[Array], Array], grid: Array, output_tokens: float, tpot_seconds: float | None
) -> int:
    """Index of the best batch in the grid. A promise met to 1e-12 is met."""
    intervals = interval_of(grid)
    if not np.all(np.isfinite(intervals)) or np.any(intervals <= 0):
        raise InvalidInputError("time between tokens is finite and above zero", given=float(np.min(intervals)))
    rates = requests_per_second(grid, intervals, output_tokens=output_tokens)
    if tpot_seconds is not None:
        rates = np.where(intervals <= tpot_seconds * (1 + 1e-12), rates, -1.0)
        if rates.max() < 0:
            raise DoesNotFitError(
                f"the promise of {tpot_seconds * 1e3:g} ms between tokens cannot be kept: "
                f"a batch of one already takes {intervals[0] * 1e3:.3g} ms. "
                "Promise more time, or take a faster device, more of them, or fewer bytes."
            )
    return int(rates.argmax())


def _largest_within(within: Callable[[float], bool], grid: Array, batch: float, continuous: bool) -> float:
    """Largest batch that keeps the time to first token, by bisection (it grows with the batch)."""
    low, high = 1.0, batch
    if not within(low):
        raise DoesNotFitError(
            "the promised time to first token cannot be kept, not even with a batch of one. "
            "Promise more time, shorten the prompt, or take a faster device."
        )
    while high - low > (1e-9 * batch if continuous else 1):
        middle = (low + high) / 2 if continuous else float((low + high) // 2)
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _bound(batch: float, memory_limit: float, batch_limit: float, at_limit: bool) -> str:
    if not at_limit:
        return "promise"
    return "memory" if memory_limit < batch_limit else "batch limit"
