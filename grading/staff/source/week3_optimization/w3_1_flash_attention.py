# %% [markdown]
# # 3.1 FlashAttention: the same answer, fewer bytes
#
# One attention head: 4,096 tokens, head size 128, fp16. Written the plain way it moves **138.4 MB** through the
# main memory. FlashAttention with tiles of 32 query rows moves **270.5 MB**, nearly twice as much. With tiles of 256
# rows it moves **35.7 MB**, a quarter. All three return the same numbers and do the same matrix products. What does
# the tile decide, and at which height is there a tie?
#
# You will run one row of a softmax by hand in two tiles, then whole heads on a small machine that counts every byte and
# refuses what does not fit, and then follow the bytes to seconds and to a monthly bill. About 85 minutes.

# %% role="setup"
import math

import numpy as np
from IPython.display import display

from course_lib.lesson import check, predict, reveal
from course_lib.optimization import (
    AttentionShape, Scratchpad, blocks, break_even_block_q, flash_attention, flash_flops, flash_hbm_bytes, merge,
    scratchpad_ledger, standard_attention, standard_flops, standard_hbm_bytes, zero_fill_bytes,
)  # fmt: skip
from course_lib.units import GB

# %% role="shapes"
num_tokens = 4096
head_size = 128
element_bytes = 2  # 2: fp16, 4: fp32
tiles = (32, 64, 128, 256)  # query rows
block_k = 64  # keys a tile
sram_bytes = 100_000
prompt_tokens = 6000
output_tokens = 200
requests_per_second = 40

# %% [markdown]
# ## One row by hand
#
# One query, four keys, in two tiles of two. To keep the pencil work exact, the scores are logarithms:
# $\ln 1, \ln 3$ in the first tile, $\ln 6, \ln 2$ in the second. The values are 12, 24 and 36, 48.
# Softmax of the whole row: $(1\cdot 12 + 3\cdot 24 + 6\cdot 36 + 2\cdot 48)/(1+3+6+2) = 396/12 = 33$.
#
# Now in tiles. Three numbers are carried: the largest score so far $m$, the sum of exponentials $\ell$ and the
# weighted sum of values $o$, both *measured from* $m$ (each exponential is $e^{s-m}$, so none exceeds 1).
#
# | after tile | $m$ | $\ell$ | $o$ |
# | --- | --- | --- | --- |
# | $\ln 1, \ln 3$ | $\ln 3$ | $1/3 + 1 = 4/3$ | $12/3 + 24 = 28$ |
# | $\ln 6, \ln 2$ | $\ln 6$ | ? | ? |
#
# The maximum has moved. **Predict:** by which factor must the old $\ell$ and $o$ be multiplied before the second
# tile's terms are added?

# %% role="predict" id="w3-1-rescale" guess="2 0.1 4"
predict("w3-1-rescale", ..., low=..., high=..., unit="")

# %%
scores, values = np.log([[1.0, 3.0], [6.0, 2.0]]), np.array([[12.0, 24.0], [36.0, 48.0]])
one_query = {"block_q": 1, "block_k": 2, "scale": 1.0, "return_lse": True}
parts = [flash_attention(np.ones((1, 1)), s[:, None], v[:, None], **one_query) for s, v in zip(scores, values)]
for number, (answer, log_sum) in enumerate(parts, 1):
    print(f"tile {number} alone: o / l = {answer.item():.0f}, sum of e^s = {np.exp(log_sum.item()):.0f}")
for name, (a, b) in {"1 then 2": parts, "2 then 1": parts[::-1]}.items():
    answer, log_sum = merge(*a, *b)
    print(f"merged, {name}: o / l = {answer.item():.12g}, sum of e^s = {np.exp(log_sum.item()):.0f}")

# %% role="reveal" id="w3-1-rescale"
reveal("w3-1-rescale", lambda: float(np.exp(scores[0].max() - scores.max())))

