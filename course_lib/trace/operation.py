"""What a cost rule sees of an operation, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from course_lib.trace.events import TensorRef

__all__ = ["Arithmetic", "Operation", "Rule"]


class Operation(NamedTuple):
    """Name, operands and plain arguments of one executed operation."""

    op: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    attributes: Mapping[str, Any]


class Arithmetic(NamedTuple):
    """What a rule counts: FLOPs (multiply-adds included, 2 each), multiply-adds, transcendentals."""

    flops: int
    macs: int = 0
    transcendentals: int = 0


Rule: TypeAlias = Callable[[Operation], Arithmetic | None]
