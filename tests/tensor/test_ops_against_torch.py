"""Values and gradients of every operation equal torch's, on random shapes and layouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import course_lib.tensor as t
from course_lib.tensor import Tensor

# float64 with at most a few hundred terms of size near 1: both round differently, by far less than this.
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
LAYOUTS = ("plain", "transposed", "sliced", "reversed", "expanded")
FEW = settings(max_examples=12, deadline=None)


def laid_out(base_shape, layout):
    """The shape of a base and the view of it, as one function for both libraries."""
    if layout == "transposed" and len(base_shape) >= 2:
        return (*base_shape[:-2], base_shape[-1], base_shape[-2]), lambda x: x.transpose(-2, -1)
    if layout == "sliced" and base_shape:
        return (*base_shape[:-1], 2 * base_shape[-1] + 1), lambda x: x[..., 1::2]
    if layout == "expanded" and base_shape:
        return (1, *base_shape[1:]), lambda x: x.expand(*base_shape)
    if layout == "reversed" and base_shape:
        return base_shape, lambda x: x[::-1] if isinstance(x, Tensor) else x.flip(0)
    return base_shape, lambda x: x


@st.composite
def operands(draw, shapes, low=-2.0, high=2.0):
    """Bases and views for the shapes: (ours, torch's, views)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ours, theirs, views = [], [], []
    for shape in shapes:
        base_shape, view = laid_out(shape, draw(st.sampled_from(LAYOUTS)))
        base = rng.uniform(low, high, base_shape)
        ours.append(Tensor(base.copy(), requires_grad=True))
        theirs.append(torch.tensor(base, requires_grad=True))
        views.append(view)
    return ours, theirs, views


def assert_same(ours_function, torch_function, drawn):
    """Equal outputs, and equal gradients of the bases under a random weighting of the output."""
    ours, theirs, views = drawn
    got = ours_function(*[view(x) for x, view in zip(ours, views)])
    expected = torch_function(*[view(x) for x, view in zip(theirs, views)])
    assert got.shape == tuple(expected.shape)
    np.testing.assert_allclose(got.data, expected.detach().numpy(), **CLOSE)
    weights = np.random.default_rng(1).standard_normal(got.shape)
    got.backward(weights)
    expected.backward(torch.tensor(weights))
    for own, other in zip(ours, theirs):
        assert own.grad.shape == tuple(other.grad.shape)
        np.testing.assert_allclose(own.grad.data, other.grad.numpy(), **CLOSE)


SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)
MATRICES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)

