"""Many requests share the machine: the best batch, the replicas, the time to first token."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from course_lib.cost import Tariff, num_billed_replicas
from course_lib.journey.links import LinkRule, link
from course_lib.serving import capacity, prefill_queue

__all__ = ["LINKS"]

Array = NDArray[np.float64]


@link("promised time between tokens", "s", "given (the SLO)", basis="assumed")
def tpot_promise_seconds(tpot_seconds: float | None) -> float | None:
    return tpot_seconds


@link("promised time to first token", "s", "given (the SLO)", basis="assumed")
def ttft_promise_seconds(ttft_seconds: float | None) -> float | None:
    return ttft_seconds


@link("best batch", "", "search", shown=False)
def best(
    over: Callable[[str, Array], Array], output_tokens: float, memory_batch: float, batch_limit: int,
    tpot_promise_seconds: float | None, ttft_promise_seconds: float | None, ttft_quantile: float,
    prefill_seconds: float, headroom: float, continuous_batch: bool, disaggregated: bool,
) -> capacity.BestBatch:  # fmt: skip
    def ttft_within(batch: float) -> bool:
        point = np.array([batch])
        rate = headroom * batch / (output_tokens * over("interval_seconds", point)[0])
        step = float(over("step_seconds", point)[0])
        if disaggregated:  # a prompt waits behind prompts alone, on a replica that does nothing else
            rate, step = headroom / prefill_seconds, 0.0
        return (ttft_promise_seconds or math.inf) >= prefill_queue.ttft_quantile_seconds(
            ttft_quantile, arrival_requests_per_second=rate, prefill_seconds=prefill_seconds, step_seconds=step
        )

    return capacity.best_batch(
        lambda batches: over("interval_seconds", batches), output_tokens=output_tokens, memory_limit=memory_batch,
        batch_limit=batch_limit, tpot_seconds=tpot_promise_seconds, continuous=continuous_batch,
        ttft_within=None if ttft_promise_seconds is None else ttft_within,
    )  # fmt: skip


@link("batch", "sequence", "the B with most B / (output * TPOT) that fits and keeps the promise")
def batch(best: capacity.BestBatch) -> float:
    return best.batch


@link("requests that one replica serves", "request/s", "B / (output * TPOT)")
def requests_per_second(batch: float, output_tokens: float, interval_seconds: float) -> float:
    return batch / (output_tokens * interval_seconds)


@link("headroom", "1", "given: the share of its capacity at which a replica is run", basis="assumed")
def headroom(headroom_fraction: float) -> float:
    return headroom_fraction


@link("replicas, as a real number", "replica", "arriving requests / (headroom * requests of one replica)")
def num_replicas(
    arrival_requests_per_second: float, headroom: float, requests_per_second: float, prefill_seconds: float,
    disaggregated: bool,
) -> float:  # fmt: skip
    decode = arrival_requests_per_second / (headroom * requests_per_second)
    return decode + arrival_requests_per_second * prefill_seconds / headroom if disaggregated else decode


@link("replicas rented", "replica", "ceil(replicas) + spares")
def num_replicas_billed(num_replicas: float, num_spares: int, tariff: Tariff) -> int:
    return num_billed_replicas(num_replicas * (1 + tariff.repeated_work_fraction), num_spares)


@link("share of busy time in prefill", "1", "(B / output * prefill) / TPOT")
def prefill_time_fraction(
    batch: float, output_tokens: float, prefill_seconds: float, interval_seconds: float, disaggregated: bool,
    num_replicas: float, arrival_requests_per_second: float, headroom: float,
) -> float:  # fmt: skip
    if disaggregated:
        return arrival_requests_per_second * prefill_seconds / headroom / num_replicas
    return batch / output_tokens * prefill_seconds / interval_seconds


def _ttft(
    quantile: float, rate: float, headroom: float, capacity_rate: float, prefill: float, step: float,
    disaggregated: bool,
) -> float:  # fmt: skip
    """At the load of a whole replica that serves its share, at most headroom times its capacity."""
    if disaggregated:  # the replicas of the prompts: no decode step is ever under way there
        capacity_rate, step = 1 / prefill, 0.0
    replicas = max(1, math.ceil(rate / (headroom * capacity_rate) - 1e-9))
    return prefill_queue.ttft_quantile_seconds(
        quantile, arrival_requests_per_second=rate / replicas, prefill_seconds=prefill, step_seconds=step
    )


@link("time to first token, median", "s", "step under way + M/D/1 wait behind other prompts + prefill")
def ttft_p50_seconds(
    arrival_requests_per_second: float, headroom: float, requests_per_second: float, prefill_seconds: float,
    step_seconds: float, disaggregated: bool,
) -> float:  # fmt: skip
    return _ttft(
        0.5, arrival_requests_per_second, headroom, requests_per_second, prefill_seconds, step_seconds, disaggregated
    )


@link("time to first token, 99th percentile", "s", "step under way + M/D/1 wait behind other prompts + prefill")
def ttft_p99_seconds(
    arrival_requests_per_second: float, headroom: float, requests_per_second: float, prefill_seconds: float,
    step_seconds: float, disaggregated: bool,
) -> float:  # fmt: skip
    return _ttft(
        0.99, arrival_requests_per_second, headroom, requests_per_second, prefill_seconds, step_seconds, disaggregated
    )


@link("longest gap between tokens while one prompt is prefilled", "s", "step + prefill, when not chunked")
def stall_seconds(step_seconds: float, prefill_seconds: float, disaggregated: bool) -> float:
    return step_seconds if disaggregated else step_seconds + prefill_seconds


LINKS: tuple[LinkRule, ...] = tuple(rule for rule in list(globals().values()) if isinstance(rule, LinkRule))
"""These links, in the order in which they are written above."""
