"""The time of a step, for every batch size at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import UnsupportedError
from course_lib.hardware import Device
from course_lib.hardware.collectives import ring_all_reduce_seconds
from course_lib.journey.links import LinkRule, link
from course_lib.journey.served_model import ServedModel, decode_weight_fractions, device_share
from course_lib.serving import capacity
from course_lib.tensor.dtypes import dtype_bytes

__all__ = ["LINKS"]

Array = NDArray[np.float64]


@link("work on one device", "1", "FLOPs on a device / FLOPs of the model", shown=False)
def work_share(work_model: ServedModel, devices_per_replica: int) -> float:
    return device_share(work_model, devices_per_replica).matmul_flops_per_token / work_model.matmul_flops_per_token


@link("arithmetic of a step", "s", "B * FLOPs of one token / FLOP/s reached", per_batch=True)
def compute_seconds(batches: Array, flops_per_token: float, work_share: float, flops_per_second: float) -> Array:
    return batches * (flops_per_token * work_share / flops_per_second)


@link("share of the weights that a step reads", "1", "P_mm / P, less idle experts", shown=False)
def read_fractions(weight_model: ServedModel, devices_per_replica: int) -> tuple[float, float, float]:
    return decode_weight_fractions(device_share(weight_model, devices_per_replica))


@link("weights that a step reads on one device", "B", "weights * P_mm / P, less experts expected idle", per_batch=True)
def weight_bytes_read(
    batches: Array, weight_bytes_per_device: float, read_fractions: tuple[float, float, float]
) -> Array:
    most, idle, ratio = read_fractions
    fraction = most - idle * ratio ** (batches - 1) if idle else np.full_like(batches, most)
    return weight_bytes_per_device * fraction


@link("reading the weights", "s", "weights read / bytes/s reached", per_batch=True)
def weight_read_seconds(weight_bytes_read: Array, bytes_per_second: float) -> Array:
    return weight_bytes_read / bytes_per_second


@link("reading the KV cache", "s", "B * KV read of a sequence / bytes/s reached", per_batch=True)
def kv_read_seconds(batches: Array, kv_bytes_read: float, bytes_per_second: float) -> Array:
    return batches * (kv_bytes_read / bytes_per_second)


@link("all-reduce of one token", "s", "2 L ring all-reduces of D activations", shown=False)
def all_reduce_cost(
    work_model: ServedModel, compute_dtype: str, device: Device, devices_per_replica: int
) -> tuple[float, float]:
    """(seconds for each token, seconds for each step)."""
    if devices_per_replica == 1:
        return 0.0, 0.0
    if device.link_bytes_per_second is None:
        raise UnsupportedError(f"{device.title} has no recorded link, so {devices_per_replica} cannot share a model.")
    calls = 2 * work_model.num_layers
    latency = device.link_latency_seconds or 0.0
    token, empty = (
        ring_all_reduce_seconds(
            num_bytes, devices_per_replica, bytes_per_second=device.link_bytes_per_second, latency_seconds=latency
        )
        for num_bytes in (work_model.model_size * dtype_bytes(compute_dtype), 0.0)
    )
    return calls * (token - empty), calls * empty


@link("all-reduces of a step", "s", "2 L (2 (n-1)/n * B D * bytes / link + 2 (n-1) latency)", per_batch=True)
def all_reduce_seconds(batches: Array, all_reduce_cost: tuple[float, float]) -> Array:
    return batches * all_reduce_cost[0] + all_reduce_cost[1]


@link("one decode step", "s", "max(arithmetic, weights) + KV + fixed + all-reduces", per_batch=True)
def step_seconds(
    compute_seconds: Array, weight_read_seconds: Array, kv_read_seconds: Array, step_fixed_seconds: float,
    all_reduce_seconds: Array,
) -> Array:  # fmt: skip
    return capacity.step_seconds(
        compute_seconds, weight_read_seconds, kv_read_seconds, fixed_seconds=step_fixed_seconds,
        all_reduce=all_reduce_seconds,
    )  # fmt: skip


@link("one prefill", "s", "prefill FLOPs / FLOP/s reached + all-reduces; also the stall it makes when not chunked")
def prefill_seconds(
    prefill_flops: float, work_share: float, flops_per_second: float, prefill_tokens: float,
    all_reduce_cost: tuple[float, float],
) -> float:  # fmt: skip
    return prefill_flops * work_share / flops_per_second + prefill_tokens * all_reduce_cost[0] + all_reduce_cost[1]


@link("time between tokens (TPOT)", "s", "step + B / output * prefill", per_batch=True)
def interval_seconds(
    step_seconds: Array, batches: Array, output_tokens: float, prefill_seconds: float, disaggregated: bool
) -> Array:
    if disaggregated:  # prefills run on other replicas
        return step_seconds
    return capacity.interval_seconds(
        step_seconds, batches, output_tokens=output_tokens, prefill_seconds=prefill_seconds
    )


LINKS: tuple[LinkRule, ...] = tuple(rule for rule in list(globals().values()) if isinstance(rule, LinkRule))
"""These links, in the order in which they are written above."""