# %% [markdown]
# The old terms were measured from $\ln 3$, the new ones from $\ln 6$: the factor is $e^{\ln 3-\ln 6} = 1/2$. So
# $\ell = \tfrac12\cdot\tfrac43 + 1 + \tfrac13 = 2$, $o = \tfrac12\cdot 28 + 36 + \tfrac{48}{3} = 66$, and $66/2 = 33$.
# Nothing was approximated. Two partial rows merge in any order and grouping, so keys can be cut over tiles, over cores
# or over machines.
#
# ## Exercise 1: the step
#
# Write the step for a tile of any length and values that are rows. The check streams hidden tiles through it: rising
# scores, scores of $\pm 10^4$, tiles of one key, and tiles whose keys are all masked (score $-\infty$), also the first.

# %% role="exercise" grade_id="w3-1-merge" points=3
def absorb(m, total, output, scores, values):
    """One tile: scores (n,), values (n, D). State: m and total are numbers, output is (D,), not yet divided.

    Before the first tile: m = -inf, total = 0, output = 0. Return the new (m, total, output).
    """
    ### BEGIN SOLUTION
    peak = max(m, scores.max())
    origin = peak if np.isfinite(peak) else 0.0  # nothing seen yet: any finite origin will do
    shrink, p = np.exp(m - origin), np.exp(scores - origin)
    return peak, shrink * total + p.sum(), shrink * output + p @ values
    ### END SOLUTION

# %% role="check"
check("w3-1-merge", absorb)

# %% [markdown]
# ## A whole head on a small machine
#
# The machine has two memories: a large outer one (`hbm`) and a small on-chip one (`sram`). Data enters through
# `load` and leaves through `store`; a ledger counts the bytes. FlashAttention keeps one tile of queries and its
# running $(m, \ell, o)$ on the chip while all keys and values pass by, tile after tile; then it stores $o/\ell$ and
# takes the next queries. Shapes: Q, K, V, O are (4096, 128); a tile of scores is (rows, 64).
#
# **Predict:** how many query rows must a tile have for FlashAttention to move *as many* bytes as the plain algorithm?
# You know two points: 32 rows move 1.95 times as much, 256 rows a quarter.

# %% role="predict" id="w3-1-rows" guess="100 33 250"
predict("w3-1-rows", ..., low=..., high=..., unit="rows")

# %% role="measure"
rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, num_tokens, head_size)).astype({2: np.float16, 4: np.float32}[element_bytes])
exact = standard_attention(*(x.astype(np.float64) for x in (q[:256], k, v)))  # 256 rows are enough to compare
ledger = scratchpad_ledger()
error = np.abs(standard_attention(q, k, v, ledger=ledger)[:256] - exact).max()
print(f"standard         {ledger.bytes_moved('hbm'):>12,} B, error {error:.0e}")
counted = []
for rows in tiles:
    ledger = scratchpad_ledger()
    error = np.abs(flash_attention(q, k, v, block_q=rows, block_k=block_k, ledger=ledger)[:256] - exact).max()
    counted.append((rows, ledger.bytes_moved("hbm")))
    on_chip = f"{ledger.peak_bytes['sram']:>7,} B on chip"
    print(f"flash, {rows:>3} rows  {counted[-1][1]:>12,} B, error {error:.0e}, {on_chip}")

# %% role="reveal" id="w3-1-rows" points=1
reveal("w3-1-rows", lambda: break_even_block_q(num_tokens, head_size))

