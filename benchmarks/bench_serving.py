"""Requests simulated per second: event-jumping against the iteration-exact reference, and a goodput search.

Run: ``python benchmarks/bench_serving.py``. Rates depend on the machine (a line prints how fast its Python is); the
ratio of the two simulators, and that they give the same events, does not. CPU seconds are timed, so that a busy
machine disturbs less; the best of three counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from course_lib.hardware import device
from course_lib.serving import (
    SLO,
    AffineStepTime,
    Geometric,
    PagedKVCache,
    RooflineStepTime,
    Workload,
    model_shape,
    simulate,
)
from course_lib.serving.policies import continuous_batching

BUDGET_REQUESTS_PER_SECOND = 120_000
AFFINE = AffineStepTime(
    fixed_seconds=0.005, seconds_per_sequence=3e-5, seconds_per_context_token=5e-8, seconds_per_prefill_token=2e-5
)


def best_cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def run(method, *, num, blocks, step_time, rate=16.0):
    workload = Workload(
        arrival_requests_per_second=rate, prompt_tokens=512, output_tokens=Geometric(300.0), num_requests=num
    )
    return simulate(
        workload, step_time=step_time, policy=continuous_batching(256), kv_cache=PagedKVCache(blocks),
        slo=SLO(ttft_seconds=0.5, tpot_seconds=0.05, attainment=0.9), rng=np.random.default_rng(0), method=method,
    )  # fmt: skip


def plain_loop() -> int:
    total = 0
    for i in range(1_000_000):
        total += i * 3
    return total


def goodput_search(runs: int = 20, num: int = 5000) -> float:
    low, high = 1.0, 64.0
    for _ in range(runs):
        middle = (low + high) / 2
        kept = run("jumping", num=num, blocks=100_000, step_time=AFFINE, rate=middle).meets_slo
        low, high = (middle, high) if kept else (low, middle)
    return low


def main() -> None:
    loop = best_cpu_seconds(plain_loop) * 1e3
    print(f"plain Python loop: {loop:.0f} ns an iteration (30 to 50 on an idle laptop core)")
    roofline = RooflineStepTime(shape=model_shape("llama-3-8b"), device=device("h100-sxm"))
    cases = (("plain", 100_000, AFFINE), ("preempting", 3_000, AFFINE), ("plain, roofline", 100_000, roofline))
    for name, blocks, step_time in cases:
        few, many = 150, 20_000
        slow = best_cpu_seconds(lambda: run("stepping", num=few, blocks=blocks, step_time=step_time), 1) / few  # noqa: B023
        fast = best_cpu_seconds(lambda: run("jumping", num=many, blocks=blocks, step_time=step_time)) / many  # noqa: B023
        verdict = "" if name != "plain" else f"  (budget {BUDGET_REQUESTS_PER_SECOND:,})"
        preempted = run("jumping", num=many, blocks=blocks, step_time=step_time).num_preemptions
        print(
            f"{name:16} jumping {1 / fast:>9,.0f} requests/s, stepping {1 / slow:>6,.0f} requests/s, "
            f"ratio {slow / fast:>6,.0f}, preemptions {preempted:,} in {many:,}{verdict}"
        )
    found: list[float] = []
    seconds = best_cpu_seconds(lambda: found.append(goodput_search()), 1)
    print(f"goodput search, 20 runs of 5,000 requests: {seconds:.2f} s, {found[0]:.2f} requests/s (budget 1 s)")


if __name__ == "__main__":
    main()
