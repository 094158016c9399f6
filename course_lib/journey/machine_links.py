"""The workload meets a machine: what it reaches, and how many sequences fit in its memory."""

from __future__ import annotations

from course_lib.hardware import Device
from course_lib.journey.links import LinkRule, link
from course_lib.journey.served_model import ServedModel, device_share, kv_bytes
from course_lib.serving import capacity

__all__ = ["LINKS"]


@link("memory of one device", "B", "data sheet", basis="cited")
def memory_bytes(device: Device) -> float:
    return device.memory_bytes


@link("memory bandwidth of one device", "B/s", "data sheet", basis="cited")
def memory_bytes_per_second(device: Device) -> float:
    return device.memory_bytes_per_second


@link("dense peak of one device in the compute format", "FLOP/s", "data sheet", basis="cited")
def peak_flops_per_second(device: Device, compute_dtype: str) -> float:
    return device.peak(compute_dtype)


@link("compute efficiency", "1", "given; calibrate it", basis="assumed")
def compute_efficiency(efficiency_compute: float) -> float:
    return efficiency_compute


@link("bandwidth efficiency", "1", "given; calibrate it", basis="assumed")
def bandwidth_efficiency(efficiency_bandwidth: float) -> float:
    return efficiency_bandwidth


@link("fixed time of a step", "s", "given; calibrate it", basis="assumed")
def step_fixed_seconds(fixed_seconds: float) -> float:
    return fixed_seconds


@link("FLOP/s that one device reaches", "FLOP/s", "peak * efficiency")
def flops_per_second(peak_flops_per_second: float, compute_efficiency: float) -> float:
    return peak_flops_per_second * compute_efficiency


@link("bytes/s that one device reaches", "B/s", "bandwidth * efficiency")
def bytes_per_second(memory_bytes_per_second: float, bandwidth_efficiency: float) -> float:
    return memory_bytes_per_second * bandwidth_efficiency


@link("devices in a replica", "device", "tensor-parallel degree", basis="assumed")
def devices_per_replica(tensor_parallel: int) -> int:
    return tensor_parallel


@link("weights on one device", "B", "stored weights / devices, plus what is replicated")
def weight_bytes_per_device(weight_bytes: float, weight_model: ServedModel, devices_per_replica: int) -> float:
    share = device_share(weight_model, devices_per_replica)
    return weight_bytes * (share.num_parameters / weight_model.num_parameters)


@link("free memory on one device", "B", "memory fraction * memory - weights - reserve")
def free_bytes(
    memory_bytes: float, weight_bytes_per_device: float, memory_fraction: float, reserve_bytes: float
) -> float:
    return capacity.free_bytes(
        memory_bytes=memory_bytes, weight_bytes=weight_bytes_per_device, memory_fraction=memory_fraction,
        reserve_bytes=reserve_bytes,
    )  # fmt: skip


@link("KV share on one device", "1", "KV bytes on a device / KV bytes of the model", shown=False)
def kv_share(kv_model: ServedModel, kv_dtype: str, devices_per_replica: int) -> float:
    share = device_share(kv_model, devices_per_replica)
    return share.kv_bytes_per_token(kv_dtype) / kv_model.kv_bytes_per_token(kv_dtype)


@link("KV window factor", "1", "KV bytes of a sequence / (tokens * KV bytes of a token)", shown=False)
def kv_window_factors(
    kv_model: ServedModel, kv_dtype: str, held_tokens: float, context_tokens: float
) -> tuple[float, float]:
    token = kv_model.kv_bytes_per_token(kv_dtype)
    return (
        kv_bytes(kv_model, held_tokens, kv_dtype) / (token * held_tokens),
        kv_bytes(kv_model, context_tokens, kv_dtype) / (token * context_tokens),
    )


@link("KV cache of one sequence at its end, on one device", "B", "KV of a token * tokens held (windows capped)")
def kv_bytes_held(
    kv_bytes_per_token: float, held_tokens: float, kv_window_factors: tuple[float, float], kv_share: float
) -> float:
    return kv_bytes_per_token * held_tokens * kv_window_factors[0] * kv_share


@link("KV cache that one sequence reads in a step, on one device", "B", "KV of a token * mean context (windows capped)")
def kv_bytes_read(
    kv_bytes_per_token: float, context_tokens: float, kv_window_factors: tuple[float, float], kv_share: float
) -> float:
    return kv_bytes_per_token * context_tokens * kv_window_factors[1] * kv_share


@link("sequences that fit in memory", "sequence", "floor(free memory / KV of one sequence)")
def memory_batch(free_bytes: float, kv_bytes_held: float, continuous_batch: bool) -> float:
    return capacity.memory_batch(free_bytes, kv_bytes_held, continuous=continuous_batch)


@link("batch limit of the engine", "sequence", "given", basis="assumed")
def batch_limit(max_batch: int) -> int:
    return max_batch


LINKS: tuple[LinkRule, ...] = tuple(rule for rule in list(globals().values()) if isinstance(rule, LinkRule))
"""These links, in the order in which they are written above."""
