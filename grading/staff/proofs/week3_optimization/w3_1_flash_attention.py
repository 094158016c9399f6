"""Proof of lesson 3.1's exercises."""

import math
from fractions import Fraction

import numpy as np

from course_lib.optimization import Scratchpad, blocks
from grading.proofs import Mutant, Proof

OTHER_SHAPES = (
    {
        "num_tokens": 1000, "head_size": 64, "element_bytes": 4, "tiles": (16, 40, 100), "block_k": 48,
        "sram_bytes": 90_000, "prompt_tokens": 3000, "output_tokens": 300, "requests_per_second": 25,
    },
    {
        "num_tokens": 2048, "head_size": 80, "element_bytes": 2, "tiles": (24, 64, 200), "block_k": 32,
        "sram_bytes": 60_000, "prompt_tokens": 4500, "output_tokens": 100, "requests_per_second": 60,
    },
)  # fmt: skip

INF = math.inf


# --- the step of online softmax


def step_in_place(m, total, output, scores, values):
    """Two sets of keys, weighed against their common maximum."""
    peak = np.max(np.append(scores, m))
    if peak == -np.inf:
        return m, total, output
    old, new = math.exp(m - peak), np.exp(scores - peak)
    return peak, old * total + new.sum(), old * output + (new[:, None] * values).sum(axis=0)


def step_one_key_at_a_time(m, total, output, scores, values):
    for score, value in zip(scores, values):
        if score == -np.inf:
            continue
        if score > m:
            shrink = np.exp(m - score)
            total, output, m = total * shrink, output * shrink, score
        total, output = total + np.exp(score - m), output + np.exp(score - m) * value
    return m, total, output


def step_with_log_sum(m, total, output, scores, values):
    """Keeps the state elsewhere: m is log-sum-exp and l stays 1, an equally good representation."""
    before = m + np.log(total) if total else -np.inf
    after = np.logaddexp.reduce(np.append(scores, before))
    if after == -np.inf:
        return m, total, output
    return after, 1.0, np.exp(before - after) * (output / total if total else output) + np.exp(scores - after) @ values


def sum_not_rescaled(m, ell, o, s, v):
    n = max(m, s.max())
    z = 0 if n == -INF else n
    p = np.exp(s - z)
    return n, ell + sum(p), o * np.exp(m - z) + p @ v


def output_not_rescaled(m, ell, o, s, v):
    n = max(m, s.max())
    z = 0 if n == -INF else n
    p = np.exp(s - z)
    return n, ell * np.exp(m - z) + sum(p), o + p @ v


def nothing_rescaled(m, ell, o, s, v):
    n = max(m, s.max())
    p = np.exp(s - (0 if n == -INF else n))
    return n, ell + sum(p), o + p @ v


def without_maximum(m, ell, o, s, v):
    return max(m, s.max()), ell + np.exp(s).sum(), o + np.exp(s) @ v


def softmax_each_tile(m, ell, o, s, v):
    n = max(m, s.max())
    z = 0 if n == -INF else n
    p = np.exp(s - z)
    return n, ell * np.exp(m - z) + p.sum(), o * np.exp(m - z) + p @ v / p.sum()


def divided_already(m, ell, o, s, v):
    n = max(m, s.max())
    z = 0 if n == -INF else n
    p, c = np.exp(s - z), np.exp(m - z)
    both = c * ell + p.sum()
    return n, both, (c * ell * o + p @ v) / both if both > 0 else o


def upside_down(m, ell, o, s, v):
    n = max(m, s.max())
    z = 0 if n == -INF else n
    p, c = np.exp(s - z), np.exp(z - m)
    return n, ell * c + p.sum(), o * c + p @ v


def tile_maximum(m, ell, o, s, v):
    n = s.max()
    z = 0 if n == -INF else n
    p, c = np.exp(s - z), np.exp(m - z)
    return n, ell * c + p.sum(), o * c + p @ v


def unguarded(m, ell, o, s, v):
    n = max(m, s.max())
    p, c = np.exp(s - n), np.exp(m - n)
    return n, ell * c + p.sum(), o * c + p @ v