UNARY = {
    "exp": (lambda x: x.exp(), torch.exp), "log": (lambda x: x.log(), torch.log),
    "sqrt": (lambda x: x.sqrt(), torch.sqrt), "tanh": (lambda x: x.tanh(), torch.tanh),
    "sigmoid": (t.sigmoid, torch.sigmoid), "relu": (t.relu, F.relu), "silu": (t.silu, F.silu),
    "gelu": (t.gelu, F.gelu),
    "gelu tanh": (lambda x: t.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "neg": (lambda x: -x, torch.neg), "square": (lambda x: x**2, lambda x: x**2),
    "power 1.5": (lambda x: x**1.5, lambda x: x**1.5), "power 0": (lambda x: x**0, lambda x: x**0),
    "scalar left": (lambda x: 3.0 - x * 2 + 1, lambda x: 3.0 - x * 2 + 1),
    "scalar over": (lambda x: 2.0 / x - x / 3, lambda x: 2.0 / x - x / 3),
    "contiguous": (lambda x: x.contiguous(), lambda x: x.contiguous()),
    "flatten": (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
    "cast": (lambda x: x.to("fp32").to("fp64"), lambda x: x.float().double()),
}
POSITIVE = {"log", "sqrt", "power 1.5", "scalar over"}


@pytest.mark.parametrize("name", UNARY)
@FEW
@given(data=st.data())
def test_unary_operations(name, data):
    low = 0.2 if name in POSITIVE else -2.0
    assert_same(*UNARY[name], data.draw(operands([data.draw(SHAPES)], low=low)))


BINARY = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b}


@pytest.mark.parametrize("name", BINARY)
@FEW
@given(data=st.data(), broadcast=mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
def test_binary_operations_with_broadcasting(name, data, broadcast):
    assert_same(BINARY[name], BINARY[name], data.draw(operands(broadcast.input_shapes, low=0.3)))


@FEW
@given(data=st.data(), broadcast=mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=4))
def test_where_and_masked_fill(data, broadcast):
    shape_condition, *shapes = broadcast.input_shapes
    condition = np.random.default_rng(2).random(shape_condition) < 0.5
    assert_same(lambda a, b: t.where(Tensor(condition), a, b), lambda a, b: torch.where(torch.tensor(condition), a, b),
                data.draw(operands(shapes)))
    assert_same(lambda a: a.masked_fill(Tensor(condition), 0.5),
                lambda a: torch.where(torch.tensor(condition), 0.5, a), data.draw(operands(shapes[:1])))


REDUCTIONS = {
    "sum": (lambda x, axis, keep: x.sum(axis, keepdims=keep), lambda x, axis, keep: x.sum(axis, keepdim=keep)),
    "mean": (lambda x, axis, keep: x.mean(axis, keepdims=keep), lambda x, axis, keep: x.mean(axis, keepdim=keep)),
    "max": (lambda x, axis, keep: x.max(axis, keepdims=keep), lambda x, axis, keep: x.amax(axis, keepdim=keep)),
    "max of ties": (lambda x, axis, keep: (x * 0.0).max(axis, keepdims=keep) + x.max(axis, keepdims=keep),
                    lambda x, axis, keep: (x * 0.0).amax(axis, keepdim=keep) + x.amax(axis, keepdim=keep)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@FEW
@given(data=st.data())
def test_reductions_over_any_axes(name, data):
    shape = data.draw(MATRICES)
    axes = tuple(data.draw(st.sets(st.integers(-len(shape), -1), min_size=1, max_size=len(shape))))
    keep = data.draw(st.booleans())
    ours, theirs = REDUCTIONS[name]
    assert_same(lambda x: ours(x, axes, keep), lambda x: theirs(x, axes, keep), data.draw(operands([shape])))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), batch=mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3),
       sizes=st.tuples(*[st.integers(1, 5)] * 3))
def test_matmul_with_broadcast_batches(data, batch, sizes):
    m, k, n = sizes
    shapes = [(*batch.input_shapes[0], m, k), (*batch.input_shapes[1], k, n)]
    assert_same(lambda a, b: a @ b, lambda a, b: a @ b, data.draw(operands(shapes)))


@FEW
@given(data=st.data(), k=st.integers(1, 5), rest=MATRICES)
def test_matmul_with_vectors(data, k, rest):
    product = lambda a, b: a @ b  # noqa: E731
    assert_same(product, product, data.draw(operands([(k,), (k,)])))
    assert_same(product, product, data.draw(operands([(*rest, k), (k,)])))
    assert_same(product, product, data.draw(operands([(k,), (*rest[:-1], k, rest[-1])])))


@FEW
@given(data=st.data(), shape=MATRICES)
def test_shape_operations(data, shape):
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    both = lambda x: x.permute(*order).reshape(-1).reshape(*shape)  # noqa: E731
    assert_same(both, both, data.draw(operands([shape])))
    at = data.draw(st.integers(-shape[0], shape[0] - 1))
    index = lambda x: x[at, ..., :2]  # noqa: E731
    assert_same(index, index, data.draw(operands([shape])))
    spread = lambda x: x.expand(3, *shape) * 2.0  # noqa: E731
    assert_same(spread, spread, data.draw(operands([shape])))


