"""Speed of the hardware room: cache simulation and miss curves, as rates and as ratios to the readable reference.

Run: python benchmarks/bench_hardware.py. The same stream goes through every implementation and their counts must be
equal; the reference and the Python path run on the first part of it. Times are medians of 7 after one run to compile.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from course_lib.hardware import (
    CacheLevel,
    device,
    devices,
    matmul_stream,
    miss_curve,
    simulate_cache,
    simulate_cache_python,
    simulate_cache_reference,
    stack_distances,
    stack_distances_numpy,
)

REPEATS = 7
SLICE = 300_000  # accesses that the slow implementations are given
L1 = CacheLevel(name="L1", capacity_bytes=32 * 1024, line_bytes=64, ways=8)
L2 = CacheLevel(name="L2", capacity_bytes=512 * 1024, line_bytes=64, ways=8)

Addresses = npt.NDArray[np.int64]


def median_seconds(call: Callable[[], object], repeats: int = REPEATS) -> float:
    call()
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        runs.append(time.perf_counter() - started)
    return statistics.median(runs)


def cache_row(name: str, addresses: Addresses, levels: list[CacheLevel], writes: npt.NDArray[np.bool_] | None) -> None:
    part, part_writes = addresses[:SLICE], None if writes is None else writes[:SLICE]
    expected = simulate_cache_reference(part, levels, is_write=part_writes)
    for simulate in (simulate_cache, simulate_cache_python):
        if simulate(part, levels, is_write=part_writes) != expected:
            raise SystemExit(f"{name}: {simulate.__name__} differs from the reference")
    fast = addresses.size / median_seconds(lambda: simulate_cache(addresses, levels, is_write=writes))
    python = part.size / median_seconds(lambda: simulate_cache_python(part, levels, is_write=part_writes), 3)
    slow = part.size / median_seconds(lambda: simulate_cache_reference(part, levels, is_write=part_writes), 3)
    print(
        f"{name:42} {fast / 1e6:7.1f} M/s   without numba {python / 1e6:5.2f} M/s   reference {slow / 1e6:5.2f} M/s   "
        f"{fast / slow:6.0f}x"
    )


def main() -> None:
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 20, 10_000_000)
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors; 32 KiB 8-way L1, 64-B lines")
    for order in ("ijk", "ikj", "jki"):
        stream = matmul_stream(144, order=order)
        cache_row(f"matmul 144, {order}, {stream.addresses.size:,} accesses", stream.addresses, [L1], None)
    tiled = matmul_stream(144, tile=16)
    cache_row("matmul 144, tiles of 16", tiled.addresses, [L1], None)
    cache_row("matmul 144, tiles of 16, with writes", tiled.addresses, [L1], tiled.is_write)
    cache_row("matmul 144, tiles of 16, L1 and L2, writes", tiled.addresses, [L1, L2], tiled.is_write)
    cache_row(f"random in 1 MiB, {random.size:,} accesses", random, [L1], None)

    million, lines = random[:1_000_000], random[:1_000_000] // 64
    np.testing.assert_array_equal(stack_distances(lines), stack_distances_numpy(lines))
    curve = median_seconds(lambda: miss_curve(million, line_bytes=64))
    without = median_seconds(lambda: stack_distances_numpy(lines), 3)
    print(f"miss curve of all capacities, 1e6 random accesses: {curve:.3f} s   without numba {without:.3f} s")
    everything = median_seconds(lambda: [device(name) for name in devices()])
    print(f"{len(devices())} device files read and checked: {everything * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
