"""Memory of a trace: what is saved for backward, and the peak of what is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from course_lib.trace.events import Storage, TraceEvent

__all__ = ["live_bytes", "peak_bytes", "saved_bytes", "storage_bytes"]


def saved_bytes(events: Iterable[TraceEvent], storages: Mapping[int, Storage]) -> int:
    """Bytes kept for the backward pass: unique storages, parameters excluded, network inputs included.

    ``sum(nbytes of s for s in set(saved) if s is no parameter)``; a saved view counts its whole storage, once.
    """
    saved = {storage_id for event in events for storage_id in event.saved_storages}
    return sum(storages[i].nbytes for i in saved if storages[i].kind != "parameter")


def storage_bytes(storages: Mapping[int, Storage], kind: str) -> int:
    """Bytes of all storages of one kind."""
    return sum(storage.nbytes for storage in storages.values() if storage.kind == kind)


def _lifetimes(events: Sequence[TraceEvent], storages: Mapping[int, Storage]) -> dict[int, tuple[int, int]]:
    """First and last event at which each storage must exist."""
    first: dict[int, int] = {}
    last_write: dict[int, int] = {}
    last_read: dict[int, int] = {}
    last_backward_read: dict[int, int] = {}
    saved: set[int] = set()
    for at, event in enumerate(events):
        for ref in event.outputs:
            first.setdefault(ref.storage_id, at)
        for ref in event.inputs:
            first.setdefault(ref.storage_id, at)
        for storage_id in event.saved_storages:  # a result kept for backward only has no other mention
            first.setdefault(storage_id, at)
            saved.add(storage_id)
        if event.is_view:
            continue
        for ref in event.outputs:
            last_write[ref.storage_id] = at
        for ref in event.inputs:
            last_read[ref.storage_id] = at
            if event.phase == "backward":
                last_backward_read[ref.storage_id] = at
    end = len(events) - 1
    lifetimes = {}
    for storage_id, born in first.items():
        read = last_read.get(storage_id, -1)
        if storages[storage_id].kind in ("input", "buffer"):
            lifetimes[storage_id] = (0, end)  # the caller holds it
        elif read < last_write.get(storage_id, born) or (read == last_write.get(storage_id) and read == born):
            lifetimes[storage_id] = (born, end)  # never read after its last write: a result
        elif storage_id in saved and storage_id not in last_backward_read:
            lifetimes[storage_id] = (born, end)  # waits for a backward pass outside this trace
        else:
            lifetimes[storage_id] = (born, read)
    return lifetimes


def live_bytes(events: Sequence[TraceEvent], storages: Mapping[int, Storage]) -> tuple[int, ...]:
    """Bytes alive during each event, parameters left out.

    A storage is alive from the event that makes it to the last one that reads it. Inputs and buffers are alive
    throughout. A storage that nothing reads after its last write (an output, a gradient) stays to the end, and so
    does one saved for a backward pass that the trace does not contain.

    Assumes: an allocator that frees at once and without fragments, so this is a lower bound for a real one.
    """
    change = [0] * (len(events) + 1)
    for storage_id, (born, dies) in _lifetimes(events, storages).items():
        storage = storages[storage_id]
        if storage.kind != "parameter":
            change[born] += storage.nbytes
            change[dies + 1] -= storage.nbytes
    alive, running = [], 0
    for delta in change[:-1]:
        running += delta
        alive.append(running)
    return tuple(alive)


def peak_bytes(events: Sequence[TraceEvent], storages: Mapping[int, Storage]) -> int:
    """Largest number of bytes alive at once (see :func:`live_bytes`)."""
    return max(live_bytes(events, storages), default=0)
