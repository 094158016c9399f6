"""Proof of lesson 2.2's exercises."""

from collections import OrderedDict
from fractions import Fraction

import numpy as np

from course_lib.hardware import CacheLevel, matmul_stream, miss_curve, simulate_cache
from grading.proofs import Mutant, Proof

OTHER_SHAPES = (
    {
        "n": 32, "tile": 8, "element_bytes": 8, "line_bytes": 64, "cache_lines": 40, "passes": 6, "large_n": 48,
        "large_tile": 16, "l1_bytes": 8192, "l1_ways": 4, "transpose_n": 64, "padded_n": 68,
    },
    {
        "n": 40, "tile": 20, "element_bytes": 16, "line_bytes": 64, "cache_lines": 60, "passes": 3, "large_n": 24,
        "large_tile": 8, "l1_bytes": 16384, "l1_ways": 2, "transpose_n": 96, "padded_n": 100,
    },
)  # fmt: skip


# Exercise 1: right styles.


def lru_by_ordered_dict(addresses, is_write, num_lines, line_bytes):
    resident, misses, written_back = OrderedDict(), 0, 0
    for i in range(len(addresses)):
        line = addresses[i] // line_bytes
        if line in resident:
            resident.move_to_end(line)
        else:
            misses += 1
            if len(resident) >= num_lines:
                _, dirty = resident.popitem(last=False)
                if dirty:
                    written_back += 1
            resident[line] = False
        if is_write[i]:
            resident[line] = True
    return [misses, written_back]