@FEW
@given(data=st.data(), shape=MATRICES, more=st.integers(1, 4))
def test_concat(data, shape, more):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    other = list(shape)
    other[axis] = more
    assert_same(lambda a, b: t.concat([a, b, a], axis), lambda a, b: torch.cat([a, b, a], axis),
                data.draw(operands([shape, tuple(other)])))


@FEW
@given(data=st.data(), rows=st.integers(1, 6), size=st.integers(1, 5), shape=SHAPES)
def test_embedding_adds_rows_that_were_read_twice(data, rows, size, shape):
    tokens = np.random.default_rng(3).integers(0, rows, shape)
    assert_same(lambda w: t.embedding(w, Tensor(tokens)), lambda w: F.embedding(torch.tensor(tokens), w),
                data.draw(operands([(rows, size)])))
    assert_same(lambda w: w[Tensor(tokens)], lambda w: w[torch.tensor(tokens)], data.draw(operands([(rows, size)])))


@FEW
@given(data=st.data(), shape=MATRICES, count=st.integers(1, 6))
def test_gather(data, shape, count):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    wanted = list(shape)
    wanted[axis] = count
    indices = np.random.default_rng(4).integers(0, shape[axis], wanted)
    assert_same(lambda a: t.gather(a, Tensor(indices), axis=axis),
                lambda a: torch.gather(a, axis, torch.tensor(indices)), data.draw(operands([shape])))


@pytest.mark.parametrize(("ours", "theirs"), [(t.softmax, F.softmax), (t.log_softmax, F.log_softmax)])
@FEW
@given(data=st.data(), shape=MATRICES)
def test_softmax_along_any_axis(ours, theirs, data, shape):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_same(lambda x: ours(x, axis), lambda x: theirs(x, dim=axis), data.draw(operands([shape])))


@FEW
@given(data=st.data(), batch=st.integers(1, 4), tokens=st.integers(1, 4), vocab=st.integers(1, 6))
def test_cross_entropy(data, batch, tokens, vocab):
    targets = np.random.default_rng(5).integers(0, vocab, (batch, tokens))
    assert_same(lambda x: t.cross_entropy(x, Tensor(targets)),
                lambda x: F.cross_entropy(x.reshape(-1, vocab), torch.tensor(targets).reshape(-1)),
                data.draw(operands([(batch, tokens, vocab)])))


@FEW
@given(data=st.data(), shape=MATRICES)
def test_norms(data, shape):
    size = shape[-1:]
    assert_same(lambda x, w: t.rms_norm(x, w, eps=1e-3), lambda x, w: F.rms_norm(x, size, w, eps=1e-3),
                data.draw(operands([shape, size])))
    assert_same(lambda x, w, b: t.layer_norm(x, w, b, eps=1e-3), lambda x, w, b: F.layer_norm(x, size, w, b, eps=1e-3),
                data.draw(operands([shape, size, size])))


@pytest.mark.parametrize("fused", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), batch=st.integers(1, 2), kv_heads=st.integers(1, 3), group=st.integers(1, 3),
       tokens=st.integers(1, 4), cached=st.integers(0, 3), size=st.integers(1, 4), causal=st.booleans())
def test_grouped_query_attention(fused, data, batch, kv_heads, group, tokens, cached, size, causal):
    keys = tokens + cached
    mask = torch.ones(tokens, keys, dtype=torch.bool).tril(cached) if causal else None
    shapes = [(batch, kv_heads * group, tokens, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, size)]
    assert_same(
        lambda q, k, v: t.scaled_dot_product_attention(q, k, v, causal=causal, fused=fused),
        lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                                       attn_mask=mask),
        data.draw(operands(shapes)))


