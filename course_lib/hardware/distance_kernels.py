"""Compiled stack distances: a Fenwick tree over time holds a mark at the last access of every line."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.hardware.jit import compiled

__all__ = ["run"]

Array = npt.NDArray[Any]


@compiled
def _distances(ids: Array, last: Array, tree: Array, out: Array) -> None:
    size = tree.size - 1
    now = 0  # compacted time: repeats of the same line do not advance it
    newest = -1
    num_seen = 0
    for i in range(ids.size):
        line = ids[i]
        if line == newest:
            out[i] = 0
            continue
        newest = line
        now += 1
        before = last[line]
        if before == 0:
            out[i] = -1
            num_seen += 1
        else:
            older = 0  # marks at or before the last access to this line
            slot = before
            while slot > 0:
                older += tree[slot]
                slot &= slot - 1
            out[i] = num_seen - older
            slot = before
            while slot <= size:
                tree[slot] -= 1
                slot += slot & -slot
        slot = now
        while slot <= size:
            tree[slot] += 1
            slot += slot & -slot
        last[line] = now


def run(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Stack distance of each access; ``ids`` are small, 0 or more."""
    num_runs = 1 + int(np.count_nonzero(np.diff(ids)))
    out = np.empty(ids.size, dtype=np.int64)
    _distances(ids, np.zeros(int(ids.max()) + 1, dtype=np.int64), np.zeros(num_runs + 1, dtype=np.int32), out)
    return out
