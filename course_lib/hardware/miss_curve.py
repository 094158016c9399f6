"""Misses of every LRU capacity from one pass: stack distances, and the three kinds of misses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from course_lib.errors import InvalidInputError
from course_lib.hardware.cache import CacheLevel, simulate_cache
from course_lib.hardware.cache_level import line_ids
from course_lib.hardware.jit import has_numba

__all__ = ["MissClasses", "MissCurve", "miss_classes", "miss_curve", "stack_distances", "stack_distances_numpy"]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissCurve:
    """Misses of a fully associative LRU cache as a function of its capacity.

    Args:
        line_bytes: line [B].
        num_accesses: accesses of the stream.
        compulsory: first touches of a line; no capacity removes them.
        hits_by_distance: number of accesses at each stack distance 0, 1, 2, ...; distance d hits from d+1 lines on.
    """

    line_bytes: int
    num_accesses: int
    compulsory: int
    hits_by_distance: Counts = field(repr=False, compare=False)

    def misses(self, capacity_bytes: int) -> int:
        """Misses with ``capacity_bytes // line_bytes`` lines."""
        if capacity_bytes < 0:
            raise InvalidInputError("a capacity is 0 or more bytes", given=capacity_bytes)
        num_lines = capacity_bytes // self.line_bytes
        return self.num_accesses - int(self.hits_by_distance[:num_lines].sum())

    def capacity(self, capacity_bytes: int) -> int:
        """Misses that a larger cache would avoid: all but the compulsory ones."""
        return self.misses(capacity_bytes) - self.compulsory

    def steps(self) -> tuple[Counts, Counts]:
        """The whole curve: capacities [B] at which it falls, from 0 on, and the misses from each of them on.

        >>> capacities, misses = miss_curve([0, 64, 0, 64], line_bytes=64).steps()
        >>> capacities.tolist(), misses.tolist()
        ([0, 128], [4, 2])
        """
        falls = np.flatnonzero(self.hits_by_distance)
        hits = np.cumsum(self.hits_by_distance[falls])
        capacities = np.concatenate([[0], (falls + 1) * self.line_bytes])
        return capacities.astype(np.int64), (self.num_accesses - np.concatenate([[0], hits])).astype(np.int64)


def miss_curve(addresses: npt.ArrayLike, *, line_bytes: int) -> MissCurve:
    """Misses of every LRU capacity in one pass.

    An access hits in a cache of C lines exactly when fewer than C distinct other lines were touched since the last
    access to its line: its stack distance is below C. So one histogram of distances holds all capacities.

    Args:
        addresses: byte addresses in program order; shape (num_accesses,).
        line_bytes: line, a power of two [B].

    Raises:
        InvalidInputError: as :func:`course_lib.hardware.simulate_cache`.

    Source: Mattson, Gecsei, Slutz and Traiger, Evaluation techniques for storage hierarchies, 1970.

    >>> import numpy as np
    >>> curve = miss_curve(np.tile(np.arange(65) * 64, 10), line_bytes=64)
    >>> curve.misses(64 * 64), curve.misses(65 * 64), curve.compulsory
    (650, 65, 65)
    """
    lines = line_ids(addresses, line_bytes)
    distances = stack_distances(lines)
    reused = distances[distances >= 0]
    return MissCurve(
        line_bytes=line_bytes, num_accesses=lines.size, compulsory=lines.size - reused.size,
        hits_by_distance=np.bincount(reused),
    )  # fmt: skip


def stack_distances(lines: npt.ArrayLike) -> Counts:
    """Distinct other lines touched since the last access to the same line; -1 for a first touch.

    >>> stack_distances([7, 7, 8, 9, 8, 7]).tolist()
    [-1, 0, -1, -1, 1, 2]
    """
    ids = np.asarray(lines, dtype=np.int64)
    if not ids.size:
        return np.zeros(0, dtype=np.int64)
    if not has_numba():
        return stack_distances_numpy(ids)
    from course_lib.hardware import distance_kernels

    return distance_kernels.run(_compact(ids))


def stack_distances_numpy(lines: npt.ArrayLike) -> Counts:
    """The same without numba, by counting inversions.

    ``d_i = (i - p_i - 1) - #{j < i : p_j > p_i}`` with ``p_i`` the previous access to the same line: of the accesses
    in between, those whose own previous access also lies in between are repeats. The last term is found by merging
    sorted halves.

    >>> stack_distances_numpy([7, 7, 8, 9, 8, 7]).tolist()
    [-1, 0, -1, -1, 1, 2]
    """
    previous = _previous(np.asarray(lines, dtype=np.int64))
    positions = np.arange(previous.size)
    return np.where(previous < 0, -1, positions - previous - 1 - _larger_before(previous))


def _previous(ids: Counts) -> Counts:
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    previous = np.full(ids.size, -1, dtype=np.int64)
    previous[order[same + 1]] = order[same]
    return previous


def _larger_before(values: Counts) -> Counts:
    """For each element, how many earlier ones are larger: right halves look up sorted left halves, at every width."""
    num, width = values.size, 1
    size = 1 << max(0, num - 1).bit_length()
    padded = np.full(size, -1, dtype=np.int64)
    padded[:num] = values
    counts = np.zeros(size, dtype=np.int64)
    while width < size:
        pairs = padded.reshape(-1, 2, width)
        shift = np.arange(pairs.shape[0])[:, None] * (size + 1)  # keeps blocks apart in one sorted array
        left = (np.sort(pairs[:, 0], axis=1) + shift).ravel()
        found = np.searchsorted(left, (pairs[:, 1] + shift).ravel(), side="right").reshape(-1, width)
        counts.reshape(-1, 2, width)[:, 1] += (np.arange(1, pairs.shape[0] + 1) * width)[:, None] - found
        width *= 2
    return counts[:num]


def _compact(ids: Counts) -> Counts:
    """Small ids 0, 1, ... for the lines: by subtraction where they lie close, by sorting where they do not."""
    low, high = int(ids.min()), int(ids.max())
    if high - low < 4 * ids.size + 1024:
        return ids - low
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissClasses:
    """Misses of one cache by cause; they sum to all its misses.

    Args:
        compulsory: first touch of a line.
        capacity: those that a fully associative LRU cache of the same size has beyond the compulsory ones.
        conflict: the rest, due to limited ways. Negative where few ways happen to keep what LRU drops.
    """

    compulsory: int
    capacity: int
    conflict: int

    @property
    def total(self) -> int:
        """All misses."""
        return self.compulsory + self.capacity + self.conflict


def miss_classes(addresses: npt.ArrayLike, level: CacheLevel) -> MissClasses:
    """Compulsory, capacity and conflict misses of one cache.

    Args:
        addresses: byte addresses in program order.
        level: the cache.

    Source: Hill and Smith, Evaluating associativity in CPU caches, 1989.

    >>> l1 = CacheLevel(name="L1", capacity_bytes=128, line_bytes=64, ways=1)     # two sets of one way
    >>> miss_classes([0, 128, 0, 128], l1)
    MissClasses(compulsory=2, capacity=0, conflict=2)
    """
    curve = miss_curve(addresses, line_bytes=level.line_bytes)
    actual = simulate_cache(addresses, [level]).levels[0].num_misses
    ideal = curve.misses(level.capacity_bytes)
    return MissClasses(compulsory=curve.compulsory, capacity=ideal - curve.compulsory, conflict=actual - ideal)
