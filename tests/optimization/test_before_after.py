"""The evidence record of an optimization: counted on both sides, equal to the closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.errors import InvalidInputError
from course_lib.optimization import (
    AttentionShape,
    BeforeAfter,
    compare_attention,
    flash_flops,
    flash_hbm_bytes,
    flash_rescale_flops,
    standard_flops,
    standard_hbm_bytes,
)
from course_lib.trace.work import Work


def evidence(n: int = 96, d: int = 32, **options) -> BeforeAfter:
    q, k, v = np.random.default_rng(0).standard_normal((3, n, d)).astype(np.float32)
    return compare_attention(q, k, v, block_q=32, block_k=16, **options)


@pytest.mark.parametrize("causal", [False, True])
def test_both_sides_equal_their_closed_forms(causal):
    shape = AttentionShape(num_queries=96, head_size=32, causal=causal)
    tiles = {"block_q": 32, "block_k": 16}
    record = evidence(causal=causal)
    assert record.before.matmul_flops == standard_flops(shape)
    assert record.before.bytes_moved == standard_hbm_bytes(shape, itemsize=4)
    assert record.after.matmul_flops == flash_flops(shape, **tiles)
    assert record.after.bytes_moved == flash_hbm_bytes(shape, itemsize=4, **tiles)
    scores = shape.scores_computed(32, 16)
    assert record.after.elementwise_flops == 4 * scores + 96 * 32 + flash_rescale_flops(shape, **tiles)


def test_flops_rise_while_bytes_fall_and_the_error_stays():
    record = evidence()
    # before: 5 FLOPs a score; after: 4 a score, D a row to divide, N*D*ceil(N/Bc) to rescale
    assert record.after.flops - record.before.flops == -96 * 96 + 96 * 32 + 96 * 32 * 6
    assert record.flops_ratio < 1 < record.bytes_ratio
    assert record.error_after < 5 * np.finfo(np.float32).eps * 5
    assert record.memory_before_bytes == 2 * 96 * 96 * 4


def test_rows_hold_each_quantity_once():
    names = [name for name, _, _ in evidence().rows()]
    assert names == ["FLOPs", "exponentials", "bytes moved", "memory [byte]", "largest error"]


def test_a_nan_error_or_negative_memory_is_refused():
    base = {
        "name": "x", "before": Work.zero(), "after": Work.zero(), "memory_before_bytes": 0, "memory_after_bytes": 0,
        "error_before": 0.0, "error_after": 0.0, "error_name": "error",
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match="error"):
        BeforeAfter(**{**base, "error_after": float("nan")})
    with pytest.raises(InvalidInputError, match="memory"):
        BeforeAfter(**{**base, "memory_after_bytes": -1})