# %% [markdown]
# ## Why, and a trap
#
# The errors are distances from float64. FlashAttention is no approximation; in fp16 it is even the nearer of the two,
# because it never rounds a probability to fp16 (a GPU's kernel does, for its matrix units). The tie is at 63.0 rows,
# just below a tile of 64.
#
# The plain way writes the $N\times N$ scores, reads them, writes the probabilities and reads those; Q, K, V and O move
# once: $e\,(4N^2 + 4Nd)$ bytes, with $e$ bytes an element. FlashAttention moves no scores at all. But the chip forgets:
# every tile of queries needs **all** keys and **all** values again.
#
# **Trap: "any tile helps", or "the tile does not matter".** A formula in circulation charges each pass only $B_r$ rows of
# K and V. There are $N/B_r$ passes, so the tile cancels: 4.2 MB, whatever the tile. The machine disagrees, below. It
# agrees with the library's closed form to the byte, on its own terms: no cache, no mask, each query head reads
# its own keys. A large L2 softens it, since a pass that finds K and V there does not reach the main memory.
#
# Then move the sliders. Double the tokens: does the traffic double? Lower the on-chip memory: which tiles are left?
#
# ## Exercises 2 and 3, after the figure
#
# **2.** The bytes that the forward pass moves (no statistics are written), for any N and any tile; the last tile may be
# short. **3.** The tie, for $T$ queries and $S$ keys, with pencil: the plain way moves $e\,(4TS + 2Td + 2Sd)$ bytes, and
# $T/B_r$ passes may be a fraction. Not everything you are given has to matter.

# %%
from course_lib.plotting.attention import traffic_figure
from course_lib.widgets.attention import attention_view

shape = AttentionShape(num_queries=num_tokens, head_size=head_size)
size = {"block_k": block_k, "itemsize": element_bytes}
print("rows        counted    closed form   tile cancels (wrong)")
for rows, moved in counted:
    form = flash_hbm_bytes(shape, block_q=rows, **size)
    wrong = element_bytes * head_size * (2 * math.ceil(num_tokens / rows) * rows + 2 * num_tokens)
    assert moved == form  # to the byte
    print(f"{rows:>4} {moved:>14,} {form:>14,} {wrong:>14,}")
view = {"head_size": head_size, "block_q": tiles[1], "sram_bytes": sram_bytes}
display(attention_view(num_tokens=num_tokens, **view, **size))
traffic_figure(shape, counted=counted, sram_bytes=sram_bytes, **size)

# %% role="exercise" grade_id="w3-1-bytes" points=2
def flash_bytes(num_tokens, head_size, block_q, element_bytes):
    """Bytes of outer memory that one head moves: Q, K, V and O are (num_tokens, head_size)."""
    ### BEGIN SOLUTION
    matrix = num_tokens * head_size * element_bytes
    passes = math.ceil(num_tokens / block_q)
    return 2 * matrix + passes * 2 * matrix
    ### END SOLUTION

# %% role="check"
check("w3-1-bytes", flash_bytes)

# %% role="exercise" grade_id="w3-1-tie" points=2
def break_even_rows(num_queries, num_keys, head_size, element_bytes):
    """Query rows a tile at which both ways move the same bytes; a fraction."""
    ### BEGIN SOLUTION
    return head_size / (2 + head_size / num_queries)
    ### END SOLUTION

# %% role="check"
check("w3-1-tie", break_even_rows)

# %% [markdown]
# ## What can break: room and range
#
# Taller tiles move fewer bytes, so why not one tile of 4,096 rows? Room. Alive on the chip at once are:
#
# | what | shape | kept in |
# | --- | --- | --- |
# | a tile of queries | (rows, d) | the inputs' format |
# | a tile of keys, a tile of values | (keys a tile, d) each | the inputs' format |
# | the unfinished output $o$ | (rows, d) | 4 bytes |
# | $m$ and $\ell$ | (rows) each | 4 bytes |
# | a tile of scores | (rows, keys a tile) | 4 bytes |
#
# The other limit is range: $e^{89}$ is infinite in fp32, and with $50\,Q$ the scores reach hundreds. Run both.
# **Exercise 4:** the most query rows that fit a given on-chip memory.

# %%
from course_lib.hardware.scratchpad import CapacityError

for rows in tiles:
    try:
        flash_attention(q[:512], k, v, block_q=rows, block_k=block_k, sram_bytes=sram_bytes)
        print(f"{rows} rows run")
    except CapacityError as error:
        print(f"{rows} rows: {error}")
