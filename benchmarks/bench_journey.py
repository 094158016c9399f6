"""How long a recomputed bill takes, and what `import course_lib` costs beside `import numpy`.

Run: python benchmarks/bench_journey.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from course_lib.journey import Journey

BUDGET_SECONDS = 0.1
BUDGET_IMPORT_SECONDS, BUDGET_IMPORT_RATIO = 0.3, 3.0


def median_seconds(work: Callable[[], object], runs: int = 15) -> float:
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def import_seconds(module: str, runs: int = 7) -> float:
    """Median of fresh processes, the interpreter's own start taken off."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    pairs = [(once(f"import {module}"), once("pass")) for _ in range(runs)]
    return statistics.median(full - bare for full, bare in pairs)


def main() -> None:
    base = Journey()
    edited = base.with_shape(num_kv_heads=32)
    works: dict[str, Callable[[], object]] = {
        "a slider moves: new journey and bill": lambda: base.with_shape(feed_forward_size=14592).bill,
        "every link and its text": lambda: base.with_changes(output_tokens=400).explain().text(),
        "diff: attribution, band, flips": lambda: edited.diff(base),
        "sensitivity: every elasticity": base.sensitivity,
    }
    for name, work in works.items():
        seconds = median_seconds(work)
        share = seconds / BUDGET_SECONDS
        print(f"{name:<40}{seconds * 1e3:8.1f} ms   budget {BUDGET_SECONDS * 1e3:.0f} ms   {share:.0%} of it")
    numpy_seconds = import_seconds("numpy")
    for module in ("course_lib", "course_lib.journey"):
        seconds = import_seconds(module)
        print(
            f"import {module:<33}{seconds * 1e3:8.1f} ms   budget {BUDGET_IMPORT_SECONDS * 1e3:.0f} ms   "
            f"{seconds / numpy_seconds:.2f} x import numpy (at most {BUDGET_IMPORT_RATIO:g})"
        )


if __name__ == "__main__":
    main()
