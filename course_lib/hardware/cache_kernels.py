"""Compiled cache simulation. Import only where numba is installed.

Each set is a row of entries in move-to-front order, most recent first; an entry is ``2 * line + dirty``, empty -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.hardware.jit import compiled

__all__ = ["run"]

Array = npt.NDArray[Any]


@compiled
def _reads_only(addresses: Array, shift: int, num_sets: int, ways: int, rows: Array) -> int:
    """Misses of one level when nothing is written; rows hold plain lines. Search and shift are one loop."""
    misses = 0
    mask = num_sets - 1 if num_sets & (num_sets - 1) == 0 else -1
    for i in range(addresses.size):
        line = addresses[i] >> shift
        base = (line & mask if mask >= 0 else line % num_sets) * ways
        carried = rows[base]
        if carried == line:
            continue
        rows[base] = line
        misses += 1
        for slot in range(base + 1, base + ways):
            here = rows[slot]
            rows[slot] = carried
            if here == line:
                misses -= 1
                break
            carried = here
    return misses


@compiled
def _single_level(
    addresses: Array, writes: Array, shift: int, num_sets: int, ways: int, rows: Array
) -> tuple[int, int]:
    misses = writebacks = 0
    mask = num_sets - 1 if num_sets & (num_sets - 1) == 0 else -1
    for i in range(addresses.size):
        line = addresses[i] >> shift
        base = (line & mask if mask >= 0 else line % num_sets) * ways
        write = 1 if writes[i] else 0
        carried = rows[base]
        if carried >> 1 == line:
            rows[base] = carried | write
            continue
        entry = 2 * line | write
        hit = False
        for slot in range(base + 1, base + ways):
            here = rows[slot]
            rows[slot] = carried
            carried = here
            if here >> 1 == line:
                hit = True
                entry |= here & 1
                break
        rows[base] = entry
        if not hit:
            misses += 1
            if carried >= 0 and carried & 1:  # what fell out of the last way
                writebacks += 1
    return misses, writebacks


@compiled
def _find(rows: Array, base: int, ways: int, line: int) -> int:
    for way in range(ways):
        if rows[base + way] >> 1 == line:
            return way
    return -1


@compiled
def _push(rows: Array, base: int, way: int, entry: int) -> int:
    """Put an entry in front, shifting the others up to ``way``; return what fell out there."""
    fallen = rows[base + way]
    for slot in range(base + way, base, -1):
        rows[slot] = rows[slot - 1]
    rows[base] = entry
    return int(fallen)


@compiled
def _hierarchy(
    addresses: Array, writes: Array, shift: int, shape: Array, offsets: Array, rows: Array, counts: Array
) -> None:
    num_levels = shape.shape[0]
    has_writes = writes.size > 0
    for i in range(addresses.size):
        line = addresses[i] >> shift
        depth = 0  # the first level that holds the line; fetched through all levels before it
        while depth < num_levels:
            base = offsets[depth] + line % shape[depth, 0] * shape[depth, 1]
            way = _find(rows, base, shape[depth, 1], line)
            counts[depth, 0] += 1
            if way >= 0:
                _push(rows, base, way, rows[base + way])
                break
            counts[depth, 1] += 1
            depth += 1
        for level in range(min(depth, num_levels) - 1, -1, -1):  # fill from the outside in
            base = offsets[level] + line % shape[level, 0] * shape[level, 1]
            fallen = _push(rows, base, shape[level, 1] - 1, 2 * line)
            sender = level
            while fallen >= 0 and fallen & 1:  # a dirty victim moves outward, and may push out another
                counts[sender, 2] += 1
                if sender + 1 == num_levels:
                    break
                sender += 1
                victim = fallen >> 1
                base = offsets[sender] + victim % shape[sender, 0] * shape[sender, 1]
                way = _find(rows, base, shape[sender, 1], victim)
                if way >= 0:
                    rows[base + way] |= 1
                    break
                fallen = _push(rows, base, shape[sender, 1] - 1, 2 * victim + 1)
        if has_writes and writes[i]:
            rows[offsets[0] + line % shape[0, 0] * shape[0, 1]] |= 1


def run(
    addresses: npt.NDArray[np.int64],
    writes: npt.NDArray[np.bool_] | None,
    line_bytes: int,
    shape: Sequence[tuple[int, int]],
) -> list[tuple[int, int, int]]:
    """(accesses, misses, writebacks) of each level; ``shape`` holds (num_sets, ways) from the core outward."""
    shift = line_bytes.bit_length() - 1
    sizes = [num_sets * ways for num_sets, ways in shape]
    rows = np.full(sum(sizes), -1, dtype=np.int64)
    if len(shape) == 1 and writes is None:
        return [(addresses.size, int(_reads_only(addresses, shift, *shape[0], rows)), 0)]
    if len(shape) == 1 and writes is not None:
        misses, writebacks = _single_level(addresses, writes, shift, *shape[0], rows)
        return [(addresses.size, misses, writebacks)]
    flags = np.zeros(0, dtype=bool) if writes is None else writes
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    counts = np.zeros((len(shape), 3), dtype=np.int64)
    _hierarchy(addresses, flags, shift, np.array(shape, dtype=np.int64), offsets, rows, counts)
    return [(int(a), int(m), int(w)) for a, m, w in counts]
