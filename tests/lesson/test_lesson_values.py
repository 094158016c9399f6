"""Learners answer with many kinds of number; all kinds are welcome and none can cheat."""

import math
from collections import namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lesson.values import NotComparableError, agree, plain, quotient, show


@pytest.mark.parametrize(
    "answer",
    [
        1_654_784, 1_654_784.0, np.int64(1_654_784), np.float32(1_654_784), np.array(1_654_784), np.array([1_654_784]),
        Fraction(1_654_784), Decimal(1_654_784),
    ],
)  # fmt: skip
def test_a_whole_number_is_welcome_in_any_dress(answer):
    assert agree(plain(answer), 1_654_784) == ""


def test_torch_tensors_are_welcome_also_with_gradients_and_in_bf16():
    import torch

    assert agree(plain(torch.tensor(12.0, requires_grad=True)), 12) == ""
    assert agree(plain(torch.tensor([1, 2])), (1, 2)) == ""
    assert agree(plain(torch.tensor(12.0, dtype=torch.bfloat16)), 12) == ""


@pytest.mark.parametrize("answer", [True, "12", None, (12,), {"a": 12}, float("nan"), float("inf"), 12.5, 13])
def test_other_things_are_not_twelve(answer):
    assert agree(plain(answer), 12)


def test_a_list_an_array_and_a_named_tuple_are_sequences():
    pair = namedtuple("pair", "a b")(1, 2)
    assert [agree(plain(answer), (1, 2)) for answer in ([1, 2], np.array([1, 2]), pair, range(1, 3))] == [""] * 4
    assert "3 values came" in agree(plain([1, 2, 3]), (1, 2))
    assert "position 1" in agree(plain([1, 3]), (1, 2))


def test_arrays_are_compared_by_shape_then_entry():
    right = np.arange(6.0).reshape(2, 3)
    assert agree(plain(right.tolist()), right) == ""
    assert agree(right.astype(np.float32) * np.float32(1 + 1e-7), right) == ""
    assert "shape (3, 2)" in agree(right.T, right)
    assert "at (1, 2)" in agree(right + (right == 5), right)
    assert "different lengths" in agree(plain([[1, 2], [3]]), right)


def test_entries_of_a_dict_are_named():
    assert agree({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}) == ""
    assert agree({"a": 1}, {"a": 1, "b": 2}) == "the entry 'b' is missing"
    assert "entry 'a'" in agree({"a": 2}, {"a": 1})


def test_objects_functions_and_odd_arrays_are_refused_in_words():
    class Everything:
        def __eq__(self, other):
            return True

    for answer, words in ((Everything(), "Everything"), (len, "call it"), (np.array(["a"]), "dtype"), (1j, "complex")):
        with pytest.raises(NotComparableError, match=words):
            plain(answer)


def test_no_method_of_an_answers_own_class_takes_part_in_the_comparison():
    class Claims(type):
        def __eq__(cls, other):
            return True

        __hash__ = type.__hash__

    class Agreeable(int, metaclass=Claims):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    class Item(np.float64):
        def item(self):
            return Agreeable()

    with pytest.raises(NotComparableError, match="Agreeable"):
        plain(Agreeable(3))
    assert type(plain(Item(3))) is float
    assert agree(plain(Item(3)), 4)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_integers_agree_only_when_equal(left, right):
    assert (agree(left, right) == "") == (left == right)


@given(st.floats(1e-30, 1e30), st.sampled_from([1 + 1e-3, 1 - 1e-3, 2.0]))
def test_floats_off_by_a_thousandth_do_not_agree(value, factor):
    assert agree(value, value) == ""
    assert agree(value * factor, value)
    assert agree(value * factor, value, 2.0) == ""


def test_infinity_agrees_with_itself_only():
    assert agree(math.inf, math.inf) == ""
    assert agree(1e308, math.inf)
    assert agree(math.nan, math.nan) == ""


def test_a_quotient_needs_two_finite_numbers():
    assert quotient(6, 3) == 2
    assert [quotient(*pair) for pair in ((1, 0), (math.inf, 1), (True, 1), ((1,), 1), ("1", 1))] == [None] * 5
    assert quotient(10**400, 1) is None


def test_integers_larger_than_any_float_are_compared_and_shown():
    assert agree(10**400, 10**400) == ""
    assert agree(10**400, 5)
    assert agree(10**400, 5.0)
    assert show(10**400) == "a number of 1,329 bits"


def test_long_things_are_shown_short():
    assert show(tuple(range(100))) == "(0, 1, 2, 3, 4, 5, ...)"
    assert show(np.zeros((3, 4))) == "array of shape (3, 4)"
    assert len(show("x" * 1000)) < 70
    assert show(10**40) == "1e+40"
    assert show(True) == "True"
