"""The report of one simulated run: what each request saw, and what the engine did."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.serving.run_log import Floats, RunLog
from course_lib.serving.slo import SLO
from course_lib.serving.workload import RequestTrace

__all__ = ["RequestRecord", "ServingReport"]

EVENT_KINDS = ("arrival", "finish", "first_token", "preemption", "rejection")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, from its arrival to its last token.

    Args:
        request_id: its number.
        arrival_at_seconds, first_token_at_seconds, finish_at_seconds: instants [s]; nan where rejected.
        prompt_tokens, output_tokens: tokens in and out.
        itl_max_seconds: longest gap between two of its tokens (the stall that a mean hides) [s].
        num_preemptions: how often it lost its blocks.
        rejection: why it was refused, or "".
    """

    request_id: int
    arrival_at_seconds: float
    first_token_at_seconds: float
    finish_at_seconds: float
    prompt_tokens: int
    output_tokens: int
    itl_max_seconds: float
    num_preemptions: int
    rejection: str = ""

    @property
    def ttft_seconds(self) -> float:
        """Time to first token, queueing included [s]."""
        return self.first_token_at_seconds - self.arrival_at_seconds

    @property
    def latency_seconds(self) -> float:
        """Arrival to last token [s]."""
        return self.finish_at_seconds - self.arrival_at_seconds

    @property
    def tpot_seconds(self) -> float:
        """Mean time between output tokens, ``(latency - TTFT) / (output - 1)``; nan with a single token [s]."""
        gaps = self.output_tokens - 1
        return (self.finish_at_seconds - self.first_token_at_seconds) / gaps if gaps else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingReport:
    """What a run showed. Frozen; every figure is computed from the log on demand.

    Args:
        policy: name of the scheduling policy.
        num_slots: sequences that could run at once.
        slo: the promise, or None.
        compute_peak: ``(FLOPs per token, peak FLOP/s)`` of a device, or None where the step time knows neither.
        requests: what arrived.
        log: what happened.

    Source: metrics as in vLLM's serving benchmark; goodput as in Zhong et al. (2024), DistServe.
    """

    policy: str
    num_slots: int
    slo: SLO | None
    requests_trace: RequestTrace = field(repr=False)
    log: RunLog = field(repr=False)
    compute_peak: tuple[float, float] | None = None

    # Requests

    @property
    def num_requests(self) -> int:
        """Requests that arrived."""
        return len(self.requests_trace)

    @property
    def num_served(self) -> int:
        """Requests that got all their tokens."""
        return int(self._served.sum())

    @property
    def rejected(self) -> tuple[tuple[int, str], ...]:
        """``(request, reason)`` of those refused."""
        return self.log.rejected

    @property
    def requests(self) -> tuple[RequestRecord, ...]:
        """One record for each request."""
        trace, log, reasons = self.requests_trace, self.log, dict(self.log.rejected)
        return tuple(
            RequestRecord(
                request_id=i,
                arrival_at_seconds=float(trace.arrival_at_seconds[i]),
                first_token_at_seconds=float(log.first_token_at_seconds[i]),
                finish_at_seconds=float(log.finish_at_seconds[i]),
                prompt_tokens=int(trace.prompt_tokens[i]),
                output_tokens=int(trace.output_tokens[i]),
                itl_max_seconds=float(log.itl_max_seconds[i]),
                num_preemptions=int(log.num_preemptions[i]),
                rejection=reasons.get(i, ""),
            )
            for i in range(len(trace))
        )

    @property
    def events(self) -> tuple[tuple[float, str, int], ...]:
        """``(instant, kind, request)``, ordered by instant to the nanosecond, then kind, then request."""
        trace, log = self.requests_trace, self.log
        found = [(at, "arrival", i) for i, at in enumerate(trace.arrival_at_seconds.tolist())]
        refused = dict(log.rejected)
        found += [(trace.arrival_at_seconds[i].item(), "rejection", i) for i in refused]
        for kind, column in (("first_token", log.first_token_at_seconds), ("finish", log.finish_at_seconds)):
            found += [(at, kind, i) for i, at in enumerate(column.tolist()) if i not in refused]
        found += [(at, "preemption", i) for at, i in log.preemptions]
        return tuple(sorted(found, key=lambda event: (round(event[0], 9), event[1], event[2])))

    # Latency

    @property
    def _served(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return ~np.isnan(self.log.finish_at_seconds)

    @property
    def ttft_seconds(self) -> Floats:
        """Time to first token of each served request, queueing included [s]."""
        return (self.log.first_token_at_seconds - self.requests_trace.arrival_at_seconds)[self._served]

    @property
    def latency_seconds(self) -> Floats:
        """Arrival to last token of each served request [s]."""
        return (self.log.finish_at_seconds - self.requests_trace.arrival_at_seconds)[self._served]

    @property
    def tpot_seconds(self) -> Floats:
        """Mean time between tokens of each served request, nan where it had a single token [s]."""
        gaps = (self.requests_trace.output_tokens[self._served] - 1).astype(float)
        gaps[gaps == 0] = np.nan
        decoding: Floats = self.log.finish_at_seconds - self.log.first_token_at_seconds
        tpot: Floats = decoding[self._served] / gaps
        return tpot

    @property
    def itl_max_seconds(self) -> Floats:
        """Longest gap between two tokens of each served request [s]."""
        return self.log.itl_max_seconds[self._served]

    @property
    def itl_seconds(self) -> Floats:
        """Every gap between two tokens of a request, of all requests, ascending [s]. Large: one entry a token."""
        steps = self.log.segments[:, 0].astype(np.int64)
        index = np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)
        gaps = np.repeat(self.log.segments[:, 1], steps) + index * np.repeat(self.log.segments[:, 2], steps)
        weights = np.repeat(self.log.segments[:, 3].astype(np.int64), steps)
        return np.sort(np.concatenate((np.repeat(gaps, weights), self.log.recompute_gaps_seconds)))

    def ttft_quantile_seconds(self, quantile: float) -> float:
        """Quantile of the time to first token, such as 0.99; nan if nobody was served."""
        return _quantile(self.ttft_seconds, quantile)

    def tpot_quantile_seconds(self, quantile: float) -> float:
        """Quantile over requests of the mean time between tokens."""
        return _quantile(self.tpot_seconds[~np.isnan(self.tpot_seconds)], quantile)

    def itl_quantile_seconds(self, quantile: float) -> float:
        """Quantile over all gaps between tokens: what TPOT averages away."""
        return _quantile(self.itl_seconds, quantile)

    def itl_max_quantile_seconds(self, quantile: float) -> float:
        """Quantile over requests of their longest gap."""
        return _quantile(self.itl_max_seconds, quantile)

    # Rates

    @property
    def duration_seconds(self) -> float:
        """First arrival to last token [s]; 0 if nobody was served."""
        served = self._served
        if not served.any():
            return 0.0
        return float(self.log.finish_at_seconds[served].max() - self.requests_trace.arrival_at_seconds.min())

    @property
    def requests_per_second(self) -> float:
        """Served requests over the duration."""
        return self._per_second(self.num_served)

    @property
    def output_tokens_per_second(self) -> float:
        """Output tokens over the duration."""
        return self._per_second(int(self.requests_trace.output_tokens[self._served].sum()))

    @property
    def slo_attainment(self) -> float:
        """Share of all requests (rejected ones are not good) that met every promise."""
        return self.attainment(self.slo)

    @property
    def goodput_requests_per_second(self) -> float:
        """Good requests over the duration."""
        return self._per_second(round(self.slo_attainment * self.num_requests))

    def attainment(self, slo: SLO | None) -> float:
        """Share of all requests that would meet another promise; without a promise, the share served."""
        good = self.num_served if slo is None else int(slo.good(self.ttft_seconds, self.tpot_seconds).sum())
        return good / self.num_requests

    @property
    def meets_slo(self) -> bool:
        """Whether enough requests were good."""
        if self.slo is None:
            raise InvalidInputError("no promise was given to the simulation", next_step="Pass slo=SLO(...).")
        return self.slo_attainment >= self.slo.attainment

    def _per_second(self, count: int) -> float:
        return count / self.duration_seconds if self.duration_seconds else 0.0

    # The engine

    @property
    def num_preemptions(self) -> int:
        """How often a request lost its blocks."""
        return len(self.log.preemptions)

    @property
    def slot_utilization(self) -> float:
        """Sequences scheduled over slots, averaged over iterations (not over time; idle time is left out)."""
        slots = self.num_slots * self.log.num_iterations
        return self.log.num_slot_iterations / slots if slots else 0.0

    @property
    def busy_fraction(self) -> float:
        """Share of the duration in which a step ran."""
        return self.log.busy_seconds / self.duration_seconds if self.duration_seconds else 0.0

    @property
    def compute_utilization(self) -> float | None:
        """MFU: matmul FLOPs of request tokens (attention left out) over peak FLOP/s times duration; None if unknown."""
        if self.compute_peak is None:
            return None
        flops_per_token, peak = self.compute_peak
        return self._per_second(self.log.num_prefill_tokens + self.log.num_decode_tokens) * flops_per_token / peak

    @property
    def kv_waste_fraction(self) -> float:
        """Slots of allocated blocks that hold no token, over allocated slots, summed over iterations."""
        total = self.log.kv_token_iterations + self.log.kv_waste_iterations
        return self.log.kv_waste_iterations / total if total else 0.0

    @property
    def kv_peak_blocks(self) -> int:
        """Most blocks in use in any iteration."""
        return self.log.kv_peak_blocks

    def summary(self) -> dict[str, float]:
        """The figures of a table, by name; the same from the same run, whatever simulated it."""
        figures = {f"ttft_p{q}_seconds": self.ttft_quantile_seconds(q / 100) for q in (50, 99)}
        figures |= {f"tpot_p{q}_seconds": self.tpot_quantile_seconds(q / 100) for q in (50, 99)}
        return figures | {
            "itl_p99_seconds": self.itl_quantile_seconds(0.99),
            "itl_max_seconds": self.itl_max_quantile_seconds(1.0),
            "requests_per_second": self.requests_per_second,
            "goodput_requests_per_second": self.goodput_requests_per_second,
            "output_tokens_per_second": self.output_tokens_per_second,
            "slot_utilization": self.slot_utilization,
            "kv_waste_fraction": self.kv_waste_fraction,
            "num_preemptions": float(self.num_preemptions),
        }


def _quantile(values: Floats, quantile: float) -> float:
    if not 0 <= quantile <= 1:
        raise InvalidInputError("a quantile lies between 0 and 1", given=quantile)
    return float(np.quantile(values, quantile)) if len(values) else float("nan")
