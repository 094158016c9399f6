# %% [markdown]
# # 2.2 The memory-hierarchy simulator
#
# Transpose a 128 x 128 matrix of fp32 in a common first-level cache: 32 KiB, 8 ways, lines of 64 bytes. The cache
# misses 17,408 times. Now make the matrix **larger**, 132 x 132. The cache misses 2,277 times. Six percent more
# numbers, 7.6 times fewer misses. Same loops, same cache. What does the cache hold against 128?
#
# You will count every miss of a loop nest by simulation, then on paper, and find where the paper stops being
# right. About 80 minutes. At the end you will know why 128 is a bad number, and what a bad number costs.

# %% role="setup"
from IPython.display import display

from course_lib.hardware import CacheLevel, cyclic_scan_stream, device, matmul_misses_closed_form
from course_lib.hardware import matmul_stream, miss_classes, miss_curve, roofline, simulate_cache, transpose_stream
from course_lib.lesson import check, predict, reveal
from course_lib.plotting.caches import lru_stack_figure, miss_curve_figure, size_sweep_figure
from course_lib.plotting.caches import tile_curves, tile_dial_figure
from course_lib.trace import Work
from course_lib.units import format_bytes, format_seconds
from course_lib.widgets.caches import tile_dial

# %% role="shapes"
n = 48  # matrices n x n; a whole number of lines, at least two
tile = 16  # whole lines, divides n
element_bytes = 4  # fp32
line_bytes = 64
cache_lines = 64  # a small fully associative cache
passes = 10  # times around a scan
large_n = 96  # for the dial
large_tile = 32
transpose_n = 128  # the puzzle
padded_n = 132
l1_bytes = 32_768
l1_ways = 8

# %% [markdown]
# ## One cache by hand
#
# Memory moves in **lines** of 64 bytes, here 16 numbers: byte address 68 lies in line 68 // 64 = 1. A cache keeps
# whole lines. When it is full, LRU evicts the line whose last use is longest ago. Writes are treated like reads,
# except that they leave the line **dirty**: it is written back when it is evicted.
#
# Take a pencil, a cache of two lines, and six reads at the addresses 0, 64, 4, 128, 68, 8. After each, write down
# hit or miss, and both lines, the most recent first. Only then run the next cell.

# %%
six = [0, line_bytes, element_bytes, 2 * line_bytes, line_bytes + element_bytes, 2 * element_bytes]
lru_stack_figure(six, num_lines=2, line_bytes=line_bytes)

# %% [markdown]
# Read a column downwards: all lines touched so far, the most recent on top. A line's depth just before its next use
# is the number of *distinct other lines* touched since its last one: its **stack distance**. An access hits when
# its distance is below the number of lines. Move the dashed edge down by one and the last two accesses hit as well,
# and the stack does not change. Keep that; it will buy us a whole curve for the price of one run.
#
# ## Exercise 1: your own cache
#
# Count misses and written-back lines of a fully associative LRU cache that starts empty. A write that misses fetches
# its line first, and that is its one miss. Lines that are still dirty at the end stay where they are.

# %% role="exercise" grade_id="w2-2-lru" points=3
def lru_cache(addresses, is_write, num_lines, line_bytes):
    """(misses, lines written back) of byte addresses, each a write or a read."""
    ### BEGIN SOLUTION
    dirty, misses, written_back = {}, 0, 0  # line -> is it dirty; a dict keeps order: least recent first
    for address, writes in zip(addresses, is_write):
        line = address // line_bytes
        if line not in dirty:
            misses += 1
            if len(dirty) == num_lines:
                written_back += dirty.pop(next(iter(dirty)))
        dirty[line] = dirty.pop(line, False) or bool(writes)
    return misses, written_back
    ### END SOLUTION

# %% role="check"
check("w2-2-lru", lru_cache)

# %% [markdown]
# ## Same arithmetic, three loops
#
# `C[i,j] += A[i,k] * B[k,j]`, row-major. The three loops may stand in any order. `ijk` moves k fastest, `jki` moves
# i fastest. The work is the same 2n³ = 221,184 FLOPs on the same 27,648 bytes, the cache has 64 lines. How many
# times the misses of `ijk` does `jki` have?

# %% role="predict" id="w2-2-orders" guess="3 1 16"
predict("w2-2-orders", ..., low=..., high=..., unit="misses of jki / misses of ijk")

# %% role="reveal" id="w2-2-orders" points=1
def curve_of(order="ijk", tile=None):
    """The loops run, each access writes down its address, one pass counts the misses of every capacity."""
    stream = matmul_stream(n, order=order, tile=tile, element_bytes=element_bytes, line_bytes=line_bytes)
    return miss_curve(stream.addresses, line_bytes=line_bytes)

