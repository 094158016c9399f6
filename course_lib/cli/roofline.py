"""``trace-tensor roofline``: each traced operation against the ridge of a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from course_lib.cli.errors import reported
from course_lib.cli.options import Batch, Compute, DeviceName, Json, ModelName, Tokens

if TYPE_CHECKING:
    from course_lib.cli.models import NamedModel
    from course_lib.hardware import Device
    from course_lib.trace import Trace

__all__ = ["roofline"]

_SMALL = 0.005  # operations below this share of the time are one row


@reported
def roofline(
    model: ModelName = "llama-3-8b",
    device: DeviceName = "h100-sxm",
    batch: Batch = 1,
    tokens: Tokens = 1500,
    compute: Compute = None,
    json: Json = False,
) -> None:
    """Which operations are bound by arithmetic and which by memory, for a prefill and for a decode step.

    The prefill runs all tokens of each sequence; the decode step runs one new token of each against a cache of
    --tokens. Times are the speed of light: a floor on the data sheet, no prediction. A module of your own is traced
    forward with its inputs.

        trace-tensor roofline --model llama-3-8b --device l40s --batch 32
    """
    from course_lib.cli.models import named_model
    from course_lib.cli.output import print_json, print_text
    from course_lib.hardware import device as device_record
    from course_lib.journey.resolve import resolve_compute_dtype

    machine = device_record(device)
    dtype = resolve_compute_dtype(machine, compute)
    named = named_model(model)
    passes = [
        {"pass": name, "inputs": words, **_bounds(trace, machine, dtype)}
        for name, words, trace in _passes(named, batch, tokens)
    ]
    data = {
        "format": "trace-a-tensor roofline 1", "model": named.name, "device": machine.name, "dtype": dtype,
        "ridge_point": machine.ridge_point(dtype), "peak_flops_per_second": machine.peak(dtype),
        "memory_bytes_per_second": machine.memory_bytes_per_second, "passes": passes,
    }  # fmt: skip
    if json:
        print_json(data)
    else:
        print_text(_text(data, machine.title))


def _passes(named: NamedModel, batch: int, tokens: int) -> list[tuple[str, str, Trace]]:
    import torch

    from course_lib.cli.models import token_ids
    from course_lib.serving.reference_decoder import reference_decoder
    from course_lib.trace import trace_torch

    def ran(module: Any, *inputs: Any) -> Trace:
        with torch.no_grad():
            return trace_torch(module, *inputs, backward=False, attention_convention="flash")

    prompt, newest = (token_ids(batch, count) for count in (tokens, 1))
    if named.shape is None:
        inputs = named.inputs or (prompt,)
        return [("forward", "the inputs of the factory" if named.inputs else f"{batch} x {tokens} tokens",
                 ran(named.module, *inputs))]  # fmt: skip
    return [
        ("prefill", f"{batch} x {tokens:,} tokens", ran(reference_decoder(named.shape), prompt)),
        ("decode", f"{batch} x 1 token, each against {tokens:,} cached",
         ran(reference_decoder(named.shape, batch=batch, cached_tokens=tokens), newest)),
    ]  # fmt: skip


def _bounds(trace: Trace, machine: Device, dtype: str) -> dict[str, Any]:
    """Rows of like operations, the slowest first; small ones together."""
    from course_lib.hardware import roofline as bounds
    from course_lib.trace import Work

    groups: dict[str, list[Any]] = {}
    for event in trace.events:
        if not event.is_view:
            op = "fused attention" if "scaled_dot_product" in event.op else event.op
            groups.setdefault(f"{_layers(event.module)} {op}".strip(), []).append(event.work)
    total = sum(bounds(work, machine, dtype).seconds_lower for works in groups.values() for work in works)
    small = [name for name, works in groups.items()
             if sum(bounds(work, machine, dtype).seconds_lower for work in works) < _SMALL * total]  # fmt: skip
    rest = [work for name in small for work in groups.pop(name)]
    if rest:
        groups[f"{len(small)} kinds of small operations"] = rest
    rows: list[dict[str, Any]] = []
    for name, works in groups.items():
        each = [bounds(work, machine, dtype) for work in works]
        whole = bounds(Work.total(works), machine, dtype)
        rows.append({
            "operation": name, "calls": len(works), "flops": Work.total(works).flops,
            "bytes_moved": Work.total(works).bytes_moved, "arithmetic_intensity": whole.arithmetic_intensity,
            "bound": whole.bound, "seconds_floor": sum(one.seconds_lower for one in each),
        })  # fmt: skip
    rows.sort(key=lambda row: -row["seconds_floor"])
    return {"seconds_floor": total, "uncounted": list(trace.uncounted), "rows": rows}


def _layers(module: str) -> str:
    """A path with every number as a star: the same operation of all layers is one row.

    >>> _layers("blocks.31.attention.key")
    'blocks.*.attention.key'
    """
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module)


def _text(data: dict[str, Any], title: str) -> str:
    from course_lib.report.text import columns
    from course_lib.units import format_quantity, format_seconds

    lines = [
        f"{data['model']} on {title} in {data['dtype']}: ridge {data['ridge_point']:.4g} FLOP/B "
        f"({format_quantity(data['peak_flops_per_second'], 'FLOP/s')} over "
        f"{format_quantity(data['memory_bytes_per_second'], 'B/s')})"
    ]
    for each in data["passes"]:
        rows = [("operation", "calls", "FLOP/B", "bound", "floor", "share")]
        rows += [
            (row["operation"], f"{row['calls']:,}", f"{row['arithmetic_intensity']:.4g}", row["bound"],
             format_seconds(row["seconds_floor"]), f"{row['seconds_floor'] / each['seconds_floor']:.1%}")
            for row in each["rows"]
        ]  # fmt: skip
        lines += ["", f"{each['pass'].upper()}  {each['inputs']}", columns(rows, right=(1, 2, 4, 5)),
                  f"  total at the speed of light: {format_seconds(each['seconds_floor'])}"]  # fmt: skip
        if each["uncounted"]:
            lines.append(f"  INCOMPLETE: no cost rule for {', '.join(each['uncounted'])}.")
    lines += ["", "  A floor from the data sheet, not a prediction: each operation reads and writes main memory, no",
              "  operation is fused with the next, attention runs as one kernel, nothing overlaps."]  # fmt: skip
    return "\n".join(lines)
