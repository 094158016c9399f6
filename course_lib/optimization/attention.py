"""Attention as it is written: ``softmax(scale * Q K^T) V``, with the whole score matrix in memory.

The standard algorithm writes the N x N scores, reads them for the softmax, writes the probabilities and reads them
again. Forward and backward stand side by side, and every pass over memory is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.hardware.scratchpad import Ledger
from course_lib.optimization.tiles import Array, FlopCount, scratchpad_ledger

__all__ = ["AttentionInputs", "merge", "standard_attention", "standard_attention_backward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionInputs:
    """Checked inputs, as (B, H, T, D) queries and (B, K, S, D) keys and values.

    Args:
        q, k, v: arrays of one floating dtype; H is a multiple of K (grouped-query attention).
        scale: factor on the scores.
        causal: query t sees keys up to ``t + S - T``: the last query sees all (aligned at the lower right).
        mask: (B, H, T, S) view, boolean (True: visible) or added to the scores; None for no mask.
        has_heads: False when the caller gave plain (N, d) matrices.
    """

    q: Array
    k: Array
    v: Array
    scale: float
    causal: bool
    mask: Array | None
    has_heads: bool

    @property
    def accumulator(self) -> np.dtype[Any]:
        """dtype of sums and statistics: fp32, or fp64 for fp64 inputs."""
        return np.dtype(np.float64 if self.q.dtype == np.float64 else np.float32)

    def heads(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Pairs of (batch, query head) and the (batch, KV head) it reads."""
        batch, heads = self.q.shape[:2]
        group = heads // self.k.shape[1]
        return [((b, h), (b, h // group)) for b in range(batch) for h in range(heads)]

    def shaped(self, array: Array) -> Array:
        """Give a result the rank of the inputs."""
        return array if self.has_heads else array[0, 0]

    def with_heads(self, array: Array) -> Array:
        """Give an array of the inputs' rank its batch and head axes."""
        return array if self.has_heads else array[None, None]

    def hide(self, scores: Array, head: tuple[int, int], rows: slice, columns: slice, ledger: Ledger) -> Array:
        """Apply mask and causality to a block of scores; hidden entries become -inf. A mask is read from memory."""
        if self.mask is not None:
            block = self.mask[head][rows, columns]
            ledger.read("hbm", block.nbytes)
            scores = np.where(block, scores, -np.inf) if block.dtype == bool else scores + block
        if self.causal:
            offset = self.k.shape[2] - self.q.shape[2]
            visible = np.arange(columns.start, columns.stop) <= np.arange(rows.start, rows.stop)[:, None] + offset
            scores = np.where(visible, scores, -np.inf)
        return scores.astype(self.accumulator, copy=False)


def attention_inputs(
    q: Array, k: Array, v: Array, *, scale: float | None, causal: bool, mask: Array | None
) -> AttentionInputs:
    """Check shapes and dtypes, default the scale to ``1/sqrt(D)`` and add batch and head axes where they lack."""
    if not (q.ndim == k.ndim == v.ndim) or q.ndim not in (2, 4):
        raise InvalidInputError(
            "q, k and v are all (N, d) or all (B, H, T, D)", given=f"{q.ndim}, {k.ndim} and {v.ndim} axes"
        )
    if not (q.dtype == k.dtype == v.dtype) or q.dtype.kind in "biuc":
        raise InvalidInputError("q, k and v share one floating dtype", given=f"{q.dtype}, {k.dtype} and {v.dtype}")
    has_heads = q.ndim == 4
    if not has_heads:
        q, k, v = (array[None, None] for array in (q, k, v))
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or 0 in (*q.shape, *k.shape):
        raise InvalidInputError(
            "k and v have one shape, share batch and head size with q, and nothing is empty",
            given=f"q {q.shape}, k {k.shape}, v {v.shape}",
        )
    if q.shape[1] % k.shape[1]:
        raise InvalidInputError(
            "query heads are a multiple of KV heads", given=f"{q.shape[1]} query and {k.shape[1]} KV heads"
        )
    if mask is not None:
        mask = _broadcast_mask(np.asarray(mask), (*q.shape[:3], k.shape[2]))
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    return AttentionInputs(q=q, k=k, v=v, scale=scale, causal=causal, mask=mask, has_heads=has_heads)


def standard_attention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, causal: bool = False, mask: Array | None = None,
    ledger: Ledger | None = None, flops: FlopCount | None = None,
) -> Array:  # fmt: skip
    """Attention through the whole score matrix: ``O = softmax(scale * Q K^T + mask) V``.

    Args:
        q: queries (N, d) or (B, H, T, D).
        k, v: keys and values (N, d) or (B, K, S, D), H a multiple of K.
        scale: default ``1/sqrt(D)``.
        causal: hide later keys, aligned at the last query and the last key.
        mask: boolean (True: visible) or additive, broadcast to (B, H, T, S).
        ledger: counts ``hbm`` bytes; ``4*T*S + 2*T*D + 2*S*D`` elements a head when there is no mask.
        flops: tally of what was computed.

    Returns:
        Outputs in the shape and dtype of ``q``; rows that see nothing are 0.

    Raises:
        InvalidInputError: shapes or dtypes that do not belong together.

    Assumes: scores and probabilities are stored in the dtype of the inputs (in fp16, scores above 65,504 overflow);
        each product reads its operands once; a causal mask skips no work here.

    Source: Dao et al., 2022 (FlashAttention), algorithm 0.

    >>> x = np.eye(3)
    >>> standard_attention(x, x, x, causal=True).round(2)[0].tolist()
    [1.0, 0.0, 0.0]
    """
    inputs = attention_inputs(q, k, v, scale=scale, causal=causal, mask=mask)
    ledger, flops = ledger or scratchpad_ledger(), flops or FlopCount()
    output = np.empty_like(inputs.q)
    for head, kv_head in inputs.heads():
        probabilities = _probabilities(inputs, head, kv_head, ledger, flops)
        values = _read(inputs.v[kv_head], inputs, ledger)
        output[head] = flops.product(_read(probabilities, inputs, ledger), values)
        ledger.write("hbm", output[head].nbytes)
    return inputs.shaped(output)


def standard_attention_backward(
    q: Array, k: Array, v: Array, output_gradient: Array, *, scale: float | None = None, causal: bool = False,
    mask: Array | None = None, ledger: Ledger | None = None, flops: FlopCount | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Gradients through the saved probabilities P, 4 matrix products.

    ``dV = P^T dO``, ``dP = dO V^T``, ``dS = P * (dP - rowsum(P * dP))``, ``dQ = scale * dS K``,
    ``dK = scale * dS^T Q``.

    Args:
        q, k, v, scale, causal, mask: as in :func:`standard_attention`.
        output_gradient: dO, shape of ``q``.
        ledger: counts ``7*T*S + 4*T*D + 4*S*D`` elements a head; P is taken as saved by the forward pass.
        flops: tally of the 4 products.

    Returns:
        dQ, dK, dV in the shapes of q, k, v; KV heads sum the gradients of their query heads.
    """
    inputs = attention_inputs(q, k, v, scale=scale, causal=causal, mask=mask)
    ledger, flops = ledger or scratchpad_ledger(), flops or FlopCount()
    d_output = inputs.with_heads(np.asarray(output_gradient, q.dtype))
    dq, dk, dv = (np.zeros(array.shape, inputs.accumulator) for array in (inputs.q, inputs.k, inputs.v))
    for head, kv_head in inputs.heads():
        saved = _probabilities(inputs, head, kv_head, scratchpad_ledger(), FlopCount())  # the forward pass paid for it
        p, upstream = _read(saved, inputs, ledger), _read(d_output[head], inputs, ledger)
        dv[kv_head] += _written(flops.product(p.T, upstream), q.dtype, ledger)
        upstream, values = _read(d_output[head], inputs, ledger), _read(inputs.v[kv_head], inputs, ledger)
        dp = _written(flops.product(upstream, values.T), q.dtype, ledger)
        p, dp = _read(saved, inputs, ledger), _read(dp, inputs, ledger)
        ds = _written(p * (dp - (p * dp).sum(-1, keepdims=True)), q.dtype, ledger)
        keys = _read(inputs.k[kv_head], inputs, ledger)
        dq[head] = _written(inputs.scale * flops.product(_read(ds, inputs, ledger), keys), q.dtype, ledger)
        queries = _read(inputs.q[head], inputs, ledger)
        dk[kv_head] += _written(inputs.scale * flops.product(_read(ds, inputs, ledger).T, queries), q.dtype, ledger)
    return tuple(inputs.shaped(gradient.astype(q.dtype)) for gradient in (dq, dk, dv))  # type: ignore[return-value]


def merge(output_a: Array, lse_a: Array, output_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """Join attention over two disjoint sets of keys into attention over their union.

    ``L = log(exp(L_a) + exp(L_b))``, ``O = O_a * exp(L_a - L) + O_b * exp(L_b - L)``: associative and commutative,
    so keys can be split over blocks, cores or devices and joined in any order.

    Args:
        output_a, output_b: (..., T, D).
        lse_a, lse_b: log of the sum of exponentials of the scores (..., T); -inf where nothing was visible.

    Returns:
        Output and lse of the union.

    Source: Milakov and Gimelshein, 2018 (online softmax); Dao et al., 2023 (split over keys in decoding).

    >>> output, lse = merge(np.array([[1.0]]), np.array([0.0]), np.array([[3.0]]), np.array([0.0]))
    >>> float(output[0, 0]), round(float(lse[0]), 4)
    (2.0, 0.6931)
    """
    lse = np.logaddexp(lse_a, lse_b)
    finite = np.where(np.isfinite(lse), lse, 0)  # -inf - -inf is undefined; nothing visible weighs 0
    weight_a, weight_b = np.exp(lse_a - finite)[..., None], np.exp(lse_b - finite)[..., None]
    return output_a * weight_a + output_b * weight_b, lse


def _probabilities(
    inputs: AttentionInputs, head: tuple[int, int], kv_head: tuple[int, int], ledger: Ledger, flops: FlopCount
) -> Array:
    """Write the scores, read them for the softmax, write the probabilities; return those as stored."""
    queries, keys = _read(inputs.q[head], inputs, ledger), _read(inputs.k[kv_head], inputs, ledger)
    stored = _written(inputs.scale * flops.product(queries, keys.T), inputs.q.dtype, ledger)
    scores = _read(stored, inputs, ledger)
    scores = inputs.hide(scores, head, slice(0, scores.shape[0]), slice(0, scores.shape[1]), ledger)
    peak = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    flops.exponentials += weights.size
    flops.softmax += 5 * weights.size  # scale, maximum, subtract, sum, divide
    total = weights.sum(-1, keepdims=True)
    return _written(weights / np.where(total > 0, total, 1), inputs.q.dtype, ledger)


def _read(array: Array, inputs: AttentionInputs, ledger: Ledger) -> Array:
    ledger.read("hbm", array.nbytes)
    return array.astype(inputs.accumulator)


def _written(array: Array, dtype: np.dtype[Any], ledger: Ledger) -> Array:
    stored = array.astype(dtype)
    ledger.write("hbm", stored.nbytes)
    return stored


def _broadcast_mask(mask: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise InvalidInputError(
            f"a mask broadcasts to (batch, heads, queries, keys) = {shape}", given=str(mask.shape)
        ) from None
