"""Checks of lesson 4.2: right answers are counted on the library's schedulers, allocator and simulator."""

from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from course_lib.lesson import Diagnosis, Exercise, Raised
from course_lib.serving import (
    SLO,
    AffineStepTime,
    InvariantError,
    OutOfBlocksError,
    PagedKVCache,
    Request,
    RequestTrace,
    ScheduledChunk,
    ScheduledStep,
    SequenceState,
    continuous_batching,
    simulate,
    static_batching,
)

# Exercises 1 and 2: the library's scheduler is driven to the end, and its rows are counted.


def _steps(lengths, policy):
    """Every step that a policy schedules for requests that all wait at the start."""
    scheduler = policy.scheduler(PagedKVCache(sum(lengths) + len(lengths)))
    for number, length in enumerate(lengths):
        scheduler.add(Request(request_id=number, prompt_tokens=1, max_output_tokens=length))
    while scheduler.num_unfinished:
        step = scheduler.schedule()
        scheduler.complete(step)
        yield step


@cache
def static_slot_steps(lengths, batch):
    return sum(len(step.chunks) + step.num_idle_rows for step in _steps(lengths, static_batching(batch)))


@cache
def continuous_steps(lengths, slots):
    return sum(1 for _ in _steps(lengths, continuous_batching(slots)))


def batches_of(lengths, batch):
    return [lengths[i : i + batch] for i in range(0, len(lengths), batch)]


def greedy_steps(lengths, slots, lost=0):
    """Each request goes to the lane that is free first; ``lost`` iterations pass before a freed lane is used."""
    free_at = [0] * slots
    for length in lengths:
        lane = free_at.index(min(free_at))
        free_at[lane] += length + lost
    return max(free_at) - lost


def _draw_lengths(rng):
    count, rows = int(rng.integers(9, 24)), int(rng.integers(2, 6))
    return tuple(int(length) for length in rng.integers(1, 30, size=count)), rows


# Exercise 4: an iteration-level scheduler whose only free choice is the learner's function.


class _AdmissionScheduler:
    """Runs whoever was admitted, on the real allocator; ``admit`` decides who joins."""

    def __init__(self, admit, num_slots, kv_cache):
        self.admit, self.num_slots, self.kv_cache = admit, num_slots, kv_cache
        self.waiting, self.running, self.order = [], {}, []

    @property
    def num_unfinished(self):
        return len(self.waiting) + len(self.running)

    def add(self, request):
        self.waiting.append(SequenceState(request))

    def schedule(self):
        for position in self._picked() if self.waiting else ():
            state = self.waiting[position]
            self.order.append(state.request.request_id)
            self.running[state.request.request_id] = state
        self.waiting = [state for state in self.waiting if state.request.request_id not in self.running]
        if len(self.running) > self.num_slots:
            raise _TooManyError
        return ScheduledStep(chunks=tuple(self._chunk(state) for state in self.running.values()))

    def _picked(self):
        promised = sum(self._blocks(state) for state in self.running.values())
        free_blocks = max(0, self.kv_cache.num_blocks - promised)
        waiting = tuple((s.request.prompt_tokens, s.request.max_output_tokens) for s in self.waiting)
        picked = self.admit(waiting, self.num_slots - len(self.running), free_blocks, self.kv_cache.block_tokens)
        if picked is None or picked is ...:
            raise NotImplementedError  # the cell as it was released
        listed = list(picked) if isinstance(picked, Iterable) else [None]
        positions = [int(place) for place in listed if isinstance(place, (int, float, np.number))]
        known = all(0 <= place < len(waiting) for place in positions)
        if not known or len(positions) != len(listed) or len(set(positions)) != len(positions):
            raise _NotPositionsError(f"admit returned {picked!r} for waiting = {waiting!r}")
        return positions

    def _blocks(self, state):
        return self.kv_cache.blocks_for(state.request.most_kv_tokens)

    def _chunk(self, state):
        request_id, new = state.request.request_id, state.num_known - state.num_computed
        self.kv_cache.append(request_id, new)
        return ScheduledChunk(request_id, new, state.num_known, True, state.is_decoding)

    def complete(self, step, token_ids=None):
        for chunk in step.chunks:
            state = self.running[chunk.request_id]
            state.num_computed, state.is_decoding = chunk.context_tokens, True
            state.num_generated += 1
        finished = tuple(name for name, state in self.running.items() if state.is_finished)
        for name in finished:
            self.stop(name)
        return finished

    def stop(self, request_id):
        del self.running[request_id]
        self.kv_cache.free(request_id)