loud, keys = 50 * q[:256].astype(np.float32), k[:256].astype(np.float32)
with np.errstate(over="ignore"):
    lost = np.isinf(np.exp(loud @ keys.T / math.sqrt(head_size)).sum(-1)).mean()
mask = np.tri(256, k=-1, dtype=bool)  # row 0 sees nothing
tiled = flash_attention(loud, keys, keys, block_q=32, block_k=32, mask=mask)
print(f"50 * Q: {lost:.0%} of the sums without a maximum are inf; tiled, all finite: {np.isfinite(tiled).all()}")
print(f"a row that sees no key is {tiled[0].sum():.0f}, not nan")

# %% role="exercise" grade_id="w3-1-largest-tile" points=2
def largest_rows(sram_bytes, head_size, block_k, element_bytes):
    """The largest whole number of query rows whose tiles fit together in sram_bytes."""
    ### BEGIN SOLUTION
    keys_and_values = 2 * element_bytes * block_k * head_size
    one_row = element_bytes * head_size + 4 * head_size + 4 + 4 + 4 * block_k
    return (sram_bytes - keys_and_values) // one_row
    ### END SOLUTION

# %% role="check"
check("w3-1-largest-tile", largest_rows)

# %% [markdown]
# ## Exercise 5: the kernel
#
# Now the whole forward pass. `q` is (T, d), `k` and `v` are (S, d), `output` is (T, d); all four lie in outer memory,
# in fp32. Neither T nor S need be a multiple of its tile. Your tools:
#
# - `for rows in blocks(length, block)` gives slices; the last may be short.
# - `with Scratchpad(ledger) as pad:` opens a part of the chip and frees it at the end of the block.
# - `tile = pad.load(q[rows])` reads; `pad.store(output[rows], tile)` writes.
#
# The chip of the check holds one set of tiles, and not a byte more. It compares with float64, counts the bytes to the
# last one, and watches for a T x S array. Scores may be large. (No masks here, so no row is empty.)

# %% role="exercise" grade_id="w3-1-tiled-forward" points=4
def tiled_forward(q, k, v, output, block_q, block_k, ledger):
    """Fill output with softmax(q k^T / sqrt(d)) v, tile by tile."""
    ### BEGIN SOLUTION
    for rows in blocks(len(q), block_q):
        with Scratchpad(ledger) as pad:
            queries, m, norm, total = pad.load(q[rows]), -np.inf, 0.0, 0.0
            for columns in blocks(len(k), block_k):
                with Scratchpad(ledger) as inner:
                    scores = queries @ inner.load(k[columns]).T / math.sqrt(q.shape[1])
                    peak = np.maximum(m, scores.max(axis=1, keepdims=True))
                    shrink, p, m = np.exp(m - peak), np.exp(scores - peak), peak
                    norm = shrink * norm + p.sum(axis=1, keepdims=True)
                    total = shrink * total + p @ inner.load(v[columns])
            pad.store(output[rows], total / norm)
    ### END SOLUTION

# %% role="check"
check("w3-1-tiled-forward", tiled_forward)

# %% [markdown]
# ## FLOPs go up
#
# "FlashAttention is faster because it computes less." Count. Forward, both ways do two products of $2N^2d$ FLOPs.
# Backward, the plain way does four, with the probabilities that it stored. FlashAttention stored none: only
# $L = m + \ln \ell$, one number a row, from which any tile of probabilities $e^{s-L}$ can be made again.
#
# **Predict:** FLOPs of the matrix products in one training step (forward and backward), flash divided by standard?
# After the reveal, **Exercise 6** asks for the difference to the last FLOP. It has two parts: what the backward pass
# computes again, and what the forward pass multiplies to correct the rows of its output $o$ (the kernel here does so at
# *every* tile of keys, the first included). The one number a row for $\ell$ is not counted.

# %% role="predict" id="w3-1-flops" guess="0.9 0.5 1.0"
predict("w3-1-flops", ..., low=..., high=..., unit="times")

