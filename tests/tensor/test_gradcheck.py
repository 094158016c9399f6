"""gradcheck passes right gradients and names the wrong one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.tensor import Op, Tensor, apply, gelu, gradcheck, no_grad, softmax


class Scaled(Op):
    """c = a * b with a gradient for b that is off by a factor."""

    name = "mul"

    def __init__(self, factor):
        self.factor = factor

    def forward(self, context, a, b):
        context.save(a, b)
        return a * b

    def backward(self, context, grad):
        a, b = context.saved
        return grad * b, grad * a * self.factor


def inputs(shape=(3, 4)):
    rng = np.random.default_rng(7)
    return [Tensor(rng.standard_normal(shape), requires_grad=True) for _ in range(2)]


def test_a_right_gradient_passes():
    assert gradcheck(lambda a, b: apply(Scaled(1.0), a, b), *inputs()).passed


@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 1.001, 0.0])
def test_a_wrong_gradient_is_named_with_its_ratio(factor):
    report = gradcheck(lambda a, b: apply(Scaled(factor), a, b), *inputs())
    assert [failure.position for failure in report.failures] == [1]
    (failure,) = report.failures
    assert failure.analytic / failure.numeric == pytest.approx(factor, rel=1e-6, abs=1e-9)
    assert "input 1" in str(report)


def test_a_forgotten_gradient_fails():
    def forgets(a):
        return a * a.detach()

    assert not gradcheck(forgets, inputs()[0]).passed


def test_a_nan_fails():
    assert not gradcheck(lambda a: (a * a * -1.0).log(), inputs()[0])


def test_inputs_without_a_gradient_are_left_alone():
    a, b = inputs()
    report = gradcheck(lambda x, y: x * y, a, b.detach())
    assert [check.position for check in report.checks] == [0]
    with pytest.raises(InvalidInputError, match="requires_grad"):
        gradcheck(lambda x: x, b.detach())


def test_fp32_inputs_are_checked_in_float64_and_left_unchanged():
    x = Tensor([0.5, -1.5], requires_grad=True)
    with no_grad():
        before = x.copy()
    assert gradcheck(lambda a: softmax(gelu(a)), x)
    assert x.grad is None
    np.testing.assert_array_equal(x.data, before.data)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_any_direction_passes_a_smooth_function(seed, size):
    rng = np.random.default_rng(seed)
    x = Tensor(rng.standard_normal((size, 3)), requires_grad=True)
    assert gradcheck(lambda a: (softmax(a).log() * a.tanh()).sum(0), x, rng=rng)
