"""Tiles: blocks of an array that are packed, copied into on-chip memory, used there and copied back.

Everything an attention kernel moves goes through a :class:`Scratchpad`, so that its traffic and its on-chip peak
are those of executed copies. What it computes is tallied in a :class:`FlopCount`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError
from course_lib.hardware.scratchpad import Ledger

__all__ = ["Array", "FlopCount", "Scratchpad", "blocks", "scratchpad_ledger"]

Array = NDArray[Any]


@dataclass(slots=True)
class FlopCount:
    """What a kernel computed, by kind; a multiply-add is 2 FLOPs.

    Args:
        matmul: FLOPs of matrix products.
        rescale: FLOPs of correcting earlier partial outputs when a new row maximum appears.
        softmax: other FLOPs of forward attention: scaling, row maximum, subtraction and row sum, one each a score,
            and one division an element that is normalised. Row-sized arithmetic and masks are left out.
        exponentials: calls of exp.
    """

    matmul: int = 0
    rescale: int = 0
    softmax: int = 0
    exponentials: int = 0

    @property
    def total(self) -> int:
        """All FLOPs; exponentials are counted apart."""
        return self.matmul + self.rescale + self.softmax

    def product(self, a: Array, b: Array) -> Array:
        """``a @ b``, counted as ``2*m*n*k``."""
        result: Array = a @ b
        self.matmul += 2 * a.shape[-1] * result.size
        return result


class Scratchpad:
    """On-chip buffers of one kernel; a ``with`` block frees them all, also when a tile does not fit.

    >>> ledger = scratchpad_ledger(1024)
    >>> with Scratchpad(ledger) as pad:
    ...     tile = pad.load(np.ones((8, 16), np.float32))
    >>> ledger.bytes_read["hbm"], ledger.peak_bytes["sram"], ledger.live_bytes["sram"]
    (512, 512, 0)
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._live_bytes = 0

    def __enter__(self) -> Scratchpad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ledger.free("sram", self._live_bytes)
        self._live_bytes = 0

    def buffer(self, shape: tuple[int, ...], dtype: np.dtype[Any], fill: float = 0.0) -> Array:
        """Reserve on-chip room; costs no traffic."""
        array = np.full(shape, fill, dtype)
        self._reserve(array.nbytes)
        return array

    def load(self, block: Array) -> Array:
        """Pack a block of outer memory into a contiguous tile on the chip."""
        self._reserve(block.nbytes)
        self.ledger.read("hbm", block.nbytes)
        return np.array(block, order="C", copy=True)

    def store(self, block: Array, tile: Array) -> None:
        """Copy a tile back into its block of outer memory, rounding to the block's dtype."""
        block[...] = tile.astype(block.dtype)
        self.ledger.write("hbm", block.nbytes)

    def _reserve(self, nbytes: int) -> None:
        self.ledger.allocate("sram", nbytes)
        self._live_bytes += nbytes


def scratchpad_ledger(sram_bytes: int | None = None) -> Ledger:
    """Make the ledger of the two-level machine: unbounded ``hbm`` and an ``sram`` of ``sram_bytes``."""
    return Ledger(capacities={"hbm": None, "sram": sram_bytes})


def blocks(length: int, block: int) -> Iterator[slice]:
    """Cut ``range(length)`` into blocks; the last may be shorter and is not padded.

    >>> [(part.start, part.stop) for part in blocks(10, 4)]
    [(0, 4), (4, 8), (8, 10)]
    """
    return (slice(start, min(start + block, length)) for start in range(0, length, block))


def machine_ledger(sram_bytes: int | None, ledger: Ledger | None) -> Ledger:
    """Choose the ledger a kernel runs on: the caller's, or a fresh one with ``sram_bytes``."""
    if ledger is not None and sram_bytes is not None:
        raise InvalidInputError(
            "give either sram_bytes or a ledger, whose sram capacity then holds", given="both",
            next_step="Use scratchpad_ledger(sram_bytes) as the ledger.",
        )  # fmt: skip
    return ledger if ledger is not None else scratchpad_ledger(sram_bytes)
