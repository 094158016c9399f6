"""A two-level machine: named memory spaces, a capacity for each, and a ledger of every byte moved.

Code that runs on the machine says what it reads, writes, allocates and frees; the ledger counts and refuses
what does not fit. Tiled algorithms (a tiled matmul, flash attention) are executed against it, so that their
claims about traffic and on-chip memory are counted, never asserted.
"""

from __future__ import annotations

from collections.abc import Mapping

from course_lib.errors import DoesNotFitError, InvalidInputError, UnknownNameError
from course_lib.units import format_bytes

__all__ = ["CapacityError", "Ledger"]


class CapacityError(DoesNotFitError):
    """An allocation larger than what is left of a memory space.

    Args:
        space: the memory space asked.
        nbytes: bytes asked for.
        live_bytes: bytes already allocated there.
        capacity_bytes: what the space holds.
    """

    def __init__(self, space: str, *, nbytes: int, live_bytes: int, capacity_bytes: int) -> None:
        self.space, self.nbytes = space, nbytes
        self.live_bytes, self.capacity_bytes = live_bytes, capacity_bytes
        missing = live_bytes + nbytes - capacity_bytes
        super().__init__(
            f"{space} holds {capacity_bytes:,} B; {live_bytes:,} B are live and {nbytes:,} B more were asked for, "
            f"{missing:,} B ({format_bytes(missing)}) too many. Use smaller tiles or free a buffer first."
        )


class Ledger:
    """Bytes read, written and live in each memory space of a software-managed machine.

    ``bytes_moved = bytes_read + bytes_written`` per space; ``peak_bytes`` is the largest ``live_bytes`` seen.
    Reading and writing cost traffic and need no allocation; allocating costs room and no traffic.

    Args:
        capacities: bytes each named space holds, such as ``{"sram": 100_000}``. ``None`` means unbounded
            (for a large outer memory whose traffic alone matters).

    Raises:
        InvalidInputError: no spaces, a capacity or a byte count that is negative or no integer.
        UnknownNameError: a space that the machine does not have.
        CapacityError: an allocation beyond the capacity; the ledger is then unchanged.

    Assumes: no caches and no implicit transfers; whoever moves data says so.

    Source: the external-memory (I/O) model, Aggarwal and Vitter, 1988; Hong and Kung, 1981 (red-blue pebbles).

    >>> ledger = Ledger(capacities={"hbm": None, "sram": 1024})
    >>> ledger.allocate("sram", 1000); ledger.read("hbm", 1000); ledger.free("sram", 1000)
    >>> ledger.bytes_read["hbm"], ledger.peak_bytes["sram"], ledger.live_bytes["sram"]
    (1000, 1000, 0)
    >>> ledger.allocate("sram", 2000)
    Traceback (most recent call last):
        ...
    course_lib.hardware.scratchpad.CapacityError: sram holds 1,024 B; 0 B are live and 2,000 B more were asked ...
    """

    __slots__ = ("bytes_read", "bytes_written", "capacities", "live_bytes", "peak_bytes")

    def __init__(self, *, capacities: Mapping[str, int | None]) -> None:
        if not capacities:
            raise InvalidInputError("a ledger needs at least one memory space", next_step="Try {'sram': 100_000}.")
        for space, capacity in capacities.items():
            if capacity is not None:
                _require_count(capacity, f"the capacity of {space}")
        self.capacities: dict[str, int | None] = dict(capacities)
        self.bytes_read: dict[str, int] = dict.fromkeys(capacities, 0)
        self.bytes_written: dict[str, int] = dict.fromkeys(capacities, 0)
        self.live_bytes: dict[str, int] = dict.fromkeys(capacities, 0)
        self.peak_bytes: dict[str, int] = dict.fromkeys(capacities, 0)

    def read(self, space: str, nbytes: int) -> None:
        """Count ``nbytes`` read from ``space``."""
        self._require(space, nbytes)
        self.bytes_read[space] += int(nbytes)

    def write(self, space: str, nbytes: int) -> None:
        """Count ``nbytes`` written to ``space``."""
        self._require(space, nbytes)
        self.bytes_written[space] += int(nbytes)

    def allocate(self, space: str, nbytes: int) -> None:
        """Reserve ``nbytes`` of ``space``; refuse, leaving the ledger as it was, when they do not fit."""
        self._require(space, nbytes)
        capacity, live = self.capacities[space], self.live_bytes[space]
        if capacity is not None and live + nbytes > capacity:
            raise CapacityError(space, nbytes=int(nbytes), live_bytes=live, capacity_bytes=capacity)
        self.live_bytes[space] = live + int(nbytes)
        self.peak_bytes[space] = max(self.peak_bytes[space], self.live_bytes[space])

    def free(self, space: str, nbytes: int) -> None:
        """Give back ``nbytes`` of ``space``; more than is live is an error."""
        self._require(space, nbytes)
        if nbytes > self.live_bytes[space]:
            allowed = f"0 to {self.live_bytes[space]:,} B"
            raise InvalidInputError(f"only live bytes of {space} can be freed", given=f"{nbytes:,} B", allowed=allowed)
        self.live_bytes[space] -= int(nbytes)

    def bytes_moved(self, space: str) -> int:
        """Traffic of ``space``: bytes read plus bytes written."""
        self._require(space, 0)
        return self.bytes_read[space] + self.bytes_written[space]

    def _require(self, space: str, nbytes: int) -> None:
        if space not in self.capacities:
            raise UnknownNameError("memory space", space, self.capacities)
        _require_count(nbytes, "a number of bytes")


def _require_count(value: int, what: str) -> None:
    # bool is an int to Python, and True bytes is always a mistake; numpy integers are welcome.
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
        raise InvalidInputError(f"{what} must be a whole number, 0 or more", given=repr(value))
