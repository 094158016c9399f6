"""Collectives: how long devices take to add up what each of them holds, by the alpha-beta model and by execution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_lib.errors import InvalidInputError

__all__ = [
    "RingRun", "all_gather_seconds", "bus_factor", "reduce_scatter_seconds", "ring_all_reduce",
    "ring_all_reduce_seconds", "ring_tree_crossover_bytes", "top_k_break_even_devices", "tree_all_reduce_seconds",
]  # fmt: skip

Array = npt.NDArray[np.float64]


def ring_all_reduce_seconds(
    nbytes: float, num_devices: int, *, bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """Time of a ring all-reduce, ``t = 2(n-1) alpha + 2(n-1)/n * S/B``.

    Args:
        nbytes: S, bytes held by each device, 0 or more.
        num_devices: n, 1 or more; one device needs no time.
        bytes_per_second: B, bandwidth to the neighbour, one direction [B/s].
        latency_seconds: alpha, time of an empty message [s].

    Raises:
        InvalidInputError: a negative size, no device, a bandwidth of zero.

    Assumes: full-duplex links, no contention, no time for the additions.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009.

    >>> round(ring_all_reduce_seconds(140e9, 8, bytes_per_second=450e9), 3)
    0.544
    """
    return 2 * all_gather_seconds(
        nbytes, num_devices, bytes_per_second=bytes_per_second, latency_seconds=latency_seconds
    )


def all_gather_seconds(
    nbytes: float, num_devices: int, *, bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """Time of a ring all-gather of S bytes in total, ``t = (n-1) alpha + (n-1)/n * S/B``: half an all-reduce.

    Args, Raises, Assumes: as :func:`ring_all_reduce_seconds`; S is the size of the gathered result.

    >>> all_gather_seconds(8e9, 8, bytes_per_second=1e9)
    7.0
    """
    _check(nbytes, num_devices, bytes_per_second, latency_seconds)
    steps = num_devices - 1
    return steps * latency_seconds + steps / num_devices * nbytes / bytes_per_second


def reduce_scatter_seconds(
    nbytes: float, num_devices: int, *, bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """Time of a ring reduce-scatter: the same traffic as an all-gather, in the other direction.

    >>> reduce_scatter_seconds(8e9, 8, bytes_per_second=1e9)
    7.0
    """
    return all_gather_seconds(nbytes, num_devices, bytes_per_second=bytes_per_second, latency_seconds=latency_seconds)


def tree_all_reduce_seconds(
    nbytes: float, num_devices: int, *, bytes_per_second: float, latency_seconds: float = 0.0
) -> float:
    """Time of a binary-tree all-reduce, up and down, ``t = 2 ceil(log2 n) (alpha + S/B)``.

    Few messages, each with the whole payload: better than a ring for small S and many devices.

    Args, Raises: as :func:`ring_all_reduce_seconds`. Assumes: no pipelining of the payload.

    >>> tree_all_reduce_seconds(0, 8, bytes_per_second=1e9, latency_seconds=1e-6)
    6e-06
    """
    _check(nbytes, num_devices, bytes_per_second, latency_seconds)
    return 2 * math.ceil(math.log2(num_devices)) * (latency_seconds + nbytes / bytes_per_second)


def ring_tree_crossover_bytes(num_devices: int, *, bytes_per_second: float, latency_seconds: float) -> float:
    """Payload at which ring and tree take equally long; below it the tree wins.

    ``S* = alpha B (n-1-h) / (h - (n-1)/n)`` with ``h = ceil(log2 n)``. Zero where the ring is never slower.

    >>> round(ring_tree_crossover_bytes(64, bytes_per_second=100e9, latency_seconds=5e-6))
    5682243
    """
    _check(0, num_devices, bytes_per_second, latency_seconds)
    height = math.ceil(math.log2(num_devices))
    if num_devices < 3:
        return 0.0
    saved_messages = num_devices - 1 - height
    extra_payloads = height - (num_devices - 1) / num_devices
    return latency_seconds * bytes_per_second * saved_messages / extra_payloads


def bus_factor(collective: str, num_devices: int) -> float:
    """Factor from algorithm bandwidth (S/t) to bus bandwidth, comparable across numbers of devices.

    Args:
        collective: all_reduce, reduce_scatter, all_gather, all_to_all, broadcast or reduce.
        num_devices: n, 1 or more.

    Source: NCCL tests, PERFORMANCE.md.

    >>> bus_factor("all_reduce", 8)
    1.75
    """
    _check(0, num_devices, 1.0, 0.0)
    part = (num_devices - 1) / num_devices
    factors = {
        "all_reduce": 2 * part, "reduce_scatter": part, "all_gather": part, "all_to_all": part,
        "broadcast": 1.0, "reduce": 1.0,
    }  # fmt: skip
    if collective not in factors:
        raise InvalidInputError("a collective with a bus factor", allowed=", ".join(factors), given=repr(collective))
    return factors[collective]


def top_k_break_even_devices(fraction: float, *, value_bytes: float, index_bytes: float) -> float:
    """Number of devices from which top-k sparsified gradients move more bytes than a dense all-reduce.

    Indices differ by device, so that top-k is all-gathered, ``(n-1) f N (v+i)``, against ``2 (n-1)/n N v``;
    they are equal at ``n* = 2 v / (f (v+i))``.

    >>> round(top_k_break_even_devices(0.01, value_bytes=2, index_bytes=4), 1)
    66.7
    """
    if not 0 < fraction <= 1 or value_bytes <= 0 or index_bytes < 0:
        raise InvalidInputError("a fraction in (0, 1] and positive sizes", given=(fraction, value_bytes, index_bytes))
    return 2 * value_bytes / (fraction * (value_bytes + index_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRun:
    """An executed ring all-reduce: what every device holds after it, the messages and the bytes each device sent."""

    results: tuple[Array, ...]
    num_steps: int
    bytes_sent_per_device: int


def ring_all_reduce(arrays: Sequence[npt.ArrayLike]) -> RingRun:
    """Execute a ring all-reduce chunk by chunk and count what crosses the wire.

    Step s of the first half: device d sends chunk (d - s) mod n to its right neighbour, which adds it; after n-1
    steps device d owns the full sum of chunk (d + 1) mod n. The second half passes the sums around.

    Args:
        arrays: one array of n or more per device, all of the same length; converted to float64.

    Raises:
        InvalidInputError: no device, or arrays of different lengths.

    >>> run = ring_all_reduce([[1.0, 2.0], [10.0, 20.0]])
    >>> run.results[0].tolist(), run.num_steps, run.bytes_sent_per_device
    ([11.0, 22.0], 2, 16)
    """
    held = [np.array(array, dtype=np.float64).ravel() for array in arrays]
    if not held or len({array.size for array in held}) != 1:
        raise InvalidInputError("one array per device, all of one length", given=[array.size for array in held])
    n = len(held)
    parts = np.array_split(np.arange(held[0].size), n)
    sent = [0] * n
    for half in ("reduce", "gather"):
        for step in range(n - 1):
            shift = step if half == "reduce" else step - 1
            chunks = [(d - shift) % n for d in range(n)]
            messages = [held[d][parts[chunks[d]]].copy() for d in range(n)]  # all send before any receives
            for d, message in enumerate(messages):
                sent[d] += message.nbytes
                target = held[(d + 1) % n]
                if half == "reduce":
                    target[parts[chunks[d]]] += message
                else:
                    target[parts[chunks[d]]] = message
    return RingRun(results=tuple(held), num_steps=2 * (n - 1), bytes_sent_per_device=max(sent))


def _check(nbytes: float, num_devices: int, bytes_per_second: float, latency_seconds: float) -> None:
    if num_devices < 1 or num_devices != int(num_devices):
        raise InvalidInputError("a collective needs a whole number of devices, 1 or more", given=num_devices)
    if not nbytes >= 0 or not latency_seconds >= 0:
        raise InvalidInputError("bytes and latency are 0 or more", given=(nbytes, latency_seconds))
    if not bytes_per_second > 0:
        raise InvalidInputError("bandwidth is positive", given=bytes_per_second)
