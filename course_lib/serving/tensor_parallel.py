"""Split each layer over t devices: what divides, what each device holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError
from course_lib.serving.experts import require_counts

if TYPE_CHECKING:
    from course_lib.serving.shape_record import ModelShape

__all__ = ["TensorParallel", "check_tensor_parallel", "tensor_parallel_degrees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallel:
    """One model split over ``degree`` devices, each holding the same share.

    Args:
        shape: the whole model.
        degree: t, devices.
        device_shape: the part one device holds, as a shape of its own: N/t heads, max(1, K/t) KV heads,
            F/t hidden units of each block and expert, ceil(V/t) rows of the tables. Norms, routers, learned
            positions, down-projections to latents and the biases added after an all-reduce are on each device.
        kv_replication: devices that hold the same KV head, ``max(1, t/K)``; t for latent attention.
    """

    shape: ModelShape
    degree: int
    device_shape: ModelShape
    kv_replication: int

    @property
    def num_parameters_per_device(self) -> int:
        """Parameters one device holds; t of them exceed P by what is replicated and by padding of V."""
        return self.device_shape.num_parameters

    def weight_bytes_per_device(self, dtype: str = "bf16") -> int:
        """Weight bytes on one device."""
        return self.device_shape.weight_bytes(dtype)

    def decode_weight_bytes_per_device(self, batch: int, dtype: str = "bf16") -> float:
        """Weight bytes one device reads in a decode step; see :meth:`ModelShape.decode_weight_bytes`."""
        return self.device_shape.decode_weight_bytes(batch, dtype)

    def kv_bytes_per_token_per_device(self, dtype: str = "bf16") -> int:
        """KV bytes a token adds on one device; a latent is the same on all of them."""
        return self.device_shape.kv_bytes_per_token(dtype)

    def kv_bytes_per_device(self, context_tokens: int, dtype: str = "bf16") -> int:
        """KV bytes of one sequence on one device, windows capped."""
        return self.device_shape.kv_bytes(context_tokens, dtype)


def check_tensor_parallel(shape: ModelShape, degree: int) -> TensorParallel:
    """Split a model over t devices, or say which size does not divide.

    t must divide N and F (and the expert's F). K divides by t, or t by K: then each KV head is held by t/K
    devices. V is padded to a multiple of t, as serving engines do.

    Args:
        shape: the model.
        degree: t, 1 or more.

    Raises:
        InvalidInputError: a size does not divide; the degrees that do are listed.

    Source: Shoeybi et al. (2019), Megatron-LM, section 3.

    >>> from course_lib.serving.model_shape import model_shape
    >>> split = check_tensor_parallel(model_shape("llama-3-70b"), 8)
    >>> split.num_parameters_per_device, split.kv_bytes_per_token_per_device()
    (8820367360, 40960)
    """
    require_counts("tensor parallelism", positive={"degree": degree})
    broken = _broken_sizes(shape, degree)
    if broken:
        raise InvalidInputError(
            f"tensor parallelism over {degree} devices needs sizes that divide",
            allowed="degrees " + ", ".join(map(str, tensor_parallel_degrees(shape))) + f" for {shape.name}",
            given="; ".join(broken),
        )
    kv_heads = max(1, shape.num_kv_heads // degree)
    experts = shape.experts
    if experts is not None:
        experts = replace(experts, expert_feed_forward_size=experts.expert_feed_forward_size // degree)
    device_shape = replace(
        shape,
        num_heads=shape.num_heads // degree,
        num_kv_heads=kv_heads,
        feed_forward_size=shape.feed_forward_size // degree if _has_dense(shape) else shape.feed_forward_size,
        vocab_size=ceil(shape.vocab_size / degree),
        experts=experts,
    )
    copies = degree if shape.latent_attention else degree * kv_heads // shape.num_kv_heads
    return TensorParallel(shape=shape, degree=degree, device_shape=device_shape, kv_replication=copies)


def tensor_parallel_degrees(shape: ModelShape, largest: int = 64) -> tuple[int, ...]:
    """Degrees up to ``largest`` at which the model splits evenly.

    >>> from course_lib.serving.model_shape import model_shape
    >>> tensor_parallel_degrees(model_shape("gpt2")), tensor_parallel_degrees(model_shape("llama-3-8b"))
    ((1, 2, 3, 4, 6, 12), (1, 2, 4, 8, 16, 32))
    """
    return tuple(degree for degree in range(1, largest + 1) if not _broken_sizes(shape, degree))


def _has_dense(shape: ModelShape) -> bool:
    return shape.num_expert_layers < shape.num_layers


def _broken_sizes(shape: ModelShape, degree: int) -> list[str]:
    broken = []
    if shape.num_heads % degree:
        broken.append(f"num_heads {shape.num_heads}")
    if shape.num_kv_heads % degree and degree % shape.num_kv_heads:
        broken.append(f"num_kv_heads {shape.num_kv_heads}")
    if _has_dense(shape) and shape.feed_forward_size % degree:
        broken.append(f"feed_forward_size {shape.feed_forward_size}")
    if shape.experts is not None and shape.experts.expert_feed_forward_size % degree:
        broken.append(f"expert_feed_forward_size {shape.experts.expert_feed_forward_size}")
    return broken
