"""Closed forms of capacity: memory, steps, and the best batch, against brute force and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.serving.capacity import (
    best_batch,
    free_bytes,
    interval_seconds,
    memory_batch,
    requests_per_second,
    step_seconds,
)

Array = np.ndarray
SLOPE, FIXED = st.floats(1e-6, 1e-2), st.floats(1e-4, 1e-1)


def line(fixed: float, slope: float) -> object:
    return lambda batches: fixed + slope * batches


def test_memory_of_the_flagship_by_hand() -> None:
    # 0.9 * 80e9 - 16,060,522,496 - 3e9 = 52,939,477,504; / (131,072 * 1,800 = 235,929,600) = 224.4
    free = free_bytes(memory_bytes=80e9, weight_bytes=16_060_522_496)
    assert free == 52_939_477_504
    assert memory_batch(free, 235_929_600) == 224
    assert memory_batch(free, 235_929_600, continuous=True) == pytest.approx(224.387, abs=1e-3)


def test_weights_that_do_not_fit_leave_room_for_nothing() -> None:
    assert memory_batch(free_bytes(memory_bytes=80e9, weight_bytes=141e9), 1.0) == 0
    assert memory_batch(1.0, 0.0) == math.inf


@given(st.floats(0, 1e12), st.floats(1, 1e12))
def test_what_fits_fits_and_one_more_does_not(free: float, each: float) -> None:
    batch = memory_batch(free, each)
    assert batch * each <= free * (1 + 1e-12)
    assert (batch + 1) * each >= free * (1 - 1e-12)


def test_a_step_takes_the_longer_of_arithmetic_and_weights_and_then_the_rest() -> None:
    # B = 1: max(1, 4) + 1 + 0.5 = 5.5; B = 8: max(8, 4) + 8 + 0.5 = 16.5
    batches = np.array([1.0, 8.0])
    step = step_seconds(batches * 1.0, np.full(2, 4.0), batches * 1.0, fixed_seconds=0.5)
    assert step.tolist() == [5.5, 16.5]
    # 8 sequences of 4 tokens: two of them end in a step, two prefills of 3 s
    assert interval_seconds(step, batches, output_tokens=4, prefill_seconds=3).tolist() == [6.25, 22.5]
    assert requests_per_second(batches, step, output_tokens=4)[1] == 8 / (4 * 16.5)


@given(FIXED, SLOPE, st.floats(1, 1000), st.integers(1, 300), st.integers(1, 512), st.floats(1e-4, 1))
def test_the_best_batch_is_that_of_a_search_by_hand(
    fixed: float, slope: float, output: float, memory: int, limit: int, promise: float
) -> None:
    feasible = []
    for size in range(1, min(memory, limit) + 1):
        if fixed + slope * size <= promise * (1 + 1e-12):
            feasible.append((size / (output * (fixed + slope * size)), size))
    arguments = {"output_tokens": output, "memory_limit": memory, "batch_limit": limit, "tpot_seconds": promise}
    if not feasible:
        with pytest.raises(DoesNotFitError, match="a batch of one already takes"):
            best_batch(line(fixed, slope), **arguments)  # type: ignore[arg-type]
        return
    found = best_batch(line(fixed, slope), **arguments)  # type: ignore[arg-type]
    assert found.batch == max(feasible)[1]
    if found.bound == "promise":
        assert fixed + slope * (found.batch + 1) > promise


@given(FIXED, SLOPE, st.floats(1e-3, 1))
def test_the_continuous_batch_solves_the_promise_exactly(fixed: float, slope: float, promise: float) -> None:
    exact = (promise - fixed) / slope
    if not 1 <= exact <= 400:
        return
    found = best_batch(
        line(fixed, slope), output_tokens=10, memory_limit=math.inf, batch_limit=512, tpot_seconds=promise,  # type: ignore[arg-type]
        continuous=True,
    )  # fmt: skip
    assert found.batch == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    ("memory", "limit", "promise", "bound"),
    [(10, 512, None, "memory"), (600, 512, None, "batch limit"), (600, 512, 0.1, "promise"), (10, 512, 1.0, "memory")],
)
def test_the_bound_is_named(memory: float, limit: int, promise: float | None, bound: str) -> None:
    found = best_batch(
        line(0.01, 0.001), output_tokens=10, memory_limit=memory, batch_limit=limit, tpot_seconds=promise  # type: ignore[arg-type]
    )
    assert found.bound == bound


def test_a_time_to_first_token_can_bind_and_can_be_impossible() -> None:
    common = {"output_tokens": 10, "memory_limit": 100, "batch_limit": 512}
    found = best_batch(line(0.01, 0.001), ttft_within=lambda batch: batch <= 37, **common)  # type: ignore[arg-type]
    assert (found.batch, found.bound) == (37, "ttft")
    with pytest.raises(DoesNotFitError, match="first token"):
        best_batch(line(0.01, 0.001), ttft_within=lambda batch: False, **common)  # type: ignore[arg-type]


def test_no_room_and_nonsense_times_are_refused() -> None:
    with pytest.raises(DoesNotFitError, match="does not fit"):
        best_batch(line(0.01, 0.001), output_tokens=1, memory_limit=0, batch_limit=8)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="above zero"):
        best_batch(line(0.0, 0.0), output_tokens=1, memory_limit=4, batch_limit=8)  # type: ignore[arg-type]
