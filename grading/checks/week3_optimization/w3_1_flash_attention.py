"""Checks of lesson 3.1: attention in tiles. Right answers are executed on the two-level machine and counted."""

import math
import tracemalloc
from functools import cache
from itertools import pairwise

import numpy as np

from course_lib.hardware.scratchpad import CapacityError
from course_lib.lesson import Diagnosis, Exercise, Raised
from course_lib.optimization import (
    AttentionShape,
    FlopCount,
    break_even_block_q,
    flash_attention,
    flash_attention_backward,
    flash_hbm_bytes,
    largest_block_q,
    scratchpad_ledger,
    standard_attention,
    standard_attention_backward,
    tile_bytes,
)

DTYPES = {2: np.float16, 4: np.float32, 8: np.float64}
WIDE = 4  # bytes of a sum, a statistic or a score on the chip

# --- one row, tile by tile


def attention_row(tiles):
    """The whole row at once, in float64, by the library's standard algorithm."""
    logits = np.array([score for scores, _ in tiles for score in scores])
    values = np.array([row for _, rows in tiles for row in rows], float)
    keys, query = np.zeros_like(values), np.zeros((1, values.shape[1]))
    keys[:, 0], query[0, 0] = logits, 1
    return standard_attention(query, keys, values, scale=1.0)[0]


def run_stream(absorb, tiles):
    """Feed one tile after another; divide once, at the end. A row that saw nothing is 0."""
    state = -np.inf, 0.0, np.zeros(len(tiles[0][1][0]))
    with np.errstate(all="ignore"):
        for scores, values in tiles:
            state = absorb(*state, np.array(scores), np.array(values, float))
            if state is None or state is ...:
                return None
        _, total, output = state
        return np.where(np.asarray(total) == 0, 0.0, np.asarray(output, float) / np.asarray(total, float))


def _absorb(*, shrink_total=True, shrink_output=True, guard=True, running=True, per_tile=False, upward=False):
    """The step with one wrong idea in it."""

    def absorb(m, total, output, scores, values):
        new = max(m, scores.max()) if running else scores.max()
        shift = new if np.isfinite(new) or not guard else 0.0
        p = np.exp(scores - shift)
        shrink = np.exp(shift - m) if upward else np.exp(m - shift)
        weights = p / p.sum() if per_tile else p
        total = total * (shrink if shrink_total else 1) + p.sum()
        return new, total, output * (shrink if shrink_output else 1) + weights @ values

    return absorb


def _no_maximum(m, total, output, scores, values):
    return m, total + np.exp(scores).sum(), output + np.exp(scores) @ values


def _already_divided(m, total, output, scores, values):
    new, grown, unnormalised = _absorb()(m, total, output * total, scores, values)
    return new, grown, unnormalised / grown if grown else unnormalised


def _this_tile_only(m, total, output, scores, values):
    return _absorb()(-np.inf, 0.0, 0.0 * output, scores, values)


def _stream(absorb):
    return lambda tiles: run_stream(absorb, tiles)


def _tiles(logits, sizes, width):
    """Cut logits into tiles of these sizes; values are positive, so that no sum cancels."""
    values = np.random.default_rng(len(logits)).integers(1, 10, (len(logits), width))
    cuts = np.cumsum([0, *sizes])
    return tuple(
        (tuple(float(x) for x in logits[a:b]), tuple(tuple(int(x) for x in row) for row in values[a:b]))
        for a, b in pairwise(cuts)
    )


def _draw_stream(rng):
    sizes = [int(size) for size in rng.integers(1, 6, rng.integers(2, 7))]
    logits = rng.standard_normal(sum(sizes)) * rng.choice([1, 30, 1e4])
    logits = [logits, np.sort(logits), np.sort(logits)[::-1]][rng.integers(3)].copy()
    hidden = int(rng.integers(0, len(sizes) + 1))  # one tile may be all masked
    logits[sum(sizes[:hidden]) : sum(sizes[: hidden + 1])] = -np.inf
    return (_tiles(logits, sizes, int(rng.integers(1, 5))),)


