"""How long the page of lesson 4.5 takes to answer one move of a slider, chart by chart.

Run: python benchmarks/bench_explorer.py
"""

from __future__ import annotations

import statistics
import time

from course_lib.journey import Journey
from course_lib.widgets.journey import CHARTS
from course_lib.widgets.journey_controls import Explorer

BUDGET_SECONDS = 0.1
MOVES = 15


def move_seconds(explorer: Explorer) -> tuple[float, float]:
    """Median wall and CPU seconds of a move of the feed-forward slider."""
    walls, cpus = [], []
    for move in range(1, MOVES + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        explorer.controls["feed_forward_size"].value = 14_336 + 256 * (move % 7)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def main() -> None:
    explorer = Explorer(Journey(), Journey())
    settings = [("strip and invoice, chart hidden", None), *CHARTS.items()]
    for words, chart in settings:
        if chart is not None:
            explorer.controls["chart"].value = chart
            explorer.controls["axis"].value = "feed_forward_size"
            explorer.guess.value = "15000"
            explorer.commit.click()
        wall, cpu = move_seconds(explorer)
        print(
            f"{words:<34}{wall * 1e3:7.1f} ms wall {cpu * 1e3:7.1f} ms CPU   budget {BUDGET_SECONDS * 1e3:.0f} ms "
            f"({cpu / BUDGET_SECONDS:.0%} of it)"
        )


if __name__ == "__main__":
    main()
