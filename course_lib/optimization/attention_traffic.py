"""What attention moves and computes, in closed form; each equals the ledger of the executed algorithm, to the byte.

Conventions, named because published totals differ by them: tensors are counted in their own dtype (``itemsize``);
statistics in ``statistics_itemsize`` (fp32: 4); *inference* writes no statistics, *training* writes one a row; ragged
blocks are not padded; accumulating arrays (fa1's O, dQ) arrive zeroed, and :func:`zero_fill_bytes` says what filling
them costs; each query head reads its own keys and values; no cache helps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import DoesNotFitError, InvalidInputError

__all__ = [
    "AttentionShape", "TileBytes", "break_even_block_q", "flash_flops", "flash_hbm_bytes", "flash_rescale_flops",
    "largest_block_q", "standard_flops", "standard_hbm_bytes", "tile_bytes", "zero_fill_bytes",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Sizes of one attention call.

    Args:
        num_queries: T, query tokens.
        num_keys: S, key tokens; ``num_queries`` when left out.
        head_size: D.
        num_heads: query heads times batch.
        causal: later keys hidden, aligned at the last query and the last key.

    >>> AttentionShape(num_queries=4096, head_size=128).num_keys
    4096
    """

    num_queries: int
    head_size: int
    num_keys: int = 0
    num_heads: int = 1
    causal: bool = False

    def __post_init__(self) -> None:
        if not self.num_keys:
            object.__setattr__(self, "num_keys", self.num_queries)
        for name in ("num_queries", "num_keys", "head_size", "num_heads"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} is 1 or more", given=getattr(self, name))

    def keys_read(self, block_q: int, block_k: int) -> NDArray[np.int64]:
        """Keys that each block of queries loads: all S, or with causality the blocks up to its last query's key."""
        last_row = np.minimum(np.arange(block_q, self.num_queries + block_q, block_q), self.num_queries) - 1
        if not self.causal:
            return np.full(len(last_row), self.num_keys, np.int64)
        visible = np.clip(last_row + 1 + self.num_keys - self.num_queries, 0, self.num_keys)
        keys: NDArray[np.int64] = np.minimum(-(-visible // block_k) * block_k, self.num_keys)
        return keys

    def queries_read(self, block_q: int, block_k: int) -> NDArray[np.int64]:
        """Queries that each block of keys meets: all T, or with causality from that of its first key on."""
        first_key = np.arange(0, self.num_keys, block_k)
        if not self.causal:
            return np.full(len(first_key), self.num_queries, np.int64)
        first_query = np.maximum(first_key - (self.num_keys - self.num_queries), 0)
        queries: NDArray[np.int64] = self.num_queries - first_query // block_q * block_q
        return queries

    def scores_computed(self, block_q: int, block_k: int) -> int:
        """Score elements of one head that tiled code computes, hidden ones inside visited tiles included."""
        rows = np.diff(np.minimum(np.arange(0, self.num_queries + block_q, block_q), self.num_queries))
        return int((rows * self.keys_read(block_q, block_k)).sum())


def standard_hbm_bytes(shape: AttentionShape, *, itemsize: int = 2, backward: bool = False) -> int:
    """Traffic of the standard algorithm: ``e*(4*T*S + 2*T*D + 2*S*D)``, backward ``e*(7*T*S + 4*T*D + 4*S*D)``.

    Args:
        shape: sizes; causality saves nothing here.
        itemsize: e, bytes an element, scores and probabilities included.
        backward: count the backward pass instead of the forward.

    >>> standard_hbm_bytes(AttentionShape(num_queries=4096, head_size=128))
    138412032
    """
    t, s, d = shape.num_queries, shape.num_keys, shape.head_size
    elements = 7 * t * s + 4 * (t + s) * d if backward else 4 * t * s + 2 * (t + s) * d
    return shape.num_heads * itemsize * elements


def flash_hbm_bytes(
    shape: AttentionShape, *, block_q: int, block_k: int, itemsize: int = 2, order: str = "fa2", training: bool = False,
    backward: bool = False, statistics_itemsize: int = 4,
) -> int:  # fmt: skip
    """Traffic of flash attention, without mask.

    Square and not causal, with ``Tr = ceil(N/Br)`` and ``Tc = ceil(N/Bc)``, elements a head (statistics after the +):
    fa2 forward ``2*N*D + Tr*2*N*D`` (+ N in training); fa1 forward ``2*N*D + Tc*3*N*D`` (+ ``Tc*4*N``);
    fa2 backward ``6*N*D + Tc*4*N*D`` (+ ``N + Tc*2*N``); fa1 backward ``4*N*D + Tc*5*N*D`` (+ ``Tc*2*N``).

    Args:
        shape: sizes.
        block_q, block_k: Br and Bc, rows of a query and of a key tile.
        itemsize: bytes of a tensor element.
        order: ``fa2`` or ``fa1``, as in :func:`course_lib.optimization.flash_attention`.
        training: the forward pass writes its statistics (fa1 always does).
        backward: count the backward pass instead of the forward.
        statistics_itemsize: bytes of a statistic.

    >>> shape = AttentionShape(num_queries=4096, head_size=128)
    >>> [flash_hbm_bytes(shape, block_q=block, block_k=64) for block in (32, 64, 128, 256)]
    [270532608, 136314880, 69206016, 35651584]
    """
    t, s, d = shape.num_queries, shape.num_keys, shape.head_size
    met = int(shape.queries_read(block_q, block_k).sum())
    if order not in ("fa2", "fa1"):
        raise InvalidInputError("order is known", allowed="'fa2' or 'fa1'", given=repr(order))
    if not backward and order == "fa2":
        elements, statistics = 2 * t * d + 2 * d * int(shape.keys_read(block_q, block_k).sum()), t * training
    elif not backward:
        elements, statistics = 2 * s * d + 3 * d * met, 4 * met  # the last query sees every key, so all are loaded
    elif order == "fa2":
        elements, statistics = 2 * t * d + 4 * s * d + 4 * d * met, t + 2 * met
    else:
        elements, statistics = 4 * s * d + 5 * d * met, 2 * met
    return shape.num_heads * (itemsize * elements + statistics_itemsize * statistics)


def zero_fill_bytes(shape: AttentionShape, *, itemsize: int = 2, order: str = "fa1", backward: bool = False) -> int:
    """What zeroing the accumulating array costs: O forward (fa1 only), dQ backward; ``e*T*D`` a head.

    >>> zero_fill_bytes(AttentionShape(num_queries=1024, head_size=64, num_heads=1024))
    134217728
    """
    needed = backward or order == "fa1"
    return shape.num_heads * itemsize * shape.num_queries * shape.head_size if needed else 0


def break_even_block_q(num_tokens: int, head_size: int) -> float:
    """Query tile at which flash inference (fa2) moves as many bytes as the standard algorithm: ``D / (2 + D/N)``.

    It tends to ``D/2`` as N grows; larger tiles win.

    >>> round(break_even_block_q(4096, 128), 1)
    63.0
    """
    return head_size / (2 + head_size / num_tokens)


def standard_flops(shape: AttentionShape, *, backward: bool = False) -> int:
    """FLOPs of the matrix products: 2 forward, 4 backward, each ``2*T*S*D``.

    >>> standard_flops(AttentionShape(num_queries=128, head_size=64, num_heads=2))
    8388608
    """
    return (8 if backward else 4) * shape.num_heads * shape.num_queries * shape.num_keys * shape.head_size


def flash_flops(shape: AttentionShape, *, block_q: int, block_k: int, backward: bool = False) -> int:
    """FLOPs of the matrix products: 2 forward, 5 backward (scores are recomputed), over the visited tiles only.

    >>> shape = AttentionShape(num_queries=1024, head_size=64, causal=True)
    >>> flash_flops(shape, block_q=128, block_k=128) / standard_flops(shape)
    0.5625
    """
    products = 5 if backward else 2
    return products * 2 * shape.num_heads * shape.head_size * shape.scores_computed(block_q, block_k)


def flash_rescale_flops(shape: AttentionShape, *, block_q: int, block_k: int) -> int:
    """Extra FLOPs of correcting partial outputs: one product an output element and visited tile, ``N*D*ceil(N/Bc)``.

    >>> flash_rescale_flops(AttentionShape(num_queries=4096, head_size=128), block_q=64, block_k=64)
    33554432
    """
    return shape.num_heads * shape.head_size * int(shape.queries_read(block_q, block_k).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class TileBytes:
    """On-chip bytes of the forward pass with queries outside, by what they hold."""

    queries: int
    keys_and_values: int
    accumulator: int
    statistics: int
    scores: int

    @property
    def total(self) -> int:
        """All of them; they are live together."""
        return self.queries + self.keys_and_values + self.accumulator + self.statistics + self.scores


def tile_bytes(*, block_q: int, block_k: int, head_size: int, itemsize: int = 2, wide_itemsize: int = 4) -> TileBytes:
    """On-chip room of fa2: ``e*Br*D + 2*e*Bc*D + w*Br*D + 2*w*Br + w*Br*Bc``.

    Args:
        block_q, block_k: Br and Bc.
        head_size: D.
        itemsize: e, bytes of a query, key or value.
        wide_itemsize: w, bytes of a sum, a statistic or a score.

    >>> tile_bytes(block_q=64, block_k=64, head_size=128).total
    98816
    """
    return TileBytes(
        queries=itemsize * block_q * head_size,
        keys_and_values=2 * itemsize * block_k * head_size,
        accumulator=wide_itemsize * block_q * head_size,
        statistics=2 * wide_itemsize * block_q,
        scores=wide_itemsize * block_q * block_k,
    )


def largest_block_q(
    sram_bytes: int, *, head_size: int, block_k: int, itemsize: int = 2, wide_itemsize: int = 4, multiple_of: int = 1
) -> int:
    """Largest query tile whose forward pass fits: ``(M - 2*e*Bc*D) // (e*D + w*D + 2*w + w*Bc)``, rounded down.

    Args:
        sram_bytes: M, on-chip memory.
        head_size, block_k, itemsize, wide_itemsize: as in :func:`tile_bytes`.
        multiple_of: round down to a multiple of this, as matrix units ask for.

    Raises:
        DoesNotFitError: not even the smallest tile fits.

    >>> largest_block_q(100_000, head_size=128, block_k=64)
    65
    """
    fixed = tile_bytes(block_q=0, block_k=block_k, head_size=head_size, itemsize=itemsize, wide_itemsize=wide_itemsize)
    one = tile_bytes(block_q=1, block_k=block_k, head_size=head_size, itemsize=itemsize, wide_itemsize=wide_itemsize)
    block_q = (sram_bytes - fixed.total) // (one.total - fixed.total) // multiple_of * multiple_of
    if block_q < 1:
        needed = fixed.total + multiple_of * (one.total - fixed.total)
        raise DoesNotFitError(
            f"a query tile of {multiple_of} with {block_k} keys of size {head_size} needs {needed:,} B, and the memory "
            f"holds {sram_bytes:,} B. Use a smaller block_k."
        )
    return block_q