# %% role="reveal" id="w3-1-flops" points=1
def flash_training():
    return sum(flash_flops(shape, block_q=64, block_k=block_k, backward=way) for way in (False, True))

def standard_training():
    return sum(standard_flops(shape, backward=way) for way in (False, True))

reveal("w3-1-flops", lambda: flash_training() / standard_training())

# %% role="exercise" grade_id="w3-1-extra-flops" points=2
def extra_flops(num_tokens, head_size, block_k):
    """FLOPs that flash adds to a training step of one head: recomputed products and corrections."""
    ### BEGIN SOLUTION
    recomputed = 2 * num_tokens**2 * head_size
    corrections = num_tokens * head_size * math.ceil(num_tokens / block_k)
    return recomputed + corrections
    ### END SOLUTION

# %% role="check"
check("w3-1-extra-flops", extra_flops)

# %% [markdown]
# ## Against the paper, and on a machine
#
# Seven products for six, and still faster: Dao and others (2022, figure 2) print for GPT-2 medium on an A100
# **40.3 GB to 4.4 GB**, 41.7 ms to 7.3 ms, forward and backward (batch 64, 16 heads, 1,024 tokens, head size 64). Our
# machine runs the same algorithm (keys outside, `fa1`) and counts 4.06 to 4.37 GB for key tiles of 384, depending on
# three conventions that the paper does not print. Ours of the standard way is 25.2 GB; the paper's 40.3 GB equals 18.8
# passes over the scores where the bare algorithm has 11, as it would with mask and dropout passes (our inference).
#
# Do fewer bytes mean less time? Only where bytes bind. FlashAttention removes traffic, so the most it can give is
# ridge point / intensity: on an H100 295 / 62 = 4.8 times, on a laptop whose ridge is 6 FLOP/B nothing. There is
# a third engine: $4d$ FLOPs of products come with each exponential, 512 at $d=128$; an H100 can do 254 in that time
# (Shah and others, 2024, section 3.1, state 3.9 T special functions a second). At $d=64$ the two engines tie.

# %%
from course_lib.hardware import device
from course_lib.plotting.attention import attention_times, times_figure

paper = AttentionShape(num_queries=1024, head_size=64, num_heads=64 * 16)
step = [{"order": "fa1", "training": True}, {"order": "fa1", "backward": True}]
fill = zero_fill_bytes(paper) + zero_fill_bytes(paper, backward=True)
print("keys a tile: fp32 statistics, also zero fill, fp16 statistics instead [GB]")
for keys in (384, 256, 128, 64):
    of = {"block_q": min(keys, 64), "block_k": keys}
    wide, slim = (sum(flash_hbm_bytes(paper, **of, **p, statistics_itemsize=s) for p in step) for s in (4, 2))
    print(f"{keys:>11}: {wide / GB:6.2f} {(wide + fill) / GB:6.2f} {slim / GB:6.2f}")
machines = [device(name) for name in ("h100-sxm", "a100-80gb-sxm", "l4", "laptop-cpu")]
times_figure(attention_times(shape, machines, tiles=(tiles[0], tiles[-1]), block_k=block_k))

# %% [markdown]
# ## To the bill
#
# A service that reads more than it writes: Llama 3.1 8B on H100s, prompts of 6,000 tokens, answers of 200, 40 requests
# a second. The chain has a switch, `prefill_attention=True`, which counts attention's FLOPs. It cannot tell the two ways
# apart: FlashAttention saves bytes, and the switch counts none. So we replace one link: prefill is the products of the
# weights, then attention, and attention takes the longer of its FLOPs and its bytes, at the same efficiencies.
#
# **Predict:** the change of the bill, in percent, when plain attention becomes FlashAttention with 128 rows. A fall is
# negative.

# %% role="predict" id="w3-1-bill" guess="-60 -90 -5"
predict("w3-1-bill", ..., low=..., high=..., unit="%")

# %% role="measure"
from course_lib.journey import Journey
from course_lib.serving import Workload, model_shape