@FEW
@given(data=st.data(), batch=st.integers(1, 3), tokens=st.integers(1, 5), half=st.integers(1, 4))
def test_rope_equals_a_complex_rotation(data, batch, tokens, half):
    cos, sin = t.rope_tables(tokens, 2 * half, dtype="fp64")
    turn = torch.complex(torch.tensor(cos.data), torch.tensor(sin.data))

    def rotated(x):
        z = torch.complex(x[..., :half], x[..., half:]) * turn
        return torch.cat([z.real, z.imag], dim=-1)

    assert_same(lambda x: t.rope(x, cos, sin), rotated, data.draw(operands([(batch, tokens, 2 * half)])))


def test_dropout_gradient_is_its_own_noise():
    x = Tensor(np.full((50, 50), 2.0), requires_grad=True)
    y = t.dropout(x, 0.25, rng=np.random.default_rng(0))
    y.sum().backward()
    np.testing.assert_array_equal(y.data, 2.0 * x.grad.data)
    assert set(np.unique(x.grad.data)) == {0.0, 1 / 0.75}
    # 2,500 draws of mean 0.25: four standard deviations are 4 * sqrt(.25 * .75 / 2500) = 0.035
    assert abs((x.grad.data == 0).mean() - 0.25) < 0.035


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything(probability):
    x = Tensor(np.ones(4), requires_grad=True)
    np.testing.assert_array_equal(t.dropout(x, probability, rng=np.random.default_rng(0)).data, 1 - probability)


@given(broadcast=mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
def test_unbroadcast_is_the_adjoint_of_broadcasting(broadcast):
    shape, full = broadcast.input_shapes[0], broadcast.result_shape
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(shape), rng.standard_normal(full)
    back = t.unbroadcast(Tensor(g), shape)
    assert back.shape == shape
    # <broadcast(x), g> = <x, unbroadcast(g)>
    np.testing.assert_allclose((np.broadcast_to(x, full) * g).sum(), (x * back.data).sum(), rtol=1e-9, atol=1e-9)


def test_empty_tensors_pass_through():
    x = Tensor(np.zeros((0, 3)), requires_grad=True)
    y = (x @ Tensor(np.ones((3, 2)))).sum() + x.exp().sum()
    y.backward()
    assert y.item() == 0.0
    assert x.grad.shape == (0, 3)


def test_huge_values_do_not_overflow_softmax_or_sigmoid():
    x = Tensor([1e4, -1e4, 0.0])
    assert t.softmax(x).data.tolist() == [1.0, 0.0, 0.0]
    assert t.sigmoid(x).data.tolist() == [1.0, 0.0, 0.5]
    assert t.silu(x).data.tolist() == [1e4, 0.0, 0.0]


def test_infinities_are_values_and_warn_nobody():
    assert Tensor([0.0]).log().item() == -np.inf
    assert np.isnan((Tensor([0.0]) / Tensor([0.0])).item())


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_products_are_those_of_torch(dtype):
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(np.float32) / 8 for shape in ((5, 7), (7, 3)))
    got = Tensor(a, dtype=dtype) @ Tensor(b, dtype=dtype)
    expected = (torch.tensor(a).to(kind) @ torch.tensor(b).to(kind)).float().numpy()
    assert got.dtype == dtype
    assert got.nbytes == 2 * 15
    np.testing.assert_array_equal(got.data.astype(np.float32), expected)  # sums of 7 exact products are exact


def test_a_float_beats_an_integer_and_the_wider_float_wins():
    i, h, b, f = Tensor([2]), Tensor([1.5], dtype="fp16"), Tensor([1.5], dtype="bf16"), Tensor([1.5])
    assert ((i * f).dtype, (h * f).dtype, (b * f).dtype, (b * h).dtype) == ("fp32",) * 4
    assert ((b * b).dtype, (b * 2).dtype, (i * b).dtype) == ("bf16",) * 3


def test_a_gradient_comes_back_in_the_dtype_of_its_operand():
    x = Tensor([1.5], dtype="bf16", requires_grad=True)
    (x * Tensor([3.0])).backward()
    assert x.grad.dtype == "bf16"
