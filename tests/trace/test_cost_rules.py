"""Rules of matrix products, convolutions and attention, and what a missing rule means."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.tensor import OPS
from course_lib.trace import Arithmetic, TensorRef, cost, cost_rules

RULES = cost_rules()
SIZE = st.integers(1, 6)


def ref(*shape: int, dtype: str = "fp32") -> TensorRef:
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return TensorRef(0, shape, tuple(strides), dtype)


def work(op, inputs, outputs, **attributes):
    found = cost(op, tuple(inputs), tuple(outputs), attributes, rules=RULES)
    assert found.flop_source != "uncounted"
    return found.work


def test_a_bf16_product_worked_by_hand():
    # (128, 256) @ (256, 64): 128*256*64 = 2,097,152 macs; reads (32,768 + 16,384)*2 B, writes 8,192*2 B
    found = work("mm", [ref(128, 256, dtype="bf16"), ref(256, 64, dtype="bf16")], [ref(128, 64, dtype="bf16")])
    assert (found.flops, found.macs) == (4_194_304, 2_097_152)
    assert (found.bytes_read, found.bytes_written) == (98_304, 16_384)


def test_two_products_of_equal_flops_move_170_times_apart():
    # 512^3 beside 1 x 16384 by 16384 x 8192: both 268,435,456 FLOPs
    square = work("mm", [ref(512, 512), ref(512, 512)], [ref(512, 512)])
    thin = work("mm", [ref(1, 16384), ref(16384, 8192)], [ref(1, 8192)])
    assert square.flops == thin.flops == 268_435_456
    assert round(thin.bytes_moved / square.bytes_moved, 1) == 170.7


def test_attention_forward_and_both_conventions_of_backward():
    # B1 H2 N128 d64: 2 products of 2*128*128*64 macs forward = 8,388,608 FLOPs; backward 4 or 5 such products
    q, grad, stats = ref(1, 2, 128, 64), ref(1, 2, 128, 64), ref(1, 2, 128)
    forward = work("_scaled_dot_product_flash_attention_for_cpu", [q, q, q], [q, stats])
    assert forward.matmul_flops == 8_388_608
    assert forward.transcendentals == 2 * 128 * 128
    name = "_scaled_dot_product_flash_attention_for_cpu_backward"
    for convention, factor in (("unfused", 2.0), ("flash", 2.5)):
        backward = cost(name, (grad, q, q, q, q, stats), (q, q, q), rules=cost_rules(convention)).work
        assert backward.matmul_flops == factor * forward.matmul_flops


def test_value_heads_of_another_size_count_their_own_products():
    # d = 8 for scores, 16 for values: 2*H*T*S*(8 + 16)
    found = work("attention", [ref(1, 2, 4, 8), ref(1, 2, 6, 8), ref(1, 2, 6, 16)], [ref(1, 2, 4, 16)])
    assert found.matmul_flops == 2 * 2 * 4 * 6 * (8 + 16)


def count_macs_of_convolution(batch, c_in, c_out, groups, length, kernel, stride, padding):
    """Naive loops: one multiply-add for each output element and each weight it meets (padding multiplies zeros)."""
    positions = (length + 2 * padding - kernel) // stride + 1
    macs = 0
    for _ in itertools.product(range(batch), range(c_out), range(positions)):
        for _ in itertools.product(range(c_in // groups), range(kernel)):
            macs += 1
    return macs, positions


@settings(max_examples=40)
@given(SIZE, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(3, 8), st.integers(1, 3),
       st.integers(1, 2), st.integers(0, 1))
def test_convolution_equals_naive_loops(batch, per_in, per_out, groups, length, kernel, stride, padding):
    c_in, c_out = per_in * groups, per_out * groups
    macs, positions = count_macs_of_convolution(batch, c_in, c_out, groups, length, kernel, stride, padding)
    x, w, y = ref(batch, c_in, length), ref(c_out, per_in, kernel), ref(batch, c_out, positions)
    assert work("convolution", [x, w], [y], transposed=False).macs == macs
    both = work("convolution_backward", [y, x, w], [x, w], transposed=False, output_mask=(True, True, False))
    assert both.macs == 2 * macs
    only_weight = work("convolution_backward", [y, x, w], [w], output_mask=(False, True, False))
    assert only_weight.macs == macs


@given(st.lists(SIZE, min_size=3, max_size=3), SIZE)
def test_batched_product_is_the_sum_of_its_products(shape, batch):
    m, k, n = shape
    one = work("mm", [ref(m, k), ref(k, n)], [ref(m, n)])
    assert work("bmm", [ref(batch, m, k), ref(batch, k, n)], [ref(batch, m, n)]) == one * batch


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
def test_an_empty_product_costs_nothing(shape):
    m, k, n = shape
    assert work("mm", [ref(m, k), ref(k, n)], [ref(m, n)]).flops == 0


def test_a_huge_product_stays_exact():
    side = 2**22
    assert work("mm", [ref(side, side), ref(side, side)], [ref(side, side)]).flops == 2 * side**3


def test_an_operation_without_a_rule_is_uncounted_but_its_bytes_are_known():
    found = cost("erfinv", (ref(10),), (ref(10),), rules=RULES)
    assert found.flop_source == "uncounted"
    assert found.work.bytes_moved == 80


def test_a_rule_of_your_own_counts_and_may_decline():
    rules = {**RULES, "mine": lambda op: Arithmetic(7), "declined": lambda op: None}
    assert cost("mine", (), (), rules=rules).work.flops == 7
    assert cost("declined", (), (), rules=rules).flop_source == "uncounted"


def test_every_operation_of_our_tensors_has_a_rule_or_is_a_view():
    assert [name for name, row in OPS.items() if name not in RULES and not row.is_view] == []


def test_an_unknown_attention_convention_is_refused():
    with pytest.raises(InvalidInputError, match="flash"):
        cost_rules("fast")
