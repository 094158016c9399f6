"""Proof of lesson 4.2's exercises."""

import heapq
from collections import deque

import numpy as np

from grading.proofs import Mutant, Proof

OTHER_SHAPES = (
    {
        "hand_requests": ((0, 1), (0, 4), (1, 5), (1, 2), (2, 3)), "hand_slots": 2,
        "model": "qwen2.5-7b", "chip": "h100-sxm", "slots": 16, "prompt_tokens": 700, "mean_output_tokens": 120,
        "num_requests": 1200, "rate": 6, "chunk": 192, "block_tokens": 32, "longest": 640, "reserved": 1024,
        "promises": (0.4, 0.03, 0.9), "fleet_rate": 40,
    },
    {
        "hand_requests": ((0, 3), (0, 1), (0, 6), (2, 2), (3, 2)), "hand_slots": 3,
        "model": "llama-3-8b", "chip": "h200", "slots": 24, "prompt_tokens": 1500, "mean_output_tokens": 150,
        "num_requests": 1000, "rate": 3, "chunk": 320, "block_tokens": 8, "longest": 800, "reserved": 4096,
        "promises": (1.0, 0.05, 0.95), "fleet_rate": 90,
    },
)  # fmt: skip


# 1. static


def static_by_simulation(lengths, batch):
    queue, rows = deque(lengths), 0
    while queue:
        left = [queue.popleft() for _ in range(min(batch, len(queue)))]
        while any(n > 0 for n in left):
            rows += len(left)
            left = [n - 1 for n in left]
    return rows


def static_by_padding(lengths, batch):
    return float(sum(np.full((len(part), max(part)), 1).sum()
                     for part in (lengths[i:i + batch] for i in range(0, len(lengths), batch))))  # fmt: skip


def parts(lengths, batch):
    out, now = [], []
    for n in lengths:
        now.append(n)
        if len(now) == batch:
            out.append(now)
            now = []
    return out, now


def static_without_tail(lengths, batch):
    return sum(batch * max(p) for p in parts(lengths, batch)[0])


def static_full_tail(lengths, batch):
    full, tail = parts(lengths, batch)
    return batch * (sum(max(p) for p in full) + (max(tail) if tail else 0))


def static_sorted(lengths, batch):
    return static_by_simulation(tuple(sorted(lengths)), batch)


def static_iterations(lengths, batch):
    full, tail = parts(lengths, batch)
    return sum(max(p) for p in [*full, tail] if p)


def static_less_one(lengths, batch):
    full, tail = parts(lengths, batch)
    return sum(len(p) * (max(p) - 1) for p in [*full, tail] if p)


# 2. continuous


def continuous_by_heap(lengths, slots):
    lanes = [0] * slots
    for n in lengths:
        heapq.heappush(lanes, heapq.heappop(lanes) + n)
    return max(lanes)


def continuous_by_clock(lengths, slots):
    waiting, running, clock = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        running = [n - 1 for n in running if n > 1]
        clock += 1
    return np.int64(clock)


def continuous_late(lengths, slots):
    waiting, running, clock = list(lengths), [], 0
    while waiting or running:
        seats = slots - len(running)
        for _ in range(min(seats, len(waiting))):
            running.append(waiting.pop(0))
        clock += 1
        running = [n - 1 for n in running if n > 0]  # a finished one is seen an iteration too late
    return clock - 1


def continuous_cards(lengths, slots):
    lanes = [0] * slots
    for i, n in enumerate(lengths):
        lanes[i % slots] += n
    return max(lanes)


# 3. admission


def admit_by_while(waiting, free_slots, free_blocks, block_tokens):
    count = 0
    while count < len(waiting) and count < free_slots:
        prompt, output = waiting[count]
        need = (prompt + output - 1 + block_tokens - 1) // block_tokens
        if need > free_blocks:
            break
        free_blocks -= need
        count += 1
    return range(count)


def admit_by_cumsum(waiting, free_slots, free_blocks, block_tokens):
    tokens = np.array(waiting).sum(axis=1) - 1
    return np.flatnonzero(np.cumsum(np.ceil(tokens / block_tokens)) <= free_blocks)[:free_slots]


def admitting(need, *, skip=False, keep=False, exact=True, limit=99, mind_slots=True, sort=False):
    def admit(waiting, free_slots, free_blocks, block_tokens):
        chosen, used = [], 0
        places = list(range(len(waiting)))
        if sort:
            places.sort(key=lambda i: sum(waiting[i]))
        for i in places:
            if (mind_slots and len(chosen) >= free_slots) or len(chosen) >= limit:
                break
            n = need(*waiting[i], block_tokens)
            if used + n > free_blocks or (not exact and used + n == free_blocks):
                if skip:
                    continue
                break
            chosen.append(i)
            used += 0 if keep else n
        return chosen

    return admit


def up(p, o, b):
    return (p + o + b - 2) // b


# 4. waste


def waste_by_blocks(lengths, block_tokens):
    empty = taken = 0
    for n in lengths:
        blocks = 0
        while blocks * block_tokens < n:
            blocks += 1
        taken += blocks * block_tokens
        empty += blocks * block_tokens - n
    return empty / taken


