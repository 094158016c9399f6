"""The bench: three simulated machines with constants that nobody is told, and what a run on them shows.

The constants are invented, and the same kind of thing that a real machine hides behind its data sheet: shares of
the peaks that are reached, a fixed cost, a cost of each row, and what narrow formats cost to unpack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.serving import PagedKVCache, ServingReport, StepBatch, continuous_batching, simulate
from course_lib.serving.step_time import StepTotals
from course_lib.tensor.dtypes import dtype_bits
from grading.capstone.records import BLOCK_TOKENS, Cell, usd_per_month

HERE = Path(__file__).resolve().parent
REPETITIONS = 5
FIRST_SEED = 20_260
TERMS = ("weights", "compute", "kv", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one machine really does.

    Args:
        compute, weights, kv: share of the peak reached by products, by reading weights, by reading the cache.
        fixed_seconds: each step.
        row_seconds: each decoding row.
        unpack_compute: factor on the time of products where weights are stored in fewer than 16 bits.
        unpack_row_seconds: more for each decoding row where the cache is stored in fewer than 16 bits.
    """

    compute: float
    weights: float
    kv: float
    fixed_seconds: float
    row_seconds: float
    unpack_compute: float
    unpack_row_seconds: float


@cache
def calibrations() -> dict[str, Calibration]:
    """By machine."""
    data = json.loads((HERE / "calibration.json").read_text(encoding="utf-8"))
    return {name: Calibration(**values) for name, values in data["machines"].items()}


class BenchStepTime:
    """``max(compute, weights) + KV + fixed + rows``, with the machine's own constants."""

    is_context_affine = True

    def __init__(self, cell: Cell) -> None:
        real, config, machine = calibrations()[cell.machine.name], cell.config, cell.machine
        unpack = real.unpack_compute if dtype_bits(config.weight_dtype) < 16 else 1.0
        self._compute = config.shape.matmul_flops_per_token * unpack / (real.compute * machine.peak_flops_per_second)
        self._weights = config.step_weight_bytes / (real.weights * machine.memory_bytes_per_second)
        self.seconds_per_context_token = config.kv_token_bytes / (real.kv * machine.memory_bytes_per_second)
        self._fixed = real.fixed_seconds
        self._row = real.row_seconds + real.unpack_row_seconds * (dtype_bits(config.kv_dtype) < 16)

    def terms(self, new: int, prior: int, rows: int, context: int) -> tuple[float, float, float, float]:
        """Seconds by TERMS; of weights and compute only the longer counts."""
        compute = (new + rows) * self._compute
        kv = (context + prior) * self.seconds_per_context_token
        first = (0.0, compute) if compute > self._weights else (self._weights, 0.0)
        return (*first, kv, self._fixed + rows * self._row)

    def totals_seconds(self) -> StepTotals:
        """As a function of the five sums of a step."""
        return lambda new, prior, pairs, rows, context: sum(self.terms(new, prior, rows, context))

    def __call__(self, batch: StepBatch) -> float:
        """Seconds of one step."""
        new, prior, _, rows, context = batch.totals
        return sum(self.terms(new, prior, rows, context))


class StepRecorder:
    """A step time that keeps what it was asked; not affine to the simulator, so each step passes here."""

    def __init__(self, inner: BenchStepTime) -> None:
        self.inner = inner
        self.steps: list[tuple[int, int, int]] = []  # new prompt tokens, decoding rows, KV tokens read
        self.seconds: list[float] = []
        self.terms = np.zeros(len(TERMS))

    def __call__(self, batch: StepBatch) -> float:
        new, prior, _, rows, context = batch.totals
        terms = self.inner.terms(new, prior, rows, context)
        self.steps.append((new, rows, context + prior))
        self.seconds.append(sum(terms))
        self.terms += terms
        return self.seconds[-1]


def run(cell: Cell, seed: int, step_time: Any) -> ServingReport:
    """One repetition. Blocks beyond what all requests fill together would never be used, and are not made."""
    requests = cell.traffic.requests(seed)
    most = int((-(-(requests.prompt_tokens + requests.output_tokens) // BLOCK_TOKENS)).sum())
    pool = PagedKVCache(min(most, cell.machine.kv_blocks(cell.config)), BLOCK_TOKENS)
    return simulate(
        requests, step_time=step_time, policy=continuous_batching(cell.config.max_batch), kv_cache=pool,
        rng=np.random.default_rng(seed),
    )  # fmt: skip


def usd_of_repetitions(cell: Cell) -> tuple[float, ...]:
    """Dollars a month in each repetition; the same seeds for every cell, so that differences are paired."""
    rates = (run(cell, seed, BenchStepTime(cell)).output_tokens_per_second for seed in seeds())
    return tuple(usd_per_month(cell.machine, cell.traffic, rate) for rate in rates)


def seeds() -> range:
    """Of the repetitions."""
    return range(FIRST_SEED, FIRST_SEED + REPETITIONS)


def measure(cell: Cell) -> tuple[dict[str, Any], Sequence[StepRecorder]]:
    """Means over the repetitions, their dollars one by one, the run's terms, and what was recorded."""
    recorders, rows = [], []
    for seed in seeds():
        recorder = StepRecorder(BenchStepTime(cell))
        report = run(cell, seed, recorder)
        rows.append(_figures(cell, report, recorder))
        recorders.append(recorder)
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    terms = np.mean([recorder.terms for recorder in recorders], axis=0)
    return means | {
        "usd_of_repetitions": [row["usd_per_month"] for row in rows],
        "breakdown": dict(zip(TERMS, map(float, terms))),
    }, recorders


def _figures(cell: Cell, report: ServingReport, recorder: StepRecorder) -> dict[str, float]:
    kv_tokens = sum(context for _, _, context in recorder.steps)
    weights, kv = len(recorder.steps) * cell.config.step_weight_bytes, kv_tokens * cell.config.kv_token_bytes
    return {
        "ttft_seconds": report.ttft_quantile_seconds(0.5),
        "tpot_seconds": float(np.nanmean(report.tpot_seconds)),
        "tokens_per_second": report.output_tokens_per_second,
        "bytes_moved": weights + kv,
        "kv_bytes": kv,
        "usd_per_month": usd_per_month(cell.machine, cell.traffic, report.output_tokens_per_second),
        "num_preemptions": report.num_preemptions,
    }
