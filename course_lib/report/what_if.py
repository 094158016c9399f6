"""What would move the bill: options beside the journey, and every assumption with its switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.errors import TraceATensorError
from course_lib.journey import Diff, Journey
from course_lib.units import format_seconds

__all__ = ["Option", "Switch", "options", "switches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One change, made and compared.

    Args:
        what: in words.
        changes: fields of the journey.
        diff: what it did; None where it cannot be done.
        refused: why it cannot be done ("" where it can).
    """

    what: str
    changes: Mapping[str, Any]
    diff: Diff | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """An assumption, how to change it, and what the bill is when it is changed.

    Args:
        what: the assumption.
        value: as it stands.
        flag: option of the command line.
        other: the value that is tried.
        journey: with that value; None where it does not work.
        relative: change of the continuous dollars; None likewise.
    """

    what: str
    value: str
    flag: str
    other: str
    journey: Journey | None
    relative: float | None


def options(journey: Journey) -> tuple[Option, ...]:
    """Formats, the promise, the workload: each tried alone on this journey.

    >>> [round(100 * each.diff.relative) for each in options(Journey())[:5]]
    [-1, -1, -33, -50, -18]
    """
    fields: list[tuple[str, dict[str, Any]]] = [
        ("weights in INT8, arithmetic as before", {"weight_dtype": "int8"}),
        ("weights in INT4, groups of 64 (4.25 bits)", {"weight_dtype": "int4-g64"}),
        ("FP8 weights and arithmetic (W8A8)", {"weight_dtype": "fp8", "compute_dtype": "fp8"}),
        ("W8A8 and KV cache in FP8", {"weight_dtype": "fp8", "compute_dtype": "fp8", "kv_dtype": "fp8"}),
        ("KV cache in FP8", {"kv_dtype": "fp8"}),
    ]
    tpot = journey.slo.tpot_seconds
    if tpot is not None:
        fields.append((f"promise {format_seconds(tpot / 2)} between tokens", {"tpot_seconds": tpot / 2}))
    fields.append(("outputs twice as long", {"output_tokens": round(2 * journey.workload.mean_output_tokens)}))
    if not journey.workload.prefix_hit_fraction:
        fields.append(("half of each prompt in the prefix cache", {"prefix_hit_fraction": 0.5}))
    fields.append(
        ("15 % more requests", {"arrival_requests_per_second": 1.15 * journey.workload.arrival_requests_per_second})
    )
    return tuple(_option(journey, what, changes) for what, changes in fields if _differs(journey, changes))


def _differs(journey: Journey, changes: Mapping[str, Any]) -> bool:
    return any(getattr(journey, name, None) != value for name, value in changes.items())


def _option(journey: Journey, what: str, changes: Mapping[str, Any]) -> Option:
    try:
        return Option(what=what, changes=changes, diff=journey.with_changes(**changes).diff(journey))
    except TraceATensorError as error:
        return Option(what=what, changes=changes, refused=str(error))


def switches(journey: Journey) -> tuple[Switch, ...]:
    """The ledger of assumptions: each is flipped alone, so its dollars are seen.

    >>> [each.flag for each in switches(Journey())][:2]
    ['--efficiency-compute', '--efficiency-bandwidth']
    """
    block = 16 if journey.kv_block_tokens == 1 else 1
    hits = 0.0 if journey.workload.prefix_hit_fraction else 0.5
    rows: tuple[tuple[str, str, str, Any], ...] = (
        ("share of the compute peak that is reached", "--efficiency-compute", "efficiency_compute", 1.0),
        ("share of the bandwidth that is reached", "--efficiency-bandwidth", "efficiency_bandwidth", 1.0),
        ("fixed seconds of each step", "--fixed-ms", "fixed_seconds", 0.0),
        ("share of memory that the engine may use", "--memory-fraction", "memory_fraction", 1.0),
        ("bytes reserved for activations", "--reserve-gb", "reserve_bytes", 0.0),
        ("KV memory in blocks of so many tokens", "--kv-block-tokens", "kv_block_tokens", block),
        ("attention FLOPs of prompts counted", "--prefill-attention", "prefill_attention",
         not journey.prefill_attention),
        ("prefills on replicas of their own", "--disaggregated", "disaggregated", not journey.disaggregated),
        ("share of each prompt in the prefix cache", "--prefix-hits", "prefix_hit_fraction", hits),
        ("batch limit of the engine", "--max-batch", "max_batch", max(1, int(journey["batch"]) // 2)),
        ("load at which a replica is run", "--headroom", "headroom_fraction", 1.0),
        ("spare replicas", "--spares", "num_spares", 0 if journey.num_spares else 1),
        ("hours billed in a month", "--hours", "hours_per_month", journey.hours_per_month / 2),
    )  # fmt: skip
    return tuple(_switch(journey, *row) for row in rows)


def _switch(journey: Journey, what: str, flag: str, name: str, other: Any) -> Switch:
    now = getattr(journey, name, getattr(journey.workload, name, None))
    try:
        flipped = journey.with_changes(**{name: other})
    except TraceATensorError:
        flipped = None
    before = journey.bill.continuous_usd_per_month
    relative = None if flipped is None else flipped.bill.continuous_usd_per_month / before - 1
    return Switch(what=what, value=_text(now), flag=flag, other=_text(other), journey=flipped, relative=relative)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, int | float) else str(value)