def waste_by_arrays(lengths, block_tokens):
    taken = np.ceil(np.array(lengths) / block_tokens) * block_tokens
    return 1 - np.sum(lengths) / taken.sum()


def pages(n, b):
    return (n + b - 1) // b * b


# 5. goodput


def good_by_loop(requests, ttft_promise, tpot_promise):
    good = 0
    for r in requests:
        if r.first_token - r.arrival > ttft_promise:
            continue
        if r.output_tokens > 1 and (r.finish - r.first_token) / (r.output_tokens - 1) > tpot_promise:
            continue
        good += 1
    return good / (max(r.finish for r in requests) - min(r.arrival for r in requests))


def good_by_arrays(requests, ttft_promise, tpot_promise):
    arrival, _, first, finish, tokens, _ = np.array(requests).T
    good = (first - arrival <= ttft_promise) & (finish - first <= tpot_promise * (tokens - 1))
    return good.sum() / (finish.max() - arrival.min())


def length_of(requests):
    return max(r.finish for r in requests) - min(r.arrival for r in requests)


def ttft(r):
    return r.first_token - r.arrival


def pace(r):
    return (r.finish - r.first_token) / max(1, r.output_tokens - 1)


def counting(test):
    return lambda requests, t, p: sum(bool(test(r, t, p)) for r in requests) / length_of(requests)


def good_of_gaps(requests, t, p):
    return sum(ttft(r) <= t and (r.finish - r.first_token) / (r.output_tokens - 1) <= p for r in requests) / length_of(
        requests
    )


def by_average(requests, t, p):
    ok = np.mean([ttft(r) for r in requests]) <= t and np.mean([pace(r) for r in requests if r.output_tokens > 1]) <= p
    return ok * len(requests) / length_of(requests)


