"""Appends storages and events to a trace; the only writer of one."""

from __future__ import annotations

from course_lib.trace.events import Phase, Storage, StorageKind, TensorRef, TraceEvent
from course_lib.trace.rules import Cost
from course_lib.trace.trace import Trace

__all__ = ["TraceBuilder"]


class TraceBuilder:
    """Numbers storages in order of first appearance and names events.

    Args:
        trace: the trace to fill.
    """

    def __init__(self, trace: Trace) -> None:
        self._events, self._storages = trace._events, trace._storages
        self._occurrences: dict[str, int] = {}

    def add_storage(self, nbytes: int, kind: StorageKind) -> int:
        """List a storage and return its number."""
        number = len(self._storages)
        self._storages[number] = Storage(number, nbytes, kind)
        return number

    def add_event(
        self,
        op: str,
        phase: Phase,
        module: str,
        inputs: tuple[TensorRef, ...],
        outputs: tuple[TensorRef, ...],
        cost: Cost,
        saved_storages: tuple[int, ...],
        raw_saved_bytes: int,
    ) -> None:
        """Append one event; its id counts occurrences of the operation in its module and phase."""
        place = f"{phase}:{module}:{op}"
        occurrence = self._occurrences.get(place, 0)
        self._occurrences[place] = occurrence + 1
        self._events.append(
            TraceEvent(f"{place}:{occurrence}", op, phase, module, inputs, outputs, cost.work, saved_storages,
                       cost.flop_source, raw_saved_bytes)
        )  # fmt: skip
