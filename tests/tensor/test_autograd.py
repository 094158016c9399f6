"""Backward: accumulation, depth, freeing, ownership, and what it says when misused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.tensor import Tensor, no_grad


def test_every_use_of_a_tensor_adds_its_share():
    x = Tensor([3.0], requires_grad=True)
    y = x * x + x  # dy/dx = 2x + 1 = 7
    y.backward()
    assert x.grad.item() == 7.0


def test_a_shared_intermediate_is_finished_before_it_is_passed_on():
    # The order that a naive walk gets wrong: a = 2x is used by b = a + 1 and by c = a * b.
    x = Tensor([3.0], requires_grad=True)
    a = x * 2.0
    b = a + 1.0
    (a * b).backward()  # c = 2x (2x + 1), dc/dx = 8x + 2 = 26
    assert x.grad.item() == 26.0


def test_a_second_backward_adds_to_the_gradient_once():
    x = Tensor([3.0], requires_grad=True)
    y = (x * x) * x  # 3x^2 = 27
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 54.0


def test_a_chain_of_50_000_operations_runs_and_is_forgotten_without_recursion():
    x = Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(50_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1.0
    del y


def test_a_wide_diamond_is_visited_once_per_node():
    x = Tensor([1.0], dtype="fp64", requires_grad=True)
    y = x
    for _ in range(60):  # 2^60 paths, 60 nodes
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_backward_twice_without_retaining_says_so_and_changes_nothing():
    x = Tensor([2.0], requires_grad=True)
    y = x * x
    y.backward()
    with pytest.raises(InvalidInputError, match="retain_graph=True"):
        y.backward()
    assert x.grad.item() == 4.0


def test_backward_of_many_numbers_needs_a_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(InvalidInputError, match=r"single number.*shape \(2,\)"):
        (x * 2).backward()
    with pytest.raises(InvalidInputError, match="tensor's shape"):
        (x * 2).backward(np.ones(3))
    (x * 2).backward([1.0, 10.0])
    assert x.grad.data.tolist() == [2.0, 20.0]


def test_backward_without_a_graph_says_what_to_set():
    with pytest.raises(InvalidInputError, match="requires_grad=True"):
        Tensor([1.0]).backward()
    x = Tensor([1.0], requires_grad=True)
    with no_grad():
        y = x * 2
    with pytest.raises(InvalidInputError, match="no_grad"):
        y.backward()


def test_leaves_own_the_memory_of_their_gradients():
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    (a + b).sum().backward()  # both get the same repeated 1
    a.grad.data[0] = 100.0
    assert b.grad.data.tolist() == [1.0, 1.0]


def test_a_passed_gradient_is_not_shared_with_the_leaf():
    x = Tensor([1.0], requires_grad=True)
    seed = Tensor([5.0])
    (x + 0.0).backward(seed)
    x.grad.data[0] = 7.0
    assert seed.item() == 5.0


def test_intermediate_gradients_are_kept_on_request():
    x = Tensor([3.0], requires_grad=True)
    y = (x * 2.0).retain_grad()
    (y * y).backward()
    assert y.grad.item() == 12.0  # 2y


def test_a_leaf_can_be_its_own_root():
    x = Tensor(5.0, requires_grad=True)
    x.backward()
    assert x.grad.item() == 1.0


def test_detached_tensors_stop_the_gradient():
    x = Tensor([3.0], requires_grad=True)
    (x * x.detach()).backward()
    assert x.grad.item() == 3.0


def test_integers_have_no_gradient():
    with pytest.raises(InvalidInputError, match="floating point"):
        Tensor([1, 2], requires_grad=True)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_gradients_of_sums_of_reused_terms_count_the_uses(uses):
    leaves = [Tensor([float(i + 1)], dtype="fp64", requires_grad=True) for i in range(4)]
    total = leaves[uses[0]] * 1.0
    for use in uses[1:]:
        total = total + leaves[use]
    total.backward()
    for i, leaf in enumerate(leaves):
        assert (leaf.grad.item() if leaf.grad else 0.0) == uses.count(i)