cache_bytes, L = cache_lines * line_bytes, line_bytes // element_bytes  # L numbers in a line
reveal("w2-2-orders", lambda: curve_of("jki").misses(cache_bytes) / curve_of("ijk").misses(cache_bytes))

# %%
print(f"trap 1, every array is read once:        3n²/L = {3 * n**2 // L:>7,}")
print(f"trap 2, one miss for every L accesses:   3n³/L = {3 * n**3 // L:>7,}\n")
for order in ("ijk", "ikj", "jik", "kij", "jki"):
    counted = curve_of(order).misses(cache_bytes)
    print(f"{order}: {counted:>7,} misses, one in {3 * n**3 / counted:.1f} accesses")
tiled = curve_of(tile=tile).misses(cache_bytes)
on_paper = matmul_misses_closed_form(n, line_elements=L, tile=tile)
print(f"tiles of {tile}: {tiled:,} misses; on paper {on_paper:,}")

# %% [markdown]
# Both traps sound right and neither knows the order of the loops. Count one array at a time. Ask how often its lines
# are *fetched again*. For `ijk`, with L numbers in a line:
#
# | array | in the inner loop (k) | survives until it is used again? | misses |
# | --- | --- | --- | --- |
# | A | walks along row i | row i serves all j | n²/L |
# | B | walks down column j, n lines | the same lines serve L columns; but all of B is too large to last until the next i | n x n²/L |
# | C | stands still | the line serves L columns | n²/L |
#
# Together n³/L + 2n²/L = 7,200 for n = 48, L = 16, the counted number to the last miss. Now do the others.
#
# ## Exercise 2: misses on paper
#
# The cache holds one column (n lines), one row (n/L lines) and three lines more, or anything up to, but not beyond, two
# columns. L divides n at least twice, so a whole matrix never fits.

# %% role="exercise" grade_id="w2-2-misses" points=3
def matmul_misses(order, n, L):
    """Misses of the order "ijk", "ikj", "jik", "kij" or "jki"."""
    ### BEGIN SOLUTION
    once, swept = n * n // L, n * n * n // L  # a matrix fetched once; fetched once for each outer step
    if order in ("ijk", "ikj"):
        return swept + 2 * once
    if order in ("jik", "kij"):  # one array goes down a column in the middle loop: n^2 lines, none kept
        return swept + once + n * n
    return 2 * n**3 + n * n
    ### END SOLUTION

# %% role="check"
check("w2-2-misses", matmul_misses)

# %% [markdown]
# ## Where the paper ends
#
# `ijk` misses 7,200 times in 64 lines. Take away 20 % of the cache: 51 lines, one column of B and one row of A.
# How many times the misses?

# %% role="predict" id="w2-2-smaller" guess="1.25 1 3"
predict("w2-2-smaller", ..., low=..., high=..., unit="misses in the smaller cache / misses before")

