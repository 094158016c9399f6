"""Step time of a transformer on a device: roofline of each iteration, with efficiencies and a fixed cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.step_time import StepBatch, StepTotals
from course_lib.serving.tensor_parallel import check_tensor_parallel
from course_lib.tensor.dtypes import dtype_bytes

if TYPE_CHECKING:
    from course_lib.hardware.device import Device
    from course_lib.serving.shape_record import ModelShape

__all__ = ["RooflineStepTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineStepTime:
    """``max(compute, weights) + KV + fixed + all-reduce``, each from the model's shape and the device's peaks.

    - compute: ``2 P_mm tokens / (efficiency_compute * peak)``; tokens of prompts, decodes and idle rows together
      (one fused iteration, Orca's selective batching), so prompts hide behind the reading of weights.
    - weights: bytes of P_mm (experts: the expected number of distinct ones) ``/ (efficiency_bandwidth * BW)``.
    - KV: bytes of each decode's context, capped by sliding windows, and of what a chunk re-reads of its own
      earlier chunks, ``/ (efficiency_bandwidth * BW)``.
    - all-reduce: ``2 L`` rings of ``tokens * D`` activations where ``tensor_parallel > 1``.

    Args:
        shape: the model.
        device: the machine (each of the ``tensor_parallel`` ones).
        weight_dtype, kv_dtype: storage formats of weights and cache.
        compute_dtype: format that is multiplied; None means bf16, or fp16 where the device has no bf16.
            Weight-only formats save bytes, never FLOPs.
        efficiency_compute, efficiency_bandwidth: share of the peak that is reached, above 0 up to 1.
        fixed_seconds: each iteration, whatever is in it [s].
        tensor_parallel: devices that share each layer.
        prefill_attention: also count the prompts' attention FLOPs, causal pairs (off in the course's tables).

    Raises:
        InvalidInputError: an efficiency outside (0, 1], a degree that does not divide the model.
        UnsupportedError: a format the device cannot multiply, several devices without a link.

    Assumes: no overlap of communication or of KV reading; decode attention FLOPs are free (the reading binds).

    Source: How to Scale Your Model (2025), inference: ``B KV / BW + max(2 B P / F, bytes(P) / BW)``.

    >>> from course_lib.hardware.device import device
    >>> from course_lib.serving.model_shape import model_shape
    >>> step_time = RooflineStepTime(shape=model_shape("llama-3-8b"), device=device("h100-sxm"))
    >>> round(step_time(StepBatch(decode_contexts=(1650,) * 211)) * 1e3, 2)       # milliseconds
    23.13
    """

    shape: ModelShape
    device: Device
    weight_dtype: str = "bf16"
    kv_dtype: str = "bf16"
    compute_dtype: str | None = None
    efficiency_compute: float = 0.6
    efficiency_bandwidth: float = 0.8
    fixed_seconds: float = 5e-4
    tensor_parallel: int = 1
    prefill_attention: bool = False
    _part: ModelShape = field(init=False, repr=False, compare=False)
    _weight_seconds: dict[int, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("efficiency_compute", "efficiency_bandwidth"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInputError(
                    f"{name} is a share of the peak", allowed="above 0 up to 1", given=getattr(self, name)
                )
        if not 0 <= self.fixed_seconds < math.inf:
            raise InvalidInputError("fixed_seconds is 0 or more", given=self.fixed_seconds)
        if self.compute_dtype is None:
            formats = self.device.peak_flops_per_second
            object.__setattr__(self, "compute_dtype", "fp16" if "bf16" not in formats and "fp16" in formats else "bf16")
        self.device.peak(self._multiplied)
        if self.tensor_parallel > 1 and not self.device.link_bytes_per_second:
            raise UnsupportedError(f"{self.device.title} has no link between devices, so layers cannot be shared.")
        object.__setattr__(self, "_part", check_tensor_parallel(self.shape, self.tensor_parallel).device_shape)
        object.__setattr__(self, "_weight_seconds", {})  # a memo: tokens -> seconds at the speed of light

    @property
    def _multiplied(self) -> str:
        assert self.compute_dtype is not None
        return self.compute_dtype

    @property
    def flops_per_token(self) -> float:
        """Matmul FLOPs of one token on one device."""
        return float(self._part.matmul_flops_per_token)

    @property
    def peak_flops_per_second(self) -> float:
        """Dense peak of one device in the format that is multiplied."""
        return self.device.peak(self._multiplied)

    @property
    def is_context_affine(self) -> bool:
        """False with sliding windows, and where prompt attention of latents is counted."""
        windowed = any(window is not None for window in self.shape.attention_windows)
        return not windowed and not (self.prefill_attention and self.shape.latent_attention is not None)

    @property
    def seconds_per_context_token(self) -> float:
        """KV bytes of a token over the bandwidth reached (before any window is full)."""
        return self._part.kv_bytes_per_token(self.kv_dtype) / self._bandwidth

    @property
    def _bandwidth(self) -> float:
        return self.device.memory_bytes_per_second * self.efficiency_bandwidth

    def _parts_seconds(self) -> Callable[[int, float, float], float]:
        """Seconds from tokens, attention FLOPs and KV seconds, with all that stays the same worked out once."""
        reached = self.peak_flops_per_second * self.efficiency_compute
        per_token, fixed = self.flops_per_token / reached, self.fixed_seconds + self.all_reduce_seconds(0)
        reduce_per_token = self.all_reduce_seconds(1) - self.all_reduce_seconds(0)
        efficiency, routed = self.efficiency_bandwidth, self.shape.experts is not None
        weights = self._weight_read_seconds(1) / efficiency

        def seconds(num_tokens: int, attention_flops: float, kv_seconds: float) -> float:
            read = self._weight_read_seconds(num_tokens) / efficiency if routed and num_tokens else weights
            compute = num_tokens * per_token + attention_flops / reached
            return (compute if compute > read else read) + kv_seconds + fixed + num_tokens * reduce_per_token

        return seconds

    def _weight_read_seconds(self, num_tokens: int) -> float:
        key = num_tokens if self.shape.experts is not None else 1
        if key not in self._weight_seconds:
            num_bytes = self._part.decode_weight_bytes(key, self.weight_dtype)
            self._weight_seconds[key] = num_bytes / self.device.memory_bytes_per_second
        return self._weight_seconds[key]

    def all_reduce_seconds(self, num_tokens: int) -> float:
        """``2 L`` ring all-reduces of ``tokens * D`` activations; 0 on one device."""
        if self.tensor_parallel == 1:
            return 0.0
        from course_lib.hardware.collectives import ring_all_reduce_seconds

        link = self.device.link_bytes_per_second
        assert link is not None
        one = ring_all_reduce_seconds(
            num_tokens * self.shape.model_size * dtype_bytes(self._multiplied),
            self.tensor_parallel,
            bytes_per_second=link,
            latency_seconds=self.device.link_latency_seconds or 0.0,
        )
        return 2 * self.shape.num_layers * float(one)

    def totals_seconds(self) -> StepTotals:
        """The step time as a function of five sums; only where :attr:`is_context_affine`."""
        if not self.is_context_affine:
            raise UnsupportedError("With sliding windows a step is no function of sums; call it with a StepBatch.")
        parts, per_context = self._parts_seconds(), self.seconds_per_context_token
        per_pair = float(self._part.attention_flops(1, 1)) if self.prefill_attention else 0.0
        return lambda new, prior, pairs, rows, context: parts(
            new + rows, pairs * per_pair, per_context * (context + prior)
        )

    def __call__(self, batch: StepBatch) -> float:
        """Seconds of one iteration."""
        if self.is_context_affine:
            return self.totals_seconds()(*batch.totals)
        part, kv = self._part, self.kv_dtype
        num_bytes = sum(part.kv_bytes(context, kv) for context in batch.decode_contexts)
        num_bytes += sum(part.kv_bytes(context - new, kv) for new, context in batch.prefill)
        flops = sum(part.attention_flops(*chunk) for chunk in batch.prefill) if self.prefill_attention else 0
        return self._parts_seconds()(batch.num_tokens + batch.num_idle_rows, flops, num_bytes / self._bandwidth)

    def floor_seconds(self, batch: StepBatch) -> float:
        """Speed of light: ``max(FLOPs / peak, (weights + KV) / BW)``, efficiencies 1, nothing fixed.

        A step time below it is wrong; tests hold each step above it.
        """
        part, bandwidth = self._part, self.device.memory_bytes_per_second
        num_tokens = batch.num_tokens + batch.num_idle_rows
        kv = sum(part.kv_bytes(context, self.kv_dtype) for context in batch.decode_contexts)
        compute = num_tokens * self.flops_per_token / self.peak_flops_per_second
        return max(compute, self._weight_read_seconds(num_tokens) + kv / bandwidth)
