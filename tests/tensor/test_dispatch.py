"""Dispatch: observers see exactly the operations executed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from course_lib.errors import InvalidInputError
from course_lib.tensor import (
    OPS,
    SGD,
    AdamW,
    CausalLM,
    Linear,
    Module,
    Parameter,
    Sequential,
    Tensor,
    concat,
    cross_entropy,
    current_module,
    current_phase,
    dropout,
    gather,
    gelu,
    layer_norm,
    no_grad,
    observe,
    relu,
    sigmoid,
    tanh,
    where,
)


class Calls(list):
    """The plainest observer: a list of calls."""

    def on_call(self, call):
        self.append(call)

    def names(self, phase="forward"):
        return [call.op for call in self if call.phase == phase]


def matmul_flops(calls, phase):
    """2mnk of each observed matmul, batch included."""
    return sum(2 * call.outputs[0].num_elements * call.inputs[0].shape[-1]
               for call in calls if call.op == "matmul" and call.phase == phase)


def mlp(*sizes, rng):
    stages = []
    for m, n in itertools.pairwise(sizes):
        stages += [Linear(m, n, rng=rng), relu]
    return Sequential(*stages[:-1])


def test_an_mlp_of_64_128_128_10_at_32_rows_costs_the_hand_worked_flops():
    # forward: 2 * 32 * (64*128 + 128*128 + 128*10) = 64 * 25,856 = 1,654,784
    # backward: dW of all three, the same again, plus dX of the upper two: 64 * (128*128 + 128*10) = 1,130,496
    rng = np.random.default_rng(0)
    model = mlp(64, 128, 128, 10, rng=rng)
    with observe(Calls()) as calls:
        loss = cross_entropy(model(Tensor(rng.standard_normal((32, 64)), dtype="fp32")),
                             Tensor(rng.integers(0, 10, 32)))
        loss.backward()
    assert matmul_flops(calls, "forward") == 1_654_784
    assert matmul_flops(calls, "backward") == 2_785_280
    assert calls.names().count("matmul") == 3
    assert calls.names("backward").count("matmul") == 5


@pytest.mark.parametrize("num_layers", [1, 2, 4, 8])
@pytest.mark.parametrize("input_needs_grad", [False, True])
def test_backward_over_forward_is_2_minus_1_over_l_where_the_input_needs_no_gradient(num_layers, input_needs_grad):
    rng = np.random.default_rng(0)
    model = mlp(*[6] * (num_layers + 1), rng=rng)
    x = Tensor(rng.standard_normal((5, 6)), dtype="fp32", requires_grad=input_needs_grad)
    with observe(Calls()) as calls:
        model(x).sum().backward()
    expected = 2 * num_layers if input_needs_grad else 2 * num_layers - 1
    assert matmul_flops(calls, "backward") * num_layers == matmul_flops(calls, "forward") * expected


def saved_bytes(calls):
    """Unique storages kept for backward, parameters excluded."""
    return sum({kept.storage_id: kept.storage_nbytes for call in calls for kept in call.saved
                if not kept.is_parameter}.values())


@pytest.mark.parametrize(("activation", "units"), [(relu, 4), (tanh, 4), (lambda x: x, 4), (gelu, 7)])
def test_four_linears_keep_the_hand_worked_bytes(activation, units):
    # Units of B*D*4 bytes: the 4 inputs of the linears. ReLU and tanh keep their output, which is one of
    # them; GELU keeps its input, 3 more.
    rng = np.random.default_rng(0)
    layers = [Linear(64, 64, rng=rng) for _ in range(4)]
    x = Tensor(rng.standard_normal((32, 64)), dtype="fp32")
    with observe(Calls()) as calls:
        for i, layer in enumerate(layers):
            x = layer(x) if i == 3 else activation(layer(x))
    assert saved_bytes(calls) == units * 32 * 64 * 4
    if units == 4:
        raw = sum(kept.nbytes for call in calls for kept in call.saved)
        assert raw == (106_496 if activation in (relu, tanh) else 81_920)  # no dedupe, weights of 3 layers counted


def test_nested_observers_all_see_each_call_and_leave_in_order():
    a = Tensor([1.0])
    with observe(Calls()) as outer:
        a + a
        with observe(Calls()) as inner:
            a * a
        a - a
    a / a
    assert outer.names() == ["add", "mul", "sub"]
    assert inner.names() == ["mul"]


def test_an_exception_removes_the_observer_and_restores_module_and_phase():
    calls = Calls()

    class Broken(Module):
        def forward(self, x):
            raise ValueError("on purpose")

    class Outer(Module):
        def __init__(self):
            self.inner = Broken()

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(ValueError, match="on purpose"), observe(calls):
        Outer()(Tensor([1.0]))
    Tensor([1.0]) + 1
    assert list(calls) == []
    assert current_module() == ""
    assert current_phase() == "forward"


def test_a_failing_backward_restores_the_phase():
    x = Tensor([1.0], requires_grad=True)
    y = x * 2
    y.backward()
    with pytest.raises(InvalidInputError):
        y.backward()
    assert current_phase() == "forward"
    assert (x * 2).requires_grad


def test_calls_carry_shapes_strides_and_storage():
    a = Tensor(np.zeros((2, 3), dtype=np.float32))
    with observe(Calls()) as calls:
        b = a.T
        c = b.contiguous()
    (transposed, copied) = calls
    assert transposed.attributes == {"axes": (1, 0)}
    assert transposed.inputs[0].strides == (3, 1)
    assert transposed.outputs[0].strides == (1, 3)
    assert transposed.outputs[0].storage_id == a.storage_id
    assert copied.outputs[0].strides == (2, 1)
    assert copied.outputs[0].storage_id == c.storage_id != a.storage_id
    assert copied.outputs[0].nbytes == 24  # 6 values of 4 bytes


def test_backward_calls_carry_the_module_of_their_forward():
    lm = CausalLM(vocab_size=7, model_size=8, num_layers=2, num_heads=4, num_kv_heads=2, feed_forward_size=6,
                  rng=np.random.default_rng(0))
    with observe(Calls()) as calls:
        lm.loss(Tensor([[1, 2, 3]]), Tensor([[2, 3, 4]])).backward()
    forward = {call.module for call in calls if call.phase == "forward" and call.op == "matmul"}
    backward = {call.module for call in calls if call.phase == "backward" and call.op == "matmul"}
    assert "blocks.1.attention.query" in forward
    assert forward == backward


def test_without_gradients_nothing_is_saved():
    a = Tensor([1.0], requires_grad=True)
    with observe(Calls()) as calls, no_grad():
        (a * a).exp()
    Tensor([1.0]) * Tensor([2.0])
    assert all(call.saved == () for call in calls)


def test_views_of_parameters_are_marked_as_parameters():
    weight = Parameter(np.ones((2, 3)))
    assert weight.T.meta.is_parameter
    assert not (weight * 2).meta.is_parameter


def every_operation(rng):
    """Run each operation of the library at least once, forward, backward and update."""
    x = Parameter(rng.standard_normal((2, 4)) + 3, dtype="fp64")
    y = Parameter(rng.standard_normal((2, 4)) + 3, dtype="fp64")
    w, b = Parameter(np.ones(4)), Parameter(np.zeros(4))
    condition = Tensor(np.array([[True, False, True, False]]))
    parts = [x + y, x - y, x * y, x / y, x + 1.0, x * 2.0, x ** 3, -x, x.exp(), x.log(), x.sqrt(), x.tanh(),
             sigmoid(x), relu(x), gelu(x), gelu(x, approximate="tanh"), where(condition, x, y),
             x.masked_fill(condition, 0.0), dropout(x, 0.5, rng=rng), x.to("fp32").to("fp64"), x.T.contiguous().T,
             concat([x, y], axis=0)[:2], gather(x, Tensor(np.zeros((2, 4), dtype=int)), axis=1), layer_norm(x, w, b),
             x.mean(1, keepdims=True).expand(2, 4), x.max(1, keepdims=True).expand(2, 4)]
    total = parts[0].sum()
    for part in parts[1:]:
        total = total + part.sum()
    total.backward()
    for fused in (False, True):
        lm = CausalLM(vocab_size=7, model_size=8, num_layers=1, num_heads=4, num_kv_heads=2, feed_forward_size=6,
                      fused=fused, rng=rng)
        lm.loss(Tensor([[1, 2, 3]]), Tensor([[2, 3, 4]])).backward()
        SGD(lm.parameters(), learning_rate=0.1).step()
        AdamW(lm.parameters()).step()


def test_the_table_names_every_operation_with_exactly_its_attributes():
    with observe(Calls()) as calls:
        every_operation(np.random.default_rng(0))
    for call in calls:
        assert set(call.attributes) == set(OPS[call.op].attributes), call.op
    assert {call.op for call in calls} == set(OPS)


def test_attributes_are_plain_values():
    def plain(value):
        if isinstance(value, tuple):
            return all(plain(item) for item in value)
        return value is None or isinstance(value, bool | int | float | str)

    with observe(Calls()) as calls:
        every_operation(np.random.default_rng(0))
    assert all(plain(value) for call in calls for value in call.attributes.values())
    assert {call.phase for call in calls} == {"forward", "backward", "update"}


def test_only_view_operations_share_storage_with_an_input():
    with observe(Calls()) as calls:
        every_operation(np.random.default_rng(0))
    for call in calls:
        shared = {out.storage_id for out in call.outputs} & {given.storage_id for given in call.inputs}
        assert not shared or OPS[call.op].is_view or call.phase == "update", call.op


def test_composed_and_fused_attention_keep_the_hand_worked_bytes():
    # h=2 heads, N=8 tokens, d=4. Composed: q, k, v and the probabilities, (3hNd + hN^2)*4 = (192+128)*4 = 1280,
    # plus the mask of N^2 booleans where causal. Fused: q, k, v, out and a logsumexp a row, (4hNd + hN)*4 = 1088.
    from course_lib.tensor import scaled_dot_product_attention

    rng = np.random.default_rng(0)
    for options, expected in (({}, 1280), ({"causal": True}, 1280 + 64), ({"fused": True}, 1088)):
        q, k, v = (Tensor(rng.standard_normal((1, 2, 8, 4)), dtype="fp32", requires_grad=True) for _ in range(3))
        with observe(Calls()) as calls:
            scaled_dot_product_attention(q, k, v, **options)
        assert saved_bytes(calls) == expected, options


def test_a_scalar_product_records_the_number():
    with observe(Calls()) as calls:
        Tensor([1.0]) * math.pi
    assert calls[0].attributes == {"value": math.pi}


@pytest.mark.parametrize("product", [lambda a, b: a * b, lambda a, b: a @ b])
def test_a_product_keeps_only_the_operand_that_a_needed_gradient_reads(product):
    # da = dc * b reads b, db = dc * a reads a: with only a's gradient needed, b alone is kept.
    for needs in ((True, False), (False, True), (True, True)):
        a, b = (Tensor(np.ones((2, 2)), requires_grad=needed) for needed in needs)
        with observe(Calls()) as calls:
            product(a, b)
        kept = {meta.storage_id for meta in calls[0].saved}
        assert kept == {other.storage_id for other, needed in ((b, needs[0]), (a, needs[1])) if needed}
