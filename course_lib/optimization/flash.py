"""Flash attention: exact attention in tiles, never holding the N x N scores in memory.

A block of queries meets one block of keys and values after another in on-chip memory. A running maximum m and sum l
for each row keep the softmax exact; earlier partial outputs are rescaled when the maximum grows.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.hardware.scratchpad import Ledger
from course_lib.optimization.attention import AttentionInputs, attention_inputs
from course_lib.optimization.tiles import Array, FlopCount, Scratchpad, blocks, machine_ledger

__all__ = ["Order", "flash_attention"]

Order = Literal["fa2", "fa1"]
Head = tuple[int, int]


@overload
def flash_attention(
    q: Array, k: Array, v: Array, *, block_q: int, block_k: int, scale: float | None = ..., causal: bool = ...,
    mask: Array | None = ..., order: Order = ..., return_lse: Literal[False] = ..., sram_bytes: int | None = ...,
    ledger: Ledger | None = ..., flops: FlopCount | None = ...,
) -> Array: ...  # fmt: skip
@overload
def flash_attention(
    q: Array, k: Array, v: Array, *, block_q: int, block_k: int, return_lse: Literal[True], scale: float | None = ...,
    causal: bool = ..., mask: Array | None = ..., order: Order = ..., sram_bytes: int | None = ...,
    ledger: Ledger | None = ..., flops: FlopCount | None = ...,
) -> tuple[Array, Array]: ...  # fmt: skip
def flash_attention(
    q: Array, k: Array, v: Array, *, block_q: int, block_k: int, scale: float | None = None, causal: bool = False,
    mask: Array | None = None, order: Order = "fa2", return_lse: bool = False, sram_bytes: int | None = None,
    ledger: Ledger | None = None, flops: FlopCount | None = None,
) -> Array | tuple[Array, Array]:  # fmt: skip
    """Exact attention in tiles: ``O = softmax(scale * Q K^T + mask) V``, each tile through on-chip memory.

    For each tile of scores S: ``m' = max(m, rowmax S)``, ``P = exp(S - m')``, ``l' = l*exp(m - m') + rowsum P``,
    ``O' = O*exp(m - m') + P V``; at the end ``O / l``.

    Args:
        q: queries (N, d) or (B, H, T, D).
        k, v: keys and values (N, d) or (B, K, S, D), H a multiple of K.
        block_q: query rows a tile, Br.
        block_k: keys a tile, Bc.
        scale: default ``1/sqrt(D)``.
        causal: hide later keys, aligned at the last query and the last key; tiles that are all hidden are skipped.
        mask: boolean (True: visible) or additive, broadcast to (B, H, T, S); skips no tile.
        order: ``fa2``: queries outside, the output stays on chip and is written once. ``fa1``: keys outside, output,
            m and l go out and come back for every block of keys.
        return_lse: also return ``L = m + log l`` (fp32), as training needs it.
        sram_bytes: capacity of the on-chip memory; unlimited when left out.
        ledger: counts ``hbm`` bytes and the ``sram`` peak; its capacity holds.
        flops: tally of what was computed.

    Returns:
        Outputs in the shape and dtype of ``q``, and L of shape (..., T) when asked for. Rows that see nothing are 0,
        their L is -inf.

    Raises:
        InvalidInputError: shapes, dtypes or block sizes that cannot be used.
        CapacityError: the tiles do not fit the on-chip memory.

    Assumes: query heads of a group read their keys and values each for themselves; products are summed in fp32
        (fp64 for fp64); row-sized temporaries live in registers. In ``fa1`` the output arrives zeroed and is stored in
        the dtype of ``q`` between blocks; m and l are in memory already, and forming L from them is not counted.

    Source: Dao et al., 2022 (FlashAttention, algorithm 1: ``fa1``); Dao, 2023 (FlashAttention-2: ``fa2``).

    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.standard_normal((3, 100, 16))
    >>> from course_lib.optimization.attention import standard_attention
    >>> bool(np.allclose(flash_attention(q, k, v, block_q=37, block_k=11), standard_attention(q, k, v)))
    True
    """
    inputs = attention_inputs(q, k, v, scale=scale, causal=causal, mask=mask)
    require_blocks(block_q, block_k, order)
    output = np.zeros_like(inputs.q)
    lse = np.full(inputs.q.shape[:3], -np.inf, inputs.accumulator)
    forward = _queries_outside if order == "fa2" else _keys_outside
    machine = machine_ledger(sram_bytes, ledger)
    for head, kv_head in inputs.heads():
        forward(
            inputs, head, kv_head, output[head], lse[head] if return_lse else None,
            block_q, block_k, machine, FlopCount() if flops is None else flops,
        )  # fmt: skip
    return (inputs.shaped(output), inputs.shaped(lse)) if return_lse else inputs.shaped(output)


def _queries_outside(
    inputs: AttentionInputs, head: Head, kv_head: Head, output: Array, lse: Array | None,
    block_q: int, block_k: int, ledger: Ledger, flops: FlopCount,
) -> None:  # fmt: skip
    """FlashAttention-2: one pass over the keys for each block of queries; normalise once, at the end."""
    (num_queries, width), num_keys = output.shape, inputs.k.shape[2]
    for rows in blocks(num_queries, block_q):
        with Scratchpad(ledger) as pad:
            queries = pad.load(inputs.q[head][rows])  # (Br, D)
            total = pad.buffer((len(queries), width), inputs.accumulator)
            peak = pad.buffer((len(queries),), inputs.accumulator, -np.inf)
            norm = pad.buffer((len(queries),), inputs.accumulator)
            for columns in blocks(num_keys, block_k):
                if hidden(inputs, rows, columns):
                    break  # later keys are hidden too
                with Scratchpad(ledger) as inner:
                    keys, values = inner.load(inputs.k[kv_head][columns]), inner.load(inputs.v[kv_head][columns])
                    scores = score_tile(inputs, inner, queries, keys, head, rows, columns, flops)
                    correction, peak = _online_softmax(scores, peak, norm, flops)
                    total *= correction[:, None]
                    flops.rescale += total.size
                    total += flops.product(scores, values.astype(inputs.accumulator))
            visible = norm > 0
            flops.softmax += total.size
            pad.store(output[rows], total / np.where(visible, norm, 1)[:, None])
            if lse is not None:
                pad.store(lse[rows], _log_sum_exp(peak, norm))


def _keys_outside(
    inputs: AttentionInputs, head: Head, kv_head: Head, output: Array, lse: Array | None,
    block_q: int, block_k: int, ledger: Ledger, flops: FlopCount,
) -> None:  # fmt: skip
    """FlashAttention-1: one pass over queries and outputs for each block of keys; normalise every time."""
    num_queries, num_keys = output.shape[0], inputs.k.shape[2]
    peaks = np.full(num_queries, -np.inf, inputs.accumulator)  # m and l live in outer memory
    norms = np.zeros(num_queries, inputs.accumulator)
    for columns in blocks(num_keys, block_k):
        with Scratchpad(ledger) as pad:
            keys, values = pad.load(inputs.k[kv_head][columns]), pad.load(inputs.v[kv_head][columns])
            for rows in blocks(num_queries, block_q):
                if hidden(inputs, rows, columns):
                    continue  # later queries see these keys
                with Scratchpad(ledger) as inner:
                    queries, previous = inner.load(inputs.q[head][rows]), inner.load(output[rows])
                    peak, norm = inner.load(peaks[rows]), inner.load(norms[rows])
                    scores = score_tile(inputs, inner, queries, keys, head, rows, columns, flops)
                    unnormalised = inner.buffer(previous.shape, inputs.accumulator)
                    unnormalised[...] = previous * norm[:, None]
                    correction, peak = _online_softmax(scores, peak, norm, flops)
                    unnormalised *= correction[:, None]
                    flops.rescale += unnormalised.size
                    unnormalised += flops.product(scores, values.astype(inputs.accumulator))
                    flops.softmax += 2 * unnormalised.size  # undone and done again for every block
                    inner.store(output[rows], unnormalised / np.where(norm > 0, norm, 1)[:, None])
                    inner.store(peaks[rows], peak)
                    inner.store(norms[rows], norm)
    if lse is not None:
        lse[...] = _log_sum_exp(peaks, norms)


def hidden(inputs: AttentionInputs, rows: slice, columns: slice) -> bool:
    """Whether causality hides a whole tile: its first key comes after the last key its last query sees."""
    offset = inputs.k.shape[2] - inputs.q.shape[2]
    return inputs.causal and columns.start > rows.stop - 1 + offset


def score_tile(
    inputs: AttentionInputs, pad: Scratchpad, queries: Array, keys: Array, head: Head, rows: slice, columns: slice,
    flops: FlopCount,
) -> Array:  # fmt: skip
    """``scale * Q K^T`` of one tile, hidden entries -inf, in a buffer of its own."""
    wide = inputs.accumulator
    tile = pad.buffer((len(queries), len(keys)), wide)
    tile[...] = inputs.scale * flops.product(queries.astype(wide), keys.astype(wide).T)
    tile[...] = inputs.hide(tile, head, rows, columns, pad.ledger)
    return tile


def _online_softmax(scores: Array, peak: Array, norm: Array, flops: FlopCount) -> tuple[Array, Array]:
    """Turn scores into exponentials and update ``norm``, both in place; return the correction and the new peak."""
    new_peak = np.maximum(peak, scores.max(-1))
    finite = np.where(np.isfinite(new_peak), new_peak, 0)  # a row that saw nothing yet: exp(-inf - 0) = 0
    scores[...] = np.exp(scores - finite[:, None])
    correction = np.exp(peak - finite)
    flops.exponentials += scores.size + correction.size
    flops.softmax += 4 * scores.size  # scale, maximum, subtract, sum; the division comes once an output element
    norm *= correction
    norm += scores.sum(-1)
    return correction, new_peak


def _log_sum_exp(peak: Array, norm: Array) -> Array:
    """``m + log l``, -inf where nothing was visible."""
    return peak + np.log(norm, out=np.full_like(norm, -np.inf), where=norm > 0)


def require_blocks(block_q: int, block_k: int, order: str) -> None:
    for name, block in (("block_q", block_q), ("block_k", block_k)):
        if not isinstance(block, int | np.integer) or isinstance(block, bool) or block < 1:
            raise InvalidInputError(f"{name} is a whole number of rows, 1 or more", given=repr(block))
    if order not in ("fa2", "fa1"):
        raise InvalidInputError("order is known", allowed="'fa2' or 'fa1'", given=repr(order))
