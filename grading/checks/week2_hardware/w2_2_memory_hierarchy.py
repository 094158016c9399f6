"""Checks of lesson 2.2: caches and loop orders. Right answers are counted by executing the loops."""

import operator
from functools import cache

from course_lib.hardware import CacheLevel, cyclic_scan_stream, matmul_stream, miss_curve, simulate_cache
from course_lib.lesson import Diagnosis, Exercise

LINE_BYTES = 64
ORDERS = ("ijk", "ikj", "jik", "kij", "jki")


def lru_cache(addresses, is_write, num_lines, line_bytes):
    level = CacheLevel(name="L1", capacity_bytes=num_lines * line_bytes, line_bytes=line_bytes)
    stats = simulate_cache(addresses, [level], is_write=is_write).levels[0]
    return stats.num_misses, stats.writebacks


@cache
def _curve(n, line_elements, order="ijk", tile=None):
    stream = matmul_stream(n, order=order, tile=tile, element_bytes=LINE_BYTES // line_elements)
    return miss_curve(stream.addresses, line_bytes=LINE_BYTES)


def matmul_misses(order, n, L):
    """Counted in the smallest cache that the exercise allows."""
    return _curve(n, L, order).misses((n + n // L + 3) * LINE_BYTES)


@cache
def kij_region(n, L):
    """The capacities at which the counted misses are those of the form; they are one unbroken range."""
    form, curve = n**3 // L + n**2 // L + n**2, _curve(n, L, "kij")
    exact = [lines for lines in range(1, 3 * n * n // L + 2) if curve.misses(lines * LINE_BYTES) == form]
    return exact[0], exact[-1]


def scan_hit_fraction(num_scanned, num_lines, passes, alternate):
    level = CacheLevel(name="L1", capacity_bytes=num_lines * LINE_BYTES, line_bytes=LINE_BYTES)
    scan = cyclic_scan_stream(num_scanned, passes=passes, line_bytes=LINE_BYTES, alternate=alternate)
    return simulate_cache(scan.addresses, [level]).levels[0].hit_rate


def _tiles(n, L):
    return [tile for tile in range(L, n + 1, L) if n % tile == 0]


def _tile_misses(n, L, num_lines, tile):
    return _curve(n, L, tile=tile).misses(num_lines * LINE_BYTES)


def least_misses(n, L, num_lines):
    return min(_tile_misses(n, L, num_lines, tile) for tile in _tiles(n, L))


def _misses_of_choice(answer, n, L, num_lines):
    """Run the tile that was chosen."""
    tile = answer(n, L, num_lines)
    if tile is None or tile is ...:
        return None
    tile = operator.index(int(tile) if type(tile) is float and tile.is_integer() else tile)
    if tile not in _tiles(n, L):
        raise ValueError(f"{tile} is no tile: it must divide n = {n} and be a multiple of L = {L}")
    return _tile_misses(n, L, num_lines, tile)


# What a learner's cache does when one rule of it is misunderstood.


def _misread(addresses, is_write, num_lines, line_bytes, *, slip):
    """A cache with one slip, named by ``slip``; (misses, lines written back)."""
    rooms = num_lines + (slip == "one-line-too-many")
    resident, misses, written = [], 0, 0  # [line, dirty], the next victim first
    for address, write in zip(addresses, is_write):
        line = address if slip == "bytes-for-lines" else address // line_bytes
        entry = next((entry for entry in resident if entry[0] == line), None)
        if entry is None:
            misses += not (write and slip == "write-misses-free")
            if write and slip == "no-write-allocate":
                continue
            if len(resident) == rooms:
                victim = resident.pop(-1 if slip == "most-recent-evicted" else 0)
                written += 1 if slip == "clean-lines-written" else victim[1]
            entry = [line, False]
            resident.append(entry)
        elif slip != "first-in-first-out" and not (write and slip == "writes-do-not-renew"):
            resident.remove(entry)
            resident.append(entry)
        entry[1] = bool(write) if slip == "read-cleans-the-line" else entry[1] or bool(write)
    if slip == "flushed-at-the-end":
        written += sum(entry[1] for entry in resident)
    return misses, sum(map(bool, is_write)) if slip == "written-through" else written


def _slip(name, hint):
    return Diagnosis(name=name, wrong=lambda a, w, n, b: _misread(a, w, n, b, slip=name), hint=hint)


def _is_fifo(got, addresses, is_write, num_lines, line_bytes):
    """The misses of a first-in-first-out cache, whether or not its dirty lines are written back yet."""
    misses, written = _misread(addresses, is_write, num_lines, line_bytes, slip="first-in-first-out")
    return tuple(got) in ((misses, written), (misses, 0))


def _draw_lru(rng):
    size = int(rng.integers(60, 160))
    addresses = rng.integers(0, 9, size) * 64 + rng.integers(0, 64, size)
    return addresses.tolist(), (rng.random(size) < 0.4).tolist(), int(rng.integers(3, 6)), 64


def _draw_matrix(rng):
    L = int(rng.choice([4, 8]))
    return L * int(rng.integers(2, 6)), L


def _draw_misses(rng):
    return (str(rng.choice(ORDERS)), *_draw_matrix(rng))


def _draw_scan(rng):
    num_lines, passes = int(rng.integers(5, 60)), int(rng.integers(2, 12))
    return num_lines + int(rng.integers(-4, 12)), num_lines, passes, bool(rng.integers(2))


def _draw_tile(rng):
    n, L = ((24, 4), (36, 4), (40, 4), (48, 8))[int(rng.integers(4))]
    return n, L, int(rng.integers(20, 250))


def _largest_tile(n, L, num_lines, tiles_that_fit):
    """The rule of thumb: the largest tile of which so many fit."""
    fitting = [tile for tile in _tiles(n, L) if tiles_that_fit * tile * tile <= num_lines * L]
    return max(fitting, default=L)


def _rule(rule):
    return lambda n, L, num_lines: _tile_misses(n, L, num_lines, rule(n, L, num_lines))


_FORM_OF = {
    "ijk": lambda n, L: n**3 // L + 2 * n**2 // L,
    "jik": lambda n, L: n**3 // L + n**2 // L + n**2,
    "jki": lambda n, L: 2 * n**3 + n**2,
}
_TWIN = {"ijk": "ijk", "ikj": "ijk", "jik": "jik", "kij": "jik", "jki": "jki"}


def _per_order(ijk=None, jik=None, jki=None):
    """The forms of all orders, some replaced by a wrong one."""
    wrong = {"ijk": ijk, "jik": jik, "jki": jki}
    return lambda order, n, L: (wrong[_TWIN[order]] or _FORM_OF[_TWIN[order]])(n, L)


EXERCISES = (
    Exercise(
        id="w2-2-lru",
        title="Misses and written-back lines of a fully associative LRU cache.",
        points=3,
        expected=lru_cache,
        cases=(
            ([0, 64, 4, 128, 68, 8], [False] * 6, 2, 64),
            ([0, 64, 0, 128, 0], [True, False, False, False, False], 2, 64),
            ([0, 64, 128, 192, 0, 64], [False, True, False, False, False, True], 2, 64),
            ([0, 4, 32, 8, 64, 36, 0], [True, True, False, False, True, False, True], 2, 32),
            ([64, 0, 64, 128, 64, 192, 0, 256, 64], [True, True, False, False, True, False, False, True, False], 3, 64),
        ),
        draw=_draw_lru,
        diagnoses=(
            Diagnosis(
                name="first-in-first-out",
                predicate=lambda got, expected, a, w, n, b: _is_fifo(got, a, w, n, b),
                hint="Your cache evicts the line that came in first. LRU stands for least recently used: what does a "
                "hit change?",
            ),
            Diagnosis(
                name="nothing-written-back",
                wrong=lambda a, w, n, b: (lru_cache(a, w, n, b)[0], 0),
                hint="The misses are right and no line is ever written back. A line that was written differs from "
                "memory: what must happen when it is evicted?",
            ),
            _slip(
                "most-recent-evicted",
                "Your cache evicts the line used last, the one most likely to be needed again soon. Look at which end "
                "of your order you take the victim from.",
            ),
            _slip(
                "bytes-for-lines",
                "You keep single addresses. A cache keeps whole lines: what do the addresses 0 and 4 have in common?",
            ),
            _slip(
                "no-write-allocate",
                "A write that misses leaves no line behind in your cache. Some caches do that; this one allocates on "
                "a write: it fetches the line and then changes it.",
            ),
            _slip(
                "write-misses-free",
                "You count no miss when a write finds its line absent. This cache must fetch the other bytes of the "
                "line before it can hold it.",
            ),
            _slip(
                "writes-do-not-renew",
                "A write to a resident line does not make it recent in your cache. A use is a use: does LRU ask which "
                "kind?",
            ),
            _slip(
                "written-through",
                "You send every write on to memory. In a write-back cache a line can be written many times before it "
                "travels. What makes it travel?",
            ),
            _slip(
                "flushed-at-the-end",
                "You also wrote back what is still resident at the end. Here the program ends and the lines stay; "
                "only an eviction writes back.",
            ),
            _slip(
                "clean-lines-written",
                "You write back every evicted line. Memory already has the same bytes of some of them. Of which?",
            ),
            _slip(
                "read-cleans-the-line",
                "In your cache a later read makes a dirty line clean. Has memory received the new bytes by then?",
            ),
            _slip(
                "one-line-too-many",
                "Your cache holds one line more than it may. Check its size before the new line goes in, not after.",
            ),
            Diagnosis(
                name="hits-for-misses",
                wrong=lambda a, w, n, b: (len(a) - lru_cache(a, w, n, b)[0], lru_cache(a, w, n, b)[1]),
                hint="The first number is the hits. Count the accesses that did not find their line.",
            ),
            Diagnosis(
                name="bytes-written-back",
                wrong=lambda a, w, n, b: (lru_cache(a, w, n, b)[0], b * lru_cache(a, w, n, b)[1]),
                hint="The second number is the bytes that are written back. Count lines, as for the misses.",
            ),
            Diagnosis(
                name="answers-swapped",
                wrong=lambda a, w, n, b: lru_cache(a, w, n, b)[::-1],
                hint="Both counts are right and stand in the other order: misses first, then lines written back.",
            ),
        ),
        concept="Keep the lines in order of last use, with a mark on each dirty one. Every access does three things: "
        "look up, make room if needed, renew.",
        formula="line = address // line_bytes; hit exactly when fewer than num_lines distinct other lines were used "
        "since its last use",
        worked="One line of 64 bytes; write 0, read 4, read 64: miss, hit, miss. The third evicts a dirty line: "
        "2 misses, 1 line written back.",
    ),
    Exercise(
        id="w2-2-misses",
        title="Misses of five loop orders on paper.",
        points=3,
        unit="misses",
        expected=matmul_misses,
        cases=(
            ("ijk", 8, 4), ("ikj", 12, 4), ("kij", 12, 4), ("jik", 24, 4), ("jki", 12, 4), ("kij", 48, 16),
            ("jki", 48, 16), ("jik", 40, 8),
        ),
        draw=_draw_misses,
        diagnoses=(
            Diagnosis(
                name="every-array-once",
                wrong=lambda order, n, L: 3 * n**2 // L,
                hint="That is each line of A, B and C once: the compulsory misses. It would need a cache that holds "
                "whatever is used again, and a whole matrix does not fit.",
            ),
            Diagnosis(
                name="one-miss-in-L",
                wrong=lambda order, n, L: 3 * n**3 // L,
                hint="You let every access miss once in L, as if each loop walked along a row and nothing stayed. "
                "Ask of each array: along, down or still? And does it stay?",
            ),
            Diagnosis(
                name="order-does-not-matter",
                wrong=lambda order, n, L: n**3 // L + 2 * n**2 // L,
                hint="That is right for ijk and you give it for every order. Which array goes down a column elsewhere?",
            ),
            Diagnosis(
                name="all-orders-but-jki-alike",
                wrong=_per_order(jik=_FORM_OF["ijk"]),
                hint="For jik and kij you used the count of ijk. There one array is read or written down a column in "
                "the middle loop, and long before its next column comes, all of another matrix has passed.",
            ),
            Diagnosis(
                name="column-walk-once-per-line",
                wrong=_per_order(jki=lambda n, L: 2 * n**3 // L + n**2),
                hint="In jki you let neighbours share a line. The inner loop goes down two columns; when the next "
                "column comes, are the lines of the last one still there? Two columns do not fit.",
            ),
            Diagnosis(
                name="column-of-B-shared",
                wrong=_per_order(jki=lambda n, L: 2 * n**3 + n**2 // L),
                hint="In jki the two columns of the inner loop are right. B[k,j] goes down a column too, one step for "
                "each sweep of i: is its line still there when the next j comes?",
            ),
            Diagnosis(
                name="column-never-stays",
                wrong=lambda order, n, L: (
                    {"ijk": n**3 + 2 * n**2 // L, "jik": n**3 + n**3 // L + n**2}.get(order)
                    or _FORM_OF[_TWIN[order]](n, L)
                ),
                hint="In ijk and jik you miss at each step down B's column. The exercise gives the cache room for one "
                "column: who else walks down those lines soon after?",
            ),
            Diagnosis(
                name="one-column-of-two",
                wrong=_per_order(jki=lambda n, L: n**3 + n**3 // L + n**2),
                hint="In jki you saw one array go down a column. Look at the index i: which *two* arrays have it as "
                "their row?",
            ),
            Diagnosis(
                name="still-is-free",
                wrong=_per_order(
                    ijk=lambda n, L: n**3 // L + n**2 // L, jik=lambda n, L: n**3 // L + n**2, jki=lambda n, L: 2 * n**3
                ),
                hint="One array is missing: the one that stands still in the inner loop or stays for the next. Its "
                "lines must be fetched at least once too.",
            ),
            Diagnosis(
                name="elements-not-lines",
                wrong=_per_order(
                    ijk=lambda n, L: n**3 + 2 * n**2, jik=lambda n, L: n**3 + 2 * n**2, jki=lambda n, L: 2 * n**3 + n**2
                ),
                hint="You count numbers. A walk along a row meets a new line only once in L steps.",
            ),
        ),
        concept="Take the arrays one by one. Along a row: one miss in L. Down a column: a miss each step, unless the "
        "column stays until the next one. Not moving: none after the first. Then ask what stays for the next loop.",
        formula="n^2/L for an array that is fetched once; n^3/L for one swept again and again along its rows; n^2 or "
        "n^3 where columns are lost before they are used again",
        worked="n = 8, L = 4, ijk: A 16, C 16, and B's 16 lines once for each of 8 rows, 128. Together 160.",
    ),
    Exercise(
        id="w2-2-region",
        title="The smallest and the largest cache for which the form of kij is exact.",
        points=3,
        unit="lines",
        expected=kij_region,
        cases=((8, 4), (12, 4), (24, 8), (48, 16), (40, 8)),
        draw=_draw_matrix,
        diagnoses=(
            Diagnosis(
                name="region-of-ijk",
                wrong=lambda n, L: (n + n // L + 1, n * n // L + 2 * n // L),
                hint="That is the region of ijk, where a column of B must stay. Which lines must stay in kij?",
            ),
            Diagnosis(
                name="region-of-ikj",
                wrong=lambda n, L: (2 * n // L + 2, n * n // L + 2 * n // L),
                hint="The lower end is right. At the upper end you used ikj's, where B starts to stay. In kij it is "
                "A whose line is wanted again after k has moved: what was touched since?",
            ),
            Diagnosis(
                name="last-wrong-sizes",
                wrong=lambda n, L: (2 * n // L + 1, n * n // L + n + 1),
                hint="Both ends are one line too far out: those are the sizes at which the form has just stopped being "
                "right. A distance of d needs d + 1 lines.",
            ),
            Diagnosis(
                name="elements-not-lines",
                wrong=lambda n, L: (2 * n + 2, n * n + n),
                hint="You count numbers where the cache counts lines. A row of n numbers is fewer lines; a column is "
                "not.",
            ),
            Diagnosis(
                name="ends-swapped",
                wrong=lambda n, L: (n * n // L + n, 2 * n // L + 2),
                hint="Both ends are right and stand in the other order: the smallest first.",
            ),
            Diagnosis(
                name="one-row-forgotten",
                predicate=lambda got, expected, n, L: got[0] == n // L + 2,
                hint="B's row must outlive more than itself: between two uses of a line of it, which other row is "
                "walked along too?",
            ),
            Diagnosis(
                name="lines-of-A-forgotten",
                predicate=lambda got, expected, n, L: got[0] == 2 * n // L,
                hint="The two rows are there. A stands still in the inner loop, but it is touched, and twice: by this "
                "i and by the next. Its lines take room.",
            ),
            Diagnosis(
                name="fits-when-C-fits",
                predicate=lambda got, expected, n, L: got[1] == n * n // L,
                hint="The form does not end when C alone fits. Something else is walked down at the same time, and "
                "its lines stand between too.",
            ),
            Diagnosis(
                name="all-three-fit",
                predicate=lambda got, expected, n, L: got[1] == 3 * n * n // L,
                hint="Long before everything fits, something begins to stay. Follow the first line of A from one k to "
                "the next.",
            ),
            Diagnosis(
                name="fitted-to-one-n",
                predicate=lambda got, expected, n, L: (n, L) != (48, 16) and tuple(got) in ((8, 192), (n // 6, 4 * n)),
                hint="That reproduces the range for n = 48. Run `miss_curve` for another n and L and compare.",
            ),
        ),
        concept="The form says that B's row stays from one i to the next, and that nothing stays from one k to the "
        "next. The smallest cache is set by the first, the largest by the second.",
        formula="a line stays when the cache has one line more than the distinct other lines touched in between",
        worked="For ijk, n = 8, L = 4: between two uses of B's line lie 7 of its column, 2 of A's row, 1 of C: 10 "
        "others, so 11 lines.",
    ),
    Exercise(
        id="w2-2-scan",
        title="Hit fraction of a repeated scan, forward or turning.",
        points=2,
        expected=scan_hit_fraction,
        cases=(
            (3, 4, 2, False), (4, 4, 3, False), (5, 4, 3, False), (5, 4, 3, True), (7, 3, 1, True), (65, 64, 10, False),
            (65, 64, 10, True), (40, 64, 10, True), (200, 64, 5, True),
        ),
        draw=_draw_scan,
        diagnoses=(
            Diagnosis(
                name="share-that-fits",
                wrong=lambda s, c, p, a: min(s, c) * (p - 1) / (s * p),
                hint="You let the part of the array that fits hit, forward as well. Follow one line of a forward scan "
                "that is one line too long: how many others come before its next turn?",
            ),
            Diagnosis(
                name="first-pass-forgotten",
                wrong=lambda s, c, p, a: min(s, c) / s if a or s <= c else 0.0,
                hint="You let the first pass hit. The cache starts empty, so every line misses once.",
            ),
            Diagnosis(
                name="cache-over-scan",
                wrong=lambda s, c, p, a: (p - 1) / p if s <= c else c / s,
                hint="You give every scan that is too long the share c / s. Ask two things: does a forward scan keep "
                "any line until its next turn, and can the first pass hit?",
            ),
            Diagnosis(
                name="turning-ignored",
                wrong=lambda s, c, p, a: (p - 1) / p if s <= c else 0.0,
                hint="You give a turning scan the fate of a forward one. When the scan turns, the lines used last are "
                "used first. Which of them are still there?",
            ),
            Diagnosis(
                name="turning-cures-all",
                wrong=lambda s, c, p, a: (p - 1) / p if a or s <= c else 0.0,
                hint="Turning keeps what is in the cache when it turns. How many of the lines is that?",
            ),
            Diagnosis(
                name="one-line-too-strict",
                wrong=lambda s, c, p, a: min(s, c) * (p - 1) / (s * p) if a else (p - 1) / p * (s < c),
                hint="An array that fills the cache exactly still fits.",
            ),
            Diagnosis(
                name="turning-only-beyond-the-edge",
                wrong=lambda s, c, p, a: (min(s, c - 1) if a else s * (s <= c)) * (p - 1) / (s * p),
                hint="You lose one line at each turn. The line at the turn is used twice in a row: does that push "
                "anything out?",
            ),
            Diagnosis(
                name="misses-for-hits",
                wrong=lambda s, c, p, a: 1 - (min(s, c) if a else s * (s <= c)) * (p - 1) / (s * p),
                hint="That is the miss fraction.",
            ),
            Diagnosis(
                name="hits-not-fraction",
                wrong=lambda s, c, p, a: (min(s, c) if a else s * (s <= c)) * (p - 1),
                hint="That is the number of hits. Divide by the number of accesses.",
            ),
        ),
        signatures=(),
        concept="A line hits when fewer than num_lines other lines were touched since its last use. In a forward scan "
        "that number is the same for all lines; in a turning scan it grows with the distance from the turn.",
        formula="hits / accesses, with num_scanned * passes accesses and no hit in the first pass",
        worked="2 lines in a cache of 1, 3 passes, turning: 0 1 | 1 0 | 0 1. One hit at each turn: 2 of 6.",
    ),
    Exercise(
        id="w2-2-tile",
        title="The tile with the fewest misses; your tile is run and its misses are counted.",
        points=2,
        unit="misses",
        expected=least_misses,
        cases=(
            (24, 4, 24), (24, 4, 60), (48, 16, 64), (40, 4, 120), (48, 8, 82), (48, 8, 285), (24, 4, 138), (40, 4, 200),
        ),
        draw=_draw_tile,
        probe=_misses_of_choice,
        diagnoses=(
            Diagnosis(
                name="three-tiles-must-fit",
                wrong=_rule(lambda n, L, lines: _largest_tile(n, L, lines, 3)),
                hint="Your tiles are those of the rule sqrt(S/3). It is safe and too small: while B's tile is reused, "
                "which parts of A's and C's must be there at the same time?",
            ),
            Diagnosis(
                name="four-tiles-must-fit",
                wrong=_rule(lambda n, L, lines: _largest_tile(n, L, lines, 4)),
                hint="You chose the largest tile for which the closed form is exact. A larger one can break the form "
                "and still miss less. Compare counts, not forms.",
            ),
            Diagnosis(
                name="two-tiles-must-fit",
                wrong=_rule(lambda n, L, lines: _largest_tile(n, L, lines, 2)),
                hint="You let two whole tiles fit. In LRU one tile stays while the other two arrays pass by: a row of "
                "each, or all of it? Let the counts decide.",
            ),
            Diagnosis(
                name="one-tile-must-fit",
                wrong=_rule(lambda n, L, lines: _largest_tile(n, L, lines, 1)),
                hint="You fill the cache with one tile to the last line. Then A's and C's lines push parts of it out.",
            ),
            Diagnosis(
                name="larger-is-better",
                wrong=_rule(lambda n, L, lines: n),
                hint="That is one tile, the whole matrix: no tiling. It is best only when all of B fits.",
            ),
            Diagnosis(
                name="smaller-is-safer",
                wrong=_rule(lambda n, L, lines: L),
                hint="The smallest tile fits in any cache and fetches A and B n/b times. What does a larger cache "
                "allow? (If you ran the loops: `misses` takes the cache in bytes.)",
            ),
            Diagnosis(
                name="elements-not-lines",
                wrong=_rule(lambda n, L, lines: max([b for b in _tiles(n, L) if 3 * b * b <= lines], default=L)),
                hint="You compare numbers with lines: a tile of b x b numbers takes b x b / L lines.",
            ),
        ),
        signatures=(),
        concept="A tile pays when what it reuses is still there. Count: run the loops of each tile that divides n, and "
        "read its miss curve at num_lines.",
        formula="min over tiles b of misses(n, b, num_lines)",
        worked="n = 8, L = 4, 12 lines: tile 4 misses 92 times, tile 8 misses 160 times. Tile 4.",
    ),
)
