"""Checks of lesson 4.5: the links between a matrix dimension and an invoice. Right answers are the library's links."""

import math
from functools import cache

import numpy as np

from course_lib.cost import num_billed_replicas
from course_lib.errors import TraceATensorError
from course_lib.journey import Journey
from course_lib.lesson import Diagnosis, Exercise, Raised
from course_lib.serving import capacity
from course_lib.units import GB, GiB

RELIEFS = {
    "arithmetic": "efficiency_compute", "bandwidth": "efficiency_bandwidth", "memory": "memory_fraction",
    "promise": "tpot_seconds",
}  # fmt: skip
MODELS = ("llama-3-8b", "llama-2-7b", "llama-2-13b", "mistral-7b")
DEVICES = ("h100-sxm", "h200", "l40s", "a100-80gb-sxm")
MARGIN = 0.003  # the best relief beats the second by 0.3 % of the dollars, so no rounding decides


def sequences_that_fit(num_parameters, num_layers, num_heads, num_kv_heads, head_size, tokens, memory_gb):
    free = capacity.free_bytes(memory_bytes=memory_gb * GB, weight_bytes=2 * num_parameters)
    return int(capacity.memory_batch(free, 2 * num_layers * num_kv_heads * head_size * 2 * tokens))


def _fit(p, layers, cached, head_size, tokens, memory, *, weights=2.0, share=0.9, reserve=3e9, pair=2, value=2):
    """Sequences that fit, with one mistake at a time; not rounded."""
    free = share * memory - weights * p - reserve
    return max(0.0, free) / (pair * layers * cached * head_size * value * tokens)


def largest_batch(arithmetic_ms, weights_ms, kv_ms, prefill_ms, fixed_ms, output_tokens, promise_ms, room):
    batches = np.arange(1.0, room + 1)
    weights = np.full_like(batches, weights_ms)
    step = capacity.step_seconds(batches * arithmetic_ms, weights, batches * kv_ms, fixed_seconds=fixed_ms)
    interval = capacity.interval_seconds(step, batches, output_tokens=output_tokens, prefill_seconds=prefill_ms)
    return int(np.count_nonzero(interval <= promise_ms))


def _largest(interval, promise, room):
    return sum(interval(batch) <= promise for batch in range(1, int(room) + 1))


def _interval(a, w, k, p, f, o):
    return lambda b: max(b * a, w) + b * k + f + b / o * p


@cache
def _journey(model, device, promise_ms, prompt_tokens):
    return Journey(model=model, device=device).with_changes(
        tpot_seconds=promise_ms / 1000, prompt_tokens=prompt_tokens
    )


@cache
def _relieved(setting):
    """Each relief's journey: 10 % more of one thing."""
    journey = _journey(*setting)
    now = {name: getattr(journey, name, journey.slo.tpot_seconds) for name in RELIEFS.values()}
    return {word: journey.with_changes(**{name: now[name] * 1.1}) for word, name in RELIEFS.items()}


def _cheapest(setting, link="continuous_usd_per_month", sign=1):
    return min(RELIEFS, key=lambda word: sign * _relieved(setting)[word][link])


def best_relief(model, device, promise_ms, prompt_tokens):
    return _cheapest((model, device, promise_ms, prompt_tokens))


def _what_stops_the_batch(*setting):
    bound = _journey(*setting).binding[0]
    return {"memory_batch": "memory", "tpot_promise_seconds": "promise"}.get(bound, "arithmetic")


def _most_time(*setting):
    shares = dict(_journey(*setting).time_shares)
    computes = _journey(*setting).binding[1] == "compute_seconds"
    matmuls = "arithmetic" if computes else "bandwidth"
    words = {"matmuls of decode": matmuls, "KV reads": "bandwidth", "prefill": "arithmetic"}
    return words[max(words, key=lambda part: shares[part])]


def invoice(replicas, spares, devices, usd_per_hour, hours):
    return num_billed_replicas(replicas, spares) * devices * usd_per_hour * hours


def last_free_rate(rate, replica_rate, headroom):
    return math.ceil(rate / (headroom * replica_rate) - 1e-9) * headroom * replica_rate


def _draw_fit(rng):
    kv_heads = int(rng.choice([1, 2, 4, 8]))
    heads = kv_heads * int(rng.choice([3, 4, 5, 7]))
    parameters = int(rng.integers(1_000_000_000, 9_000_000_000))
    memory = int(rng.choice([48, 64, 96, 141]))
    layers, head_size, tokens = int(rng.integers(20, 60)), int(rng.choice([64, 96, 128])), int(rng.integers(500, 4000))
    return parameters, layers, heads, kv_heads, head_size, tokens, memory


