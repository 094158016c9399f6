"""Attention: seconds, bytes and memory of the NumPy kernels beside torch, on the same inputs.

``python benchmarks/bench_attention.py [num_tokens]``. Times inform; bytes are counted and equal on every machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from course_lib.optimization import TorchBackend, compare_attention, flash_attention, standard_attention
from course_lib.units import format_bytes, format_seconds

REPEATS = 5
HEAD_SIZE = 64


def median_seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Median and spread (largest minus smallest) of some runs, after one to warm up."""
    call()
    runs = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        runs.append(time.perf_counter() - started)
    return statistics.median(runs), max(runs) - min(runs)


def main(num_tokens: int = 1024) -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, num_tokens, HEAD_SIZE)).astype(np.float32)
    torch_backend = TorchBackend()
    rows: list[tuple[str, Callable[[], object], str, str]] = []
    for block in (64, 128, 256):
        record = compare_attention(q, k, v, block_q=block, block_k=block)
        if not rows:
            moved, kept = format_bytes(record.before.bytes_moved), format_bytes(record.memory_before_bytes)
            rows.append(("standard (NumPy)", lambda: standard_attention(q, k, v), moved, kept))
        moved, kept = format_bytes(record.after.bytes_moved), format_bytes(record.memory_after_bytes)
        call = lambda block=block: flash_attention(q, k, v, block_q=block, block_k=block)  # noqa: E731
        rows.append((f"flash {block} x {block} (NumPy)", call, moved, kept))
    rows.append(("torch scaled_dot_product_attention", lambda: torch_backend(q, k, v), "not counted", "not counted"))
    print(f"one head, {num_tokens} tokens, head size {HEAD_SIZE}, fp32; median of {REPEATS} runs")
    print(f"{'':36}{'time':>10}{'spread':>10}{'bytes moved':>14}{'kept':>14}")
    for name, call, moved, kept in rows:
        median, spread = median_seconds(call)
        print(f"{name:36}{format_seconds(median):>10}{format_seconds(spread):>10}{moved:>14}{kept:>14}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