model, sizes = model_shape("llama-3.1-8b"), [{"block_q": rows, "block_k": 64} for rows in (32, 64, 128, 256)]
work = {"arrival_requests_per_second": requests_per_second, "prompt_tokens": prompt_tokens}
journey = Journey(model=model, device="h100-sxm", workload=Workload(**work, output_tokens=output_tokens))
num_heads = model.num_layers * model.num_heads
heads = AttentionShape(num_queries=prompt_tokens, head_size=model.head_size, num_heads=num_heads, causal=True)
def attend(flops, nbytes):
    return journey.with_link("prefill_seconds", lambda prefill_flops, flops_per_second, bytes_per_second: (
        prefill_flops / flops_per_second + max(flops / flops_per_second, nbytes / bytes_per_second)))
plain = attend(standard_flops(heads), standard_hbm_bytes(heads))
flash = [attend(flash_flops(heads, **s), flash_hbm_bytes(heads, **s)) for s in sizes]

# %% role="reveal" id="w3-1-bill"
reveal("w3-1-bill", lambda: 100 * flash[2].diff(plain).relative)

# %%
from dataclasses import replace

whole = replace(heads, causal=False)  # no tile is skipped
all_tiles = attend(flash_flops(whole, **sizes[2]), flash_hbm_bytes(whole, **sizes[2]))
names = ["standard", *(f"flash, {s['block_q']} rows" for s in sizes), "128, none skipped", "switch: FLOPs only"]
for name, each in zip(names, [plain, *flash, all_tiles, journey.with_changes(prefill_attention=True)]):
    low, high, usd = each.band.low, each.band.high, each.bill.continuous_usd_per_month
    prefill = f"prefill {1e3 * each['prefill_seconds']:4.0f} ms"
    print(f"{name:>18}: {prefill}, ${usd:>6,.0f} a month (${low:,.0f} to ${high:,.0f})")
band = flash[2].diff(plain).relative_band
print(f"128 rows for standard: {band.nominal:+.1%}, over the efficiencies {band.low:+.0%} to {band.high:+.0%}")

# %% [markdown]
# ## Close
#
# A quarter of the bill, because prefill is most of this service's time and attention grows with the square of the prompt;
# with prompts of 2,000 tokens the same swap is worth 11 % (change the shapes cell). A third of the gain is not tiling at
# all: with a causal mask flash skips the tiles that are all hidden, and the plain way moves them. And the choice is not
# "flash or not" but the tile: 32 rows cost as much as no FlashAttention, and 256 rows need 297 kB on the chip, more than
# the 233 kB of shared memory of an H100's multiprocessor (real kernels keep $o$ in registers).
#
# **Discuss:** a colleague doubles the head size to 256 and keeps the on-chip memory. What happens to the largest tile, to
# the tie, to the bytes? Which of the three would a benchmark on a laptop have shown?
#
# - FlashAttention is exact: sums are kept relative to a running maximum and brought to the new one when it moves.
# - It adds FLOPs (7 products for 6 in training) and saves bytes only with tiles above $d/(2 + d/N)$ rows. Its memory grows
#   in step with N, its traffic still with the square: twice the tokens move 3.9 times the bytes at 128 rows.
# - Fewer bytes are less time only where bytes bind: compare intensity and ridge point, then look at the exponentials.
#
# Sources: Dao, Fu, Ermon, Rudra and Ré, *FlashAttention*, arXiv 2205.14135, 2022, algorithm 1, theorem 2, figure 2; Dao,
# *FlashAttention-2*, arXiv 2307.08691, 2023, section 3; Shah and others, *FlashAttention-3*, arXiv 2407.08608, 2024,
# section 3.1; Milakov and Gimelshein, *Online normalizer calculation for softmax*, arXiv 1805.02867, 2018; Williams,
# Waterman and Patterson, *Roofline*, Communications of the ACM 52(4), 2009. Machines and prices: the course's data
# files, each number with its own source.
