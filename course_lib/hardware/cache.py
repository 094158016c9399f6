"""Caches: set-associative LRU levels, written back and allocated on write, simulated to the last miss.

Three implementations give the same counts, and tests hold them equal: :func:`simulate_cache_reference`, to be read;
a faster one in Python for machines without numba; and compiled kernels.

The rules, for every level: a hit makes the line the most recent of its set. A miss fetches the line from the next
level, evicts the least recent line of the set, and if that one is dirty writes it back to the next level. A write
makes the line dirty (write-back) and fetches it first if it is absent (write-allocate). Nothing is evicted because
another level evicts it (non-inclusive). A write-back that arrives at a level makes the line dirty where it is
present, without making it recent, and is else inserted as the most recent; it is no access and is counted as
``writebacks`` of the level that sent it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from course_lib.hardware.cache_level import (
    CacheLevel,
    HierarchyStats,
    LevelStats,
    check_levels,
    checked_addresses,
    checked_flags,
    hierarchy_stats,
)
from course_lib.hardware.cache_reference import simulate_cache_python, simulate_cache_reference
from course_lib.hardware.jit import has_numba

__all__ = [
    "CacheLevel", "HierarchyStats", "LevelStats", "simulate_cache", "simulate_cache_python",
    "simulate_cache_reference",
]  # fmt: skip


def simulate_cache(
    addresses: npt.ArrayLike, levels: Sequence[CacheLevel], *, is_write: npt.ArrayLike | None = None
) -> HierarchyStats:
    """Simulate a hierarchy of LRU caches on a stream of byte addresses, starting empty.

    Args:
        addresses: byte addresses in program order, integers, 0 or more; shape (num_accesses,).
        levels: caches from the core outward, one or more, all with the same line.
        is_write: which accesses are writes; None means all are reads.

    Returns:
        Counts per level; exact, whichever implementation ran.

    Raises:
        InvalidInputError: addresses that are negative, not integers or not one-dimensional; flags of another length;
            no level. UnsupportedError: levels with different lines.

    Assumes: an access touches one line; no prefetching, no translation of addresses.

    Source: Mattson, Gecsei, Slutz and Traiger, 1970 (LRU); Hennessy and Patterson, Appendix B.

    >>> import numpy as np
    >>> l1 = CacheLevel(name="L1", capacity_bytes=64 * 64, line_bytes=64)
    >>> scan = np.tile(np.arange(65) * 64, 10)              # one line too many, ten times around
    >>> simulate_cache(scan, [l1]).levels[0].hit_rate
    0.0
    >>> simulate_cache(scan[scan < 64 * 64], [l1]).levels[0].hit_rate
    0.9
    """
    check_levels(levels)
    checked, writes, line_bytes = checked_addresses(addresses), checked_flags(addresses, is_write), levels[0].line_bytes
    if not has_numba():
        return simulate_cache_python(checked, levels, is_write=writes)
    from course_lib.hardware import cache_kernels

    shape = [(level.num_sets, level.num_ways) for level in levels]
    return hierarchy_stats(levels, cache_kernels.run(checked, writes, line_bytes, shape))
