"""The cache simulator to be read, and the one for machines without numba; both give the counts of the kernels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from course_lib.hardware.cache_level import (
    CacheLevel,
    HierarchyStats,
    check_levels,
    checked_flags,
    hierarchy_stats,
    line_ids,
)

__all__ = ["simulate_cache_python", "simulate_cache_reference"]


def simulate_cache_reference(
    addresses: npt.ArrayLike, levels: Sequence[CacheLevel], *, is_write: npt.ArrayLike | None = None
) -> HierarchyStats:
    """The same as :func:`simulate_cache`, written to be read: one dictionary per set, oldest line first.

    >>> l1 = CacheLevel(name="L1", capacity_bytes=128, line_bytes=64)
    >>> simulate_cache_reference([0, 64, 128, 0], [l1], is_write=[1, 0, 0, 0]).levels[0]
    LevelStats(name='L1', num_accesses=4, num_hits=0, num_misses=4, writebacks=1)
    """
    check_levels(levels)
    caches = _reference_caches(levels)
    lines, writes = line_ids(addresses, levels[0].line_bytes), checked_flags(addresses, is_write)
    for i, line in enumerate(lines.tolist()):
        caches[0].access(line, write=writes is not None and bool(writes[i]))
    return hierarchy_stats(levels, [(c.num_accesses, c.num_misses, c.writebacks) for c in caches])


def _reference_caches(levels: Sequence[CacheLevel]) -> list[_ReferenceCache]:
    """One cache per level, each knowing the next one outward."""
    caches = [_ReferenceCache(level) for level in levels]
    for cache, outer in pairwise(caches):
        cache.outer = outer
    return caches


class _ReferenceCache:
    """One level: ``sets[s]`` maps each resident line to whether it is dirty, least recent first."""

    def __init__(self, level: CacheLevel) -> None:
        self.level, self.outer = level, None  # type: CacheLevel, _ReferenceCache | None
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(level.num_sets)]
        self.num_accesses = self.num_misses = self.writebacks = 0

    def access(self, line: int, *, write: bool) -> None:
        """A load or a store of one line."""
        self.num_accesses += 1
        resident = self.sets[line % self.level.num_sets]
        if line in resident:
            resident.move_to_end(line)
        else:
            self.num_misses += 1
            if self.outer is not None:
                self.outer.access(line, write=False)  # fetched to be changed here: the outer copy stays clean
            self.insert(line, dirty=False)
        if write:
            resident[line] = True

    def insert(self, line: int, *, dirty: bool) -> None:
        """Make a line the most recent of its set; evict the least recent if the set is full."""
        resident = self.sets[line % self.level.num_sets]
        if len(resident) == self.level.num_ways:
            victim, victim_is_dirty = resident.popitem(last=False)
            if victim_is_dirty:
                self.writebacks += 1
                if self.outer is not None:
                    self.outer.write_back(victim)
        resident[line] = dirty

    def write_back(self, line: int) -> None:
        """A dirty line arrives from the level inside."""
        resident = self.sets[line % self.level.num_sets]
        if line in resident:
            resident[line] = True
        else:
            self.insert(line, dirty=True)


def simulate_cache_python(
    addresses: npt.ArrayLike, levels: Sequence[CacheLevel], *, is_write: npt.ArrayLike | None = None
) -> HierarchyStats:
    """The same as :func:`simulate_cache`, without numba.

    Run-length compression first: a line that repeats is a hit that moves nothing.

    >>> l1 = CacheLevel(name="L1", capacity_bytes=128, line_bytes=64)
    >>> simulate_cache_python([0, 8, 16, 64], [l1]).levels[0].num_misses
    2
    """
    check_levels(levels)
    lines, writes = line_ids(addresses, levels[0].line_bytes), checked_flags(addresses, is_write)
    starts = np.flatnonzero(np.diff(lines, prepend=-1))
    runs = lines[starts]
    if writes is None or not runs.size:
        writes, starts = np.zeros(1, dtype=bool), np.zeros(runs.size, dtype=np.int64)
    dirty = np.logical_or.reduceat(writes, starts)
    caches = _reference_caches(levels)
    first, num_sets = caches[0], levels[0].num_sets
    outer_access = first.outer.access if first.outer is not None else None
    sets, insert = first.sets, first.insert
    for line, write in zip(runs.tolist(), dirty.tolist()):
        resident = sets[line % num_sets]
        if line in resident:
            resident.move_to_end(line)
        else:
            first.num_misses += 1
            if outer_access is not None:
                outer_access(line, write=False)
            insert(line, dirty=False)
        if write:
            resident[line] = True
    first.num_accesses = lines.size
    return hierarchy_stats(levels, [(c.num_accesses, c.num_misses, c.writebacks) for c in caches])
