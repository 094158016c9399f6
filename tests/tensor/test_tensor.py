"""The tensor: views share storage, copies do not, and mistakes are answered with the next step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError, UnsupportedError
from course_lib.tensor import Tensor, concat, cross_entropy, embedding


def test_python_floats_are_fp32_and_arrays_keep_their_dtype():
    assert Tensor([1.0]).dtype == "fp32"
    assert Tensor([1]).dtype == "int64"
    assert Tensor(np.zeros(2)).dtype == "fp64"
    assert Tensor([True]).dtype == "bool"


def test_views_share_storage_and_copies_do_not():
    x = Tensor(np.arange(12.0).reshape(3, 4))
    views = (x.reshape(4, 3), x.T, x[1:], x[..., ::2], x.reshape(1, 3, 4).expand(2, 3, 4), x[1, 2], x.detach())
    assert {view.storage_id for view in views} == {x.storage_id}
    assert all(view.storage_nbytes == 96 for view in views)
    copies = (x.T.reshape(12), x.T.contiguous(), x.copy(), x + 0.0, x[[0, 1]])
    assert len({copy.storage_id for copy in copies} | {x.storage_id}) == 6


def test_strides_count_elements():
    x = Tensor(np.zeros((2, 3, 4), dtype=np.float32))
    assert x.strides == (12, 4, 1)
    assert x.permute(2, 0, 1).strides == (1, 12, 4)
    assert x[:, ::2].strides == (12, 8, 1)
    assert x[:, :1].expand(2, 5, 4).strides == (12, 0, 1)


def test_contiguous_of_a_row_major_tensor_is_itself():
    x = Tensor([[1.0, 2.0]])
    assert x.contiguous() is x
    assert x.to("fp32") is x


@given(st.permutations(range(4)))
def test_permuting_and_permuting_back_restores_the_layout(order):
    x = Tensor(np.zeros((2, 3, 4, 5)))
    back = x.permute(*order).permute(*[order.index(i) for i in range(4)])
    assert (back.shape, back.strides, back.storage_id) == (x.shape, x.strides, x.storage_id)


def test_bf16_rounds_and_counts_two_bytes():
    x = Tensor([1.0, 1.00390625], dtype="bf16")  # 1 + 2^-8 is a tie: to even
    assert x.data.tolist() == [1.0, 1.0]
    assert (x.nbytes, x.storage_nbytes, x.meta.nbytes) == (4, 4, 4)
    assert (x * Tensor([3.0, 1 / 3], dtype="bf16")).data.tolist() == [3.0, 0.333984375]


def test_numpy_on_the_left_gives_a_tensor():
    x = Tensor(np.ones(2), requires_grad=True)
    y = np.array([2.0, 3.0]) * x
    assert isinstance(y, Tensor)
    y.sum().backward()
    assert x.grad.data.tolist() == [2.0, 3.0]


def test_python_numbers_do_not_widen_fp32():
    assert (Tensor([1.0]) * np.float64(2)).dtype == "fp32"


def shaped(*shape):
    return Tensor(np.zeros(shape))


@pytest.mark.parametrize(("a", "b", "hint"), [
    ((4, 3), (5, 3), "so 3 != 5. Did you mean a @ b.T?"),
    ((3, 4), (3, 5), "so 4 != 3. Did you mean a.T @ b?"),
    ((4, 3), (2, 4), "so 3 != 2. Did you mean b @ a?"),
    ((4, 3), (2, 5), "No transpose of them fits"),
    ((2, 4, 3), (2, 5, 3), r"Did you mean a @ b.transpose(-2, -1)?"),
])
def test_matmul_names_the_nearest_product_that_fits(a, b, hint):
    with pytest.raises(InvalidInputError, match="inner sizes") as error:
        shaped(*a) @ shaped(*b)
    assert f"a is {a} and b is {b}" in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize("seed", range(20))
def test_every_matmul_hint_works_when_it_is_followed(seed):
    rng = np.random.default_rng(seed)
    a, b = shaped(*rng.integers(1, 4, 2)), shaped(*rng.integers(1, 4, 2))
    try:
        a @ b
    except InvalidInputError as error:
        text = str(error)
        if "Did you mean " in text:
            eval(text.split("Did you mean ")[1].rstrip("?"), {"a": a, "b": b})


@pytest.mark.parametrize(("action", "message"), [
    (lambda: shaped(2, 3) + shaped(2), r"Did you mean b.reshape\(2, 1\)"),
    (lambda: shaped(2, 3) + shaped(3, 2), r"Did you mean b\.T"),
    (lambda: shaped(2, 3).reshape(4, 2), r"number of elements \(6\).*\(2, 3\) to \(4, 2\)"),
    (lambda: shaped(2, 3).sum(2), r"no axis 2; allowed: -2\.\.1"),
    (lambda: shaped(2, 3).sum((0, -2)), "named once"),
    (lambda: shaped(2, 3).permute(0, 0), "each of the 2 axes once"),
    (lambda: shaped(2, 3).expand(4, 3), "sizes of 1"),
    (lambda: shaped(2, 3)[5], r"2 elements; allowed: -2\.\.1; given: 5"),
    (lambda: shaped(2, 3).item(), "one element"),
    (lambda: shaped(2, 3, 4).T, "two axes"),
    (lambda: shaped(2, 3) ** shaped(1), "must be a number"),
    (lambda: Tensor(shaped(2)), "detach"),
    (lambda: Tensor(np.array(["a"])), "known numpy dtype"),
    (lambda: shaped(2) @ Tensor(3.0), "scale by a number"),
    (lambda: shaped(2, 2, 2) @ shaped(3, 2, 2), "batch axes"),
    (lambda: shaped(2, 2) @ Tensor(np.zeros((2, 2), np.float32)), 'a.to."fp32"'),
    (lambda: embedding(shaped(4, 2), Tensor([4])), r"below 4; allowed: 0\.\.3; given: 4\.\.4"),
    (lambda: cross_entropy(shaped(2, 3), Tensor([0, 3])), "below 3"),
    (lambda: concat([]), "at least one"),
    (lambda: concat([shaped(2, 3), shaped(2, 4)], 0), "equal other sizes"),
    (lambda: shaped(0, 2).max(0), "at least one element"),
    (lambda: Tensor([1, 2]).mean(), "floating point"),
])
def test_mistakes_are_answered_with_what_is_allowed(action, message):
    with pytest.raises(InvalidInputError, match=message):
        action()


def test_dtypes_that_cannot_compute_are_refused_and_unknown_ones_named():
    with pytest.raises(UnsupportedError, match="stored weights"):
        Tensor([1.0], dtype="int4")
    with pytest.raises(UnknownNameError, match="bf16"):
        shaped(1).to("bf61")


def test_iteration_ends_and_length_is_the_first_axis():
    x = Tensor(np.arange(6.0).reshape(3, 2))
    assert [row.data.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert len(x) == 3
