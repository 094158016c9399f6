"""The fast simulator for static batching: from one finish of a batch to the next in closed form."""

from __future__ import annotations

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.serving.jump_log import JumpColumns, jump_log, split_rejected
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.policies import StaticBatching
from course_lib.serving.run_log import RunLog, ready_by
from course_lib.serving.step_time import ContextAffineStepTime
from course_lib.serving.workload import RequestTrace

__all__ = ["run_static_jumping"]


def run_static_jumping(
    requests: RequestTrace, *, step_time: ContextAffineStepTime, policy: StaticBatching, kv_cache: PagedKVCache
) -> RunLog:
    """Run static batching batch by batch; the cache gives its sizes and stays empty."""
    accepted, rejected = split_rejected(requests, kv_cache)
    run = _StaticRun(JumpColumns(requests, accepted), step_time, kv_cache)
    columns, head, tail = run.columns, 0, 0
    while head < columns.num:
        while columns.arrival[tail] <= ready_by(run.now):
            tail += 1
        if head == tail:
            run.now, run.lost = columns.arrival[head], 0.0
            continue
        end = run.end_of_batch(head, min(tail, head + policy.batch_size))
        run.batch(range(head, end))
        head = end
    return jump_log(
        requests,
        columns,
        rejected=rejected,
        segments=np.array(run.segments, dtype=float).reshape(-1, 4),
        num_slot_iterations=sum(columns.output),
        num_prefill_tokens=sum(columns.prompt) - sum(columns.cached),
        kv_tokens=0,
        kv_waste=0,
        block_tokens=kv_cache.block_tokens,
        kv_peak_blocks=run.peak_blocks,
        kv_blocks_at_end=0,
    )


class _StaticRun:
    """The clock and the notes of one run."""

    def __init__(self, columns: JumpColumns, step_time: ContextAffineStepTime, kv_cache: PagedKVCache) -> None:
        self.columns, self.kv_cache = columns, kv_cache
        self.seconds_of, self.slope = step_time.totals_seconds(), step_time.seconds_per_context_token
        self.now = self.lost = 0.0
        self.peak_blocks = 0
        self.segments: list[tuple[float, float, float, float]] = []

    def end_of_batch(self, start: int, end: int) -> int:
        """The largest prefix of waiting requests for whose longest answers the pool has room."""
        room = self.kv_cache.num_blocks
        for number in range(start, end):
            room -= self.kv_cache.blocks_for(self.columns.prompt[number] + self.columns.output[number] - 1)
            if room < 0:
                return number
        return end

    def advance(self, steps: int, first: float, growth: float, rows: int) -> None:
        """Let a segment pass."""
        seconds = steps * first + growth * steps * (steps - 1) / 2
        if seconds <= 0:
            raise InvalidInputError("a step takes a time above zero", given=f"{seconds} s")
        grown = self.now + (seconds - self.lost)
        self.lost, self.now = (grown - self.now) - (seconds - self.lost), grown
        self.segments.append((steps, first, growth, rows))

    def batch(self, numbers: range) -> None:
        """Prefill all, then decode from finish to finish; rows of finished requests idle to the end."""
        columns, rows = self.columns, len(numbers)
        prompt, output, cached = columns.prompt, columns.output, columns.cached
        news = [(prompt[i] - cached[i], prompt[i]) for i in numbers]
        new = sum(n for n, _ in news)
        pairs = sum(n * context - n * (n - 1) // 2 for n, context in news)
        self.advance(1, self.seconds_of(new, sum(context - n for n, context in news), pairs, 0, 0), 0.0, 0)
        for i in numbers:
            columns.first_at[i], columns.first_segment[i] = self.now, len(self.segments)
        live = sorted(numbers, key=lambda i: output[i], reverse=True)
        prompts, done = sum(prompt[i] for i in numbers), 1
        while live:
            steps, alive = output[live[-1]] - done, len(live)
            if steps:
                base, growth = self.seconds_of(0, 0, 0, rows, 0), self.slope * alive
                self.advance(steps, base + self.slope * (prompts + alive * done), growth, alive)
                done += steps
            used = sum(self.kv_cache.blocks_for(prompt[i] + done - 1) for i in live)
            self.peak_blocks = max(self.peak_blocks, used)
            while live and output[live[-1]] == done:
                i = live.pop()
                columns.finish_at[i], columns.end_segment[i] = self.now, len(self.segments)
                prompts -= prompt[i]
