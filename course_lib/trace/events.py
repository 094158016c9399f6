"""The records of a trace: which tensor, which storage, which operation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Literal

from course_lib.errors import InvalidInputError
from course_lib.tensor.dtypes import dtype_bits
from course_lib.trace.work import Work

__all__ = ["PHASES", "Phase", "Storage", "StorageKind", "TensorRef", "TraceEvent", "item_bits"]

Phase = Literal["forward", "backward", "update"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "update")
StorageKind = Literal["parameter", "buffer", "input", "intermediate"]

# Formats of torch that our own tensors do not have.
_TORCH_ONLY_BITS = {"complex32": 32, "complex64": 64, "complex128": 128, "uint16": 16, "uint32": 32, "uint64": 64}


@cache
def item_bits(dtype: str) -> float:
    """Bits of one stored element.

    >>> item_bits("bf16"), item_bits("int64"), item_bits("bool")
    (16.0, 64.0, 8.0)
    """
    return float(_TORCH_ONLY_BITS.get(dtype) or dtype_bits(dtype))


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as an operation saw it: a window (shape, strides) onto a storage.

    Args:
        storage_id: number of the storage within the trace, in order of first appearance.
        shape: elements in each dimension.
        strides: step in elements between neighbors of each dimension; 0 is a broadcast.
        dtype: storage name, such as "fp32" or "bf16".

    >>> expanded = TensorRef(0, (1024, 1024), (0, 1), "fp32")
    >>> expanded.num_elements, expanded.num_distinct_elements, expanded.nbytes
    (1048576, 1024, 4096)
    """

    storage_id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def num_elements(self) -> int:
        """Elements an operation sees (broadcast ones repeated)."""
        return prod(self.shape)

    @property
    def num_distinct_elements(self) -> int:
        """Elements that exist in memory: dimensions of stride 0 count once."""
        if 0 not in self.strides:
            return prod(self.shape)
        if 0 in self.shape:
            return 0
        return prod(size for size, stride in zip(self.shape, self.strides) if stride != 0)

    @property
    def nbytes(self) -> int:
        """Bytes that reading this tensor once touches, rounded up to whole bytes."""
        return ceil(self.num_distinct_elements * item_bits(self.dtype) / 8)


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory behind one or many tensors.

    Args:
        storage_id: as in :class:`TensorRef`.
        nbytes: size of the whole storage, whatever part a view shows.
        kind: "parameter", "buffer" (other state of the module), "input" (existed before the trace) or
            "intermediate" (made by a traced operation).
    """

    storage_id: int
    nbytes: int
    kind: StorageKind


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One executed operation.

    Args:
        event_id: ``phase:module:op:occurrence``; the same program gives the same ids, and an edit elsewhere
            does not renumber them.
        op: name of the operation, such as "addmm".
        phase: "forward", "backward" or "update".
        module: dotted path of the module that ran it ("" is the root).
        inputs: tensors read, in order.
        outputs: tensors written, in order.
        work: what it costs.
        saved_storages: storages that it keeps for the backward pass, in order, repeats kept.
        flop_source: name of the cost rule, "view" for no data movement, "uncounted" where no rule exists.
        raw_saved_bytes: bytes that a naive count over saved tensors gives (parameters and repeats included).
    """

    event_id: str
    op: str
    phase: Phase
    module: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    work: Work
    saved_storages: tuple[int, ...] = ()
    flop_source: str = "uncounted"
    raw_saved_bytes: int = 0

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise InvalidInputError("an event has a phase", given=repr(self.phase), allowed=", ".join(PHASES))

    @property
    def is_view(self) -> bool:
        """True where the operation only renames memory (shape and strides change, bytes stay)."""
        return self.flop_source == "view"