PROOFS = (
    Proof(
        id="w4-2-static-slot-steps",
        styles={"iteration by iteration": static_by_simulation, "padded rectangles": static_by_padding},
        mutants=(
            Mutant(name="only-useful-rows", answer=lambda lengths, batch: sum(lengths)),
            Mutant(name="only-useful-rows", label="mean", answer=lambda n, batch: len(n) * np.mean(n)),
            Mutant(name="only-wasted-rows", answer=lambda n, batch: static_by_simulation(n, batch) - sum(n)),
            Mutant(name="share-not-rows", answer=lambda n, batch: np.sum(n) / static_by_padding(n, batch)),
            Mutant(name="tail-batch-forgotten", answer=static_without_tail),
            Mutant(name="tail-batch-full", answer=static_full_tail),
            Mutant(name="one-longest-for-all", answer=lambda lengths, batch: max(lengths) * len(lengths)),
            Mutant(name="iterations-not-rows", answer=static_iterations),
            Mutant(name="sorted-first", answer=static_sorted),
            Mutant(name="first-token-free", answer=static_less_one),
            Mutant(name="slots-refilled", answer=lambda lengths, batch: batch * continuous_by_heap(lengths, batch)),
        ),
        extra_cases=(((1,), 4), ((5, 5, 5, 5), 2), ((1, 2, 3), 1)),
    ),
    Proof(
        id="w4-2-continuous-steps",
        styles={"heap": continuous_by_heap, "clock": continuous_by_clock},
        mutants=(
            Mutant(name="perfect-packing", answer=lambda lengths, slots: int(np.ceil(sum(lengths) / slots))),
            Mutant(name="lower-bound", answer=lambda n, s: max(max(n), int(np.ceil(sum(n) / s)))),
            Mutant(name="batch-waits", answer=static_iterations),
            Mutant(name="longest-first", answer=lambda n, s: continuous_by_heap(sorted(n)[::-1], s)),
            Mutant(name="shortest-first", answer=lambda n, s: continuous_by_heap(sorted(n), s)),
            Mutant(name="fixed-lanes", answer=continuous_cards),
            Mutant(name="slot-late", answer=continuous_late),
            Mutant(name="counted-from-zero", answer=lambda n, s: continuous_by_clock(n, s) - 1),
            Mutant(name="extra-factor-slots", answer=lambda n, s: s * continuous_by_heap(n, s)),
        ),
        extra_cases=(((1,), 4), ((7, 7, 7), 1), ((3, 3, 3, 3), 2)),
    ),
    Proof(
        id="w4-2-admit",
        styles={"while": admit_by_while, "cumulative sum": admit_by_cumsum},
        mutants=(
            Mutant(name="prompt-only", answer=admitting(lambda p, o, b: (p + b - 1) // b)),
            Mutant(name="rounds-down", answer=admitting(lambda p, o, b: (p + o - 1) // b)),
            Mutant(name="tokens-for-blocks", answer=admitting(lambda p, o, b: p + o - 1)),
            Mutant(name="last-token-stored", answer=admitting(lambda p, o, b: (p + o + b - 1) // b)),
            Mutant(name="jumps-the-queue", answer=admitting(up, skip=True)),
            Mutant(name="shortest-first", answer=admitting(up, sort=True)),
            Mutant(name="one-at-a-time", answer=admitting(up, limit=1)),
            Mutant(name="same-blocks-twice", answer=admitting(up, keep=True)),
            Mutant(name="one-block-spare", answer=admitting(up, exact=False)),
            Mutant(name="slots-forgotten", answer=admitting(up, mind_slots=False)),
            Mutant(name="not-positions", label="pairs", answer=lambda w, *room: w[: len(admit_by_while(w, *room))]),
            Mutant(name="not-positions", label="how many", answer=lambda *given: len(admit_by_while(*given))),
            Mutant(name="not-positions", label="from one",
                   answer=lambda *given: [i + 1 for i in admit_by_while(*given)]),
            Mutant(name="admits-nobody", answer=lambda waiting, slots, blocks, size: []),
        ),
        extra_cases=((((0, 1, 1),), 1, 1, 1), (((0, 5, 1), (9, 5, 1)), 4, 2, 4)),
    ),
    Proof(
        id="w4-2-paging-waste",
        styles={"block by block": waste_by_blocks, "arrays": waste_by_arrays},
        mutants=(
            Mutant(name="half-a-block-each", answer=lambda n, b: (b - 1) / (2 * np.mean(n) + b - 1)),
            Mutant(name="full-block-counted-empty",
                   answer=lambda n, b: sum(b - x % b for x in n) / sum(x + b - x % b for x in n)),
            Mutant(name="over-tokens", answer=lambda n, b: sum(pages(x, b) - x for x in n) / sum(n)),
            Mutant(name="one-long-sequence", answer=lambda n, b: 1 - sum(n) / pages(sum(n), b)),
            Mutant(name="longest-reserved", answer=lambda n, b: 1 - sum(n) / (len(n) * pages(max(n), b))),
            Mutant(name="slots-not-share", answer=lambda n, b: sum(pages(x, b) - x for x in n)),
            Mutant(name="percent", answer=lambda n, b: 100 * waste_by_blocks(n, b)),
            Mutant(name="full-share", answer=lambda n, b: sum(n) / sum(pages(x, b) for x in n)),
            Mutant(name="last-block-missing", answer=lambda n, b: 1 - sum(n) / sum(x - x % b for x in n)),
            Mutant(name="mean-of-shares", answer=lambda n, b: sum(1 - x / pages(x, b) for x in n) / len(n)),
        ),
        extra_cases=(((1,), 1), ((16,), 16), ((17, 1), 16)),
    ),
    Proof(
        id="w4-2-goodput",
        styles={"loop": good_by_loop, "arrays": good_by_arrays},
        mutants=(
            Mutant(name="first-token-only", answer=counting(lambda r, t, p: ttft(r) <= t)),
            Mutant(name="pace-only", answer=counting(lambda r, t, p: pace(r) <= p)),
            Mutant(name="either-promise", answer=counting(lambda r, t, p: ttft(r) <= t or pace(r) <= p)),
            Mutant(name="average-kept", answer=by_average),
            Mutant(name="longest-gap", answer=counting(lambda r, t, p: ttft(r) <= t and r.longest_gap <= p)),
            Mutant(name="waiting-left-out",
                   answer=counting(lambda r, t, p: r.first_token - r.admitted <= t and pace(r) <= p)),
            Mutant(name="tokens-for-gaps",
                   answer=counting(lambda r, t, p: ttft(r) <= t and r.finish - r.first_token <= p * r.output_tokens)),
            Mutant(name="whole-stay-as-pace",
                   answer=counting(lambda r, t, p: ttft(r) <= t and r.finish - r.arrival <= p * r.output_tokens)),
            Mutant(name="single-token-refused",
                   answer=counting(lambda r, t, p: r.output_tokens > 1 and ttft(r) <= t and pace(r) <= p)),
            Mutant(name="share-not-rate",
                   answer=lambda requests, t, p: good_by_loop(requests, t, p) * length_of(requests) / len(requests)),
            Mutant(name="single-token-divided", answer=good_of_gaps),
            Mutant(name="number-not-rate",
                   answer=lambda requests, t, p: good_by_loop(requests, t, p) * length_of(requests)),
            Mutant(name="last-to-arrive",
                   answer=lambda requests, t, p: good_by_loop(requests, t, p) * length_of(requests)
                   / (requests[-1].finish - requests[0].arrival)),
            Mutant(name="arrivals-only",
                   answer=lambda requests, t, p: good_by_loop(requests, t, p) * length_of(requests)
                   / (max(r.arrival for r in requests) - requests[0].arrival)),
            Mutant(name="throughput", answer=counting(lambda r, t, p: True)),
            Mutant(name="clock-from-zero",
                   answer=lambda requests, t, p: good_by_loop(requests, t, p) * length_of(requests)
                   / max(r.finish for r in requests)),
        ),
        extra_cases=((((0.0, 1, 1),), 1, 2.0, 2.0), (((0.0, 9, 4), (0.5, 9, 4)), 1, 1.0, 1.0)),
    ),
)  # fmt: skip