def in_float32(m, ell, o, s, v):
    n = max(m, s.max())
    z = np.float32(0 if n == -INF else n)
    p, c = np.exp(s.astype("f4") - z), np.exp(np.float32(m) - z)
    return n, np.float32(ell) * c + p.sum(), np.asarray(o, "f4") * c + p @ v.astype("f4")


def forgetful(m, ell, o, s, v):
    n = s.max()
    p = np.exp(s - (0 if n == -INF else n))
    return n, p.sum(), p @ v


# --- bytes


def bytes_by_walking(num_tokens, head_size, block_q, element_bytes):
    moved = 0
    for start in range(0, num_tokens, block_q):
        rows = min(block_q, num_tokens - start)
        moved += rows * head_size + 2 * num_tokens * head_size + rows * head_size
    return moved * element_bytes


def bytes_in_numpy(num_tokens, head_size, block_q, element_bytes):
    return np.float64(2) * element_bytes * num_tokens * head_size * (1 + np.ceil(num_tokens / block_q))


# --- tie


def tie_exactly(num_queries, num_keys, head_size, element_bytes):
    return Fraction(num_queries * head_size, 2 * num_queries + head_size)


def tie_by_bisection(num_queries, num_keys, head_size, element_bytes):
    t, s, d = num_queries, num_keys, head_size
    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        flash = 2 * t * d + 2 * (t / middle) * s * d
        low, high = (middle, high) if flash > 4 * t * s + 2 * t * d + 2 * s * d else (low, middle)
    return (low + high) / 2


# --- room


def rows_by_search(sram_bytes, head_size, block_k, element_bytes):
    rows = 0
    while True:
        rows += 1
        queries, keys, values = (size * head_size * element_bytes for size in (rows, block_k, block_k))
        wide = 4 * (rows * head_size + rows + rows + rows * block_k)
        if queries + keys + values + wide > sram_bytes:
            return rows - 1


def rows_in_float(sram_bytes, head_size, block_k, element_bytes):
    free = sram_bytes - 2 * element_bytes * block_k * head_size
    return math.floor(free / (head_size * (element_bytes + 4) + 8 + 4 * block_k))


# --- kernels


