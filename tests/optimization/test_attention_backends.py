"""One contract, run against every attention backend."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib.errors import InvalidInputError
from course_lib.optimization import AttentionBackend, FlashBackend, attention_backends

FP32_TOLERANCE = 5e-6  # a few hundred fp32 additions of values below 5
BACKENDS: list[AttentionBackend] = [*attention_backends().values(), FlashBackend(block_q=3, block_k=5)]


def inputs(q_shape=(2, 4, 11, 8), kv_shape=(2, 2, 13, 8), dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in (q_shape, kv_shape, kv_shape)]


def expected(q, k, v, visible):
    """einsum in float64 over explicit heads."""
    k, v = (np.repeat(array, q.shape[1] // k.shape[1], 1).astype(np.float64) for array in (k, v))
    scores = np.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
    weights = np.where(visible, np.exp(scores), 0)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhts,bhsd->bhtd", weights / np.where(total > 0, total, 1), v)


@pytest.fixture(params=BACKENDS, ids=lambda backend: f"{backend.name}-{getattr(backend, 'block_q', 0)}")
def backend(request) -> AttentionBackend:
    return request.param


def test_grouped_heads_and_uneven_lengths(backend):
    q, k, v = inputs()
    assert np.abs(backend(q, k, v) - expected(q, k, v, True)).max() < FP32_TOLERANCE


def test_causality_is_aligned_at_the_last_query_and_key(backend):
    q, k, v = inputs()
    visible = np.tri(11, 13, 2, dtype=bool)
    assert np.abs(backend(q, k, v, causal=True) - expected(q, k, v, visible)).max() < FP32_TOLERANCE


def test_boolean_and_additive_masks_agree_and_empty_rows_are_zero(backend):
    q, k, v = inputs()
    visible = np.random.default_rng(1).random((2, 1, 11, 13)) < 0.5
    visible[:, :, 4] = False
    output = backend(q, k, v, mask=visible)
    additive = np.where(visible, 0, -np.inf).astype(np.float32)
    assert np.abs(output - expected(q, k, v, visible)).max() < FP32_TOLERANCE
    assert np.abs(output - backend(q, k, v, mask=additive)).max() < FP32_TOLERANCE
    assert (output[:, :, 4] == 0).all()


def test_mask_and_causality_combine(backend):
    q, k, v = inputs()
    visible = np.random.default_rng(1).random((11, 13)) < 0.7
    output = backend(q, k, v, mask=visible, causal=True)
    assert np.abs(output - expected(q, k, v, visible & np.tri(11, 13, 2, dtype=bool))).max() < FP32_TOLERANCE


def test_the_scale_can_be_given(backend):
    q, k, v = inputs()
    twice = backend(q, k, v, scale=2 / math.sqrt(8))
    assert np.abs(twice - expected(2 * q, k, v, True)).max() < FP32_TOLERANCE


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shape_and_dtype_are_those_of_q_and_inputs_are_left_alone(backend, dtype):
    q, k, v = (array[0, 0] for array in inputs(dtype=dtype))
    copies = [array.copy() for array in (q, k, v)]
    output = backend(q, k, v, causal=True)
    assert (output.shape, output.dtype) == (q.shape, q.dtype)
    assert all(np.array_equal(one, two) for one, two in zip((q, k, v), copies))


def test_one_token_attends_to_itself(backend):
    q, k, v = inputs((1, 1, 1, 4), (1, 1, 1, 4))
    assert np.array_equal(backend(q, k, v, causal=True), v)


def test_strided_views_are_welcome(backend):
    q, k, v = inputs()
    turned = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for array in (q, k, v)]
    assert np.abs(backend(*turned) - backend(q, k, v)).max() < FP32_TOLERANCE


def test_shapes_that_do_not_belong_together_are_refused(backend):
    q, k, v = inputs((1, 3, 4, 8), (1, 2, 4, 8))
    with pytest.raises(InvalidInputError, match="multiple of KV heads"):
        backend(q, k, v)