class _TooManyError(Exception):
    """More sequences run than there are slots."""


class _NotPositionsError(ValueError):
    """What came back are not positions in the queue, each once."""


class _AdmissionPolicy:
    name = "yours"

    def __init__(self, admit, num_slots):
        self.admit, self.num_slots, self.made = admit, num_slots, None

    def scheduler(self, kv_cache):
        self.made = _AdmissionScheduler(self.admit, self.num_slots, kv_cache)
        return self.made


def _trace(requests):
    arrival, prompt, output = (np.array(column) for column in zip(*requests, strict=True))
    return RequestTrace(arrival.astype(float), prompt, output, np.zeros(len(requests), dtype=np.int64))


def run_admission(admit, requests, slots, blocks, block_tokens):
    """Serve a trace with steps of one second: what went wrong, who was admitted in which order, when who began."""
    policy, crash, first = _AdmissionPolicy(admit, slots), "nothing", ()
    try:
        report = simulate(
            _trace(requests), step_time=AffineStepTime(fixed_seconds=1.0), policy=policy,
            kv_cache=PagedKVCache(blocks, block_tokens), rng=np.random.default_rng(0),
        )  # fmt: skip
        first = tuple(round(at) for at in report.log.first_token_at_seconds.tolist())
    except OutOfBlocksError:
        crash = "a running sequence found no free block"
    except _TooManyError:
        crash = "more sequences than slots"
    except InvariantError:
        crash = "a request was never served"
    return {"went wrong": crash, "order of admission": tuple(policy.made.order), "first token at": first}


