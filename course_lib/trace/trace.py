"""Trace: the operations a program ran, their work and the memory they held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any

from course_lib.errors import InvalidInputError
from course_lib.trace import memory, serialization
from course_lib.trace.diff import TraceDiff, trace_diff
from course_lib.trace.events import Storage, TraceEvent
from course_lib.trace.rules import AttentionConvention
from course_lib.trace.table import Table
from course_lib.trace.work import Work

__all__ = ["Trace"]


class Trace:
    """A sequence of executed operations with their work; every total is a sum over :attr:`events`.

    Two numbers answer two questions. ``trace.matmul_flops`` is what the field calls FLOPs of a model (``6 N D``,
    MFU, torch.utils.flop_counter): matrix products, convolutions, attention. ``trace.flops`` adds elementwise
    arithmetic and reductions, which a roofline needs.

    Args:
        events: operations in order.
        storages: the memory behind their tensors.
        attention_convention: how the backward of fused attention was counted.

    >>> from course_lib.trace import Storage, Trace, TraceEvent, Work
    >>> event = TraceEvent("forward::mm:0", "mm", "forward", "", (), (), Work(8, 4, 16, 8), flop_source="matmul")
    >>> trace = Trace([event], [])
    >>> trace.flops, trace.macs, trace.bytes_moved, trace.complete
    (8, 4, 24, True)
    """

    def __init__(
        self,
        events: Iterable[TraceEvent] = (),
        storages: Iterable[Storage] = (),
        *,
        attention_convention: AttentionConvention = "unfused",
    ) -> None:
        self._events = list(events)
        self._storages = {storage.storage_id: storage for storage in storages}
        self.attention_convention: AttentionConvention = attention_convention
        known = self._storages.keys()
        for event in self._events:
            for ref in (*event.inputs, *event.outputs):
                if ref.storage_id not in known:
                    raise InvalidInputError(
                        "every tensor of a trace lives in a listed storage",
                        given=f"storage {ref.storage_id} of event {event.event_id!r}",
                    )
            if not known >= set(event.saved_storages):
                raise InvalidInputError("every saved storage of a trace is listed", given=event.event_id)

    # --- parts -----------------------------------------------------------------------------------------------

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """The operations, in order."""
        return tuple(self._events)

    @property
    def storages(self) -> Mapping[int, Storage]:
        """Storages by id."""
        return MappingProxyType(self._storages)

    def where(self, keep: Callable[[TraceEvent], bool]) -> Trace:
        """Sub-trace of the events for which ``keep(event)`` is true; storages are shared."""
        part = Trace(attention_convention=self.attention_convention)
        part._events = [event for event in self._events if keep(event)]
        part._storages = self._storages
        return part

    @property
    def forward(self) -> Trace:
        """Events of the forward pass."""
        return self.where(lambda event: event.phase == "forward")

    @property
    def backward(self) -> Trace:
        """Events of the backward pass."""
        return self.where(lambda event: event.phase == "backward")

    @property
    def update(self) -> Trace:
        """Events of the optimizer step."""
        return self.where(lambda event: event.phase == "update")

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[TraceEvent]:
        return iter(self.events)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (self._events, self._storages, self.attention_convention) == (
            other._events, other._storages, other.attention_convention)  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        state = "" if self.complete else ", incomplete"
        return f"Trace({len(self)} events, {self.flops:,} FLOPs, {self.bytes_moved:,} bytes moved{state})"

    # --- totals ----------------------------------------------------------------------------------------------

    @property
    def work(self) -> Work:
        """Work of all events together; a lower bound where :attr:`complete` is false."""
        return Work.total(event.work for event in self._events)

    @property
    def flops(self) -> int:
        """All FLOPs: matrix products, elementwise arithmetic and reductions."""
        return self.work.flops

    @property
    def matmul_flops(self) -> int:
        """FLOPs of matrix products, convolutions and attention: ``2 * macs``."""
        return 2 * self.macs

    @property
    def macs(self) -> int:
        """Multiply-adds of matrix products, convolutions and attention."""
        return self.work.macs

    @property
    def transcendentals(self) -> int:
        """Evaluations of exp, log, tanh, erf, roots and powers (not in :attr:`flops`)."""
        return self.work.transcendentals

    @property
    def bytes_read(self) -> int:
        """Bytes read: each operand once per operation."""
        return self.work.bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes written: each output once per operation."""
        return self.work.bytes_written

    @property
    def bytes_moved(self) -> int:
        """Bytes read plus bytes written."""
        return self.work.bytes_moved

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Names of operations without a cost rule, in order of first appearance. Their FLOPs are unknown, not 0."""
        return tuple(dict.fromkeys(event.op for event in self._events if event.flop_source == "uncounted"))

    @property
    def complete(self) -> bool:
        """True where every operation has a cost rule."""
        return not self.uncounted

    # --- memory ----------------------------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for backward: unique storages, parameters excluded, network inputs included."""
        return memory.saved_bytes(self._events, self._storages)

    @property
    def raw_saved_bytes(self) -> int:
        """What a naive count over saved tensors reports: parameters and repeats included."""
        return sum(event.raw_saved_bytes for event in self._events)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters, each storage once; not part of :attr:`peak_bytes`."""
        return memory.storage_bytes(self._storages, "parameter")

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes alive during each event, parameters left out."""
        return memory.live_bytes(self._events, self._storages)

    @property
    def peak_bytes(self) -> int:
        """Peak of :attr:`live_bytes`: inputs, activations and gradients; add :attr:`parameter_bytes` for weights.

        Assumes: freed at the last use and without fragments, so a lower bound for a real allocator.
        """
        return memory.peak_bytes(self._events, self._storages)

    # --- views -----------------------------------------------------------------------------------------------

    def by_module(self, *, depth: int | None = None) -> dict[str, Work]:
        """Work of each module path, children included; "" is the whole trace.

        Args:
            depth: names kept of each path; None keeps all.

        Raises:
            InvalidInputError: depth is negative.
        """
        if depth is not None and depth < 0:
            raise InvalidInputError("depth is a number of names", given=depth, allowed="0 or more, or None")
        groups: dict[str, list[Work]] = {"": []}
        for event in self._events:
            names = event.module.split(".") if event.module else []
            for length in range(min(len(names), len(names) if depth is None else depth) + 1):
                groups.setdefault(".".join(names[:length]), []).append(event.work)
        return {module: Work.total(works) for module, works in groups.items()}

    def table(self) -> Table:
        """Work by phase and operation, largest FLOPs first; views left out. Text, rows and HTML."""
        groups: dict[tuple[str, str], list[TraceEvent]] = {}
        for event in self._events:
            if not event.is_view:
                groups.setdefault((event.phase, event.op), []).append(event)
        rows = [
            (phase, op, len(events), *_cells(Work.total(event.work for event in events), events[0].flop_source))
            for (phase, op), events in groups.items()
        ]
        total = self.work
        rows.sort(key=lambda row: (-_order(row[3]), row[0] != "forward", -_order(row[5]), row[1]))
        last: tuple[str | int, ...] = (
            "total", "" if self.complete else "incomplete", sum(int(row[2]) for row in rows),
            *_cells(total, "incomplete" if not self.complete else "all"),
        )  # fmt: skip
        return Table(
            header=("phase", "op", "calls", "FLOPs", "MACs", "bytes read", "bytes written", "transcendentals", "rule"),
            rows=(*rows, last), notes=self._notes(),
        )  # fmt: skip

    def _notes(self) -> tuple[str, ...]:
        factor = {"unfused": "4 products, 2 x forward", "flash": "5 products, 2.5 x forward"}
        notes = [
            f"FLOPs of matrix products, convolutions and attention: {self.matmul_flops:,} (a multiply-add is 2).",
            f"Saved for backward: {self.saved_bytes:,} B (naive count over saved tensors: {self.raw_saved_bytes:,} B). "
            f"Peak: {self.peak_bytes:,} B, parameters {self.parameter_bytes:,} B apart.",
            f"Attention is counted as executed, causal masks as dense; backward of a fused kernel: "
            f"{self.attention_convention} ({factor[self.attention_convention]}).",
        ]
        if not self.complete:
            notes.append(f"Totals are incomplete: no cost rule for {', '.join(self.uncounted)}.")
        return tuple(notes)

    def diff(self, other: Trace) -> TraceDiff:
        """What changed from ``other`` to this trace, by phase, module and operation.

        >>> Trace().diff(Trace()).rows
        ()
        """
        return trace_diff(self._events, other._events)

    # --- data ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The trace as plain data, in the layout of ``schema.json``."""
        return serialization.to_dict(self._events, self._storages.values(), self.attention_convention)

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write the trace to a JSON file that follows ``course_lib/trace/schema.json``."""
        serialization.write(self.to_dict(), path)

    @classmethod
    def from_json(cls, path: str | PathLike[str]) -> Trace:
        """Read a trace back, equal to the one written.

        Raises:
            InvalidInputError: no such file, no JSON, or not a trace of this schema.
        """
        events, storages, convention = serialization.from_dict(serialization.read(path))
        return cls(events, storages, attention_convention=convention)


def _cells(work: Work, source: str) -> tuple[str | int, ...]:
    unknown = source == "uncounted"
    flops: tuple[str | int, ...] = ("unknown", "unknown") if unknown else (work.flops, work.macs)
    return (*flops, work.bytes_read, work.bytes_written, "unknown" if unknown else work.transcendentals, source)


def _order(cell: str | int) -> int:
    return cell if isinstance(cell, int) else -1
