"""Proof of lesson 4.5's exercises."""

import math

import numpy as np

from course_lib.journey import Journey
from grading.proofs import Mutant, Proof

OTHER_SHAPES = (
    {
        "model": "mistral-7b", "device": "h200", "requests_per_second": 45.0, "prompt_tokens": 1000,
        "output_tokens": 200, "promise_ms": 40, "kv_heads": 16, "extra_columns": 1024, "promises_ms": (40, 20, 10),
        "short_promise_ms": 12,
    },
    {
        "model": "llama-2-7b", "device": "l40s", "requests_per_second": 20.0, "prompt_tokens": 700,
        "output_tokens": 250, "promise_ms": 120, "kv_heads": 8, "extra_columns": 512, "promises_ms": (120, 60, 40),
        "short_promise_ms": 50,
    },
)  # fmt: skip


def fit_by_filling(num_parameters, num_layers, num_heads, num_kv_heads, head_size, tokens, memory_gb):
    free = 900_000_000 * memory_gb - 2 * num_parameters - 3_000_000_000
    one = 4 * num_layers * num_kv_heads * head_size * tokens
    count = 0
    while free >= one:
        take = max(1, free // one // 2)
        free -= take * one
        count += take
    return count


def fit_as_float(num_parameters, num_layers, num_heads, num_kv_heads, head_size, tokens, memory_gb):
    cache = np.prod(np.array([2.0, num_layers, num_kv_heads, head_size, tokens])) * 2.0
    return max(np.floor((0.9 * memory_gb * 1e9 - num_parameters * 2 - 3e9) / cache), 0.0)


def batch_by_walking(arithmetic_ms, weights_ms, kv_ms, prefill_ms, fixed_ms, output_tokens, promise_ms, room):
    batch = 0
    while batch < room:
        more = batch + 1
        step = max(more * arithmetic_ms, weights_ms) + more * kv_ms + fixed_ms
        if step + more * prefill_ms / output_tokens > promise_ms:
            break
        batch = more
    return batch


def batch_past_the_last(arithmetic_ms, weights_ms, kv_ms, prefill_ms, fixed_ms, output_tokens, promise_ms, room):
    batch = 1
    while batch <= room and max(batch * arithmetic_ms, weights_ms) + fixed_ms + batch * (
        kv_ms + prefill_ms / output_tokens
    ) <= promise_ms:
        batch += 1
    return batch


def batch_by_solving(arithmetic_ms, weights_ms, kv_ms, prefill_ms, fixed_ms, output_tokens, promise_ms, room):
    each = kv_ms + prefill_ms / output_tokens
    by_weights = (promise_ms - fixed_ms - weights_ms) / each
    by_arithmetic = (promise_ms - fixed_ms) / (each + arithmetic_ms)
    return max(0, min(int(by_weights), int(by_arithmetic), room))


FIELDS = ("efficiency_compute", "efficiency_bandwidth", "memory_fraction", "tpot_seconds")
WORDS = ("arithmetic", "bandwidth", "memory", "promise")


def setting(model, device, promise_ms, prompt_tokens):
    return Journey(model=model, device=device).with_changes(
        tpot_seconds=promise_ms / 1000, prompt_tokens=prompt_tokens
    )


def priced(link, *inputs):
    journey = setting(*inputs)
    now = (journey.efficiency_compute, journey.efficiency_bandwidth, journey.memory_fraction, journey.slo.tpot_seconds)
    return [journey.with_changes(**{name: value * 1.1})[link] for name, value in zip(FIELDS, now)]


def relief_by_bill(model, device, promise_ms, prompt_tokens):
    base = setting(model, device, promise_ms, prompt_tokens)
    best, saved = "", 0.0
    for word, name in zip(WORDS, FIELDS):
        now = promise_ms / 1000 if name == "tpot_seconds" else getattr(base, name)
        relieved = base.with_changes(**{name: now * 1.1})
        saving = base.bill.continuous_usd_per_month - relieved.bill.continuous_usd_per_month
        if saving > saved:
            best, saved = word, saving
    return best


def relief_by_argmin(*inputs):
    return np.array(WORDS)[np.argmin(priced("num_replicas", *inputs))].item()


def stops(*inputs):
    return {"memory_batch": "memory", "tpot_promise_seconds": "promise"}.get(setting(*inputs).binding[0], "arithmetic")


def slowest(*inputs):
    journey = setting(*inputs)
    computes = journey["compute_seconds"] >= journey["weight_read_seconds"]
    matmuls = "arithmetic" if computes else "bandwidth"
    words = {"prefill": "arithmetic", "KV reads": "bandwidth", "matmuls of decode": matmuls}
    part = max(words, key=dict(journey.time_shares).get)
    return words[part]


def invoice_by_loop(replicas, spares, devices, usd_per_hour, hours):
    whole = 0
    while whole < replicas:
        whole += 1
    return sum(devices * hours * usd_per_hour for _ in range(whole + spares))


def invoice_by_negative_floor(replicas, spares, devices, usd_per_hour, hours):
    return np.float64(spares - np.floor(-replicas)) * devices * usd_per_hour * hours


def rate_by_adding(rate, replica_rate, headroom):
    served = 0.0
    while served < rate * (1 - 1e-12):
        served += headroom * replica_rate
    return served


def rate_by_division(rate, replica_rate, headroom):
    one = headroom * replica_rate
    whole = round(rate / one)
    return one * (whole if math.isclose(whole * one, rate) else math.ceil(rate / one))


def fit(n, q, k, h, t, free, cached=2, pair=2):
    return int(max(0, free) // (pair * n * k * h * cached * t))


PROOFS = (
    Proof(
        id="w4-5-sequences",
        styles={"filling": fit_by_filling, "float": fit_as_float},
        mutants=(
            Mutant(
                name="all-heads-cached",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, q, h, t, 0.9e9 * m - 2 * p - 3e9),
            ),
            Mutant(
                name="keys-without-values",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9e9 * m - 2 * p - 3e9, pair=1),
            ),
            Mutant(
                name="weights-forgotten",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9e9 * m - 3e9),
            ),
            Mutant(
                name="reserve-forgotten",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9e9 * m - 2 * p),
            ),
            Mutant(
                name="whole-memory-used",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 1e9 * m - 2 * p - 3e9),
            ),
            Mutant(
                name="gib-memory",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9 * m * 2**30 - 2 * p - 3e9),
            ),
            Mutant(
                name="one-byte-weights",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9e9 * m - p - 3e9),
            ),
            Mutant(
                name="one-layer-cached",
                answer=lambda p, n, q, k, h, t, m: fit(1, q, k, h, t, 0.9e9 * m - 2 * p - 3e9),
            ),
            Mutant(
                name="rounded-up",
                answer=lambda p, n, q, k, h, t, m: math.ceil(max(0, 0.9e9 * m - 2 * p - 3e9) / (4 * n * k * h * t)),
            ),
            Mutant(
                name="part-of-a-sequence",
                answer=lambda p, n, q, k, h, t, m: max(0, 0.9e9 * m - 2 * p - 3e9) / (4 * n * k * h * t),
            ),
            Mutant(
                name="part-of-a-sequence",
                answer=lambda p, n, q, k, h, t, m: (0.9e9 * m - 2 * p - 3e9) / (4 * n * k * h * t),
            ),
            Mutant(
                name="share-of-what-is-left",
                answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9 * (1e9 * m - 2 * p - 3e9)),
            ),
            Mutant(
                name="nothing-fits",
                answer=lambda p, n, q, k, h, t, m: (0.9 * m - 2 * p - 3e9) // (4 * n * k * h * t),
            ),
            Mutant(name="nothing-fits", answer=lambda p, n, q, k, h, t, m: fit(n, q, k, h, t, 0.9 * m - 2 * p - 3e9)),
            Mutant(
                name="negative-room",
                answer=lambda p, n, q, k, h, t, m: math.floor((0.9e9 * m - 2 * p - 3e9) / (4 * n * k * h * t)),
            ),
        ),
        extra_cases=((1_000_000, 1, 1, 1, 1, 1, 4), (70_553_706_496, 80, 64, 8, 128, 8000, 80)),
    ),
    Proof(
        id="w4-5-largest-batch",
        styles={"walking": batch_by_walking, "solving": batch_by_solving},
        mutants=(
            Mutant(
                name="prefill-forgotten",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, k, 0, f, o, s, r),
            ),
            Mutant(
                name="prefill-of-all-each-step",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, k + p, 0, f, o, s, r),
            ),
            Mutant(
                name="one-prefill-each-step",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, k, 0, f + p, o, s, r),
            ),
            Mutant(
                name="arithmetic-and-weights-added",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(0, w, k + a, p, f, o, s, r),
            ),
            Mutant(
                name="arithmetic-forgotten",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(0, w, k, p, f, o, s, r),
            ),
            Mutant(
                name="weights-forgotten",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, 0, k, p, f, o, s, r),
            ),
            Mutant(
                name="one-cache-read",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, 0, p, f + k, o, s, r),
            ),
            Mutant(
                name="fixed-time-forgotten",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, k, p, 0, o, s, r),
            ),
            Mutant(name="promise-forgotten", answer=lambda a, w, k, p, f, o, s, r: int(r)),
            Mutant(
                name="room-forgotten",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_solving(a, w, k, p, f, o, s, 10**6),
            ),
            Mutant(
                name="first-that-breaks",
                answer=lambda a, w, k, p, f, o, s, r: min(r, 1 + batch_by_walking(a, w, k, p, f, o, s, r)),
            ),
            Mutant(name="first-that-breaks", answer=batch_past_the_last),
            Mutant(
                name="weights-for-each",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(0, 0, max(a, w) + k, p, f, o, s, r),
            ),
            Mutant(
                name="all-overlaps",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(max(a, k), w, 0, p, f, o, s, r),
            ),
            Mutant(
                name="room-left-empty",
                answer=lambda a, w, k, p, f, o, s, r: batch_by_walking(a, w, k, p, f, o, s, r - 1),
            ),
            Mutant(
                name="part-of-a-sequence",
                answer=lambda a, w, k, p, f, o, s, r: max(
                    0, min((s - f - w) / (k + p / o), (s - f) / (a + k + p / o), r)
                ),
            ),
        ),
        extra_cases=((0.1, 5.0, 0.1, 30.0, 0.5, 300, 3, 50), (0.01, 2.0, 0.01, 1.0, 0.1, 100, 500, 7)),
    ),
    Proof(
        id="w4-5-relief",
        styles={"savings": relief_by_bill, "argmin of replicas": relief_by_argmin},
        mutants=(
            Mutant(name="what-stops-the-batch", answer=stops),
            Mutant(name="largest-share-of-time", answer=slowest),
            Mutant(
                name="read-off-the-invoice",
                answer=lambda *inputs: WORDS[int(np.argmin(priced("billed_usd_per_month", *inputs)))],
            ),
            Mutant(
                name="largest-batch-wins",
                answer=lambda *inputs: WORDS[int(np.argmax(priced("batch", *inputs)))],
            ),
            Mutant(
                name="dearest-relief",
                answer=lambda *inputs: WORDS[int(np.argmax(priced("num_replicas", *inputs)))],
            ),
            Mutant(name="not-a-name", answer=lambda *inputs: "price"),
        ),
        extra_cases=(("mistral-7b", "h100-sxm", 20, 200), ("llama-2-13b", "l40s", 150, 3500)),
    ),
    Proof(
        id="w4-5-invoice",
        styles={"loop": invoice_by_loop, "negative floor": invoice_by_negative_floor},
        mutants=(
            Mutant(name="continuous-dollars", answer=lambda n, s, d, u, h: u * h * d * n),
            Mutant(name="fraction-rented", answer=lambda n, s, d, u, h: u * h * d * (s + n)),
            Mutant(name="spares-forgotten", answer=lambda n, s, d, u, h: -(-n // 1) * d * u * h),
            Mutant(name="rounded-to-nearest", answer=lambda n, s, d, u, h: (int(n + 0.5) + s) * d * u * h),
            Mutant(name="rounded-down", answer=lambda n, s, d, u, h: (int(n) + s) * d * u * h),
            Mutant(name="one-above-floor", answer=lambda n, s, d, u, h: (int(n) + 1 + s) * d * u * h),
            Mutant(name="devices-forgotten", answer=lambda n, s, d, u, h: (-(-n // 1) + s) * u * h),
            Mutant(name="devices-rounded", answer=lambda n, s, d, u, h: (math.ceil(n * d) + d * s) * u * h),
            Mutant(name="spare-devices", answer=lambda n, s, d, u, h: (d * math.ceil(n) + s) * u * h),
        ),
        extra_cases=((1.0, 0, 1, 1.0, 1), (40.01, 0, 16, 10.8, 8760)),
    ),
    Proof(
        id="w4-5-free-rate",
        styles={"adding": rate_by_adding, "division": rate_by_division},
        mutants=(
            Mutant(name="headroom-forgotten", answer=lambda rate, one, share: -(-rate // one) * one),
            Mutant(
                name="headroom-kept-out-of-the-last-step",
                answer=lambda rate, one, share: math.ceil(rate / share / one - 1e-9) * one,
            ),
            Mutant(name="fleet-instead-of-rate", answer=lambda rate, one, share: -(-rate // (share * one))),
            Mutant(
                name="spare-serves-too",
                answer=lambda rate, one, share: rate_by_division(rate, one, share) + share * one,
            ),
            Mutant(
                name="room-that-is-left",
                answer=lambda rate, one, share: rate_by_division(rate, one, share) - rate,
            ),
            Mutant(
                name="fleet-rounded-down",
                answer=lambda rate, one, share: math.floor(rate / share / one + 1e-9) * share * one,
            ),
            Mutant(
                name="rounded-to-nearest",
                answer=lambda rate, one, share: round(rate / share / one) * share * one,
            ),
            Mutant(
                name="one-above-floor",
                answer=lambda rate, one, share: (int(rate / share / one + 1e-9) + 1) * share * one,
            ),
        ),
        extra_cases=((1, 100.0, 0.5), (6, 12.0, 0.25)),
    ),
)
