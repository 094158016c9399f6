"""The reference simulator: one iteration after the other, with the real scheduler and the real block pool."""

from __future__ import annotations

import math

import numpy as np

from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.run_log import RunLog, ready_by
from course_lib.serving.scheduling import Policy, Request, ScheduledStep
from course_lib.serving.step_time import StepTime
from course_lib.serving.workload import RequestTrace

__all__ = ["run_stepping"]


def run_stepping(requests: RequestTrace, *, step_time: StepTime, policy: Policy, kv_cache: PagedKVCache) -> RunLog:
    """Run every iteration: arrivals, ``schedule``, the step's time, ``complete``.

    Slow and plain; :func:`course_lib.serving.event_jump.run_jumping` must give the same answer.
    """
    scheduler, book, arrival = policy.scheduler(kv_cache), _Book(requests), requests.arrival_at_seconds.tolist()
    now, lost, tail = 0.0, 0.0, 0
    while True:
        while tail < len(arrival) and arrival[tail] <= ready_by(now):
            try:
                scheduler.add(_request(requests, tail))
            except DoesNotFitError as error:
                book.rejected.append((tail, str(error)))
            tail += 1
        step = scheduler.schedule()
        book.preempt(now, step.preempted)
        if not step.chunks:
            if tail == len(arrival):
                break
            now, lost = arrival[tail], 0.0
            continue
        seconds = step_time(step.batch)
        if not 0 < seconds < math.inf:
            raise InvalidInputError("a step takes a time above zero", given=f"{seconds} s for {step.batch}")
        grown = now + (seconds - lost)  # compensated (Kahan): what rounding loses is carried along
        lost, now = (grown - now) - (seconds - lost), grown
        book.run(now, seconds, step, kv_cache)
        for request_id in scheduler.complete(step):
            book.finish_at[request_id] = now
    return book.log(kv_cache)


def _request(requests: RequestTrace, number: int) -> Request:
    return Request(
        request_id=number,
        prompt_tokens=int(requests.prompt_tokens[number]),
        max_output_tokens=int(requests.output_tokens[number]),
        cached_tokens=int(requests.cached_tokens[number]),
    )


class _Book:
    """Notes of one run."""

    def __init__(self, requests: RequestTrace) -> None:
        num = len(requests)
        self.first_at, self.last_at, self.finish_at = ([math.nan] * num for _ in range(3))
        self.longest_gap, self.num_preemptions = [0.0] * num, [0] * num
        self.preemptions: list[tuple[float, int]] = []
        self.rejected: list[tuple[int, str]] = []
        self.segments: list[tuple[float, float, float, float]] = []
        self.recompute_gaps: list[float] = []
        self.num_slots = self.num_prefill = self.kv_tokens = self.kv_waste = self.kv_peak = 0

    def preempt(self, now: float, request_ids: tuple[int, ...]) -> None:
        for request_id in request_ids:
            self.num_preemptions[request_id] += 1
            self.preemptions.append((now, request_id))

    def run(self, now: float, seconds: float, step: ScheduledStep, kv_cache: PagedKVCache) -> None:
        self.segments.append((1, seconds, 0.0, sum(chunk.is_decode for chunk in step.chunks)))
        self.num_slots += len(step.chunks)
        self.num_prefill += sum(chunk.new_tokens for chunk in step.chunks if not chunk.is_decode)
        self.kv_tokens += kv_cache.num_tokens
        self.kv_waste += kv_cache.wasted_tokens
        self.kv_peak = max(self.kv_peak, kv_cache.num_used_blocks)
        for chunk in step.chunks:
            if chunk.emits_token:
                self._token(now, chunk.request_id, chunk.is_decode)

    def _token(self, now: float, request_id: int, is_decode: bool) -> None:
        if math.isnan(self.first_at[request_id]):
            self.first_at[request_id] = now
        else:
            gap = now - self.last_at[request_id]
            self.longest_gap[request_id] = max(self.longest_gap[request_id], gap)
            if not is_decode:
                self.recompute_gaps.append(gap)
        self.last_at[request_id] = now

    def log(self, kv_cache: PagedKVCache) -> RunLog:
        return RunLog(
            first_token_at_seconds=np.array(self.first_at),
            finish_at_seconds=np.array(self.finish_at),
            itl_max_seconds=np.array(self.longest_gap),
            num_preemptions=np.array(self.num_preemptions, dtype=np.int64),
            preemptions=tuple(self.preemptions),
            rejected=tuple(self.rejected),
            segments=np.array(self.segments, dtype=float).reshape(-1, 4),
            recompute_gaps_seconds=np.array(self.recompute_gaps, dtype=float),
            num_slot_iterations=self.num_slots,
            num_prefill_tokens=self.num_prefill,
            kv_token_iterations=self.kv_tokens,
            kv_waste_iterations=self.kv_waste,
            kv_peak_blocks=self.kv_peak,
            kv_blocks_at_end=kv_cache.num_used_blocks,
        )
