"""The backward pass of flash attention: probabilities are recomputed tile by tile, never stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.hardware.scratchpad import Ledger
from course_lib.optimization.attention import AttentionInputs, attention_inputs
from course_lib.optimization.flash import Head, Order, hidden, require_blocks, score_tile
from course_lib.optimization.tiles import Array, FlopCount, Scratchpad, blocks, machine_ledger

__all__ = ["flash_attention_backward"]


def flash_attention_backward(
    q: Array, k: Array, v: Array, output: Array, lse: Array, output_gradient: Array, *, block_q: int, block_k: int,
    scale: float | None = None, causal: bool = False, mask: Array | None = None, order: Order = "fa2",
    sram_bytes: int | None = None, ledger: Ledger | None = None, flops: FlopCount | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Gradients in tiles, the probabilities recomputed from L: 5 matrix products where the standard way needs 4.

    ``P = exp(S - L)``, ``dV += P^T dO``, ``dP = dO V^T``, ``dS = P * (dP - rowsum(dO * O))``,
    ``dQ += scale * dS K``, ``dK += scale * dS^T Q``. Keys are outside; dK and dV stay on chip, dQ goes out and comes
    back for every block of keys.

    Args:
        q, k, v, block_q, block_k, scale, causal, mask, sram_bytes, ledger, flops: as in :func:`flash_attention`.
        output: O of the forward pass.
        lse: L of the forward pass.
        output_gradient: dO, shape of ``q``.
        order: ``fa2`` reads L and a precomputed ``rowsum(dO * O)``; ``fa1`` reads O itself, and two statistics a row
            (m and l; given L alone, the equal pair L and 1 is stored).

    Returns:
        dQ, dK, dV in the shapes and dtype of q, k, v; KV heads sum the gradients of their query heads.

    Assumes: dQ arrives zeroed and is stored in the dtype of ``q`` between blocks; each query head of a group writes its
        own dK and dV, and their sum over the group is not counted.

    Source: Dao et al., 2022, algorithm 4; Dao, 2023, algorithm 2.
    """
    inputs = attention_inputs(q, k, v, scale=scale, causal=causal, mask=mask)
    require_blocks(block_q, block_k, order)
    outputs, upstream = inputs.with_heads(output), inputs.with_heads(np.asarray(output_gradient, q.dtype))
    statistics = inputs.with_heads(lse).astype(inputs.accumulator)
    dq = np.zeros_like(inputs.q)
    dk, dv = (np.zeros(array.shape, inputs.accumulator) for array in (inputs.k, inputs.v))
    flops = FlopCount() if flops is None else flops
    machine = machine_ledger(sram_bytes, ledger)
    for head, kv_head in inputs.heads():
        second = np.ones_like(statistics[head])
        if order == "fa2":
            second = _row_products(upstream[head], outputs[head], block_q, inputs.accumulator, machine)
        saved = (upstream[head], outputs[head] if order == "fa1" else None, statistics[head], second)
        head_dk, head_dv = np.empty_like(inputs.k[kv_head]), np.empty_like(inputs.v[kv_head])
        _head_backward(inputs, head, kv_head, saved, dq[head], head_dk, head_dv, block_q, block_k, machine, flops)
        dk[kv_head] += head_dk
        dv[kv_head] += head_dv
    return tuple(inputs.shaped(gradient.astype(q.dtype)) for gradient in (dq, dk, dv))  # type: ignore[return-value]


def _head_backward(
    inputs: AttentionInputs, head: Head, kv_head: Head, saved: tuple[Array, Array | None, Array, Array],
    dq: Array, dk: Array, dv: Array, block_q: int, block_k: int, ledger: Ledger, flops: FlopCount,
) -> None:  # fmt: skip
    """One head: for each block of keys, one pass over queries, output gradients and dQ."""
    upstream, outputs, lse, second = saved
    wide = inputs.accumulator
    for columns in blocks(inputs.k.shape[2], block_k):
        with Scratchpad(ledger) as pad:
            keys, values = pad.load(inputs.k[kv_head][columns]), pad.load(inputs.v[kv_head][columns])
            dk_tile, dv_tile = pad.buffer(keys.shape, wide), pad.buffer(keys.shape, wide)
            for rows in blocks(dq.shape[0], block_q):
                if hidden(inputs, rows, columns):
                    continue
                with Scratchpad(ledger) as inner:
                    queries, d_output = inner.load(inputs.q[head][rows]), inner.load(upstream[rows])
                    dq_tile, row_lse, row_second = inner.load(dq[rows]), inner.load(lse[rows]), inner.load(second[rows])
                    scores = score_tile(inputs, inner, queries, keys, head, rows, columns, flops)
                    p = _recompute(scores, row_lse, flops)
                    d_output = d_output.astype(wide)
                    if outputs is None:
                        delta = row_second
                    else:
                        p /= row_second[:, None]
                        delta = (d_output * inner.load(outputs[rows])).sum(-1, dtype=wide)
                    dv_tile += flops.product(p.T, d_output)
                    ds = inner.buffer(p.shape, wide)
                    ds[...] = flops.product(d_output, values.astype(wide).T)  # dP
                    ds[...] = inputs.scale * p * (ds - delta[:, None])
                    inner.store(dq[rows], dq_tile.astype(wide) + flops.product(ds, keys.astype(wide)))
                    dk_tile += flops.product(ds.T, queries.astype(wide))
            pad.store(dk[columns], dk_tile)
            pad.store(dv[columns], dv_tile)


def _recompute(scores: Array, lse: Array, flops: FlopCount) -> Array:
    """Probabilities from scores and L, in place; rows that saw nothing have none."""
    scores[...] = np.exp(scores - np.where(np.isfinite(lse), lse, 0)[:, None])
    flops.exponentials += scores.size
    return scores


def _row_products(a: Array, b: Array, block: int, wide: np.dtype[Any], ledger: Ledger) -> Array:
    """``rowsum(a * b)``, a kernel of its own: reads both once, writes one number a row."""
    result = np.empty(len(a), wide)
    for rows in blocks(len(a), block):
        with Scratchpad(ledger) as pad:
            pad.store(result[rows], (pad.load(a[rows]).astype(wide) * pad.load(b[rows])).sum(-1))
    return result
