"""Attention backends behind one contract: whoever keeps it can stand in for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from course_lib.optimization.attention import attention_inputs, standard_attention
from course_lib.optimization.flash import flash_attention
from course_lib.optimization.tiles import Array

__all__ = ["AttentionBackend", "FlashBackend", "StandardBackend", "TorchBackend", "attention_backends"]


class AttentionBackend(Protocol):
    """Exact attention: ``softmax(scale * Q K^T + mask) V``.

    The contract: inputs as in :func:`course_lib.optimization.flash_attention`, grouped-query heads included;
    causality aligned at the last query and the last key; rows that see nothing are 0; shape and dtype of ``q``; inputs
    are left alone; what cannot be used raises InvalidInputError.
    """

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    def __call__(
        self, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: bool = False,
        mask: Array | None = None,
    ) -> Array:  # fmt: skip
        """Attend."""
        ...


@dataclass(frozen=True, slots=True)
class StandardBackend:
    """The whole score matrix, in NumPy."""

    name: str = "standard"

    def __call__(
        self, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: bool = False,
        mask: Array | None = None,
    ) -> Array:  # fmt: skip
        """Attend."""
        return standard_attention(q, k, v, scale=scale, causal=causal, mask=mask)


@dataclass(frozen=True, slots=True)
class FlashBackend:
    """Tiles, in NumPy.

    Args:
        block_q, block_k: tile sizes.
    """

    block_q: int = 64
    block_k: int = 64
    name: str = "flash"

    def __call__(
        self, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: bool = False,
        mask: Array | None = None,
    ) -> Array:  # fmt: skip
        """Attend."""
        return flash_attention(
            q, k, v, block_q=self.block_q, block_k=self.block_k, scale=scale, causal=causal, mask=mask
        )


@dataclass(frozen=True, slots=True)
class TorchBackend:
    """torch's ``scaled_dot_product_attention``, on the CPU; torch loads at the first call."""

    name: str = "torch"

    def __call__(
        self, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: bool = False,
        mask: Array | None = None,
    ) -> Array:  # fmt: skip
        """Attend."""
        import torch

        inputs = attention_inputs(q, k, v, scale=scale, causal=causal, mask=mask)
        queries, keys = inputs.q.shape[2], inputs.k.shape[2]
        bias = np.zeros((*inputs.q.shape[:3], keys), inputs.q.dtype)
        if inputs.mask is not None:
            bias += np.where(inputs.mask, 0, -np.inf) if inputs.mask.dtype == bool else inputs.mask
        if causal:  # torch aligns causality at the first query and the first key, so it is told by a mask
            bias[..., ~np.tri(queries, keys, keys - queries, dtype=bool)] = -np.inf
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in (inputs.q, inputs.k, inputs.v)]
        output = torch.nn.functional.scaled_dot_product_attention(
            tensors[0], tensors[1], tensors[2], attn_mask=torch.from_numpy(bias), scale=inputs.scale, enable_gqa=True
        ).numpy()
        empty = np.isneginf(bias).all(-1, keepdims=True)  # torch leaves such rows to the kernel it picks
        return inputs.shaped(np.where(empty, 0, output).astype(q.dtype))


def attention_backends() -> Mapping[str, AttentionBackend]:
    """Map names to backends that keep the contract.

    >>> sorted(attention_backends())
    ['flash', 'standard', 'torch']
    """
    backends: tuple[AttentionBackend, ...] = (StandardBackend(), FlashBackend(), TorchBackend())
    return {backend.name: backend for backend in backends}