def blocks_of(prompt, output, block_tokens):
    return -(-(prompt + output - 1) // block_tokens)


def admit_right(waiting, free_slots, free_blocks, block_tokens):
    picked = []
    for position, (prompt, output) in enumerate(waiting):
        free_blocks -= blocks_of(prompt, output, block_tokens)
        if free_blocks < 0 or len(picked) == free_slots:
            break
        picked.append(position)
    return picked


def admission(requests, slots, blocks, block_tokens):
    return run_admission(admit_right, requests, slots, blocks, block_tokens)


def _admit_with(needs, *, skips=False, subtracts=True, strict=False, most=None, order=None, heeds_slots=True):
    """An admission with one idea changed; ``needs(prompt, output, block_tokens)`` are the blocks it sets aside."""

    def admit(waiting, free_slots, free_blocks, block_tokens):
        picked, left = [], free_blocks
        positions = sorted(range(len(waiting)), key=lambda i: order(*waiting[i])) if order else range(len(waiting))
        for position in positions:
            needed = needs(*waiting[position], block_tokens)
            fits = needed < left if strict else needed <= left
            if (heeds_slots and len(picked) == free_slots) or (most and len(picked) == most):
                break
            if fits:
                picked.append(position)
                left -= needed if subtracts else 0
            elif not skips:
                break
        return picked

    return admit


def _wrong_admission(admit):
    return lambda *inputs: run_admission(admit, *inputs)


WRONG_ADMISSIONS = {
    "prompt-only": _admit_with(lambda p, o, b: -(-p // b)),
    "rounds-down": _admit_with(lambda p, o, b: (p + o - 1) // b),
    "tokens-for-blocks": _admit_with(lambda p, o, b: p + o - 1),
    "last-token-stored": _admit_with(lambda p, o, b: -(-(p + o) // b)),
    "jumps-the-queue": _admit_with(blocks_of, skips=True),
    "shortest-first": _admit_with(blocks_of, order=lambda p, o: p + o),
    "one-at-a-time": _admit_with(blocks_of, most=1),
    "same-blocks-twice": _admit_with(blocks_of, subtracts=False),
    "one-block-spare": _admit_with(blocks_of, strict=True),
    "slots-forgotten": _admit_with(blocks_of, heeds_slots=False),
}

_ADMISSION_HINTS = {
    "prompt-only": "You set aside the blocks of the prompt. Then the answer grows, everybody's at once, and "
    "the pool is "
    "empty in the middle of a step. What will this request hold when its last token is out?",
    "rounds-down": "You rounded down. Five tokens in blocks of four: how many blocks does the allocator hand "
    "out?",
    "tokens-for-blocks": "You compared tokens with blocks. The two sides of that comparison have different "
    "units.",
    "last-token-stored": "You keep room for prompt + output tokens. Which of these tokens is never fed back "
    "into the "
    "model, and so leaves no key and no value?",
    "jumps-the-queue": "You passed over the head of the queue for someone smaller. Let small requests keep "
    "coming: when "
    "does the large one start?",
    "shortest-first": "You sorted the queue. It raises the number served early, and a long request behind a "
    "stream of "
    "short ones waits without bound. This exercise asks for first come, first served.",
    "one-at-a-time": "You admit one request per iteration. If three slots are free and three wait, what do "
    "two slots do "
    "in this iteration?",
    "same-blocks-twice": "Each request was compared with the same free blocks. After the first one is in, "
    "how many are "
    "left for the second?",
    "one-block-spare": "You left a request waiting that would have fitted exactly. What is wrong with a full "
    "pool, "
    "when everyone's growth is already paid for?",
    "slots-forgotten": "The blocks are minded, the slots are not: more sequences run than the batch has rows.",
}


def _draw_admission(rng):
    count, block_tokens = int(rng.integers(8, 14)), int(rng.integers(3, 7))
    arrival = np.sort(rng.integers(0, 12, size=count))
    arrival[0] = 0
    prompt, output = rng.integers(1, 14, size=count), rng.integers(1, 12, size=count)
    requests = tuple(zip(arrival.tolist(), prompt.tolist(), output.tolist(), strict=True))
    largest = max(blocks_of(p, o, block_tokens) for _, p, o in requests)
    return requests, int(rng.integers(2, 5)), largest + int(rng.integers(2, 6)), block_tokens


# Exercise 3: sequences are put into the library's allocator, and its empty places are counted.


@cache
def kv_waste(lengths, block_tokens):
    pool = PagedKVCache(sum(-(-length // block_tokens) for length in lengths), block_tokens)
    for number, length in enumerate(lengths):
        pool.append(number, length)
    return pool.wasted_tokens / (pool.num_used_blocks * block_tokens)


def _waste(allocated, lengths):
    return 1 - sum(lengths) / allocated


def _draw_waste(rng):
    block_tokens = int(rng.integers(3, 40))
    lengths = [int(length) for length in rng.integers(1, 300, size=7)]
    return (*lengths, 5 * block_tokens), block_tokens


# Exercise 5: the simulator serves the requests, and its own report is the right answer.


class Served(NamedTuple):
    """What the learner's function gets for each request; all times in seconds on one clock."""

    arrival: float
    admitted: float
    first_token: float
    finish: float
    output_tokens: int
    longest_gap: float


SLOW_MACHINE = AffineStepTime(fixed_seconds=1.0, seconds_per_prefill_token=0.1)


def _report(requests, slots, ttft_promise, tpot_promise):
    return simulate(
        _trace(requests), step_time=SLOW_MACHINE, policy=continuous_batching(slots), kv_cache=PagedKVCache(1000, 4),
        slo=SLO(ttft_seconds=ttft_promise, tpot_seconds=tpot_promise), rng=np.random.default_rng(0), method="stepping",
    )  # fmt: skip


def served(report):
    """The rows of a run without idle time: a request is admitted as the step of its first token starts."""
    begin = report.requests_trace.arrival_at_seconds[0]
    clock = begin + np.concatenate(([0.0], np.cumsum(report.log.segments[:, 1])))
    starts = {round(end, 6): float(start) for start, end in pairwise(clock)}
    return tuple(
        Served(r.arrival_at_seconds, starts[round(r.first_token_at_seconds, 6)], r.first_token_at_seconds,
               r.finish_at_seconds, r.output_tokens, r.itl_max_seconds)
        for r in report.requests
    )  # fmt: skip


def _probe_goodput(answer, requests, slots, ttft_promise, tpot_promise):
    report = _report(requests, slots, ttft_promise, tpot_promise)
    return answer(served(report), ttft_promise, tpot_promise)


@cache
def goodput(requests, slots, ttft_promise, tpot_promise):
    return _report(requests, slots, ttft_promise, tpot_promise).goodput_requests_per_second


def span(rows):
    return max(row.finish for row in rows) - min(row.arrival for row in rows)


def tpot(row):
    return (row.finish - row.first_token) / (row.output_tokens - 1) if row.output_tokens > 1 else 0.0


def _wrong_goodput(good, scale=span):
    """A goodput with another idea of a good request, or of what to divide by."""

    def wrong(requests, slots, ttft_promise, tpot_promise):
        rows = served(_report(requests, slots, ttft_promise, tpot_promise))
        return sum(good(row, ttft_promise, tpot_promise) for row in rows) / scale(rows)

    return wrong


def _averages_kept(requests, slots, ttft_promise, tpot_promise):
    rows = served(_report(requests, slots, ttft_promise, tpot_promise))
    mean_ttft = np.mean([row.first_token - row.arrival for row in rows])
    mean_tpot = np.mean([tpot(row) for row in rows if row.output_tokens > 1])
    return len(rows) / span(rows) if mean_ttft <= ttft_promise and mean_tpot <= tpot_promise else 0.0


def is_good(row, ttft_promise, tpot_promise):
    return row.first_token - row.arrival <= ttft_promise and tpot(row) <= tpot_promise


def _draw_goodput(rng):
    count = int(rng.integers(10, 16))
    arrival = np.sort(rng.uniform(2.0, 12.0, size=count)).round(2)
    prompt, output = rng.integers(1, 30, size=count), rng.integers(1, 9, size=count)
    output[0] = 14  # the first one is still running when the last arrives, so the engine never idles
    requests = tuple(zip(arrival.tolist(), prompt.tolist(), output.tolist(), strict=True))
    return requests, int(rng.integers(3, 5)), float(rng.uniform(4, 9)), float(rng.uniform(1.5, 3.0))


EXERCISES = (
    Exercise(
        id="w4-2-static-slot-steps",
        title="Rows that static batching computes for given answer lengths, useful or not.",
        points=2,
        unit="rows",
        expected=static_slot_steps,
        cases=(((3, 1, 5), 2), ((2, 9, 4, 4, 1, 7, 3), 3), ((12, 1, 1, 6, 8, 2, 5, 5, 30, 4), 4)),
        draw=_draw_lengths,
        diagnoses=(
            Diagnosis(
                name="only-useful-rows",
                wrong=lambda lengths, batch: sum(lengths),
                hint="That is the number of tokens delivered: every row stops with its own request, as if "
                "the batch "
                "were as long as its mean. When may the batch end?",
            ),
            Diagnosis(
                name="only-wasted-rows",
                wrong=lambda lengths, batch: sum(len(b) * max(b) - sum(b) for b in batches_of(lengths, batch)),
                hint="Those are the rows thrown away. The useful ones are computed too.",
            ),
            Diagnosis(
                name="share-not-rows",
                wrong=lambda lengths, batch: sum(lengths) / sum(len(b) * max(b) for b in batches_of(lengths, batch)),
                hint="That is the share of useful rows. Count the rows.",
            ),
            Diagnosis(
                name="tail-batch-forgotten",
                wrong=lambda lengths, batch: sum(
                    len(b) * max(b) for b in batches_of(lengths, batch) if len(b) == batch
                ),
                hint="The full batches are right. What happens to the requests that are left when the number "
                "of "
                "requests is no multiple of the batch?",
            ),
            Diagnosis(
                name="tail-batch-full",
                wrong=lambda lengths, batch: sum(batch * max(b) for b in batches_of(lengths, batch)),
                hint="You computed the last batch with all its rows. This engine starts as many rows as "
                "there are "
                "requests; only rows that had a request are computed to the end.",
            ),
            Diagnosis(
                name="one-longest-for-all",
                wrong=lambda lengths, batch: len(lengths) * max(lengths),
                hint="The longest request of the whole list sets the pace of every batch in your count. Whom "
                "does a "
                "batch wait for?",
            ),
            Diagnosis(
                name="iterations-not-rows",
                wrong=lambda lengths, batch: sum(max(b) for b in batches_of(lengths, batch)),
                hint="You counted iterations. Each iteration computes several rows.",
            ),
            Diagnosis(
                name="sorted-first",
                wrong=lambda lengths, batch: sum(len(b) * max(b) for b in batches_of(sorted(lengths), batch)),
                hint="You sorted the lengths before batching. That would waste less, and nobody can do it: "
                "the length of "
                "an answer is known when it has ended. Batches form in the order of arrival.",
            ),
            Diagnosis(
                name="first-token-free",
                wrong=lambda lengths, batch: sum(len(b) * (max(b) - 1) for b in batches_of(lengths, batch)),
                hint="One iteration is missing in each batch: the one that reads the prompts also gives the "
                "first token, "
                "and it takes its rows like any other.",
            ),
            Diagnosis(
                name="slots-refilled",
                wrong=lambda lengths, batch: batch * greedy_steps(lengths, batch),
                hint="You let waiting requests into the rows of finished ones. That is the other scheduler; "
                "this one "
                "takes nobody until its batch has ended.",
            ),
        ),
        concept="A static batch is a rectangle: as many rows as requests, as many columns as its longest answer.",
        formula="rows = sum over batches of (requests in the batch) * (its longest answer)",
        worked="lengths 2, 6, 3, 2 and batch 2: 2 * 6 + 2 * 3 = 18 rows for 13 tokens.",
    ),
    Exercise(
        id="w4-2-continuous-steps",
        title="Iterations until the last answer, when a freed slot is taken in the next iteration.",
        points=2,
        unit="iterations",
        expected=continuous_steps,
        cases=(
            ((4, 1, 3, 6), 2), ((3, 4, 3, 4, 3), 2), ((2, 9, 4, 4, 1, 7, 3, 8), 3),
            ((12, 1, 1, 6, 8, 2, 5, 5, 20, 4, 9), 4),
        ),
        draw=_draw_lengths,
        diagnoses=(
            Diagnosis(
                name="perfect-packing",
                wrong=lambda lengths, slots: -(-sum(lengths) // slots),
                hint="You divided all tokens evenly among the slots. One answer cannot be computed by two "
                "slots at once: "
                "each of its tokens needs the one before.",
            ),
            Diagnosis(
                name="lower-bound",
                wrong=lambda lengths, slots: max(max(lengths), -(-sum(lengths) // slots)),
                hint="That is a bound that no schedule beats, and not what first come, first served reaches. "
                "Follow the "
                "smallest case slot by slot.",
            ),
            Diagnosis(
                name="batch-waits",
                wrong=lambda lengths, slots: sum(max(b) for b in batches_of(lengths, slots)),
                hint="Your slots wait for the longest request of a batch. Here nobody waits for anybody: a "
                "slot is free "
                "when its own request ends.",
            ),
            Diagnosis(
                name="longest-first",
                wrong=lambda lengths, slots: greedy_steps(sorted(lengths, reverse=True), slots),
                hint="You served the longest first. It packs better, but lengths are not known in advance, "
                "and the queue "
                "has an order.",
            ),
            Diagnosis(
                name="shortest-first",
                wrong=lambda lengths, slots: greedy_steps(sorted(lengths), slots),
                hint="You served the shortest first. Lengths are not known in advance; take requests in "
                "their order.",
            ),
            Diagnosis(
                name="fixed-lanes",
                wrong=lambda lengths, slots: max(sum(lengths[i::slots]) for i in range(slots)),
                hint="You dealt the requests out to the slots beforehand, like cards. Then a slot with short "
                "answers "
                "stands empty while another has a queue. Who should get the next request?",
            ),
            Diagnosis(
                name="counted-from-zero",
                predicate=lambda got, right, *_: right - got == 1,
                hint="You give the last iteration its number, counted from 0. How many iterations are there?",
            ),
            Diagnosis(
                name="slot-late",
                wrong=lambda lengths, slots: greedy_steps(lengths, slots, lost=1),
                hint="A freed slot stands empty for one iteration in your schedule. The decision is taken "
                "between two "
                "iterations, so the next one already computes the newcomer.",
            ),
        ),
        concept="Every slot is a lane with the instant at which it is free; the next request takes the earliest.",
        formula="for each length in order: free_at[earliest lane] += length; the answer is max(free_at)",
        worked="lengths 2, 6, 3, 2 on 2 slots, all waiting: lanes 2 and 6, then 5 and 6, then 7 and 6: 7 iterations.",
    ),
    Exercise(
        id="w4-2-admit",
        title="Admission, first come, first served, within slots and blocks; a case's requests are (arrives at [s], "
        "prompt, max_output).",
        points=4,
        expected=admission,
        probe=run_admission,
        cases=(
            (((0, 4, 5), (0, 4, 1), (1, 3, 2)), 2, 3, 4),
            (((0, 8, 5), (0, 10, 7), (0, 3, 2), (0, 2, 2)), 3, 5, 4),
            (((0, 3, 4), (0, 1, 3), (0, 2, 2), (0, 9, 5), (1, 3, 3), (2, 1, 6), (4, 7, 1), (5, 2, 8)), 3, 7, 3),
            (((0, 9, 9), (0, 5, 6), (1, 2, 3), (1, 11, 4), (1, 3, 3), (2, 6, 9), (2, 1, 1), (3, 4, 8)), 2, 8, 5),
        ),
        draw=_draw_admission,
        diagnoses=(
            Diagnosis(
                name="admits-nobody",
                predicate=lambda got, right, *inputs: got["went wrong"] != "nothing" and not got["order of admission"],
                hint="Not one request was started on these traces. In the smallest case the engine stands idle with "
                "two free slots: what keeps your function from taking the head of the queue?",
            ),
            Diagnosis(
                name="not-positions",
                predicate=lambda got, *_: isinstance(got, Raised) and isinstance(got.error, _NotPositionsError),
                hint="What came back does not say who starts. The first in the queue is at position 0, and each "
                "position is named once, in a list.",
            ),
            *(
                Diagnosis(name=name, wrong=_wrong_admission(admit), hint=_ADMISSION_HINTS[name])
                for name, admit in WRONG_ADMISSIONS.items()
            ),
        ),
        concept="Two resources must both last: a slot now, and blocks until the end. Walk from the head of the queue, "
        "take what fits off both, and stop at the first that does not fit.",
        formula="a request needs ceil((prompt + max_output - 1) / block_tokens) blocks",
        worked="two free slots, 3 free blocks of 4 tokens, waiting (4, 5), (4, 1), (1, 1): they need 2, 1 and 1 "
        "blocks; positions 0 and 1 start, and then both slots and all blocks are taken.",
    ),
    Exercise(
        id="w4-2-paging-waste",
        title="Share of the allocated KV slots that hold no token, for sequences of given lengths.",
        points=2,
        expected=kv_waste,
        cases=(((5, 8, 3), 4), ((100, 37, 16, 250, 64), 16), ((511, 512, 513), 128)),
        draw=_draw_waste,
        # a quotient of two whole numbers: a few float64 roundings, by whatever order of operations
        relative_tolerance=1e-9,
        diagnoses=(
            Diagnosis(
                name="half-a-block-each",
                wrong=lambda lengths, block: (block - 1) / 2 / (np.mean(lengths) + (block - 1) / 2),
                hint="That is what many sequences of every length waste on average. These are given lengths: "
                "how much of "
                "its last block does each of them leave empty?",
            ),
            Diagnosis(
                name="full-block-counted-empty",
                wrong=lambda lengths, block: _waste(sum((n // block + 1) * block for n in lengths), lengths),
                hint="A sequence that fills its last block exactly gets one more block in your count. The "
                "next block is "
                "taken with the next token, not before.",
            ),
            Diagnosis(
                name="over-tokens",
                wrong=lambda lengths, block: sum(-n % block for n in lengths) / sum(lengths),
                hint="The empty slots are right. You divided by the tokens kept; the question is which share "
                "of the "
                "memory taken is empty.",
            ),
            Diagnosis(
                name="one-long-sequence",
                wrong=lambda lengths, block: _waste(-(-sum(lengths) // block) * block, lengths),
                hint="You laid all sequences end to end. A block belongs to one sequence: each has a last "
                "block of its "
                "own.",
            ),
            Diagnosis(
                name="longest-reserved",
                wrong=lambda lengths, block: _waste(len(lengths) * -(-max(lengths) // block) * block, lengths),
                hint="Every sequence got as much as the longest one. That is what engines did before paging.",
            ),
            Diagnosis(
                name="slots-not-share",
                wrong=lambda lengths, block: sum(-n % block for n in lengths),
                hint="That is the number of empty slots. A share is asked: of what?",
            ),
            Diagnosis(
                name="percent", ratio=100,
                hint="Your number is in percent. A share lies between 0 and 1.",
            ),
            Diagnosis(
                name="full-share",
                wrong=lambda lengths, block: sum(lengths) / sum(-(-n // block) * block for n in lengths),
                hint="That is the share that holds tokens. The other one is asked.",
            ),
            Diagnosis(
                name="last-block-missing",
                wrong=lambda lengths, block: _waste(sum(n // block * block for n in lengths), lengths),
                hint="You rounded the blocks down. Where do the last tokens of a sequence lie?",
            ),
            Diagnosis(
                name="mean-of-shares",
                wrong=lambda lengths, block: np.mean([-n % block / (n + -n % block) for n in lengths]),
                hint="You averaged the share of each sequence, so a short one counts as much as a long one. "
                "The pool "
                "does not see sequences, it sees slots.",
            ),
        ),
        concept="Only the last block of a sequence can be partly empty.",
        formula="waste = sum(ceil(n / b) * b - n) / sum(ceil(n / b) * b)",
        worked="lengths 3 and 4 in blocks of 4: 8 slots taken, 1 empty: 1/8.",
    ),
    Exercise(
        id="w4-2-goodput",
        title="Requests per second that kept both promises; a case's requests are (arrives at [s], prompt, output), "
        "served before your function sees them.",
        points=3,
        unit="requests/s",
        expected=goodput,
        probe=_probe_goodput,
        cases=(
            (((2.0, 4, 6), (2.5, 20, 3), (3.0, 2, 5), (3.5, 3, 1), (4.0, 3, 4)), 2, 7.05, 2.05),
            (((1.0, 6, 12), (1.5, 3, 4), (3.0, 15, 5), (4.0, 2, 2), (5.5, 9, 3), (6.0, 25, 4), (7.0, 1, 1),
              (8.0, 4, 6)), 3, 5.05, 1.85),
            (((2.5, 22, 14), (5.5, 29, 4), (6.0, 28, 1), (6.5, 11, 5), (7.5, 13, 5), (7.5, 27, 1), (8.5, 13, 2),
              (10.5, 29, 2), (11.0, 1, 7)), 3, 7.55, 1.75),
            (((1.0, 1, 14), (2.0, 2, 1), (2.0, 12, 5), (4.5, 5, 8), (6.0, 28, 2), (9.0, 2, 4)), 4, 3.05, 1.55),
        ),
        draw=_draw_goodput,
        # instants are sums of some tens of step times, each rounded once
        relative_tolerance=1e-9,
        diagnoses=(
            Diagnosis(
                name="first-token-only",
                wrong=_wrong_goodput(lambda row, first, gap: row.first_token - row.arrival <= first),
                hint="You asked only when the first token came. A request also promises a pace for the others.",
            ),
            Diagnosis(
                name="pace-only",
                wrong=_wrong_goodput(lambda row, first, gap: tpot(row) <= gap),
                hint="You asked only for the pace of the tokens. A request that waits a minute for its first "
                "one is not "
                "good.",
            ),
            Diagnosis(
                name="either-promise",
                wrong=_wrong_goodput(
                    lambda row, first, gap: row.first_token - row.arrival <= first or tpot(row) <= gap
                ),
                hint="One promise kept was enough for you. A good request keeps every one.",
            ),
            Diagnosis(
                name="average-kept",
                wrong=_averages_kept,
                hint="You compared averages over all requests with the promises. A mean can be kept while "
                "half of the "
                "users are not served in time. Judge each request.",
            ),
            Diagnosis(
                name="longest-gap",
                wrong=_wrong_goodput(
                    lambda row, first, gap: row.first_token - row.arrival <= first and row.longest_gap <= gap
                ),
                hint="You held the longest gap against the promise. TPOT is a mean over the gaps of one "
                "request; a "
                "single stall may hide in it. (That it hides is a good reason to promise both.)",
            ),
            Diagnosis(
                name="waiting-left-out",
                wrong=_wrong_goodput(
                    lambda row, first, gap: row.first_token - row.admitted <= first and tpot(row) <= gap
                ),
                hint="Your clock starts when the engine takes the request. The user's clock started when the "
                "request was "
                "sent: the queue is part of the time to first token.",
            ),
            Diagnosis(
                name="tokens-for-gaps",
                wrong=_wrong_goodput(
                    lambda row, first, gap: row.first_token - row.arrival <= first
                    and (row.finish - row.first_token) / row.output_tokens <= gap
                ),
                hint="You divided by the number of tokens. How many gaps lie between n tokens?",
            ),
            Diagnosis(
                name="whole-stay-as-pace",
                wrong=_wrong_goodput(
                    lambda row, first, gap: row.first_token - row.arrival <= first
                    and (row.finish - row.arrival) / row.output_tokens <= gap
                ),
                hint="You spread the whole stay over the tokens, so the wait for the first one is counted in "
                "both "
                "promises. The pace starts with the first token.",
            ),
            Diagnosis(
                name="single-token-refused",
                wrong=_wrong_goodput(lambda *one: one[0].output_tokens > 1 and is_good(*one)),
                hint="An answer of one token has no gap, so no pace that it could break.",
            ),
            Diagnosis(
                name="single-token-divided",
                predicate=lambda got, *_: isinstance(got, Raised) and isinstance(got.error, ZeroDivisionError),
                hint="How many gaps has an answer of one token? Decide what its pace is before you divide.",
            ),
            Diagnosis(
                name="number-not-rate",
                wrong=_wrong_goodput(is_good, scale=lambda rows: 1),
                hint="That is the number of good requests. In how many seconds?",
            ),
            Diagnosis(
                name="last-to-arrive",
                wrong=_wrong_goodput(is_good, scale=lambda rows: rows[-1].finish - rows[0].arrival),
                hint="Your run ends with the request that came last. Is its last token the last of all?",
            ),
            Diagnosis(
                name="arrivals-only",
                wrong=_wrong_goodput(is_good, scale=lambda rows: rows[-1].arrival - rows[0].arrival),
                hint="Your run ends when the last request arrives. Who is still being served then?",
            ),
            Diagnosis(
                name="share-not-rate",
                wrong=_wrong_goodput(is_good, scale=len),
                hint="That is the share of good requests. Goodput is a rate: good requests for each second "
                "of the run.",
            ),
            Diagnosis(
                name="throughput",
                wrong=_wrong_goodput(lambda *one: True),
                hint="You counted every request served, good or not: that is throughput.",
            ),
            Diagnosis(
                name="clock-from-zero",
                wrong=_wrong_goodput(is_good, scale=lambda rows: max(row.finish for row in rows)),
                hint="The good requests are right. The run lasts from the first arrival, which need not be "
                "at zero, to "
                "the last token.",
            ),
        ),
        concept="A request is good or it is not: both promises, its own times, the user's clock.",
        formula="good: first_token - arrival <= TTFT and (finish - first_token) / (tokens - 1) <= TPOT; divide their "
        "number by (last finish - first arrival)",
        worked="arrival 0, tokens at 2, 3 and 5: TTFT 2, TPOT 1.5. Promises of 2 and 2 are kept: 1 good in 5 s, 0.2 a "
        "second.",
    ),
)