def kernel_by_rows(q, k, v, output, block_q, block_k, ledger):
    """Every buffer is reserved on the chip; the scale is put into the queries."""
    for rows in blocks(len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries = pad.load(q[rows])
            queries *= np.float32(q.shape[1] ** -0.5)
            total = pad.buffer((len(queries), q.shape[1]), np.dtype(np.float32))
            m = pad.buffer((len(queries),), np.dtype(np.float32), -np.inf)
            norm = pad.buffer((len(queries),), np.dtype(np.float32))
            for columns in blocks(len(k), block_k):
                with Scratchpad(ledger) as inner:
                    keys, values = inner.load(k[columns]), inner.load(v[columns])
                    scores = inner.buffer((len(queries), len(keys)), np.dtype(np.float32))
                    scores[...] = queries @ keys.T
                    new = np.maximum(m, scores.max(-1))
                    scores[...] = np.exp(scores - new[:, None])
                    shrink = np.exp(m - new)
                    norm[...] = norm * shrink + scores.sum(-1)
                    total[...] = total * shrink[:, None] + scores @ values
                    m[...] = new
            pad.store(output[rows], total / norm[:, None])


def kernel_by_merging(q, k, v, output, block_q, block_k, ledger):
    """Each tile gives its own softmax and log-sum; the two are merged."""
    for start in range(0, len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries = pad.load(q[start : start + block_q]).astype(np.float64)
            lse, answer = np.full(len(queries), -np.inf), 0.0
            for first in range(0, len(k), block_k):
                with Scratchpad(ledger) as inner:
                    scores = queries @ inner.load(k[first : first + block_k]).T / np.sqrt(q.shape[1])
                    own = np.logaddexp.reduce(scores, axis=1)
                    part = np.exp(scores - own[:, None]) @ inner.load(v[first : first + block_k])
                    both = np.logaddexp(lse, own)
                    answer = answer * np.exp(lse - both)[:, None] + part * np.exp(own - both)[:, None]
                    lse = both
            pad.store(output[start : start + block_q], answer)


def softmax(scores):
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def kernel_whole_matrix(q, k, v, output, block_q, block_k, ledger):
    output[:] = softmax(q @ k.T / math.sqrt(q.shape[1])) @ v


def kernel_whole_matrix_stored(q, k, v, output, block_q, block_k, ledger):
    scores = np.empty((len(q), len(k)), np.float32)
    for rows in blocks(len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries = pad.load(q[rows])
            for columns in blocks(len(k), block_k):
                with Scratchpad(ledger) as inner:
                    scores[rows, columns] = queries @ inner.load(k[columns]).T / math.sqrt(q.shape[1])
    output[:] = softmax(scores) @ v


def kernel_loads_all_keys(q, k, v, output, block_q, block_k, ledger):
    for rows in blocks(len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries, keys, values = pad.load(q[rows]), pad.load(k), pad.load(v)
            pad.store(output[rows], softmax(queries @ keys.T / math.sqrt(q.shape[1])) @ values)


def sweep(q, k, v, output, block_q, block_k, ledger, *, scale=None, shrinks=True, peak=True, fresh=True, load=True):
    """The kernel with one wrong idea; ``fresh``: keys and values are freed after use."""
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    for rows in blocks(len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries = pad.load(q[rows]) if load else q[rows]
            m, norm, total = -np.inf, 0.0, 0.0
            for columns in blocks(len(k), block_k):
                with Scratchpad(ledger) as inner:
                    chip = inner if fresh else pad
                    keys, values = (chip.load(x[columns]) if load else x[columns] for x in (k, v))
                    scores = queries @ keys.T * scale
                    new = np.maximum(m, scores.max(-1, keepdims=True)) if peak else np.zeros((len(queries), 1), "f4")
                    p, c = np.exp(scores - new), np.exp(m - new) if peak and shrinks else 1.0
                    norm, total, m = c * norm + p.sum(-1, keepdims=True), c * total + p @ values, new
            pad.store(output[rows], total / norm)


def kernel_drops_the_rest(q, k, v, output, block_q, block_k, ledger):
    whole = len(q) // block_q * block_q
    sweep(q[:whole], k, v, output[:whole], block_q, block_k, ledger)


def kernel_reloads_queries(q, k, v, output, block_q, block_k, ledger):
    sweep(q, k, v, output, block_q, block_k, ledger)
    for rows in blocks(len(q), block_q):
        for _ in blocks(len(k), block_k):
            with Scratchpad(ledger) as pad:
                pad.load(q[rows])


def kernel_returns_its_own(q, k, v, output, block_q, block_k, ledger):
    answer = np.zeros_like(q)
    sweep(q, k, v, answer, block_q, block_k, ledger)
    return answer


def variant(**wrong):
    return lambda q, k, v, output, block_q, block_k, ledger: sweep(q, k, v, output, block_q, block_k, ledger, **wrong)


# --- FLOPs


def flops_by_products(num_tokens, head_size, block_k):
    product = 2 * num_tokens * num_tokens * head_size
    rescale = sum(num_tokens * head_size for _ in range(0, num_tokens, block_k))
    return (2 + 5) * product + rescale - (2 + 4) * product


def flops_as_float(num_tokens, head_size, block_k):
    return float(num_tokens * head_size * (2 * num_tokens + math.ceil(num_tokens / block_k)))


def up(a, b):
    return math.ceil(a / b)


PROOFS = (
    Proof(
        id="w3-1-merge",
        styles={
            "common maximum": step_in_place, "one key at a time": step_one_key_at_a_time, "log-sum": step_with_log_sum,
        },
        mutants=(
            Mutant(name="sum-not-rescaled", answer=sum_not_rescaled),
            Mutant(name="output-not-rescaled", answer=output_not_rescaled),
            Mutant(name="rescaled-by-nothing", answer=nothing_rescaled),
            Mutant(name="no-maximum", answer=without_maximum),
            Mutant(name="softmax-of-each-tile", answer=softmax_each_tile),
            Mutant(name="divided-too-early", answer=divided_already),
            Mutant(name="rescaled-upside-down", answer=upside_down),
            Mutant(name="maximum-of-the-tile-only", answer=tile_maximum),
            Mutant(name="earlier-tiles-forgotten", answer=forgetful),
            Mutant(name="masked-tile", answer=unguarded),
            Mutant(name="single-precision", answer=in_float32),
        ),
        extra_cases=(((((0.0,), ((3,),)),),), ((((700.0, 700.0), ((1,), (2,))), ((-700.0,), ((9,),))),)),
    ),
    Proof(
        id="w3-1-bytes",
        styles={"walk over the tiles": bytes_by_walking, "numpy float": bytes_in_numpy},
        mutants=(
            Mutant(name="keys-read-once", answer=lambda n, d, b, e: e * (n * d + n * d + n * d + n * d)),
            Mutant(name="tile-cancels", answer=lambda n, d, b, e: 2 * up(n, b) * b * d * e + n * d * e),
            Mutant(name="tile-cancels", answer=lambda n, d, b, e: 2 * e * d * (up(n, b) * b + n), label="with queries"),
            Mutant(name="queries-and-outputs-missing", answer=lambda n, d, b, e: e * up(n, b) * 2 * n * d),
            Mutant(name="outputs-missing", answer=lambda n, d, b, e: e * n * d * (1 + 2 * up(n, b))),
            Mutant(name="keys-without-values", answer=lambda n, d, b, e: e * (2 * n * d + up(n, b) * n * d)),
            Mutant(name="last-tile-lost", answer=lambda n, d, b, e: e * (2 * n * d + 2 * (n // b) * n * d)),
            Mutant(name="fraction-of-a-pass", answer=lambda n, d, b, e: e * (2 * n * d + 2 * (n / b) * n * d)),
            Mutant(name="scores-stored", answer=lambda n, d, b, e: e * (2 * n * d + 2 * up(n, b) * n * d + 2 * n * n)),
            Mutant(name="elements-not-bytes", answer=lambda n, d, b, e: 2 * n * d + 2 * up(n, b) * n * d),
            Mutant(name="outputs-at-every-pass", answer=lambda n, d, b, e: e * n * d * (1 + 3 * up(n, b))),
            Mutant(name="wide-outputs-stored", answer=lambda n, d, b, e: n * d * (e + 2 * up(n, b) * e + 4)),
            Mutant(name="half", answer=lambda n, d, b, e: e * n * d * (1 + up(n, b))),
            Mutant(name="missing-factor-head_size", answer=lambda n, d, b, e: e * n * (2 + 2 * up(n, b))),
        ),
        extra_cases=((5, 32, 5, 2), (5, 32, 100, 4), (7, 64, 1, 4)),
    ),
    Proof(
        id="w3-1-tie",
        styles={"exact fraction": tie_exactly, "bisection": tie_by_bisection},
        mutants=(
            Mutant(name="limit-only", answer=lambda t, s, d, e: 0.5 * d),
            Mutant(name="keys-for-queries", answer=lambda t, s, d, e: s * d / (2 * s + d)),
            Mutant(name="scores-passed-twice", answer=lambda t, s, d, e: t * d / (t + d)),
            Mutant(name="keys-without-values", answer=lambda t, s, d, e: d / (4 + 2 * d / t)),
            Mutant(name="rounded", answer=lambda t, s, d, e: math.ceil(d / (2 + d / t))),
            Mutant(name="upside-down", answer=lambda t, s, d, e: 2 / d + 1 / t),
            Mutant(name="extra-factor-element_bytes", answer=lambda t, s, d, e: e * d / (2 + d / t)),
        ),
        extra_cases=((1, 1, 1, 2), (10**9, 3, 128, 4)),
    ),
    Proof(
        id="w3-1-largest-tile",
        styles={"search": rows_by_search, "float": rows_in_float},
        mutants=(
            Mutant(name="no-accumulator", answer=lambda m, d, k, e: (m - 2 * k * d * e) // (d * e + 8 + 4 * k)),
            Mutant(name="no-scores", answer=lambda m, d, k, e: (m - 2 * k * d * e) // (d * e + 4 * d + 8)),
            Mutant(name="no-statistics", answer=lambda m, d, k, e: (m - 2 * k * d * e) // (d * e + 4 * d + 4 * k)),
            Mutant(name="one-statistic", answer=lambda m, d, k, e: (m - 2 * k * d * e) // (d * e + 4 * (d + 1 + k))),
            Mutant(
                name="scores-in-the-storage-format",
                answer=lambda m, d, k, e: (m - 2 * k * d * e) // (e * (d + k) + 4 * (d + 2)),
            ),
            Mutant(
                name="everything-in-the-storage-format",
                answer=lambda m, d, k, e: (m // e - 2 * k * d) // (d + d + 1 + 1 + k),
            ),
            Mutant(name="keys-and-values-not-deducted", answer=lambda m, d, k, e: m // (d * e + 4 * d + 8 + 4 * k)),
            Mutant(
                name="keys-without-values", answer=lambda m, d, k, e: (m - k * d * e) // (d * e + 4 * (d + 2 + k))
            ),
            Mutant(name="four-equal-tiles", answer=lambda m, d, k, e: m // e // (4 * d)),
            Mutant(
                name="one-row-too-many", answer=lambda m, d, k, e: up(m - 2 * k * d * e, d * e + 4 * d + 8 + 4 * k)
            ),
            Mutant(name="part-of-a-row", answer=lambda m, d, k, e: (m - 2 * k * d * e) / (d * e + 4 * d + 8 + 4 * k)),
        ),
        extra_cases=((1_000_000, 128, 1, 2), (98_816, 128, 64, 2)),
    ),
    Proof(
        id="w3-1-tiled-forward",
        styles={"buffers on the chip": kernel_by_rows, "merging": kernel_by_merging},
        mutants=(
            Mutant(name="whole-score-matrix", answer=kernel_whole_matrix),
            Mutant(name="whole-score-matrix", answer=kernel_whole_matrix_stored, label="tile by tile"),
            Mutant(name="chip-too-small", answer=kernel_loads_all_keys),
            Mutant(name="chip-too-small", answer=variant(fresh=False), label="never freed"),
            Mutant(name="output-not-filled", answer=kernel_returns_its_own),
            Mutant(name="last-tile-lost", answer=kernel_drops_the_rest),
            Mutant(name="scale-missing", answer=variant(scale=1.0)),
            Mutant(name="bytes-not-counted", answer=variant(load=False)),
            Mutant(name="moved-too-often", answer=kernel_reloads_queries),
            Mutant(name="not-finite", answer=variant(peak=False)),
            Mutant(name="not-exact", answer=variant(shrinks=False)),
        ),
        extra_cases=((256, 256, 16, 64, 64, 1), (203, 257, 8, 1, 64, 1)),
    ),
    Proof(
        id="w3-1-extra-flops",
        styles={"seven products against six": flops_by_products, "float": flops_as_float},
        mutants=(
            Mutant(name="nothing-extra", answer=lambda n, d, k: 0),
            Mutant(name="saves-flops", answer=lambda n, d, k: -2 * n * n * d),
            Mutant(name="rescaling-only", answer=lambda n, d, k: n * d * up(n, k)),
            Mutant(name="recomputing-only", answer=lambda n, d, k: 2 * d * n**2),
            Mutant(name="multiply-add-once", answer=lambda n, d, k: n * d * (n + up(n, k))),
            Mutant(name="whole-forward-again", answer=lambda n, d, k: n * d * (4 * n + up(n, k))),
            Mutant(name="correction-counted-twice", answer=lambda n, d, k: 2 * n * d * (n + up(n, k))),
            Mutant(name="statistics-corrected-too", answer=lambda n, d, k: 2 * n * n * d + (n * d + n) * up(n, k)),
            Mutant(name="rescales-statistics-only", answer=lambda n, d, k: n * (2 * n * d + up(n, k))),
            Mutant(name="first-tile-free", answer=lambda n, d, k: n * d * (2 * n + up(n, k) - 1)),
            Mutant(name="last-tile-lost", answer=lambda n, d, k: n * d * (2 * n + n // k)),
        ),
        extra_cases=((5, 8, 5), (5, 8, 100), (6, 1, 1)),
    ),
)
