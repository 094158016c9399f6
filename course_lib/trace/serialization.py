"""A trace as JSON: the layout of ``schema.json``, exact in both directions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any, cast

from course_lib.errors import InvalidInputError
from course_lib.trace.events import Storage, TensorRef, TraceEvent
from course_lib.trace.rules import AttentionConvention
from course_lib.trace.work import Work

__all__ = ["SCHEMA_VERSION", "from_dict", "read", "schema", "to_dict", "write"]

SCHEMA_VERSION = 1


def schema() -> dict[str, Any]:
    """The published JSON Schema of a trace file.

    >>> schema()["title"]
    'Trace'
    """
    return cast(dict[str, Any], json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8")))


def _ref(ref: TensorRef) -> dict[str, Any]:
    return {"storage_id": ref.storage_id, "shape": list(ref.shape), "strides": list(ref.strides), "dtype": ref.dtype}


def _event(event: TraceEvent) -> dict[str, Any]:
    flops, macs, bytes_read, bytes_written, transcendentals = astuple(event.work)
    return {
        "event_id": event.event_id, "op": event.op, "phase": event.phase, "module": event.module,
        "inputs": [_ref(ref) for ref in event.inputs], "outputs": [_ref(ref) for ref in event.outputs],
        "work": {"flops": flops, "macs": macs, "bytes_read": bytes_read, "bytes_written": bytes_written,
                 "transcendentals": transcendentals},
        "saved_storages": list(event.saved_storages), "flop_source": event.flop_source,
        "raw_saved_bytes": event.raw_saved_bytes,
    }  # fmt: skip


def to_dict(
    events: Iterable[TraceEvent], storages: Iterable[Storage], convention: AttentionConvention
) -> dict[str, Any]:
    """Plain data of a trace."""
    return {
        "schema_version": SCHEMA_VERSION,
        "attention_convention": convention,
        "storages": [{"storage_id": s.storage_id, "nbytes": s.nbytes, "kind": s.kind} for s in storages],
        "events": [_event(event) for event in events],
    }


def _to_ref(data: dict[str, Any]) -> TensorRef:
    return TensorRef(data["storage_id"], tuple(data["shape"]), tuple(data["strides"]), data["dtype"])


def _to_event(data: dict[str, Any]) -> TraceEvent:
    return TraceEvent(
        data["event_id"], data["op"], data["phase"], data["module"], tuple(map(_to_ref, data["inputs"])),
        tuple(map(_to_ref, data["outputs"])), Work(**data["work"]), tuple(data["saved_storages"]),
        data["flop_source"], data["raw_saved_bytes"],
    )  # fmt: skip


def from_dict(data: object) -> tuple[list[TraceEvent], list[Storage], AttentionConvention]:
    """Events, storages and attention convention of plain data.

    Raises:
        InvalidInputError: the data does not follow the schema; the place is named.
    """
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        version = data.get("schema_version") if isinstance(data, dict) else type(data).__name__
        raise InvalidInputError(
            "a trace file states its schema_version", given=version, allowed=str(SCHEMA_VERSION),
            next_step="Write it with Trace.to_json.",
        )  # fmt: skip
    try:
        storages = [Storage(item["storage_id"], item["nbytes"], item["kind"]) for item in data["storages"]]
        events = [_to_event(event) for event in data["events"]]
        convention: AttentionConvention = data["attention_convention"]
        known = convention in ("unfused", "flash")
        follows = known and to_dict(events, storages, convention) == data and _well_typed(events, storages)
    except (KeyError, TypeError, ValueError, AttributeError):
        follows = False
    if not follows:
        raise InvalidInputError("a trace file follows course_lib/trace/schema.json", given=_first_error(data))
    return events, storages, convention


def _well_typed(events: list[TraceEvent], storages: list[Storage]) -> bool:
    """What the schema says of types, 100 times faster than a general validator on a large trace."""
    counts = [n for s in storages for n in (s.storage_id, s.nbytes)]
    names: list[object] = []
    for event in events:
        counts += (event.raw_saved_bytes, *event.saved_storages)
        names += (event.event_id, event.op, event.module, event.flop_source)
        for ref in (*event.inputs, *event.outputs):
            counts += (ref.storage_id, *ref.shape, *map(abs, ref.strides))
            names.append(ref.dtype)
    kinds = {storage.kind for storage in storages} <= {"parameter", "buffer", "input", "intermediate"}
    return kinds and all(type(n) is int and n >= 0 for n in counts) and all(type(n) is str for n in names)


def _first_error(data: dict[str, Any]) -> str:
    import jsonschema  # 50 ms: only to explain what is wrong

    error = next(iter(jsonschema.Draft202012Validator(schema()).iter_errors(data)), None)
    if error is None:
        return "counts that are no whole numbers"
    where = "/".join(str(part) for part in error.absolute_path) or "top level"
    return f"{where}: {error.message}"


def write(data: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write plain data as compact JSON; nothing half-written stays behind."""
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    try:
        partial.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidInputError("the trace needs a writable path", given=f"{target} ({error.strerror})") from error


def read(path: str | os.PathLike[str]) -> object:
    """Parse a JSON file.

    Raises:
        InvalidInputError: the file is absent or no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError("a trace file is readable", given=f"{path} ({error.strerror})") from error
    except ValueError as error:
        raise InvalidInputError("a trace file is JSON", given=f"{path} ({error})") from error
