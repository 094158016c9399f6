"""The fast simulator: decode-only stretches are jumped in closed form to the next event.

While the same n sequences decode, each step reads n more KV tokens than the one before, and an affine step time grows
by ``slope * n``. So k steps take ``k (base + slope C) + slope n k (k+1) / 2``; nothing happens until the next
finish, arrival that could start, or exhaustion of the block pool. All else is the same arithmetic as the schedulers
of :mod:`course_lib.serving.policies` on integers instead of objects; a test holds both to the same events.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.serving.jump_log import JumpColumns, jump_log, split_rejected
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.policies import IterationLevelBatching
from course_lib.serving.run_log import TIE, RunLog
from course_lib.serving.step_time import ContextAffineStepTime
from course_lib.serving.workload import RequestTrace

__all__ = ["run_jumping", "steps_to_reach"]

_SHIFT = 32  # heap keys are finish_step << 32 | request: one integer compares faster than a pair
_MASK = (1 << _SHIFT) - 1


def steps_to_reach(seconds: float, first: float, growth: float) -> int:
    """Fewest steps, 1 or more, whose times ``first, first + growth, ...`` sum to ``seconds`` or more.

    Solves ``k first + growth k (k-1) / 2 = seconds``; the root is then moved to the exact integer.

    >>> steps_to_reach(1.0, 0.25, 0.0), steps_to_reach(1.0, 0.25, 0.1), steps_to_reach(0.0, 0.25, 0.1)
    (4, 3, 1)
    """
    half = growth * 0.5
    line = first - half  # k steps take k (line + half k)
    if seconds <= 0:
        return 1
    steps = int(2 * seconds / (line + math.sqrt(line * line + 4 * half * seconds))) or 1
    if steps * (line + half * steps) < seconds:
        steps += 1
        while steps * (line + half * steps) < seconds:
            steps += 1
    else:
        while steps > 1 and (steps - 1) * (line + half * (steps - 1)) >= seconds:
            steps -= 1
    return steps


# One function and not ten: at three passes a request, each call of a helper would cost a tenth of the run.
def run_jumping(
    requests: RequestTrace, *, step_time: ContextAffineStepTime, policy: IterationLevelBatching, kv_cache: PagedKVCache
) -> RunLog:
    """Run iteration-level or chunked batching from event to event; the cache gives its sizes and stays empty."""
    accepted, rejected = split_rejected(requests, kv_cache)
    columns = JumpColumns(requests, accepted)
    arrival, prompt, output, cached = columns.arrival, columns.prompt, columns.output, columns.cached
    first_at, finish_at = columns.first_at, columns.finish_at
    first_segment, end_segment = columns.first_segment, columns.end_segment
    start_tokens, phase_of, end_blocks = columns.start_tokens, columns.phase, columns.end_blocks(kv_cache.block_tokens)
    shift, tie = _SHIFT, TIE
    size, free = kv_cache.block_tokens, kv_cache.num_blocks
    max_batch = policy.max_batch
    budget = policy.token_budget or 1 << 62
    seconds_of, slope = step_time.totals_seconds(), step_time.seconds_per_context_token
    decode_base = [seconds_of(0, 0, 0, rows, 0) for rows in range(max_batch + 1)]

    now = lost = 0.0
    step = num_running = context = head = tail = num_segments = 0  # context: KV tokens of decoding sequences
    num_slots = num_prefill = kv_tokens = kv_waste = 0
    least_free = free
    order: dict[int, None] = {}  # running requests, as admitted
    heap: list[int] = []
    key_of = [0] * columns.num  # heap key of each decoding request
    taking = [0] * (2 * size)  # decoding sequences that take a block at steps = index (mod block), written twice
    returned: list[int] = []  # preempted, the next to run last
    generated: dict[int, int] = {}
    last_at: dict[int, float] = {}
    partial, partial_tokens = -1, 0  # the request with an unfinished prompt, and its KV tokens
    segments: list[float] = []

    while True:
        limit = now + tie * (1.0 + now)
        while arrival[tail] <= limit:
            tail += 1
        place = step % size
        need = taking[place]
        must_run = False
        if need > free or partial >= 0:
            wanted = need
            if partial >= 0:
                goal = prompt[partial] + generated.get(partial, 0)
                end = partial_tokens + min(goal - partial_tokens, budget - num_running)
                wanted += (end + size - 1) // size - (partial_tokens + size - 1) // size
            # The scheduler walks from the oldest and evicts the newest when it finds no block; as wants only add up,
            # that is the same as evicting the newest until the wants of all others fit.
            while wanted > free:
                must_run = True
                victim, _ = order.popitem()
                columns.preempt(now, victim)
                returned.append(victim)
                if victim == partial:
                    held, partial = partial_tokens, -1
                else:
                    key = key_of[victim]
                    heap.remove(key)
                    heapify(heap)
                    generated[victim] = output[victim] - ((key >> shift) - step)
                    held = prompt[victim] + generated[victim] - 1
                    columns.end_episode(victim, held)
                    last_at[victim] = now
                    phase = phase_of[victim]
                    taking[phase] -= 1
                    taking[phase + size] -= 1
                    num_running -= 1
                    context -= held
                free += (held + size - 1) // size
                wanted = need = taking[place]

        if must_run or partial >= 0 or ((head < tail or returned) and num_running < max_batch):
            new_tokens = prior = pairs = 0
            left, room = budget - num_running, free - need
            running = num_running
            ready: list[int] = []
            if partial >= 0:
                goal = prompt[partial] + generated.get(partial, 0)
                new = min(goal - partial_tokens, left)
                end = partial_tokens + new
                room -= (end + size - 1) // size - (partial_tokens + size - 1) // size
                new_tokens, prior, pairs = new, partial_tokens, new * end - new * (new - 1) // 2
                left -= new
                partial_tokens = end
                running += 1
                if end == goal:
                    ready.append(partial)
                    partial = -1
            while not must_run and running < max_batch and left:
                if returned:
                    number = returned[-1]
                    goal = prompt[number] + generated.get(number, 0)
                elif head < tail:
                    number = head
                    goal = prompt[number]
                else:
                    break
                start = cached[number]
                new = goal - start
                if new > left:
                    new = left
                end = start + new
                blocks = (end + size - 1) // size
                if blocks > room:
                    break
                if returned:
                    returned.pop()
                else:
                    head += 1
                room -= blocks
                left -= new
                running += 1
                order[number] = None
                new_tokens += new
                prior += start
                pairs += new * end - new * (new - 1) // 2
                if end == goal:
                    ready.append(number)
                else:
                    partial, partial_tokens = number, end
            if new_tokens or must_run:
                seconds = seconds_of(new_tokens, prior, pairs, num_running, context + num_running)
                if seconds <= 0:
                    raise InvalidInputError("a step takes a time above zero", given=f"{seconds} s")
                grown = now + (seconds - lost)
                lost, now = (grown - now) - (seconds - lost), grown
                segments += (1.0, seconds, 0.0, num_running)
                num_segments += 1
                step += 1
                context += num_running
                num_slots += running
                num_prefill += new_tokens
                free = room
                if free < least_free:
                    least_free = free
                if partial >= 0:
                    kv_tokens += partial_tokens
                    kv_waste += -partial_tokens % size
                for number in ready:
                    done = generated.pop(number) if number in generated else 0
                    if done:  # computed again after a preemption
                        columns.recompute_gap(number, now - last_at[number])
                    else:
                        first_at[number] = now
                        first_segment[number] = num_segments
                    goal = prompt[number] + done
                    start_tokens[number] = goal
                    rest = output[number] - done - 1
                    if rest:
                        phase = (step - goal) % size
                        phase_of[number] = phase
                        taking[phase] += 1
                        taking[phase + size] += 1
                        key = (step + rest) << shift | number
                        key_of[number] = key
                        heappush(heap, key)
                        num_running += 1
                        context += goal
                    else:
                        finish_at[number] = now
                        end_segment[number] = num_segments
                        free += end_blocks[number]
                        del order[number]
        else:
            new_tokens = 0

        if not new_tokens and not must_run:
            if not num_running:
                if tail == columns.num:
                    break
                now, lost = arrival[tail], 0.0
                continue
            steps = (heap[0] >> shift) - step
            growth = slope * num_running
            first = decode_base[num_running] + slope * (context + num_running)
            if first <= 0:
                raise InvalidInputError("a step takes a time above zero", given=f"{first} s")
            seconds = steps * first + growth * steps * (steps - 1) / 2
            if head == tail and not returned and num_running < max_batch:
                gap = arrival[tail] - now - tie * (1.0 + arrival[tail])
                if seconds > gap:
                    steps = min(steps, steps_to_reach(gap, first, growth))
                    seconds = steps * first + growth * steps * (steps - 1) / 2
            blocks = steps // size * num_running + sum(taking[place : place + steps % size])
            if blocks > free:
                steps = free // num_running * size
                blocks = steps // size * num_running
                while blocks + taking[(step + steps) % size] <= free:
                    blocks += taking[(step + steps) % size]
                    steps += 1
                seconds = steps * first + growth * steps * (steps - 1) / 2
            free -= blocks
            if free < least_free:
                least_free = free
            grown = now + (seconds - lost)
            lost, now = (grown - now) - (seconds - lost), grown
            segments += (steps, first, growth, num_running)
            num_segments += 1
            step += steps
            context += num_running * steps
            num_slots += num_running * steps

        while heap and heap[0] >> shift == step:
            number = heappop(heap) & _MASK
            finish_at[number] = now
            end_segment[number] = num_segments
            held = prompt[number] + output[number] - 1
            num_running -= 1
            context -= held
            free += end_blocks[number]
            phase = phase_of[number]
            taking[phase] -= 1
            taking[phase + size] -= 1
            del order[number]

    return jump_log(
        requests,
        columns,
        rejected=rejected,
        segments=np.array(segments, dtype=float).reshape(-1, 4),
        num_slot_iterations=num_slots,
        num_prefill_tokens=num_prefill,
        kv_tokens=kv_tokens,
        kv_waste=kv_waste,
        block_tokens=size,
        kv_peak_blocks=kv_cache.num_blocks - least_free,
        kv_blocks_at_end=kv_cache.num_blocks - free,
    )