def _draw_batch(rng):
    step = tuple(round(float(x), 3) for x in rng.uniform((0.01, 2, 0.02, 8, 0.2), (0.05, 9, 0.15, 60, 0.9)))
    return (*step, int(rng.integers(80, 600)), int(rng.integers(15, 70)), int(rng.integers(150, 500)))


def _draw_relief(rng):
    while True:
        setting = (
            str(rng.choice(MODELS)), str(rng.choice(DEVICES)), int(rng.choice([10, 20, 40, 80, 150])),
            int(rng.choice([200, 700, 1500, 3500])),
        )  # fmt: skip
        try:
            dollars = sorted(each["continuous_usd_per_month"] for each in _relieved(setting).values())
        except TraceATensorError:
            continue
        if dollars[1] / dollars[0] - 1 > MARGIN:
            return setting


def _draw_invoice(rng):
    price = round(float(rng.uniform(1.1, 11)), 2)
    return round(float(rng.uniform(2, 40)), 2), int(rng.integers(1, 4)), int(rng.choice([2, 4, 8])), price, 730


def _draw_rate(rng):
    return int(rng.integers(20, 300)), round(float(rng.uniform(3, 25)), 3), round(float(rng.uniform(0.5, 0.9)), 2)


EXERCISES = (
    Exercise(
        id="w4-5-sequences",
        title="Sequences whose bf16 KV cache fits beside bf16 weights; 0.9 of the memory, less 3e9 bytes, may be used.",
        points=2,
        unit="sequences",
        expected=sequences_that_fit,
        cases=(
            (1_000_000_000, 10, 6, 2, 64, 1000, 24), (8_030_261_248, 32, 32, 8, 128, 1800, 80),
            (3_000_000_000, 26, 24, 4, 96, 900, 48), (6_738_415_616, 32, 32, 32, 128, 1800, 80),
            (13_015_864_320, 40, 40, 40, 128, 1800, 24),
        ),
        draw=_draw_fit,
        diagnoses=(
            Diagnosis(
                name="all-heads-cached",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, q, h, t, m * GB)),
                hint="You gave every query head its own keys and values. Several query heads share one key/value "
                "head; which of the two counts says how many vectors are kept?",
            ),
            Diagnosis(
                name="keys-without-values",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, pair=1)),
                hint="You kept one vector for each head and token. Attention needs two of them later: what does the "
                "softmax weigh?",
            ),
            Diagnosis(
                name="weights-forgotten",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, weights=0)),
                hint="The cache got the whole memory. What else lies in it, before the first request comes?",
            ),
            Diagnosis(
                name="reserve-forgotten",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, reserve=0)),
                hint="You left nothing for activations and workspace. The task sets a fixed number of bytes aside.",
            ),
            Diagnosis(
                name="whole-memory-used",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, share=1)),
                hint="You filled the memory to the last byte. The engine may use only a share of it.",
            ),
            Diagnosis(
                name="gib-memory",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GiB)),
                hint="You took a GB for 2**30 bytes. The data sheet's GB is 1e9; the 7 % between them hold requests "
                "that will not fit.",
            ),
            Diagnosis(
                name="one-byte-weights",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, weights=1)),
                hint="You subtracted the number of parameters. Each is stored in two bytes.",
            ),
            Diagnosis(
                name="one-byte-cache",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, n, k, h, t, m * GB, value=1)),
                hint="You counted the elements of the cache. Each is stored in two bytes.",
            ),
            Diagnosis(
                name="one-layer-cached",
                wrong=lambda p, n, q, k, h, t, m: math.floor(_fit(p, 1, k, h, t, m * GB)),
                hint="That is the cache of one layer. Every layer keeps its own keys and values.",
            ),
            Diagnosis(
                name="rounded-up",
                wrong=lambda p, n, q, k, h, t, m: math.ceil(_fit(p, n, k, h, t, m * GB)),
                hint="You rounded up: the last sequence has no room for its last tokens.",
            ),
            Diagnosis(
                name="part-of-a-sequence",
                predicate=lambda got, expected, *_: got % 1 != 0 and math.floor(max(0, got)) == expected,
                hint="A part of a sequence serves nobody. How many whole ones fit?",
            ),
            Diagnosis(
                name="negative-room",
                predicate=lambda got, expected, *_: isinstance(got, (int, float)) and got < 0 and expected == 0,
                hint="The weights alone do not fit here, and your count went below zero. How many sequences fit then?",
            ),
            Diagnosis(
                name="share-of-what-is-left",
                wrong=lambda p, n, q, k, h, t, m: math.floor(0.9 * _fit(p, n, k, h, t, m * GB, share=1)),
                hint="You took the share after something else had been subtracted. Of what is it a share?",
            ),
            Diagnosis(
                name="nothing-fits",
                predicate=lambda got, expected, *_: got <= 0,
                hint="By your count the weights fill the memory every time. In which unit does memory_gb come, and in "
                "which are the weights?",
            ),
        ),
        concept="Memory holds three things: the weights, once; a reserve; and a cache for each sequence, one key and "
        "one value vector for each layer, key/value head and token.",
        formula="floor((0.9 * memory - 2 P - 3e9) / (2 * L * K * H * 2 * tokens)), and 0 where that is below 0",
        worked="P 1e9, L 10, K 2, H 64, 1,000 tokens, 24 GB: free 21.6e9 - 2e9 - 3e9 = 16.6e9 bytes; a sequence takes "
        "2 * 10 * 2 * 64 * 2 * 1000 = 5,120,000 bytes; 3,242 fit.",
    ),
    Exercise(
        id="w4-5-largest-batch",
        title="The largest batch that fits in the room and keeps the promised time between tokens.",
        points=2,
        unit="sequences",
        expected=largest_batch,
        cases=(
            (0.3, 4.0, 0.5, 20.0, 0.5, 100, 12, 90), (0.0253, 5.6, 0.0807, 37.94, 0.5, 300, 50, 224),
            (0.028, 6.2, 0.3228, 42.01, 0.5, 300, 50, 54), (0.0253, 5.6, 0.0807, 37.94, 0.5, 300, 6, 224),
            (0.0225, 5.01, 0.0101, 33.79, 0.5, 300, 50, 1811),
        ),
        draw=_draw_batch,
        diagnoses=(
            Diagnosis(
                name="prefill-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(a, w, k, 0, f, o), s, r),
                hint="Your machine only decodes. For each sequence that ends, another prompt must be read; who waits "
                "while that happens?",
            ),
            Diagnosis(
                name="prefill-of-all-each-step",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(a, w, k, p, f, 1), s, r),
                hint="You prefill all the sequences in every step. A sequence is prefilled once in its life of "
                "output_tokens steps.",
            ),
            Diagnosis(
                name="one-prefill-each-step",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(lambda b: max(b * a, w) + b * k + f + p, s, r),
                hint="You prefill one sequence in every step, whatever the batch. How many end, and are replaced, in a "
                "step on average?",
            ),
            Diagnosis(
                name="arithmetic-and-weights-added",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(lambda b: b * a + w + b * k + f + b / o * p, s, r),
                hint="You added the arithmetic to the reading of the weights. In a matmul the two overlap: which of "
                "them does the step wait for?",
            ),
            Diagnosis(
                name="arithmetic-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(0, w, k, p, f, o), s, r),
                hint="Your step always waits for the weights. What grows with the batch until it takes longer?",
            ),
            Diagnosis(
                name="weights-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(a, 0, k, p, f, o), s, r),
                hint="Your step only waits for the arithmetic. At a small batch, what must be read all the same?",
            ),
            Diagnosis(
                name="one-cache-read",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(lambda b: max(b * a, w) + k + f + b / o * p, s, r),
                hint="You read the cache of one sequence. The weights are shared by the batch; are the caches?",
            ),
            Diagnosis(
                name="fixed-time-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(a, w, k, p, 0, o), s, r),
                hint="Every part that grows is there. One part of a step does not depend on the batch at all.",
            ),
            Diagnosis(
                name="promise-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: r,
                hint="You filled the room. Does the last token of each step still come in time?",
            ),
            Diagnosis(
                name="room-forgotten",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(_interval(a, w, k, p, f, o), s, 5000),
                hint="Your batch keeps the promise, but it does not fit in memory.",
            ),
            Diagnosis(
                name="weights-for-each",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(lambda b: b * (max(a, w) + k + p / o) + f, s, r),
                hint="You read the weights again for every sequence. How often does a step read them?",
            ),
            Diagnosis(
                name="all-overlaps",
                wrong=lambda a, w, k, p, f, o, s, r: _largest(lambda b: max(b * a, w, b * k) + f + b / o * p, s, r),
                hint="You let the reading of the caches overlap too. Which two parts overlap in this model of a step?",
            ),
            Diagnosis(
                name="first-that-breaks",
                predicate=lambda got, expected, *_: got - expected == 1,
                hint="You return the first batch that no longer holds, one past the one that is asked.",
            ),
            Diagnosis(
                name="room-left-empty",
                predicate=lambda got, expected, *inputs: got == expected - 1 == inputs[-1] - 1,
                hint="A batch may fill the room. At which batch does your search end?",
            ),
            Diagnosis(
                name="part-of-a-sequence",
                predicate=lambda got, expected, *_: got % 1 != 0 and math.floor(got) == expected,
                hint="A part of a sequence cannot be served. What is the largest whole batch?",
            ),
        ),
        concept="The time between tokens is one step and its share of prefills. It grows with the batch, so the "
        "largest batch that keeps the promise is where the curve crosses it, or where memory ends.",
        formula="largest whole B <= room with max(B a, w) + B k + f + (B / o) p <= promise; 0 if there is none",
        worked="a 1, w 4, k 1, p 10, f 1, o 10, promise 12, room 9 (ms): B 3 takes 4 + 3 + 1 + 3 = 11, B 4 takes "
        "4 + 4 + 1 + 4 = 13. The answer is 3.",
    ),
    Exercise(
        id="w4-5-relief",
        title="Of 10 % more arithmetic, bandwidth, memory or promised time: the one that cuts continuous dollars most.",
        points=3,
        expected=best_relief,
        cases=(
            ("llama-2-13b", "l40s", 80, 700), ("llama-3-8b", "h100-sxm", 50, 1500),
            ("llama-3-8b", "h100-sxm", 10, 1500),
            ("llama-2-7b", "h100-sxm", 50, 1500), ("mistral-7b", "a100-80gb-sxm", 10, 700),
            ("llama-3-8b", "h100-sxm", 20, 700),
        ),
        draw=_draw_relief,
        diagnoses=(
            Diagnosis(
                name="what-stops-the-batch",
                wrong=_what_stops_the_batch,
                hint="You named what keeps the batch from growing. That limit can be worth nothing: push it 10 % away "
                "and another may stand right behind it. Move each by 10 % and compare the dollars.",
            ),
            Diagnosis(
                name="largest-share-of-time",
                wrong=_most_time,
                hint="You named what takes most of the time. A change also moves the batch, and what the batch "
                "shares. Move each by 10 % and compare the dollars.",
            ),
            Diagnosis(
                name="read-off-the-invoice",
                wrong=lambda *setting: _cheapest(setting, "billed_usd_per_month"),
                hint="You compared invoices. They move in whole replicas, so several reliefs tie and the first one "
                "wins by its place. Which dollars have no steps?",
            ),
            Diagnosis(
                name="largest-batch-wins",
                wrong=lambda *setting: _cheapest(setting, "batch", -1),
                hint="You took the relief with the largest batch. A larger batch with a longer step can serve hardly "
                "more requests.",
            ),
            Diagnosis(
                name="dearest-relief",
                wrong=lambda *setting: _cheapest(setting, sign=-1),
                hint="You returned the relief that leaves the most dollars to pay. Which end of the list is asked?",
            ),
            Diagnosis(
                name="not-a-name",
                predicate=lambda got, expected, *_: not isinstance(got, Raised) and got not in tuple(RELIEFS),
                hint="The answer is one of the four names: arithmetic, bandwidth, memory, promise.",
            ),
        ),
        concept="What binds is a fact about one setting; what is worth money is a difference between two. Change one "
        "thing, price both.",
        formula="the name for which journey.with_changes(field = 1.1 * now)['continuous_usd_per_month'] is smallest",
        worked="Reliefs that leave $90, $95, $99 and $100: the first. That the fourth stops the batch does not matter.",
    ),
    Exercise(
        id="w4-5-invoice",
        title="Dollars on the invoice: whole replicas, spare ones, each of several devices, for the hours of a month.",
        points=1,
        unit="USD",
        expected=invoice,
        cases=((2.4, 1, 2, 3.0, 100), (6.07, 1, 2, 2.95, 730), (7.0, 2, 4, 1.5, 730), (15.63, 3, 8, 5.5, 730)),
        draw=_draw_invoice,
        relative_tolerance=1e-9,  # one product in another order
        diagnoses=(
            Diagnosis(
                name="continuous-dollars",
                wrong=lambda n, s, d, u, h: n * d * u * h,
                hint="Those are the continuous dollars: nobody rents out a part of a replica.",
            ),
            Diagnosis(
                name="fraction-rented",
                wrong=lambda n, s, d, u, h: (n + s) * d * u * h,
                hint="The spare ones are there, but you rent a part of a replica.",
            ),
            Diagnosis(
                name="spares-forgotten",
                wrong=lambda n, s, d, u, h: math.ceil(n) * d * u * h,
                hint="When one replica fails, who serves its share?",
            ),
            Diagnosis(
                name="rounded-to-nearest",
                wrong=lambda n, s, d, u, h: (round(n) + s) * d * u * h,
                hint="You rounded to the nearest whole number, so a small remainder of the load has no machine.",
            ),
            Diagnosis(
                name="rounded-down",
                wrong=lambda n, s, d, u, h: (math.floor(n) + s) * d * u * h,
                hint="You rounded down: the rest of the load has no machine.",
            ),
            Diagnosis(
                name="one-above-floor",
                wrong=lambda n, s, d, u, h: (math.floor(n) + 1 + s) * d * u * h,
                hint="You always rent one more than the whole part. What if the load needs a whole number exactly?",
            ),
            Diagnosis(
                name="devices-forgotten",
                wrong=lambda n, s, d, u, h: (math.ceil(n) + s) * u * h,
                hint="A replica is one copy of the model. How many devices hold it?",
            ),
            Diagnosis(
                name="devices-rounded",
                wrong=lambda n, s, d, u, h: (math.ceil(n * d) + s * d) * u * h,
                hint="You rounded devices up, not replicas. Half the devices of a replica hold half a model.",
            ),
            Diagnosis(
                name="spare-devices",
                wrong=lambda n, s, d, u, h: (math.ceil(n) * d + s) * u * h,
                hint="Your spare is one device. What must be ready when a whole replica fails?",
            ),
        ),
        concept="The load asks for a real number of replicas; the provider rents whole ones; prudence adds spares.",
        formula="(ceil(n) + spares) * devices * price * hours",
        worked="n 2.4, 1 spare, 2 devices, $3 an hour, 100 hours: (3 + 1) * 2 * 3 * 100 = $2,400.",
    ),
    Exercise(
        id="w4-5-free-rate",
        title="The largest rate of arrivals that the replicas of today's rate still serve.",
        points=2,
        unit="requests/s",
        expected=last_free_rate,
        cases=((10, 4.0, 0.8), (50, 6.3, 0.75), (60, 14.1193, 0.7), (60, 5.6792, 0.7), (21, 14.0, 0.5)),
        draw=_draw_rate,
        relative_tolerance=1e-9,  # one product in another order
        diagnoses=(
            Diagnosis(
                name="headroom-forgotten",
                wrong=lambda rate, one, share: math.ceil(rate / one - 1e-9) * one,
                hint="You run each replica at its full capacity. Its queue would grow without end; only a share of the "
                "capacity is used.",
            ),
            Diagnosis(
                name="headroom-kept-out-of-the-last-step",
                wrong=lambda rate, one, share: math.ceil(rate / (share * one) - 1e-9) * one,
                hint="You counted the replicas with headroom and then filled them without it.",
            ),
            Diagnosis(
                name="fleet-instead-of-rate",
                wrong=lambda rate, one, share: math.ceil(rate / (share * one) - 1e-9),
                hint="That is how many replicas are rented. What rate do they serve?",
            ),
            Diagnosis(
                name="spare-serves-too",
                wrong=lambda rate, one, share: (math.ceil(rate / (share * one) - 1e-9) + 1) * share * one,
                hint="You let the spare replica serve. On the day one fails, the rest would be too few.",
            ),
            Diagnosis(
                name="room-that-is-left",
                wrong=lambda rate, one, share: math.ceil(rate / (share * one) - 1e-9) * share * one - rate,
                hint="That is by how much traffic may grow. The rate itself is asked.",
            ),
            Diagnosis(
                name="fleet-rounded-down",
                wrong=lambda rate, one, share: math.floor(rate / (share * one) + 1e-9) * share * one,
                hint="You rounded the fleet down: that rate is below today's.",
            ),
            Diagnosis(
                name="rounded-to-nearest",
                wrong=lambda rate, one, share: round(rate / (share * one)) * share * one,
                hint="You rounded the fleet to the nearest whole number. Does it serve today's rate?",
            ),
            Diagnosis(
                name="one-above-floor",
                wrong=lambda rate, one, share: (math.floor(rate / (share * one) + 1e-9) + 1) * share * one,
                hint="You always count one more than the whole part. What if today's rate fills the fleet exactly?",
            ),
        ),
        concept="Between two steps of the invoice traffic is free. The step stands where the whole replicas are full.",
        formula="ceil(rate / (headroom * r)) * headroom * r",
        worked="10 requests/s, 4 a replica, headroom 0.8: each is given 3.2, so 4 replicas, full at 12.8.",
    ),
)
