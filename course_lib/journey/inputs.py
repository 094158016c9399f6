"""What a chain starts from, and which cause each input belongs to when two bills are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from course_lib.cost import Tariff
from course_lib.hardware import Device
from course_lib.journey.served_model import ServedModel

if TYPE_CHECKING:
    from course_lib.journey.record import Journey

__all__ = ["CAUSES", "chain_inputs"]

CAUSES: Mapping[str, tuple[str, ...]] = {
    "weight bytes": ("weight_model", "weight_dtype"),
    "KV bytes": ("kv_model", "kv_dtype", "kv_block_tokens"),
    "FLOPs": ("work_model", "compute_dtype", "prefill_attention"),
    "tensor parallelism": ("tensor_parallel",),
    "device": ("device",),
    "efficiency": ("efficiency_compute", "efficiency_bandwidth", "fixed_seconds"),
    "memory margins": ("memory_fraction", "reserve_bytes"),
    "requests": ("arrivals",),
    "prompt": ("mean_prompt_tokens", "prefix_hit_fraction"),
    "output": ("mean_output_tokens",),
    "promise": ("tpot_seconds", "ttft_seconds", "ttft_quantile"),
    "batch limit": ("max_batch",),
    "fleet margins": ("headroom_fraction", "num_spares", "disaggregated"),
    "price": ("tariff", "hours_per_month"),
    "formulas": ("rules",),
}
"""Causes of a change. The model appears three times, once for each way in which it costs: bytes of weights, bytes of
KV cache, arithmetic. Each input of a chain belongs to exactly one cause, so the causes make up the whole change."""

_COPIED = (
    "weight_dtype", "kv_dtype", "kv_block_tokens", "prefill_attention", "efficiency_compute", "efficiency_bandwidth",
    "fixed_seconds", "memory_fraction", "reserve_bytes", "max_batch", "headroom_fraction", "num_spares",
    "disaggregated", "hours_per_month", "rules",
)  # fmt: skip


def chain_inputs(
    journey: Journey, model: ServedModel, device: Device, tariff: Tariff, *, compute_dtype: str, tensor_parallel: int
) -> dict[str, Any]:
    """Every input of the chain by name, from the fields of a journey and what its names stand for."""
    workload, slo = journey.workload, journey.slo
    return {
        **{name: getattr(journey, name) for name in _COPIED},
        "weight_model": model, "kv_model": model, "work_model": model, "compute_dtype": compute_dtype,
        "tensor_parallel": tensor_parallel, "device": device, "tariff": tariff,
        "arrivals": workload.arrival_requests_per_second, "mean_prompt_tokens": workload.mean_prompt_tokens,
        "prefix_hit_fraction": workload.prefix_hit_fraction, "mean_output_tokens": workload.mean_output_tokens,
        "tpot_seconds": slo.tpot_seconds, "ttft_seconds": slo.ttft_seconds,
        "ttft_quantile": slo.attainment if slo.attainment < 1 else 0.99, "continuous_batch": False,
    }  # fmt: skip
