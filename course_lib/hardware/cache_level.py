"""Cache levels, the counts that a simulation returns, and the checks that all implementations share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_lib.errors import InvalidInputError, UnsupportedError

__all__ = [
    "CacheLevel", "Flags", "HierarchyStats", "LevelStats", "Lines", "check_levels", "checked_addresses",
    "checked_flags", "hierarchy_stats", "line_ids",
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


def line_ids(addresses: npt.ArrayLike, line_bytes: int) -> Lines:
    """Line of each byte address, ``address // line_bytes``, checked.

    >>> line_ids([0, 63, 64], 64).tolist()
    [0, 0, 1]
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise InvalidInputError("a line is a power of two bytes", given=line_bytes)
    lines: Lines = checked_addresses(addresses) >> (line_bytes.bit_length() - 1)
    return lines


def checked_addresses(addresses: npt.ArrayLike) -> Lines:
    """Addresses as int64, or a refusal of what is negative, no integer or not one-dimensional."""
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


def checked_flags(addresses: npt.ArrayLike, is_write: npt.ArrayLike | None) -> Flags | None:
    """Write flags as bools, one per access, or None."""
    if is_write is None:
        return None
    flags = np.ascontiguousarray(is_write, dtype=bool)
    if flags.shape != np.shape(addresses):
        raise InvalidInputError(
            "one write flag per access", given=f"{flags.shape} flags", allowed=f"{np.shape(addresses)}"
        )
    return flags


def check_levels(levels: Sequence[CacheLevel]) -> None:
    """Refuse a hierarchy without levels or with different lines."""
    if not levels:
        raise InvalidInputError("a hierarchy has at least one level", given="none")
    if len({level.line_bytes for level in levels}) > 1:
        raise UnsupportedError("levels with different line sizes are not modelled; give all levels the same line.")


def hierarchy_stats(levels: Sequence[CacheLevel], counts: Sequence[tuple[int, int, int]]) -> HierarchyStats:
    """Records from the (accesses, misses, writebacks) of each level."""
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