# %% role="reveal" id="w2-2-smaller"
smaller_bytes = (n + n // L) * line_bytes
reveal("w2-2-smaller", lambda: curve_of().misses(smaller_bytes) / curve_of().misses(cache_bytes))

# %%
curves = {"ijk": curve_of(), "ikj": curve_of("ikj"), "jki": curve_of("jki"), f"tiles of {tile}": curve_of(tile=tile)}
miss_curve_figure(curves, num_lines=cache_lines)

# %% [markdown]
# Each curve comes from *one* pass: a histogram of stack distances holds every capacity (Mattson and others, 1970).
# `ijk` and `ikj` have the same 7,200 misses for different reasons. `ijk` stands at the edge of a cliff: until
# `B[k,j+1]` follows `B[k,j]`, the loop touches the n - 1 other lines of the column, the n/L lines of A's row, and
# C's line. That is 51 other lines, so 52 are needed. `ikj` would be content with 8.
#
# A closed form is worth what its region is worth. For `ijk` it is exact from 52 to 150 lines, from n + n/L + 1 to
# n²/L + 2n/L; above that all of B starts to stay.
#
# ## Exercise 3: the region of `kij`
#
# For `kij` the form n³/L + n²/L + n² is right for n = 48, L = 16 from 8 to 192 lines. Give both ends for any n
# and L, where L divides n at least twice. Ask of each array which lines lie between one use and the next; then let
# `miss_curve` say whether you are right. A range found for one n is not yet a formula.

# %% role="exercise" grade_id="w2-2-region" points=3
def kij_region(n, L):
    """(smallest, largest) cache in lines for which n³/L + n²/L + n² is exactly right."""
    ### BEGIN SOLUTION
    row, matrix = n // L, n * n // L
    smallest = 2 * row + 2  # B's row stays for the next i: its line, the rest of it, one row of C, two lines of A
    largest = matrix + n  # one line more keeps A's first line until the next k, past all of C and a column of A
    return smallest, largest
    ### END SOLUTION

# %% role="check"
check("w2-2-region", kij_region)

# %% [markdown]
# ## The cliff, alone
#
# The purest cliff: read the same lines around and around, ten times. With 64 lines in a cache of 64 only the first
# round misses, so the hit fraction is 0.900. Make the array one line larger, 1.6 %. The hit fraction?

# %% role="predict" id="w2-2-cliff" guess="0.88 0.5 0.9"
predict("w2-2-cliff", ..., low=..., high=..., unit="hits per access")

# %% role="reveal" id="w2-2-cliff" points=1
cache = CacheLevel(name="L1", capacity_bytes=cache_bytes, line_bytes=line_bytes)

def scan_hits(num_lines, alternate=False):
    scan = cyclic_scan_stream(num_lines, passes=passes, line_bytes=line_bytes, alternate=alternate)
    return simulate_cache(scan.addresses, [cache]).levels[0].hit_rate

reveal("w2-2-cliff", lambda: scan_hits(cache_lines + 1))

# %% [markdown]
# LRU throws out exactly the line that is needed next, every time. Nothing is wrong with the size of the cache; the
# *order* is wrong for LRU. So change the order: run every second pass backwards (`alternate=True`). The line used
# last is then used first.
#
# ## Exercise 4: the cliff and its cure
#
# The hit fraction of a scan, forward or with every second pass backwards, to the last hit.

# %% role="exercise" grade_id="w2-2-scan" points=2
def scan_hit_fraction(num_scanned, num_lines, passes, alternate):
    """Hits per access: num_scanned lines, passes times, through a cache of num_lines lines."""
    ### BEGIN SOLUTION
    if alternate:
        kept = min(num_scanned, num_lines)
    else:
        kept = num_scanned if num_scanned <= num_lines else 0
    return kept * (passes - 1) / (num_scanned * passes)
    ### END SOLUTION

# %% role="check"
check("w2-2-scan", scan_hit_fraction)

# %% [markdown]
# ## Tiles: change the order on purpose
#
# Cut the loops into tiles of b x b. A and B are then fetched n/b times each, not n times: 2n³/(bL) + n²/L misses.
# For b = 16 that is 1,008, a 222nd of `jki`. Larger tiles move less, until they no longer fit. The textbook rule:
# tiles of A, B and C must fit together, b = sqrt(S/3) for a cache of S numbers. No order of loops at all moves fewer
# than about 2n³/sqrt(S) numbers (Hong and Kung, 1981; the constant 2 of the leading term: Smith and others, 2019).
#
# The dial: n = 96, tile 32. Three such tiles are 192 lines. **Slide the cache and find the size that tile 32 needs.**

# %%
large = tile_curves(large_n, element_bytes=element_bytes, line_bytes=line_bytes)
display(tile_dial(large, tile=large_tile, num_lines=cache_lines))
tile_dial_figure(large, tile=large_tile, num_lines=cache_lines)  # the same, standing still

# %% [markdown]
# ## Exercise 5: a tuner
#
# Return the tile with the fewest misses in a cache of `num_lines` lines: a multiple of L that divides n. You may
# derive a rule or run the loops (`matmul_stream(n, tile=b, element_bytes=line_bytes // L)` and `miss_curve`); real
# libraries do both. On a tie any of the best will do.

# %% role="exercise" grade_id="w2-2-tile" points=2
def best_tile(n, L, num_lines):
    """The tile b (L divides b, b divides n) with the fewest misses of the tiled product."""
    ### BEGIN SOLUTION
    def misses(b):
        stream = matmul_stream(n, tile=b, element_bytes=64 // L, line_bytes=64)
        return miss_curve(stream.addresses, line_bytes=64).misses(num_lines * 64)

    return min((b for b in range(L, n + 1, L) if n % b == 0), key=misses)
    ### END SOLUTION

# %% role="check"
check("w2-2-tile", best_tile)

# %% [markdown]
# Tile 32 needs 71 lines, not 192: with 70 it misses 30,294 times, with 71 only 5,184, and on paper 4,032. While B's
# tile (64 lines) is used again and again, A and C pass by a row at a time. The rule of three tiles is for memories that
# you fill by hand, as a GPU's shared memory; LRU needs less to be good, and about four tiles to be exact.
#
# ## Back to the puzzle
#
# A real cache looks for a line in one **set** only: line l goes to set l mod 64, and a set has 8 places. The transpose
# reads A along rows and writes B down columns. For n = 128 a row of B is 512 bytes, 8 lines. Count on paper: in how
# many different sets does one column of B lie, and how many of its 128 lines share a set? Then: how many of the
# 17,408 misses would a *fully associative* cache of the same 32 KiB avoid?

# %% role="predict" id="w2-2-conflict" guess="2_000 100 17_408"
predict("w2-2-conflict", ..., low=..., high=..., unit="misses")

# %% role="reveal" id="w2-2-conflict"
l1 = CacheLevel(name="L1", capacity_bytes=l1_bytes, line_bytes=line_bytes, ways=l1_ways)
square = transpose_stream(transpose_n, element_bytes=element_bytes, line_bytes=line_bytes)
reveal("w2-2-conflict", lambda: miss_classes(square.addresses, l1).conflict)

# %%
sizes = sorted({transpose_n, padded_n, *range(transpose_n - 32, transpose_n + 68, 4)})
for size in (transpose_n, padded_n):
    stream = transpose_stream(size, element_bytes=element_bytes, line_bytes=line_bytes)
    print(f"{size} x {size}: {miss_classes(stream.addresses, l1).total:,} misses")
size_sweep_figure(sizes, l1, element_bytes=element_bytes)

# %% [markdown]
# It is the cliff again, in miniature. The column's 128 lines fall into 8 of the 64 sets, 16 lines in each set of 8
# places, visited in turn: a cyclic scan twice too long. Every write misses (16,384), plus A's 1,024 lines. With 132
# numbers a row is 8.25 lines, so the column walks through all sets and fits. Nor is 128 bad as a power of two: at 192 a
# row is 12 lines, which share the factor 4 with 64, so the column meets 64 / 4 = 16 sets, 12 lines in each. Hence the old
# advice to **pad** such rows; a tiled transpose cures it too.
#
# ## What it costs
#
# Two levels now: behind our 64 lines a second cache four times as large, then memory. Then time, were the 64 lines
# all the cache there is, on the laptop's roofline. The band: 40 to 70 % of peak compute, 60 to 90 % of bandwidth,
# everything overlapped to nothing overlapped. It is no prediction: a miss that must be waited for costs more.

# %%
l2 = CacheLevel(name="L2", capacity_bytes=4 * cache_bytes, line_bytes=line_bytes)
print(f"{'program':<12} {'L2 to L1':>10} {'memory to L2':>13} | one level: FLOP per byte, seconds")
for name, order, b in (("jki", "jki", None), ("ijk", "ijk", None), (f"tiles of {tile}", "ijk", tile)):
    stream = matmul_stream(n, order=order, tile=b, element_bytes=element_bytes, line_bytes=line_bytes)
    both = simulate_cache(stream.addresses, [cache, l2], is_write=stream.is_write)
    one = simulate_cache(stream.addresses, [cache], is_write=stream.is_write)
    traffic = {"bytes_read": one.memory_bytes_read, "bytes_written": one.memory_bytes_written}
    moved = Work(flops=2 * n**3, macs=n**3, **traffic)
    ends = [roofline(moved, device("laptop-cpu"), "fp32", efficiency_compute=c, efficiency_bandwidth=m)
            for c, m in ((0.7, 0.9), (0.4, 0.6))]
    band = f"{format_seconds(ends[0].seconds_lower)} to {format_seconds(ends[1].seconds_upper)}"
    inner = both["L1"].num_misses * line_bytes
    print(f"{name:<12} {format_bytes(inner):>10} {format_bytes(both.memory_bytes_read):>13} | "
          f"{ends[0].arithmetic_intensity:.3f}, {band}")

# %% [markdown]
# A large second cache hides the bad order from memory, not from the wire between the caches. And the tiles that are
# best for 64 lines are not best for 256: tile for each level, outermost first.
#
# **On the bill.** A machine is paid by the second, so a program that waits for bytes pays for idle multipliers. In
# week 3 the same counting, with attention for the matrix product and on-chip memory for the cache, becomes
# FlashAttention; in week 4 the bytes of one token become its price.
#
# **Discuss.** Your colleague's benchmark at n = 1,024 is slow, at 1,000 fast. Which two counts would you ask for
# before you believe that "the cache is too small"?
#
# ## Close
#
# - Misses follow from stack distances; one pass over the addresses gives every capacity.
# - The order of the same work decides the traffic: 223,488, 7,200 or 1,008 misses here, and LRU has cliffs, not slopes.
# - A closed form needs its region: one line fewer than it assumes, and the count is 15 times as high.
#
# Sources: Mattson, Gecsei, Slutz and Traiger, *Evaluation techniques for storage hierarchies*, IBM Systems Journal
# 9(2), 1970; Hong and Kung, *I/O complexity: the red-blue pebble game*, STOC 1981; Hill and Smith, *Evaluating
# associativity in CPU caches*, IEEE Transactions on Computers 38(12), 1989; Lam, Rothberg and Wolf, *The cache
# performance and optimizations of blocked algorithms*, ASPLOS 1991; Smith, Lowery, Langou and van de Geijn, *A tight
# I/O lower bound for matrix multiplication*, arXiv 1702.02017, 2019; Williams, Waterman and Patterson, *Roofline*,
# Communications of the ACM 52(4), 2009.
