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

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.hardware.jit import has_numba

__all__ = [
    "CacheLevel", "HierarchyStats", "LevelStats", "line_ids", "simulate_cache", "simulate_cache_python",
    "simulate_cache_reference",
]  # fmt: skip

Lines = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """One cache.

    Args:
        name: such as ``"L1"``.
        capacity_bytes: size, a whole number of sets [B].
        line_bytes: line, a power of two [B].
        ways: lines per set; None is fully associative.
        policy: replacement; ``"lru"`` only.

    >>> CacheLevel(name="L1", capacity_bytes=32 * 1024, line_bytes=64, ways=8).num_sets
    64
    """

    name: str
    capacity_bytes: int
    line_bytes: int
    ways: int | None = None
    policy: str = "lru"

    def __post_init__(self) -> None:
        if self.policy != "lru":
            raise UnsupportedError(f"replacement policy {self.policy!r} is not modelled; use 'lru'.")
        if self.line_bytes < 1 or self.line_bytes & (self.line_bytes - 1):
            raise InvalidInputError(f"{self.name}: a line is a power of two bytes", given=self.line_bytes)
        if self.ways is not None and self.ways < 1:
            raise InvalidInputError(f"{self.name}: ways is 1 or more, or None for fully associative", given=self.ways)
        row = self.line_bytes * (self.ways or 1)
        if self.capacity_bytes < row or self.capacity_bytes % row:
            raise InvalidInputError(
                f"{self.name}: the capacity is a whole number of sets of {row} B", given=f"{self.capacity_bytes} B"
            )

    @property
    def num_lines(self) -> int:
        """Lines that the cache holds."""
        return self.capacity_bytes // self.line_bytes

    @property
    def num_ways(self) -> int:
        """Lines per set."""
        return self.ways or self.num_lines

    @property
    def num_sets(self) -> int:
        """Sets; line ``l`` goes to set ``l mod num_sets``."""
        return self.num_lines // self.num_ways


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStats:
    """Counts of one level: accesses that reached it, hits, misses, and dirty lines it wrote to the next level."""

    name: str
    num_accesses: int
    num_hits: int
    num_misses: int
    writebacks: int

    @property
    def hit_rate(self) -> float:
        """Hits per access; 0 for a level that was never reached."""
        return self.num_hits / self.num_accesses if self.num_accesses else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchyStats:
    """Counts of all levels, from the core outward; lines that are still dirty at the end stay where they are."""

    levels: tuple[LevelStats, ...]
    line_bytes: int

    def __getitem__(self, name: str) -> LevelStats:
        """The level of that name."""
        for level in self.levels:
            if level.name == name:
                return level
        raise KeyError(name)

    @property
    def memory_bytes_read(self) -> int:
        """Bytes fetched from memory by the last level."""
        return self.levels[-1].num_misses * self.line_bytes

    @property
    def memory_bytes_written(self) -> int:
        """Bytes written back to memory by the last level."""
        return self.levels[-1].writebacks * self.line_bytes


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
    _check_levels(levels)
    checked, writes, line_bytes = _checked(addresses), _flags(addresses, is_write), levels[0].line_bytes
    if not has_numba():
        return _python(line_ids(checked, line_bytes), writes, levels)
    from course_lib.hardware import cache_kernels

    shape = [(level.num_sets, level.num_ways) for level in levels]
    return _stats(levels, cache_kernels.run(checked, writes, line_bytes, shape))


def simulate_cache_reference(
    addresses: npt.ArrayLike, levels: Sequence[CacheLevel], *, is_write: npt.ArrayLike | None = None
) -> HierarchyStats:
    """The same as :func:`simulate_cache`, written to be read: one dictionary per set, oldest line first.

    >>> l1 = CacheLevel(name="L1", capacity_bytes=128, line_bytes=64)
    >>> simulate_cache_reference([0, 64, 128, 0], [l1], is_write=[1, 0, 0, 0]).levels[0]
    LevelStats(name='L1', num_accesses=4, num_hits=0, num_misses=4, writebacks=1)
    """
    _check_levels(levels)
    caches = _reference_caches(levels)
    lines, writes = line_ids(addresses, levels[0].line_bytes), _flags(addresses, is_write)
    for i, line in enumerate(lines.tolist()):
        caches[0].access(line, write=writes is not None and bool(writes[i]))
    return _stats(levels, [(c.num_accesses, c.num_misses, c.writebacks) for c in caches])


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

    >>> l1 = CacheLevel(name="L1", capacity_bytes=128, line_bytes=64)
    >>> simulate_cache_python([0, 8, 16, 64], [l1]).levels[0].num_misses
    2
    """
    _check_levels(levels)
    return _python(line_ids(addresses, levels[0].line_bytes), _flags(addresses, is_write), levels)


def _python(lines: Lines, writes: Flags | None, levels: Sequence[CacheLevel]) -> HierarchyStats:
    """Run-length compression first: a repeated line is a hit that moves nothing."""
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
    return _stats(levels, [(c.num_accesses, c.num_misses, c.writebacks) for c in caches])


def line_ids(addresses: npt.ArrayLike, line_bytes: int) -> Lines:
    """Line of each byte address, ``address // line_bytes``, checked.

    >>> line_ids([0, 63, 64], 64).tolist()
    [0, 0, 1]
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise InvalidInputError("a line is a power of two bytes", given=line_bytes)
    lines: Lines = _checked(addresses) >> (line_bytes.bit_length() - 1)
    return lines


def _checked(addresses: npt.ArrayLike) -> Lines:
    array = np.asarray(addresses)
    if array.ndim != 1:
        raise InvalidInputError("addresses are one-dimensional", given=f"shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise InvalidInputError("addresses are integers (bytes)", given=str(array.dtype))
    # One pass: read as unsigned, a negative number is a huge one.
    if array.size and int(_unsigned(array).max()) >= 2**62:
        raise InvalidInputError("addresses are 0 or more and below 2**62", given=f"{array.min()} to {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _unsigned(array: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    wide = array if array.dtype.itemsize == 8 else array.astype(np.int64)
    return wide.view(np.uint64)


def _flags(addresses: npt.ArrayLike, is_write: npt.ArrayLike | None) -> Flags | None:
    if is_write is None:
        return None
    flags = np.ascontiguousarray(is_write, dtype=bool)
    if flags.shape != np.shape(addresses):
        raise InvalidInputError(
            "one write flag per access", given=f"{flags.shape} flags", allowed=f"{np.shape(addresses)}"
        )
    return flags


def _check_levels(levels: Sequence[CacheLevel]) -> None:
    if not levels:
        raise InvalidInputError("a hierarchy has at least one level", given="none")
    if len({level.line_bytes for level in levels}) > 1:
        raise UnsupportedError("levels with different line sizes are not modelled; give all levels the same line.")


def _stats(levels: Sequence[CacheLevel], counts: Sequence[tuple[int, int, int]]) -> HierarchyStats:
    return HierarchyStats(
        levels=tuple(
            LevelStats(
                name=level.name, num_accesses=int(accesses), num_hits=int(accesses - misses),
                num_misses=int(misses), writebacks=int(writebacks),
            )
            for level, (accesses, misses, writebacks) in zip(levels, counts)
        ),
        line_bytes=levels[0].line_bytes,
    )  # fmt: skip