def _distance(got, expected):
    """Largest relative distance; infinite where the shapes or the kinds differ."""
    got = np.asarray(got, float)
    if got.shape != np.shape(expected) or not np.isfinite(got).all():
        return math.inf
    return float((np.abs(got - expected) / np.maximum(np.abs(expected), 1e-300)).max())


INF = math.inf
MERGE = Exercise(
    id="w3-1-merge",
    title="One step of online softmax: absorb a tile of scores and values into (m, l, o).",
    points=3,
    expected=attention_row,
    probe=run_stream,
    relative_tolerance=1e-9,  # float64; logits up to 1e4 lose four digits in the exponent
    cases=(
        (_tiles([0.0, 1.0, 2.0, 0.5], [2, 2], 1),),
        (_tiles([2.0, 0.0, 1.0], [1, 1, 1], 2),),
        (_tiles([-1e4, 0.0, 1.0, 1e4, 9999.0, -5.0], [1, 2, 1, 2], 2),),
        (_tiles([1e4, 9999.5, 3.0, -1e4], [2, 1, 1], 2),),
        (_tiles([-INF, -INF, 1.0, 2.0], [2, 2], 2),),
        (_tiles([1.0, -INF, -INF, 3.0], [1, 2, 1], 1),),
        (_tiles([-INF, -INF], [1, 1], 1),),
    ),
    draw=_draw_stream,
    diagnoses=(
        Diagnosis(
            name="single-precision",
            predicate=lambda got, expected, tiles: 0 < _distance(got, expected) < 0.05,
            hint="The step is right and its digits are few: something in it is float32, and beside a score of 10,000 "
            "that leaves three digits after the point. Which of your arrays is not float64?",
        ),
        Diagnosis(
            name="sum-not-rescaled",
            wrong=_stream(_absorb(shrink_total=False)),
            hint="The new tile's terms are measured from the new maximum, the old sum l from the old one. You added "
            "numbers in two different units. Which factor turns the old unit into the new?",
        ),
        Diagnosis(
            name="output-not-rescaled",
            wrong=_stream(_absorb(shrink_output=False)),
            hint="Your l follows the maximum, your o does not: o is a sum of the same exponentials, each "
            "times a value. "
            "What happened to its unit when the maximum grew?",
        ),
        Diagnosis(
            name="rescaled-by-nothing",
            wrong=_stream(_absorb(shrink_total=False, shrink_output=False)),
            hint="The maximum moved, and neither l nor o moved with it. Both hold exponentials that were "
            "taken from the "
            "old maximum.",
        ),
        Diagnosis(
            name="no-maximum",
            wrong=_stream(_no_maximum),
            hint="On paper softmax needs no maximum. In floating point exp(1e4) is infinite and exp(-1e4) is "
            "zero, and "
            "your row is inf/inf or 0/0. Measure every score from the largest one seen so far.",
        ),
        Diagnosis(
            name="softmax-of-each-tile",
            wrong=_stream(_absorb(per_tile=True)),
            hint="You normalised each tile by its own sum and added the results. A tile does not know the sum of the "
            "row; only the last one does. When may the division happen?",
        ),
        Diagnosis(
            name="divided-too-early",
            wrong=_stream(_already_divided),
            hint="Your o is already divided by l. The caller divides by l at the end, so it happens twice. Keep o "
            "unnormalised (that is what FlashAttention-2 changed: one division a row, not one a tile).",
        ),
        Diagnosis(
            name="rescaled-upside-down",
            wrong=_stream(_absorb(upward=True)),
            hint="Your factor is above 1 when the maximum grows, and infinite at the first tile. Old terms must get "
            "smaller when they are measured from a larger maximum. Which way round is the difference?",
        ),
        Diagnosis(
            name="maximum-of-the-tile-only",
            wrong=_stream(_absorb(running=False)),
            hint="Your m is the maximum of this tile. When a tile of small scores follows a tile of large "
            "ones, m falls "
            "and the factor explodes. The maximum must run over everything seen so far.",
        ),
        Diagnosis(
            name="earlier-tiles-forgotten",
            wrong=_stream(_this_tile_only),
            hint="Your result is that of the last tile alone. The state that came in is what the earlier tiles left.",
        ),
        Diagnosis(
            name="masked-tile",
            wrong=_stream(_absorb(guard=False)),
            hint="Everything is right except where a row has seen nothing but masked keys: there m is -inf, and -inf "
            "minus -inf is not a number. What should you subtract when the maximum is not finite?",
        ),
    ),
    concept="l and o are sums of exponentials measured from m. When m changes, both are first brought to the new "
    "measure; then the tile's own terms are added.",
    formula="m' = max(m, max s); c = exp(m - m'); p = exp(s - m'); l' = c*l + sum(p); o' = c*o + p @ v. Where m' is "
    "-inf, subtract 0 instead.",
    worked="m = ln 2, l = 1, o = 5, and a tile with the one score ln 8 and the value 9: m' = ln 8, c = 2/8 = 1/4, so "
    "l' = 1/4 + 1 = 5/4 and o' = 5/4 + 9 = 41/4. The answer would be (41/4)/(5/4) = 8.2 = (2*5 + 8*9)/(2 + 8).",
)

