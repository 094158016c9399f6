"""Tiled attention is exact: against float64, torch, permutations of the keys, and rows that see nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.optimization import (
    flash_attention,
    flash_attention_backward,
    merge,
    standard_attention,
    standard_attention_backward,
)

FP32_TOLERANCE = 3e-6  # a few hundred fp32 additions of values below 5; 2.3e-7 is typical
FP64_TOLERANCE = 1e-12  # the same, fp64


def draw(seed: int, *shapes: tuple[int, ...], dtype: type = np.float64) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def naive(q, k, v, scale=None, causal=False, mask=None):
    """An independent route: one row at a time, in float64, with math.fsum."""
    scale = 1 / math.sqrt(q.shape[1]) if scale is None else scale
    rows = []
    for t, query in enumerate(q.astype(np.float64)):
        visible = [
            s for s in range(len(k))
            if (not causal or s <= t + len(k) - len(q)) and (mask is None or mask[t, s])
        ]  # fmt: skip
        scores = [scale * math.fsum(query * k[s].astype(np.float64)) for s in visible]
        weights = [math.exp(score - max(scores)) for score in scores]
        total = math.fsum(weights)
        rows.append(sum((w / total * v[s].astype(np.float64) for w, s in zip(weights, visible)), np.zeros(v.shape[1])))
    return np.array(rows)


def test_two_tokens_by_hand():
    # scores of query 0: (ln 3, 0) -> weights 3/4, 1/4 -> 0.75*4 + 0.25*8 = 5
    q, k, v = np.array([[math.log(3)]]), np.array([[1.0], [0.0]]), np.array([[4.0], [8.0]])
    assert standard_attention(q, k, v, scale=1)[0, 0] == pytest.approx(5, abs=FP64_TOLERANCE)
    assert flash_attention(q, k, v, scale=1, block_q=1, block_k=1)[0, 0] == pytest.approx(5, abs=FP64_TOLERANCE)


@pytest.mark.parametrize("order", ["fa2", "fa1"])
@pytest.mark.parametrize("blocks", [(100, 37), (1, 1), (64, 64), (7, 300), (300, 7)])
def test_tiles_of_any_size_equal_float64_as_closely_as_the_naive_fp32_does(order, blocks):
    q, k, v = draw(0, (130, 24), (130, 24), (130, 24), dtype=np.float32)
    exact = naive(q, k, v)
    tiled = flash_attention(q, k, v, block_q=blocks[0], block_k=blocks[1], order=order)
    assert tiled.dtype == np.float32
    assert np.abs(tiled - exact).max() < FP32_TOLERANCE
    assert np.abs(standard_attention(q, k, v) - exact).max() < FP32_TOLERANCE


@settings(max_examples=40, deadline=None)
@given(
    t=st.integers(1, 20), s=st.integers(1, 20), block_q=st.integers(1, 23), block_k=st.integers(1, 23),
    causal=st.booleans(), masked=st.booleans(), order=st.sampled_from(["fa2", "fa1"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_shape_mask_and_order_equals_the_row_by_row_route(t, s, block_q, block_k, causal, masked, order, seed):
    q, k, v = draw(seed, (t, 5), (s, 5), (s, 5))
    mask = np.random.default_rng(seed).random((t, s)) < 0.5 if masked else None
    exact = naive(q, k, v, causal=causal, mask=mask)
    tiled = flash_attention(q, k, v, block_q=block_q, block_k=block_k, causal=causal, mask=mask, order=order)
    assert np.abs(tiled - exact).max() < FP64_TOLERANCE
    assert np.abs(standard_attention(q, k, v, causal=causal, mask=mask) - exact).max() < FP64_TOLERANCE


@pytest.mark.parametrize("order", ["fa2", "fa1"])
def test_scores_that_overflow_exp_stay_finite_and_right(order):
    q, k, v = draw(1, (64, 32), (64, 32), (64, 32), dtype=np.float32)
    q *= 50
    scores = q @ k.T / math.sqrt(32)
    assert scores.max() > 88.8  # exp of this overflows fp32: the unsafe softmax would be inf/inf
    tiled = flash_attention(q, k, v, block_q=16, block_k=8, order=order)
    # condition: an error of eps in a score of ~200 becomes 200*eps in its weight
    assert np.abs(tiled - naive(q, k, v)).max() < 8 * np.finfo(np.float32).eps * np.abs(scores).max()


@pytest.mark.parametrize("order", ["fa2", "fa1"])
def test_increasing_and_huge_logits_and_one_element_tiles(order):
    k = np.linspace(-1e4, 1e4, 30)[:, None]
    v = np.arange(30.0)[:, None]
    q = np.array([[1.0], [-1.0], [0.0]])
    tiled = flash_attention(q, k, v, scale=1, block_q=1, block_k=1, order=order)
    assert tiled[:, 0] == pytest.approx([29, 0, 14.5], abs=FP64_TOLERANCE)


@pytest.mark.parametrize("order", ["fa2", "fa1"])
@pytest.mark.parametrize("additive", [False, True])
def test_rows_that_see_nothing_are_zero_and_have_no_lse(order, additive):
    q, k, v = draw(2, (6, 4), (9, 4), (9, 4))
    mask = np.ones((6, 9), bool)
    mask[2] = mask[5] = False
    given_mask = np.where(mask, 0, -np.inf) if additive else mask
    output, lse = flash_attention(q, k, v, block_q=4, block_k=2, mask=given_mask, order=order, return_lse=True)
    assert (output[[2, 5]] == 0).all()
    assert np.isneginf(lse[[2, 5]]).all()
    assert np.isfinite(lse[[0, 1, 3, 4]]).all()
    assert np.array_equal(standard_attention(q, k, v, mask=given_mask)[[2, 5]], np.zeros((2, 4)))


def test_more_queries_than_keys_under_causality_leave_the_first_rows_empty():
    q, k, v = draw(3, (5, 4), (2, 4), (2, 4))
    output = flash_attention(q, k, v, block_q=2, block_k=1, causal=True)
    assert (output[:3] == 0).all()
    assert np.abs(output[3] - v[0]).max() < FP64_TOLERANCE


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), block_k=st.integers(1, 9))
def test_the_order_of_the_keys_does_not_matter(seed, block_k):
    q, k, v = draw(seed, (6, 3), (17, 3), (17, 3))
    order = np.random.default_rng(seed).permutation(17)
    one = flash_attention(q, k, v, block_q=4, block_k=block_k)
    other = flash_attention(q, k[order], v[order], block_q=4, block_k=block_k)
    assert np.abs(one - other).max() < FP64_TOLERANCE


def test_a_constant_added_to_all_scores_changes_nothing_but_the_lse():
    q, k, v = draw(4, (6, 3), (8, 3), (8, 3))
    plain, lse = flash_attention(q, k, v, block_q=4, block_k=3, return_lse=True)
    moved, moved_lse = flash_attention(q, k, v, block_q=4, block_k=3, mask=np.full((6, 8), 5.0), return_lse=True)
    assert np.abs(plain - moved).max() < FP64_TOLERANCE
    assert np.abs(moved_lse - lse - 5).max() < FP64_TOLERANCE


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), cuts=st.tuples(st.integers(1, 10), st.integers(11, 19)))
def test_merge_is_associative_commutative_and_gives_attention_over_the_union(seed, cuts):
    q, k, v = draw(seed, (5, 3), (20, 3), (20, 3))
    parts = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], 20)]
    a, b, c = (flash_attention(q, k[p], v[p], block_q=2, block_k=4, return_lse=True) for p in parts)
    left, right, swapped = merge(*merge(*a, *b), *c), merge(*a, *merge(*b, *c)), merge(*merge(*c, *b), *a)
    whole = flash_attention(q, k, v, block_q=5, block_k=20, return_lse=True)
    for other in (left, right, swapped):
        assert np.abs(other[0] - whole[0]).max() < FP64_TOLERANCE
        assert np.abs(other[1] - whole[1]).max() < FP64_TOLERANCE


def test_merging_with_nothing_changes_nothing():
    nothing = (np.zeros((2, 3)), np.full(2, -np.inf))
    something = (np.ones((2, 3)), np.array([1.0, -np.inf]))
    output, lse = merge(*something, *nothing)
    assert output.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert lse.tolist() == [1.0, -np.inf]
    assert np.isneginf(merge(*nothing, *nothing)[1]).all()


@pytest.mark.parametrize("order", ["fa2", "fa1"])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_query_heads_and_gradients_equal_torch_autograd(order, causal):
    import torch

    q, k, v, upstream = draw(5, (2, 6, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8), (2, 6, 9, 8))
    leaves = [torch.tensor(array, requires_grad=True) for array in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
    expected.backward(torch.tensor(upstream))
    output, lse = flash_attention(q, k, v, block_q=4, block_k=3, causal=causal, order=order, return_lse=True)
    assert np.abs(output - expected.detach().numpy()).max() < FP64_TOLERANCE
    tiled = flash_attention_backward(
        q, k, v, output, lse, upstream, block_q=2, block_k=5, causal=causal, order=order
    )
    standard = standard_attention_backward(q, k, v, upstream, causal=causal)
    for one, two, leaf in zip(tiled, standard, leaves):
        assert np.abs(one - leaf.grad.numpy()).max() < FP64_TOLERANCE
        assert np.abs(two - leaf.grad.numpy()).max() < FP64_TOLERANCE


@pytest.mark.parametrize("order", ["fa2", "fa1"])
def test_gradients_of_masked_rows_are_zero_not_nan(order):
    q, k, v, upstream = draw(6, (6, 4), (6, 4), (6, 4), (6, 4))
    mask = np.tril(np.ones((6, 6), bool), -1)  # row 0 sees nothing
    output, lse = flash_attention(q, k, v, block_q=2, block_k=3, mask=mask, order=order, return_lse=True)
    tiled = flash_attention_backward(q, k, v, output, lse, upstream, block_q=4, block_k=2, mask=mask, order=order)
    standard = standard_attention_backward(q, k, v, upstream, mask=mask)
    assert (tiled[0][0] == 0).all()
    for one, two in zip(tiled, standard):
        assert np.abs(one - two).max() < FP64_TOLERANCE


def test_half_precision_inputs_are_summed_in_fp32():
    q, k, v = draw(7, (64, 32), (256, 32), (256, 32), dtype=np.float16)
    tiled = flash_attention(q, k, v, block_q=16, block_k=32)
    assert tiled.dtype == np.float16
    half_ulp = 2**-12  # outputs lie below 1, so rounding the result costs at most this; twice for the edge
    assert np.abs(tiled.astype(np.float64) - naive(q, k, v)).max() < 2 * half_ulp


@pytest.mark.parametrize(
    ("q", "k", "message"),
    [
        ((4, 2), (4, 3), "share batch and head size"),
        ((1, 3, 4, 2), (1, 2, 4, 2), "multiple of KV heads"),
        ((4,), (4,), r"all \(N, d\) or all \(B, H, T, D\)"),
        ((0, 2), (4, 2), "nothing is empty"),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(q, k, message):
    with pytest.raises(InvalidInputError, match=message):
        flash_attention(np.zeros(q), np.zeros(k), np.zeros(k), block_q=1, block_k=1)


def test_bad_blocks_orders_masks_and_dtypes_are_refused():
    x = np.zeros((4, 2))
    with pytest.raises(InvalidInputError, match="block_q"):
        flash_attention(x, x, x, block_q=0, block_k=1)
    with pytest.raises(InvalidInputError, match="order"):
        flash_attention(x, x, x, block_q=1, block_k=1, order="fa3")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="broadcasts"):
        flash_attention(x, x, x, block_q=1, block_k=1, mask=np.ones((3, 3), bool))
    with pytest.raises(InvalidInputError, match="floating"):
        flash_attention(x.astype(int), x.astype(int), x.astype(int), block_q=1, block_k=1)
