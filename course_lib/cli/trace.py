"""``trace-tensor trace``: FLOPs, bytes and memory of a model, counted from what its dispatcher runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from course_lib.cli.errors import reported
from course_lib.cli.options import Batch, Json, ModelName, Tokens
from course_lib.errors import InvalidInputError

if TYPE_CHECKING:
    from course_lib.trace import Trace, Work

__all__ = ["Grouping", "trace", "traced"]


class Grouping(StrEnum):
    """Rows of the table."""

    OP = "op"
    MODULE = "module"


@reported
def trace(
    model: ModelName = "llama-3-8b",
    batch: Batch = 1,
    tokens: Tokens = 128,
    no_backward: Annotated[bool, typer.Option("--no-backward", help="Only the forward pass.")] = False,
    flash: Annotated[
        bool, typer.Option("--flash", help="Attention as one fused kernel that keeps no T x T matrix.")
    ] = False,
    by: Annotated[Grouping, typer.Option("--by", help="One row for each operation, or for each module.")] = Grouping.OP,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", help="Names kept of a module's path, with --by module.")
    ] = 2,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the whole trace as JSON.")] = None,
    json: Json = False,
) -> None:
    """Count the FLOPs, the bytes moved and the memory of one forward and backward pass.

    A catalogue name or a config.json is built on torch's meta device, so a 70B model needs no memory. Your own module
    comes as package.module:factory; factory() returns the module, or (module, inputs) where it does not take token ids.

        trace-tensor trace --model mypackage.model:build --by module
    """
    from course_lib.cli.output import print_json, print_text

    if depth < 0:
        raise InvalidInputError("a path keeps so many names", given=f"--depth {depth}", allowed="0 or more")
    name, inputs, counted = traced(model, batch=batch, tokens=tokens, backward=not no_backward, flash=flash)
    if out is not None:
        counted.to_json(out)
    rows = _by_module(counted, depth) if by is Grouping.MODULE else _by_op(counted)
    if json:
        print_json(_data(counted, rows, name=name, inputs=inputs))
    else:
        print_text(_text(counted, rows, title=f"{name}, inputs {inputs}") + (f"\n\nThe trace: {out}" if out else ""))


def traced(model: str, *, batch: int, tokens: int, backward: bool, flash: bool) -> tuple[str, str, Trace]:
    """(name, inputs in words, trace) of a named model."""
    from course_lib.cli.models import named_model, token_ids

    named, ids = named_model(model), token_ids(batch, tokens)
    import torch

    from course_lib.serving.reference_decoder import reference_decoder
    from course_lib.trace import trace_torch

    module, inputs = named.module, named.inputs
    if named.shape is not None:
        module = reference_decoder(named.shape)
    inputs = inputs or (ids,)
    words = ", ".join(str(tuple(each.shape)) if isinstance(each, torch.Tensor) else str(each) for each in inputs)
    convention: Any = "flash" if flash else "unfused"
    return named.name, words, trace_torch(module, *inputs, backward=backward, attention_convention=convention)


def _by_op(counted: Trace) -> list[dict[str, Any]]:
    from course_lib.trace import Work

    groups: dict[tuple[str, str], list[Any]] = {}
    for event in counted.events:
        if not event.is_view:
            groups.setdefault((event.phase, event.op), []).append(event)
    rows = [
        {"phase": phase, "name": op, "calls": len(events), "rule": events[0].flop_source,
         **_numbers(Work.total(event.work for event in events), known=events[0].flop_source != "uncounted")}
        for (phase, op), events in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-(row["flops"] or 0), -row["bytes_read"], row["name"]))


def _by_module(counted: Trace, depth: int) -> list[dict[str, Any]]:
    from course_lib.trace import Work

    rows = []
    for phase, part in (("forward", counted.forward), ("backward", counted.backward), ("update", counted.update)):
        groups: dict[str, list[Any]] = {}
        for event in part.events:
            groups.setdefault(".".join(event.module.split(".")[:depth]) or "(root)", []).append(event)
        rows += [
            {"phase": phase, "name": module, "calls": sum(not event.is_view for event in events), "rule": "",
             **_numbers(Work.total(event.work for event in events), known=True)}
            for module, events in groups.items()
        ]  # fmt: skip
    return rows


def _numbers(work: Work, *, known: bool) -> dict[str, int | None]:
    return {
        "flops": work.flops if known else None, "macs": work.macs if known else None,
        "bytes_read": work.bytes_read, "bytes_written": work.bytes_written,
    }  # fmt: skip


def _data(counted: Trace, rows: list[dict[str, Any]], *, name: str, inputs: str) -> dict[str, Any]:
    phases = {"forward": counted.forward, "backward": counted.backward, "update": counted.update}
    return {
        "format": "trace-a-tensor trace summary 1", "model": name, "inputs": inputs, "complete": counted.complete,
        "uncounted": list(counted.uncounted), "attention_convention": counted.attention_convention,
        "totals": {phase: {"matmul_flops": part.matmul_flops, **_numbers(part.work, known=True)}
                   for phase, part in {**phases, "all": counted}.items()},
        "saved_bytes": counted.saved_bytes, "raw_saved_bytes": counted.raw_saved_bytes,
        "peak_bytes": counted.peak_bytes, "parameter_bytes": counted.parameter_bytes, "rows": rows,
    }  # fmt: skip


def _text(counted: Trace, rows: list[dict[str, Any]], *, title: str) -> str:
    from course_lib.report.text import columns
    from course_lib.units import format_bytes, format_quantity

    head = [
        ("matmul FLOPs", f"{counted.matmul_flops:,}", "2 for each multiply-add: products, convolutions, attention"),
        ("all FLOPs", f"{counted.flops:,}", "with elementwise arithmetic and reductions"),
        ("bytes moved", f"{counted.bytes_moved:,}", "each operand read once, each result written once"),
        ("saved for backward", f"{counted.saved_bytes:,}",
         f"B, each storage once (naive count {counted.raw_saved_bytes:,})"),
        ("peak memory", f"{counted.peak_bytes:,}", f"B; parameters, {counted.parameter_bytes:,} B, apart"),
    ]  # fmt: skip
    table = [("phase", "name", "calls", "FLOPs", "read", "written", "rule")]
    table += [
        (row["phase"], row["name"][-44:], f"{row['calls']:,}",
         "unknown" if row["flops"] is None else format_quantity(row["flops"], "FLOP"),
         format_bytes(row["bytes_read"]), format_bytes(row["bytes_written"]), row["rule"])
        for row in rows
    ]  # fmt: skip
    kind = "as one fused kernel" if counted.attention_convention == "flash" else "as it is dispatched"
    notes = f"  Attention is counted {kind}, causal masks as dense."
    if not counted.backward.events:
        notes += "\n  No backward pass is counted: none was asked for, or no result needs a gradient."
    if not counted.complete:
        notes += f"\n  INCOMPLETE: no cost rule for {', '.join(counted.uncounted)}; totals are lower bounds."
    return f"{title}\n\n{columns(head, right=(1,))}\n\nWHAT RAN\n{columns(table, right=(2, 3, 4, 5))}\n\n{notes}"
