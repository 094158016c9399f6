"""Elementwise, reduction and normalization rules against formulas executed on numbers that count themselves."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.trace import TensorRef, cost, cost_rules

RULES = cost_rules()


class Counting:
    """A number that counts what is done with it: an independent route to the tables."""

    def __init__(self, tally: dict[str, int]) -> None:
        self.tally = tally

    def _flop(self, *_: object) -> Counting:
        self.tally["flops"] = self.tally.get("flops", 0) + 1
        return self

    def transcendental(self) -> Counting:
        self.tally["transcendentals"] = self.tally.get("transcendentals", 0) + 1
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _flop


def sigmoid(x):
    return 1 / (1 + (-x).transcendental())


def tanh_gelu(x):
    return 0.5 * x * (1 + (0.79 * (x + 0.04 * x * x * x)).transcendental())


def erf_gelu_gradient(x, g):
    cdf = 0.5 * (1 + (x * 0.7).transcendental())
    pdf = (x * x * -0.5).transcendental() * 0.3
    return g * (cdf + x * pdf)


def silu_gradient(x, g):
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


FORMULAS = MappingProxyType({
    "sigmoid": (sigmoid, 1, {}),
    "silu": (lambda x: x * sigmoid(x), 1, {}),
    "gelu": (lambda x: x * 0.5 * (1 + (x * 0.7).transcendental()), 1, {}),
    "gelu tanh": (tanh_gelu, 1, {"approximate": "tanh"}),
    "gelu_backward": (erf_gelu_gradient, 2, {}),
    "silu_backward": (silu_gradient, 2, {}),
    "tanh": (lambda x: x.transcendental(), 1, {}),
    "tanh_backward": (lambda y, g: g * (1 - y * y), 2, {}),
    "sigmoid_backward": (lambda y, g: g * y * (1 - y), 2, {}),
    "div_backward": (lambda a, b: -a * a / (b * b), 2, {}),
    "addcmul": (lambda a, b: a + 0.5 * b * b, 2, {}),
    "sub": (lambda a, b: a - b, 2, {}),
    "sub alpha": (lambda a, b: a - 2 * b, 2, {"alpha": 2}),
    "pow cube": (lambda x: x * x * x, 1, {"exponent": 3}),
    "pow inverse": (lambda x: 1 / (x * x), 1, {"exponent": -2}),
    "pow root": (lambda x: x.transcendental(), 1, {"exponent": 0.5}),
})  # fmt: skip


def ref(*shape: int, dtype: str = "fp32") -> TensorRef:
    return TensorRef(0, shape, tuple(1 for _ in shape), dtype)


def work(op, inputs, outputs, **attributes):
    return cost(op, tuple(inputs), tuple(outputs), attributes, rules=RULES).work


@pytest.mark.parametrize("name", FORMULAS)
def test_the_table_equals_the_formula_executed_on_counting_numbers(name):
    formula, num_operands, attributes = FORMULAS[name]
    tally: dict[str, int] = {}
    formula(*(Counting(tally) for _ in range(num_operands)))
    found = work(name.split()[0], [ref(10)] * num_operands, [ref(10)], **attributes)
    assert (found.flops, found.transcendentals) == (10 * tally.get("flops", 0), 10 * tally.get("transcendentals", 0))
    assert found.macs == 0


def test_layer_norm_worked_by_hand():
    # 4 rows of 8, weight and bias: (5 + 2)*32 + 3*4 = 236 FLOPs, 4 rsqrt
    rows, stats, vector = ref(4, 8), ref(4, 1), ref(8)
    found = work("native_layer_norm", [rows, vector, vector], [rows, stats, stats])
    assert (found.flops, found.transcendentals) == (236, 4)
    # backward: dx 10, dW 2, db 1 an element
    backward = work("native_layer_norm_backward", [rows, rows, stats, stats, vector, vector], [rows, vector, vector],
                    output_mask=(True, True, True))  # fmt: skip
    assert backward.flops == 13 * 32


def test_rms_norm_of_our_tensors_worked_by_hand():
    # 4 rows of 8: square, add, scale, weight = 4*32, and divide and add eps = 2*4; one rsqrt a row
    found = work("rms_norm", [ref(4, 8), ref(8)], [ref(4, 8)], eps=1e-6)
    assert (found.flops, found.transcendentals) == (136, 4)


def test_softmax_and_log_softmax_worked_by_hand():
    found = work("_softmax", [ref(4, 8)], [ref(4, 8)], dim=-1)
    assert (found.flops, found.transcendentals) == (4 * 32, 32)
    found = work("_log_softmax", [ref(4, 8)], [ref(4, 8)], dim=1)
    assert (found.flops, found.transcendentals) == (4 * 32, 32 + 4)


@given(st.integers(1, 9), st.integers(1, 9))
def test_a_sum_of_n_into_m_needs_n_minus_m_additions(rows, columns):
    additions = sum(columns - 1 for _ in range(rows))
    assert work("sum", [ref(rows, columns)], [ref(rows)]).flops == additions
    assert work("mean", [ref(rows, columns)], [ref(rows)]).flops == additions + rows


def test_whole_number_work_has_bytes_and_no_flops():
    for op in ("add", "mul", "sum", "cumsum"):
        found = work(op, [ref(6, dtype="int64")], [ref(6, dtype="int64")])
        assert (found.flops, found.bytes_moved) == (0, 96)


@pytest.mark.parametrize("op", ["relu", "gelu", "_softmax", "sum", "mean", "silu_backward", "pow"])
def test_nothing_costs_nothing(op):
    found = work(op, [ref(0, 4), ref(0, 4)], [ref(0, 4)], exponent=2)
    assert (found.flops, found.transcendentals) == (0, 0)


def test_a_gather_reads_the_rows_it_picks_and_not_the_table():
    # 6 rows of 8 fp32 out of a table of 1,000: reads 6*8*4 + 6 indices*8, writes 6*8*4
    found = work("embedding", [ref(1000, 8), ref(6, dtype="int64")], [ref(6, 8)])
    assert (found.bytes_read, found.bytes_written) == (192 + 48, 192)


def test_fills_read_nothing_and_copies_in_place_read_their_source():
    assert work("zeros_like", [ref(10)], [ref(10)]).bytes_moved == 40
    assert work("copy_", [ref(10), ref(10, dtype="bf16")], [ref(10)]).bytes_read == 20
    assert work("add_", [ref(10), ref(10)], [ref(10)]).bytes_read == 80
    assert work("empty", [], [ref(10)]).bytes_moved == 0


def test_adamw_reads_four_tensors_and_writes_three():
    found = work("adamw_step", [ref(10)] * 4, [ref(10)])
    assert (found.bytes_read, found.bytes_written, found.transcendentals) == (160, 120, 10)


def test_negative_log_likelihood_reads_one_number_a_row():
    # 5 rows over 1,000 classes: 5*4 B picked + 5*8 B of targets
    found = work("nll_loss_forward", [ref(5, 1000), ref(5, dtype="int64")], [ref(), ref()])
    assert (found.flops, found.bytes_read) == (5, 60)