# --- bytes of the forward pass


@cache
def flash_bytes(num_tokens, head_size, block_q, element_bytes):
    q = np.zeros((num_tokens, head_size), DTYPES[element_bytes])
    ledger = scratchpad_ledger()
    flash_attention(q, q, q, block_q=block_q, block_k=16, ledger=ledger)
    return ledger.bytes_moved("hbm")


def _draw_bytes(rng):
    num_tokens, block_q = int(rng.integers(60, 300)), int(rng.integers(9, 60))
    return num_tokens, int(rng.choice([32, 64, 80, 128])), block_q, int(rng.choice([2, 4]))


def _passes(num_tokens, block_q):
    return -(-num_tokens // block_q)


BYTES = Exercise(
    id="w3-1-bytes",
    title="Bytes of outer memory that the forward pass moves, from its shapes and its query tile.",
    points=2,
    unit="byte",
    expected=flash_bytes,
    cases=((10, 3, 4, 2), (70, 24, 32, 4), (201, 80, 37, 2), (256, 64, 64, 2)),
    draw=_draw_bytes,
    diagnoses=(
        Diagnosis(
            name="keys-read-once",
            wrong=lambda n, d, b, e: 4 * n * d * e,
            hint="Each of the four matrices moves once in your count, whatever the tile. But the chip "
            "forgets: the next "
            "tile of queries meets all keys and values again. How often do K and V cross?",
        ),
        Diagnosis(
            name="tile-cancels",
            predicate=lambda got, expected, n, d, b, e: any(
                got == e * d * (2 * _passes(n, b) * b + each * n) for each in (1, 2)
            ),
            hint="Your tile size cancels: ceil(N/Br) passes times Br rows is just N. One pass over K and V "
            "reads all N "
            "rows of each, not Br of them. Does your formula still depend on Br?",
        ),
        Diagnosis(
            name="queries-and-outputs-missing",
            wrong=lambda n, d, b, e: 2 * _passes(n, b) * n * d * e,
            hint="The keys and values are right. The queries are read once as well, and the output is written once.",
        ),
        Diagnosis(
            name="outputs-missing",
            wrong=lambda n, d, b, e: (2 * _passes(n, b) + 1) * n * d * e,
            hint="You read Q, K and V. One more matrix moves: where does the result go?",
        ),
        Diagnosis(
            name="keys-without-values",
            wrong=lambda n, d, b, e: (2 + _passes(n, b)) * n * d * e,
            hint="Each query tile streams two matrices past itself. You count one.",
        ),
        Diagnosis(
            name="outputs-at-every-pass",
            wrong=lambda n, d, b, e: (1 + 3 * _passes(n, b)) * n * d * e,
            hint="You store the whole output at every pass. One pass finishes the rows of one query tile: which rows "
            "of O does it write?",
        ),
        Diagnosis(
            name="wide-outputs-stored",
            predicate=lambda got, expected, n, d, b, e: e != WIDE and got - expected == (WIDE - e) * n * d,
            hint="You store the output in 4 bytes an element. The sum is kept so wide on the chip; what leaves is "
            "the answer, and it has the format of the inputs.",
        ),
        Diagnosis(
            name="last-tile-lost",
            wrong=lambda n, d, b, e: (2 + 2 * (n // b)) * n * d * e,
            hint="Where N is no multiple of Br, a last, shorter tile of queries remains. It too needs all "
            "keys and values.",
        ),
        Diagnosis(
            name="fraction-of-a-pass",
            wrong=lambda n, d, b, e: (2 + 2 * n / b) * n * d * e,
            hint="You have a fraction of a pass over K and V. The last, shorter tile reads all of them, not a part.",
        ),
        Diagnosis(
            name="scores-stored",
            predicate=lambda got, expected, n, d, b, e: got - expected in (e * n * n, 2 * e * n * n, 4 * e * n * n),
            hint="You count traffic for the N x N scores. They are made on the chip, used there and "
            "overwritten: that "
            "they never leave is the whole idea.",
        ),
        Diagnosis(
            name="elements-not-bytes",
            wrong=lambda n, d, b, e: (2 + 2 * _passes(n, b)) * n * d,
            hint="That is the number of elements that move. Each takes element_bytes bytes.",
        ),
    ),
    concept="Q is read once and O is written once. Every tile of queries reads all of K and all of V.",
    formula="bytes = e * (2*N*d + 2*ceil(N/Br)*N*d)",
    worked="N = 5, d = 1, Br = 2, one byte each: 3 query tiles. Q 5 and O 5, K 3*5 and V 3*5, together 40 bytes.",
)

# --- the tie


def break_even_rows(num_queries, num_keys, head_size, element_bytes):
    return break_even_block_q(num_queries, head_size)


def _draw_tie(rng):
    return int(rng.integers(100, 5000)), int(rng.integers(100, 5000)), int(rng.choice([32, 80, 128])), int(
        rng.choice([2, 4])
    )


TIE = Exercise(
    id="w3-1-tie",
    title="Query rows at which flash and standard attention move the same bytes, for T queries and S keys.",
    points=2,
    unit="row",
    expected=break_even_rows,
    cases=((20, 30, 8, 2), (200, 77, 80, 4), (4096, 1000, 128, 2)),
    draw=_draw_tie,
    diagnoses=(
        Diagnosis(
            name="limit-only",
            wrong=lambda t, s, d, e: d / 2,
            hint="d/2 is where the tie goes when there are very many queries. Something small was dropped on "
            "the way: "
            "the standard algorithm moves K and V too.",
        ),
        Diagnosis(
            name="keys-for-queries",
            wrong=lambda t, s, d, e: d / (2 + d / s),
            hint="Right form, wrong length. The number of passes is the number of QUERY tiles; see which of T and S "
            "cancels when you write both sides out.",
        ),
        Diagnosis(
            name="scores-passed-twice",
            wrong=lambda t, s, d, e: d / (1 + d / t),
            hint="You let the T x S matrix cross the memory twice. The scores are written and read, and so are the "
            "probabilities.",
        ),
        Diagnosis(
            name="keys-without-values",
            wrong=lambda t, s, d, e: t * d / (4 * t + 2 * d),
            hint="Your tie is at exactly half the rows: each query tile streams K and V past itself, and you "
            "count one.",
        ),
        Diagnosis(
            name="rounded",
            predicate=lambda got, expected, *_: got in (math.ceil(expected), math.floor(expected), round(expected)),
            hint="You rounded. The tie is a point on a line, not a tile that can be run; give it as a fraction.",
        ),
        Diagnosis(
            name="upside-down",
            wrong=lambda t, s, d, e: (2 + d / t) / d,
            hint="That is one over the tie.",
        ),
    ),
    concept="Set the bytes of both ways equal. The element size divides out; so does one of the two lengths.",
    formula="4*T*S + 2*T*d + 2*S*d = 2*T*d + 2*(T/Br)*S*d, solved for Br: d / (2 + d/T)",
    worked="T = 8, S = 8, d = 4: standard 256 + 64 + 64 = 384 elements. Flash 64 + 512/Br; equal at Br = "
    "512/320 = 1.6.",
)

# --- the largest tile


def largest_rows(sram_bytes, head_size, block_k, element_bytes):
    return largest_block_q(sram_bytes, head_size=head_size, block_k=block_k, itemsize=element_bytes)


def _row_bytes(d, k, e):
    return e * d + WIDE * d + 2 * WIDE + WIDE * k


def _draw_room(rng):
    return int(rng.integers(90_000, 300_000)), int(rng.choice([32, 64, 80, 128])), int(rng.integers(16, 70)), int(
        rng.choice([2, 4])
    )


ROOM = Exercise(
    id="w3-1-largest-tile",
    title="The most query rows whose tiles fit an on-chip memory of sram_bytes.",
    points=2,
    unit="row",
    expected=largest_rows,
    cases=((1000, 8, 5, 2), (20_000, 32, 16, 4), (100_000, 128, 64, 2), (232_448, 80, 48, 2)),
    draw=_draw_room,
    diagnoses=(
        Diagnosis(
            name="no-accumulator",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (e * d + 2 * WIDE + WIDE * k),
            hint="Your tile has queries, keys, values and scores. Where does the output grow while the keys pass by?",
        ),
        Diagnosis(
            name="no-scores",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (e * d + WIDE * d + 2 * WIDE),
            hint="The N x N matrix is never stored, but one Br x Bc tile of it is alive at a time. It needs "
            "room too.",
        ),
        Diagnosis(
            name="no-statistics",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (e * d + WIDE * d + WIDE * k),
            hint="Two numbers of each row stay on the chip from the first tile of keys to the last.",
        ),
        Diagnosis(
            name="one-statistic",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (_row_bytes(d, k, e) - WIDE),
            hint="You keep one number a row beside the output. The running softmax carries two: which one is missing?",
        ),
        Diagnosis(
            name="scores-in-the-storage-format",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (_row_bytes(d, k, e) + (e - WIDE) * k),
            hint="Your scores have the format of the inputs. Look at the table again: what is made on the chip is kept "
            "wider than what came in.",
        ),
        Diagnosis(
            name="everything-in-the-storage-format",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) // (e * (2 * d + 2 + k)),
            hint="You gave the sums the format of the inputs. Scores, statistics and the output's sum are kept in 4 "
            "bytes on the chip, whatever the inputs are.",
        ),
        Diagnosis(
            name="keys-and-values-not-deducted",
            wrong=lambda m, d, k, e: m // _row_bytes(d, k, e),
            hint="You gave the whole memory to the rows. The tile of keys and the tile of values take their "
            "share first, "
            "however many rows there are.",
        ),
        Diagnosis(
            name="keys-without-values",
            wrong=lambda m, d, k, e: (m - e * k * d) // _row_bytes(d, k, e),
            hint="One of keys and values is missing: both tiles are on the chip at once.",
        ),
        Diagnosis(
            name="four-equal-tiles",
            wrong=lambda m, d, k, e: m // (4 * d * e),
            hint="M / (4 d) is the first paper's rule of thumb: four tiles of one size, nothing wider, no "
            "scores. Here "
            "the tiles are counted as they are.",
        ),
        Diagnosis(
            name="one-row-too-many",
            wrong=lambda m, d, k, e: -(-(m - 2 * e * k * d) // _row_bytes(d, k, e)),
            hint="Your last row does not fit: a part of a row needs the room of a whole one.",
        ),
        Diagnosis(
            name="part-of-a-row",
            wrong=lambda m, d, k, e: (m - 2 * e * k * d) / _row_bytes(d, k, e),
            hint="A tile has a whole number of rows.",
        ),
    ),
    concept="Some room is taken once (the key tile and the value tile); the rest is shared by rows that each "
    "need the "
    "same room: a query row, a row of the output's sum, two statistics, a row of scores.",
    formula="rows = (M - 2*e*Bc*d) // (e*d + 4*d + 2*4 + 4*Bc)",
    worked="M = 400, d = 4, Bc = 2, e = 2: keys and values take 2*2*2*4 = 32. A row takes 8 + 16 + 8 + 8 = 40. "
    "(400 - 32) // 40 = 9 rows.",
)

# --- the kernel itself

EXACT, UNSCALED, LOST = "exact", "as without 1/sqrt(d)", "last rows not written"
UNTOUCHED, WILD, OFF = "not written", "not finite", "off"
BLANK = np.array(0x7FC0BEEF, np.uint32).view(np.float32)  # a NaN that no arithmetic makes


def _inputs(num_queries, num_keys, head_size, loudness):
    rng = np.random.default_rng(num_queries + num_keys)
    sizes = (num_queries, num_keys, num_keys)
    q, k, v = (rng.standard_normal((size, head_size)).astype(np.float32) for size in sizes)
    return q * np.float32(loudness), k, v


def tiled_evidence(num_queries, num_keys, head_size, block_q, block_k, loudness):
    shape = AttentionShape(num_queries=num_queries, num_keys=num_keys, head_size=head_size)
    moved = flash_hbm_bytes(shape, block_q=block_q, block_k=block_k, itemsize=4)
    return {"output": EXACT, "bytes moved": moved, "live at the end": 0, "whole score matrix": False}


def run_kernel(kernel, num_queries, num_keys, head_size, block_q, block_k, loudness):
    """Run a kernel on a machine whose chip holds its tiles and no more; watch what Python allocates beside."""
    q, k, v = _inputs(num_queries, num_keys, head_size, loudness)
    output = np.full_like(q, BLANK)
    room = tile_bytes(block_q=block_q, block_k=block_k, head_size=head_size, itemsize=4).total
    ledger = scratchpad_ledger(room)
    copies = [array.copy() for array in (q, k, v)]
    returned, peak = _watched(lambda: kernel(*copies, output, block_q, block_k, ledger))
    moved = ledger.bytes_moved("hbm")
    if returned is None and not moved and np.isnan(output).all():
        return None  # the released stub
    return {
        "output": _verdict(output, q, k, v),
        "bytes moved": moved,
        "live at the end": ledger.live_bytes["sram"],
        "whole score matrix": peak >= 4 * num_queries * num_keys,  # one fp32 matrix
    }


def _watched(call):
    """The call's result and the most bytes it held in arrays of its own."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with np.errstate(all="ignore"):
            returned = call()
        return returned, tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()


def _verdict(output, q, k, v):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = np.abs(q @ k.T).max()  # unscaled, the larger of the two that are compared
    # A rounding of a score of size s moves its weight by s*eps; 8 roundings, values up to 5.
    close = 8 * np.finfo(np.float32).eps * max(1.0, scores) * 5
    if (output.view(np.uint32) == BLANK.view(np.uint32)).all():
        return UNTOUCHED
    if np.isnan(output[-1]).all() and not np.isnan(output[0]).any():
        return LOST
    if not np.isfinite(output).all():
        return WILD
    if np.abs(output - standard_attention(q, k, v)).max() <= close:
        return EXACT
    return UNSCALED if np.abs(output - standard_attention(q, k, v, scale=1.0)).max() <= close else OFF


def _draw_kernel(rng):
    rows, keys = (int(size) for size in rng.integers(200, 320, 2))
    return rows, keys, int(rng.choice([8, 16, 20])), int(rng.integers(17, 60)), int(rng.integers(9, 50)), 1


KERNEL = Exercise(
    id="w3-1-tiled-forward",
    title="Attention in tiles on the two-level machine: exact, every byte counted, never a whole score matrix.",
    points=4,
    expected=tiled_evidence,
    probe=run_kernel,
    cases=((200, 230, 8, 50, 46, 1), (211, 300, 16, 100, 37, 1), (240, 203, 20, 32, 29, 50)),
    draw=_draw_kernel,
    signatures=(),
    diagnoses=(
        Diagnosis(
            name="chip-too-small",
            predicate=lambda got, *_: isinstance(got, Raised) and isinstance(got.error, CapacityError),
            hint="You asked for more on-chip room than one set of tiles needs. Either a whole matrix was "
            "loaded, or the "
            "tiles of earlier keys were never freed: a `with Scratchpad(ledger)` block frees what it loaded.",
        ),
        Diagnosis(
            name="whole-score-matrix",
            predicate=lambda got, *_: got["whole score matrix"],
            hint="Somewhere a T x S array came to life. The answer may be right, but this is the matrix that "
            "must never "
            "exist: at 128k tokens it is 34 GB a head.",
        ),
        Diagnosis(
            name="output-not-filled",
            predicate=lambda got, *_: got["output"] == UNTOUCHED,
            hint="`output` is as it was handed to you. Your function is to fill that very array, by pad.store, and not "
            "to return another.",
        ),
        Diagnosis(
            name="last-tile-lost",
            predicate=lambda got, *_: got["output"] == LOST,
            hint="The last rows of the output were never written. How many tiles do 211 rows make in hundreds?",
        ),
        Diagnosis(
            name="scale-missing",
            predicate=lambda got, *_: got["output"] == UNSCALED,
            hint="Exact, for another question: your scores lack the factor 1/sqrt(d).",
        ),
        Diagnosis(
            name="bytes-not-counted",
            predicate=lambda got, expected, *_: (
                got["output"] == EXACT and got["bytes moved"] < expected["bytes moved"]
            ),
            hint="The answer is right, but data reached your arithmetic without crossing the memory. "
            "Everything comes in "
            "through pad.load and leaves through pad.store.",
        ),
        Diagnosis(
            name="moved-too-often",
            predicate=lambda got, expected, *_: (
                got["output"] == EXACT and got["bytes moved"] > expected["bytes moved"]
            ),
            hint="Exact, but more crosses the memory than needs to. With queries outside, a query tile is "
            "loaded once "
            "and its output is stored once; only keys and values come again.",
        ),
        Diagnosis(
            name="not-finite",
            predicate=lambda got, expected, *inputs: got["output"] == WILD,
            hint="The output holds inf or nan. Does every exponent stay at 0 or below, the first tile's too?",
        ),
        Diagnosis(
            name="not-exact",
            predicate=lambda got, *_: got["output"] == OFF,
            hint="All tiles were visited and the answer is off: this is a mistake in the running softmax, not an "
            "approximation. Test your step on two tiles, the second with the larger maximum.",
        ),
    ),
    concept="For each tile of queries: load it, sweep over all tiles of keys and values with (m, l, o), then "
    "store o/l.",
    formula="for rows: load Q; for columns: load K, V; s = Q K^T/sqrt(d); absorb; free K, V; after the sweep "
    "store o/l",
    worked="4 queries and 4 keys in tiles of 2: load Q01, meet K01 V01, meet K23 V23, store O01; then Q23 "
    "the same way: "
    "Q and O move once, K and V twice.",
)

# --- FLOPs


@cache
def extra_flops(num_tokens, head_size, block_k):
    """Executed: one training step both ways; products and rescaling only."""
    x = np.random.default_rng(0).standard_normal((num_tokens, head_size))
    flash, standard = FlopCount(), FlopCount()
    tiles = {"block_q": 16, "block_k": block_k}
    output, lse = flash_attention(x, x, x, return_lse=True, flops=flash, **tiles)
    flash_attention_backward(x, x, x, output, lse, x, flops=flash, **tiles)
    standard_attention(x, x, x, flops=standard)
    standard_attention_backward(x, x, x, x, flops=standard)
    return flash.matmul + flash.rescale - standard.matmul - standard.rescale


def _draw_flops(rng):
    return int(rng.integers(40, 160)), int(rng.choice([8, 24, 40])), int(rng.integers(7, 30))


FLOPS = Exercise(
    id="w3-1-extra-flops",
    title="FLOPs that flash attention adds to one training step of one head: recomputing and rescaling.",
    points=2,
    unit="FLOP",
    expected=extra_flops,
    cases=((10, 3, 4), (48, 5, 16), (128, 40, 20)),
    draw=_draw_flops,
    diagnoses=(
        Diagnosis(
            name="nothing-extra",
            wrong=lambda n, d, k: 0,
            hint="That would be a tie. The backward pass needs the probabilities, and nobody stored them. "
            "What does it do?",
        ),
        Diagnosis(
            name="saves-flops",
            predicate=lambda got, *_: got < 0,
            hint="You say that flash attention computes less. Nothing that the standard algorithm computes "
            "is left out; "
            "some of it is computed twice.",
        ),
        Diagnosis(
            name="rescaling-only",
            wrong=lambda n, d, k: n * d * -(-n // k),
            hint="That is the rescaling of the forward pass. The backward pass adds something larger: it has "
            "no scores.",
        ),
        Diagnosis(
            name="recomputing-only",
            wrong=lambda n, d, k: 2 * n * n * d,
            hint="The recomputed product is right. In the forward pass, too, each output element is "
            "corrected at every "
            "tile of keys.",
        ),
        Diagnosis(
            name="multiply-add-once",
            wrong=lambda n, d, k: n * n * d + n * d * -(-n // k),
            hint="You counted the multiply-adds of the recomputed product once. Each is a multiply and an add.",
        ),
        Diagnosis(
            name="whole-forward-again",
            wrong=lambda n, d, k: 4 * n * n * d + n * d * -(-n // k),
            hint="You repeat the whole forward pass. Backward needs the probabilities again, not the output.",
        ),
        Diagnosis(
            name="correction-counted-twice",
            wrong=lambda n, d, k: 2 * n * n * d + 2 * n * d * -(-n // k),
            hint="You count two for each correction. It multiplies an element by a factor; is there an add in that?",
        ),
        Diagnosis(
            name="statistics-corrected-too",
            wrong=lambda n, d, k: 2 * n * n * d + n * (d + 1) * -(-n // k),
            hint="You also count the correction of the sums, one number a row. It is real and small; here only the "
            "output's rows are asked for.",
        ),
        Diagnosis(
            name="rescales-statistics-only",
            wrong=lambda n, d, k: 2 * n * n * d + n * -(-n // k),
            hint="You rescale one number a row. It is the row of the output, all d elements of it, that is "
            "corrected.",
        ),
        Diagnosis(
            name="first-tile-free",
            wrong=lambda n, d, k: 2 * n * n * d + n * d * (-(-n // k) - 1),
            hint="You spare the first tile its correction, and one could. The kernel here multiplies the "
            "zeros as well: "
            "one rule for all tiles. Count it as it is written.",
        ),
        Diagnosis(
            name="last-tile-lost",
            wrong=lambda n, d, k: 2 * n * n * d + n * d * (n // k),
            hint="A last, shorter tile of keys corrects the output too.",
        ),
    ),
    concept="Forward: every output element is multiplied by a correction once for each tile of keys. Backward: one "
    "product, the scores, is made again.",
    formula="extra = 2*N*N*d + N*d*ceil(N/Bc)",
    worked="N = 3, d = 1, Bc = 2: the scores again 2*3*3*1 = 18; two tiles of keys correct 3 elements each: "
    "6. Together 24.",
)

EXERCISES = (MERGE, BYTES, TIE, ROOM, KERNEL, FLOPS)