def lru_by_time_stamps(addresses, is_write, num_lines, line_bytes):
    last_use, dirty = {}, set()
    counts = np.zeros(2, dtype=np.int64)
    for now, (line, write) in enumerate(zip(np.asarray(addresses) // line_bytes, is_write)):
        if line not in last_use:
            counts[0] += 1
            if len(last_use) == num_lines:
                victim = min(last_use, key=last_use.get)
                del last_use[victim]
                counts[1] += victim in dirty
                dirty.discard(victim)
        last_use[line] = now
        if write:
            dirty.add(line)
    return counts


# Exercise 1: wrong caches, written as learners write them.


def fifo(addresses, is_write, num_lines, line_bytes):
    queue, dirty, misses, back = [], {}, 0, 0
    for address, write in zip(addresses, is_write):
        line = address // line_bytes
        if line not in dirty:
            misses += 1
            if len(queue) == num_lines:
                back += dirty.pop(queue.pop(0))
            queue.append(line)
            dirty[line] = False
        dirty[line] |= write
    return misses, back


def _ordered(addresses, is_write, num_lines, line_bytes, *, last=False, allocate=True, free_writes=False, clean=True,
             keep_dirty=True, flush=False, extra=0, renew_writes=True):  # fmt: skip
    cache, misses, back = OrderedDict(), 0, 0
    for address, write in zip(addresses, is_write):
        line = address // line_bytes
        if line in cache:
            if renew_writes or not write:
                cache.move_to_end(line)
            cache[line] = write or (keep_dirty and cache[line])
            continue
        if not (write and free_writes):
            misses += 1
        if write and not allocate:
            continue
        if len(cache) == num_lines + extra:
            dirty = cache.popitem(last=last)[1]
            back += dirty or not clean
        cache[line] = write
    return misses, back + flush * sum(cache.values())


def _variant(**how):
    return lambda a, w, n, b: _ordered(a, w, n, b, **how)


def addresses_kept(addresses, is_write, num_lines, line_bytes):
    return _ordered(addresses, is_write, num_lines, 1)


def every_write_travels(addresses, is_write, num_lines, line_bytes):
    return _ordered(addresses, is_write, num_lines, line_bytes)[0], sum(is_write)


def hits(addresses, is_write, num_lines, line_bytes):
    misses, back = _ordered(addresses, is_write, num_lines, line_bytes)
    return len(addresses) - misses, back


# Exercise 2.


def misses_by_arrays(order, n, L):
    """Each array by how it is walked: fetched once, swept for each outer step, a column lost each step."""
    once, swept, column, always = n * n / L, n**3 / L, n * n, n**3
    table = {
        "ijk": (once, swept, once), "ikj": (once, swept, once), "jik": (swept, once, column),
        "kij": (column, once, swept), "jki": (always, column, always),
    }  # fmt: skip
    return sum(table[order])


def misses_by_running(order, n, L):
    stream = matmul_stream(n, order=order, element_bytes=8, line_bytes=8 * L)
    level = CacheLevel(name="L1", capacity_bytes=2 * n * 8 * L, line_bytes=8 * L)  # the largest that is allowed
    return simulate_cache(stream.addresses, [level], is_write=stream.is_write).levels[0].num_misses


def misses_for_ijk(order, n, L):
    return n * n * n // L + 2 * n * n // L


def misses_two_kinds(order, n, L):
    return misses_for_ijk(order, n, L) if order != "jki" else 2 * n**3 + n * n


def misses_shared_columns(order, n, L):
    return n * n + 2 * n**3 // L if order == "jki" else misses_by_arrays(order, n, L)


def misses_with_rows_of_b(order, n, L):
    return n**3 + n**3 + n * n / L if order == "jki" else misses_by_arrays(order, n, L)


def misses_at_every_step_down(order, n, L):
    b = {"ijk": n**3 - n**3 // L, "jik": n**3 - n**2 // L}.get(order, 0)  # what B misses more
    return misses_by_arrays(order, n, L) + b


def misses_one_column(order, n, L):
    return n**3 * (1 + 1 / L) + n * n if order == "jki" else misses_by_arrays(order, n, L)


def misses_without_the_still_one(order, n, L):
    if order == "jki":
        return 2 * n**3
    return n**3 // L + (n**2 if order in ("jik", "kij") else n**2 // L)


def misses_in_numbers(order, n, L):
    return 2 * n**3 + n**2 if order == "jki" else n**3 + 2 * n**2


# Exercise 3.


def region_by_scan(n, L):
    curve = miss_curve(matmul_stream(n, order="kij", element_bytes=64 // L).addresses, line_bytes=64)
    right = [s for s in range(4 * n * n // L) if curve.misses(64 * s) == n**3 // L + n * n // L + n * n]
    return min(right), max(right)


def region_by_array(n, L):
    row = n / L
    return np.array([2 * row + 2, row * n + n])


# Exercise 4.


def scan_by_running(num_scanned, num_lines, passes, alternate):
    forward = list(range(num_scanned))
    trace = [line for turn in range(passes) for line in (forward[::-1] if alternate and turn % 2 else forward)]
    found = lru_by_ordered_dict(trace, [False] * len(trace), num_lines, 1)[0]
    return 1 - Fraction(found, len(trace))


def scan_in_float32(num_scanned, num_lines, passes, alternate):
    fits = num_scanned <= num_lines
    share = np.float32(1.0 if fits else (num_lines / num_scanned if alternate else 0.0))
    return share * np.float32((passes - 1) / passes)


def fraction(kept):
    return lambda s, c, p, a: kept(s, c, a) * (p - 1) / (s * p)


# Exercise 5.


def tile_by_simulation(n, L, num_lines):
    cache = [CacheLevel(name="L1", capacity_bytes=num_lines * 64, line_bytes=64)]
    best, fewest = None, None
    for tile in range(L, n + 1, L):
        if n % tile == 0:
            stream = matmul_stream(n, tile=tile, element_bytes=64 // L)
            misses = simulate_cache(stream.addresses, cache).levels[0].num_misses
            if fewest is None or misses <= fewest:  # the last of equals
                best, fewest = tile, misses
    return np.int64(best)


def tile_as_float(n, L, num_lines):
    return float(tile_by_simulation(n, L, num_lines))


def largest(condition):
    def choose(n, L, num_lines):
        best = L
        for tile in range(L, n + 1, L):
            if n % tile == 0 and condition(tile, L, num_lines):
                best = tile
        return best

    return choose


PROOFS = (
    Proof(
        id="w2-2-lru",
        styles={"ordered dict": lru_by_ordered_dict, "time stamps, array": lru_by_time_stamps},
        mutants=(
            Mutant(name="first-in-first-out", answer=fifo),
            Mutant(name="first-in-first-out", label="reads only", answer=lambda a, w, n, b: (fifo(a, w, n, b)[0], 0)),
            Mutant(name="nothing-written-back", answer=lambda a, w, n, b: (_ordered(a, w, n, b)[0], 0)),
            Mutant(name="most-recent-evicted", answer=_variant(last=True)),
            Mutant(name="bytes-for-lines", answer=addresses_kept),
            Mutant(name="no-write-allocate", answer=_variant(allocate=False)),
            Mutant(name="write-misses-free", answer=_variant(free_writes=True)),
            Mutant(name="writes-do-not-renew", answer=_variant(renew_writes=False)),
            Mutant(name="written-through", answer=every_write_travels),
            Mutant(name="flushed-at-the-end", answer=_variant(flush=True)),
            Mutant(name="clean-lines-written", answer=_variant(clean=False)),
            Mutant(name="read-cleans-the-line", answer=_variant(keep_dirty=False)),
            Mutant(name="one-line-too-many", answer=_variant(extra=1)),
            Mutant(name="hits-for-misses", answer=hits),
            Mutant(
                name="bytes-written-back",
                answer=lambda a, w, n, b: (_ordered(a, w, n, b)[0], _ordered(a, w, n, b)[1] * b),
            ),
            Mutant(name="answers-swapped", answer=lambda a, w, n, b: _ordered(a, w, n, b)[::-1]),
        ),
        extra_cases=(
            ([], [], 3, 64), ([7], [True], 1, 64), ([0, 64] * 20, [True, False] * 20, 1, 64),
            ([2**40, 0, 2**40], [True, True, False], 1, 64),
        ),
    ),
    Proof(
        id="w2-2-misses",
        styles={"array by array, floats": misses_by_arrays, "run in a cache of 2n lines": misses_by_running},
        mutants=(
            Mutant(name="every-array-once", answer=lambda order, n, L: 3 * n * n // L),
            Mutant(name="one-miss-in-L", answer=lambda order, n, L: 3 * n * n * n // L),
            Mutant(name="order-does-not-matter", answer=misses_for_ijk),
            Mutant(name="all-orders-but-jki-alike", answer=misses_two_kinds),
            Mutant(name="column-walk-once-per-line", answer=misses_shared_columns),
            Mutant(name="column-of-B-shared", answer=misses_with_rows_of_b),
            Mutant(name="column-never-stays", answer=misses_at_every_step_down),
            Mutant(name="one-column-of-two", answer=misses_one_column),
            Mutant(name="still-is-free", answer=misses_without_the_still_one),
            Mutant(name="elements-not-lines", answer=misses_in_numbers),
        ),
        extra_cases=(("ijk", 4, 2), ("jik", 64, 16), ("kij", 64, 32), ("jki", 36, 4)),
    ),
    Proof(
        id="w2-2-region",
        styles={"found by scanning": region_by_scan, "float array": region_by_array},
        mutants=(
            Mutant(name="region-of-ijk", answer=lambda n, L: (n + n // L + 1, (n * n + 2 * n) // L)),
            Mutant(name="region-of-ikj", answer=lambda n, L: (2 * n // L + 2, (n * n + 2 * n) // L)),
            Mutant(name="last-wrong-sizes", answer=lambda n, L: (2 * (n // L) + 1, n * (n // L + 1) + 1)),
            Mutant(name="elements-not-lines", answer=lambda n, L: (2 * n + 2, n * (n + 1))),
            Mutant(name="ends-swapped", answer=lambda n, L: (n + n * n // L, 2 + 2 * n // L)),
            Mutant(name="one-row-forgotten", label="both ends", answer=lambda n, L: (n // L + 2, n * n // L)),
            Mutant(name="one-row-forgotten", answer=lambda n, L: (n // L + 2, n * n // L + n)),
            Mutant(name="lines-of-A-forgotten", answer=lambda n, L: (n // L + n // L, n * n // L + n)),
            Mutant(name="fits-when-C-fits", answer=lambda n, L: (2 * n // L + 2, n * n // L)),
            Mutant(name="all-three-fit", answer=lambda n, L: (2 * n // L + 2, 3 * (n * n // L))),
            Mutant(name="fitted-to-one-n", answer=lambda n, L: (8, 192)),
            Mutant(name="fitted-to-one-n", label="in proportion to n", answer=lambda n, L: (n // 6, 4 * n)),
        ),
        extra_cases=((4, 2), (64, 16), (30, 2), (64, 32)),
    ),
    Proof(
        id="w2-2-scan",
        styles={"run, as a Fraction": scan_by_running, "float32": scan_in_float32},
        mutants=(
            Mutant(name="share-that-fits", answer=fraction(lambda s, c, a: min(s, c))),
            Mutant(name="first-pass-forgotten", answer=lambda s, c, p, a: 1.0 if s <= c else (c / s if a else 0.0)),
            Mutant(name="cache-over-scan", answer=lambda s, c, p, a: c / s if s > c else 1 - 1 / p),
            Mutant(name="turning-ignored", answer=fraction(lambda s, c, a: s if s <= c else 0)),
            Mutant(name="turning-cures-all", answer=fraction(lambda s, c, a: s if a or s <= c else 0)),
            Mutant(name="one-line-too-strict", answer=fraction(lambda s, c, a: min(s, c) if a else s * (s < c))),
            Mutant(
                name="turning-only-beyond-the-edge",
                answer=fraction(lambda s, c, a: min(s, c - 1) if a else (s if s <= c else 0)),
            ),
            Mutant(
                name="misses-for-hits",
                answer=lambda s, c, p, a: 1 - (min(s, c) if a else (s if s <= c else 0)) * (p - 1) / (s * p),
            ),
            Mutant(
                name="hits-not-fraction",
                answer=lambda s, c, p, a: (min(s, c) if a else (s if s <= c else 0)) * (p - 1),
            ),
        ),
        extra_cases=((1, 1, 1, False), (1, 1, 2, True), (2, 1, 9, True), (64, 64, 2, True)),
    ),
    Proof(
        id="w2-2-tile",
        styles={"by simulation, last of equals": tile_by_simulation, "as a float": tile_as_float},
        mutants=(
            Mutant(name="three-tiles-must-fit", answer=largest(lambda b, L, lines: 3 * b * b <= lines * L)),
            Mutant(name="four-tiles-must-fit", answer=largest(lambda b, L, lines: 4 * b * b <= lines * L)),
            Mutant(name="two-tiles-must-fit", answer=largest(lambda b, L, lines: 2 * b * b <= lines * L)),
            Mutant(name="one-tile-must-fit", answer=largest(lambda b, L, lines: b * b // L <= lines)),
            Mutant(name="larger-is-better", answer=lambda n, L, lines: n),
            Mutant(name="smaller-is-safer", answer=lambda n, L, lines: L),
            Mutant(name="elements-not-lines", answer=largest(lambda b, L, lines: 3 * b * b <= lines)),
        ),
        extra_cases=((8, 4, 1), (12, 4, 10_000), (60, 4, 116), (64, 16, 71)),
    ),
)
