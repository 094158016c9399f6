"""Columns that the fast simulators fill, and the closed forms that turn them into the log of a run."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.run_log import Floats, Ints, RunLog
from course_lib.serving.workload import RequestTrace

__all__ = ["JumpColumns", "jump_log", "split_rejected"]


class JumpColumns:
    """One list for each fact of a request, numbered without the rejected ones; ``ids`` gives the old numbers."""

    def __init__(self, requests: RequestTrace, accepted: Ints) -> None:
        num = len(accepted)
        self.ids, self.num = accepted, num
        self.arrival: list[float] = [*requests.arrival_at_seconds[accepted].tolist(), math.inf]
        self.prompt: list[int] = requests.prompt_tokens[accepted].tolist()
        self.output: list[int] = requests.output_tokens[accepted].tolist()
        self.cached: list[int] = requests.cached_tokens[accepted].tolist()
        self.first_at, self.finish_at = [math.nan] * num, [math.nan] * num
        self.first_segment, self.end_segment = [0] * num, [0] * num
        self.start_tokens = list(self.prompt)  # KV tokens when its prompt (or recompute) was last completed
        self.phase = [0] * num
        self.preemptions: list[tuple[float, int]] = []
        self.episodes: list[tuple[int, int]] = []  # KV tokens at start and end of decodes that a preemption ended
        self.gaps: list[tuple[int, float]] = []

    def end_blocks(self, block_tokens: int) -> list[int]:
        """Blocks each request gives back when it finishes."""
        most = np.array(self.prompt, dtype=np.int64) + np.array(self.output, dtype=np.int64) - 1
        blocks: list[int] = (-(-most // block_tokens)).tolist()
        return blocks

    def preempt(self, now: float, number: int) -> None:
        """Note a preemption."""
        self.preemptions.append((now, number))

    def end_episode(self, number: int, held_tokens: int) -> None:
        """A decoding request loses its blocks."""
        self.episodes.append((self.start_tokens[number], held_tokens))

    def recompute_gap(self, number: int, seconds: float) -> None:
        """A request's next token after a preemption."""
        self.gaps.append((number, seconds))


def split_rejected(requests: RequestTrace, kv_cache: PagedKVCache) -> tuple[Ints, tuple[tuple[int, str], ...]]:
    """Numbers of the requests that the empty pool can hold, and the others with the reason."""
    most = requests.prompt_tokens + requests.output_tokens - 1
    needed = -(-most // kv_cache.block_tokens)
    fits = needed <= kv_cache.num_blocks
    rejected = tuple(
        (
            int(number),
            f"request {number} needs {needed[number]} KV blocks for {most[number]} tokens and the pool has "
            f"{kv_cache.num_blocks}. Shorten it or enlarge the pool.",
        )
        for number in np.flatnonzero(~fits)
    )
    return np.flatnonzero(fits), rejected


def jump_log(
    requests: RequestTrace, columns: JumpColumns, *, rejected: tuple[tuple[int, str], ...], segments: Floats,
    num_slot_iterations: int, num_prefill_tokens: int, kv_tokens: int, kv_waste: int, block_tokens: int,
    kv_peak_blocks: int, kv_blocks_at_end: int,
) -> RunLog:  # fmt: skip
    """The log; ``kv_tokens`` and ``kv_waste`` come in with what unfinished prompts held and leave complete."""
    ids, num = columns.ids, len(requests)
    first_at, finish_at, longest = np.full(num, np.nan), np.full(num, np.nan), np.zeros(num)
    first_at[ids], finish_at[ids] = columns.first_at, columns.finish_at
    last_step_seconds = segments[:, 1] + segments[:, 2] * (segments[:, 0] - 1)
    longest[ids] = _range_max(last_step_seconds, np.array(columns.first_segment), np.array(columns.end_segment))
    for number, gap in columns.gaps:
        longest[ids[number]] = max(longest[ids[number]], gap)
    preempted = [int(ids[number]) for _, number in columns.preemptions]
    starts = np.array([*columns.start_tokens, *(start for start, _ in columns.episodes)], dtype=np.int64)
    most = requests.prompt_tokens[ids] + requests.output_tokens[ids] - 1
    ends = np.concatenate((most, np.array([end for _, end in columns.episodes], dtype=np.int64)))
    held, waste = _slot_sums(ends, block_tokens) - _slot_sums(starts - 1, block_tokens)
    return RunLog(
        first_token_at_seconds=first_at,
        finish_at_seconds=finish_at,
        itl_max_seconds=longest,
        num_preemptions=np.bincount(np.array(preempted, dtype=np.int64), minlength=num),
        preemptions=tuple((now, int(ids[number])) for now, number in columns.preemptions),
        rejected=rejected,
        segments=segments,
        recompute_gaps_seconds=np.array([gap for _, gap in columns.gaps], dtype=float),
        num_slot_iterations=num_slot_iterations,
        num_prefill_tokens=num_prefill_tokens,
        kv_token_iterations=kv_tokens + int(held),
        kv_waste_iterations=kv_waste + int(waste),
        kv_peak_blocks=kv_peak_blocks,
        kv_blocks_at_end=kv_blocks_at_end,
    )


def _slot_sums(tokens: Ints, size: int) -> NDArray[np.int64]:
    """Sums over x = 1..tokens, then over sequences: of x (slots used) and of ``-x mod size`` (slots wasted)."""
    full, rest = np.divmod(tokens, size)
    waste = full * (size * (size - 1) // 2) + rest * (size - 1) - rest * (rest - 1) // 2
    return np.array(((tokens * (tokens + 1) // 2).sum(), waste.sum()))


def _range_max(values: Floats, start: Ints, end: Ints) -> Floats:
    """Largest of ``values[start:end]`` for each pair, 0 where empty, by a table of powers of two."""
    result = np.zeros(len(start))
    length = end - start
    level, width, table = 0, 1, values
    while len(table) and (length >= width).any():
        here = np.flatnonzero((length >= width) & (length < 2 * width))
        result[here] = np.maximum(table[start[here]], table[end[here] - width])
        table = np.maximum(table[:-width], table[width:]) if len(table) > width else table[:0]
        level, width = level + 1, width * 2
    return result
