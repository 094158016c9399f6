"""Lesson 1.2: what its text, its solutions and its figures say equals what the tracer counts, to the integer."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.hardware import device
from course_lib.plotting.trace import ACTIVATIONS, network_trace, scaling_figure, work_figure, work_rows
from course_lib.serving.model_shape import model_shape
from course_lib.serving.reference_decoder import reference_decoder
from course_lib.tensor import Tensor, scaled_dot_product_attention
from course_lib.trace import Trace, record, trace_torch
from course_lib.widgets.trace import work_explorer
from grading.cells import lessons
from grading.running import answer_of

LESSON = next(lesson for lesson in lessons() if lesson.name == "w1_2_trace_forward")
TEXT = " ".join(" ".join(cell.text.split()) for cell in LESSON.cells if not cell.is_code)
SIZES = st.integers(1, 40)
WIDTHS = st.lists(SIZES, min_size=2, max_size=6).map(tuple)
# Each example runs real products; the time of one says nothing about its being right.
drawn = settings(max_examples=40, deadline=None)


def answer(noun):
    return answer_of(LESSON, f"w1-2-{noun}")


@drawn
@given(batch=SIZES, widths=WIDTHS, activation=st.sampled_from(ACTIVATIONS))
def test_flops_of_a_network_are_twice_batch_times_weights(batch, widths, activation):
    expected = sum(answer("linear-flops")(batch, n, m) for n, m in pairwise(widths))
    assert network_trace(batch, widths, activation=activation).matmul_flops == expected


@drawn
@given(batch=SIZES, inputs=SIZES, outputs=SIZES)
def test_bytes_of_a_product_are_its_three_tensors(batch, inputs, outputs):
    product = next(event for event in network_trace(batch, (inputs, outputs)).events if event.op == "matmul")
    assert product.work.bytes_moved == answer("linear-bytes")(batch, inputs, outputs, 32, 32)


@drawn
@given(batch=SIZES, widths=WIDTHS, activation=st.sampled_from(ACTIVATIONS), dtype=st.sampled_from(("fp16", "fp32")))
def test_saved_bytes_of_a_network_follow_the_rule(batch, widths, activation, dtype):
    element_bytes = {"fp16": 2, "fp32": 4}[dtype]
    counted = network_trace(batch, widths, activation=activation, dtype=dtype).saved_bytes
    assert counted == answer("saved-bytes-rule")(batch, widths, element_bytes, activation)


TORCH_ACTIVATIONS = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "gelu": torch.nn.GELU, "silu": torch.nn.SiLU}


@pytest.mark.parametrize("activation", TORCH_ACTIVATIONS)
def test_saved_bytes_of_our_network_are_those_of_torch(activation):
    batch, widths = 6, (10, 7, 13, 9)
    layers = []
    for n, m in pairwise(widths):
        layers += [torch.nn.Linear(n, m), TORCH_ACTIVATIONS[activation]()]
    traced = trace_torch(torch.nn.Sequential(*layers[:-1]), torch.zeros(batch, widths[0]))
    assert traced.saved_bytes == network_trace(batch, widths, activation=activation).saved_bytes


@drawn
@given(
    batch=st.integers(1, 4), num_kv_heads=st.integers(1, 3), group=st.integers(1, 4), query_tokens=st.integers(1, 9),
    cached=st.integers(0, 9), head_size=st.sampled_from((2, 6, 10)),
)  # fmt: skip
def test_attention_flops_follow_the_rule_dense_and_query_by_query(
    batch, num_kv_heads, group, query_tokens, cached, head_size
):
    heads, context = num_kv_heads * group, query_tokens + cached
    rule = answer("attention-flops")
    q = np.ones((batch, heads, query_tokens, head_size), np.float32)
    k = np.ones((batch, num_kv_heads, context, head_size), np.float32)
    with record() as dense:
        scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(k), fused=True)
    with record() as causal:
        for i in range(query_tokens):
            seen = k[:, :, : cached + i + 1]
            scaled_dot_product_attention(Tensor(q[:, :, i : i + 1]), Tensor(seen), Tensor(seen), fused=True)
    shape = (batch, heads, num_kv_heads, query_tokens, context, head_size)
    assert dense.matmul_flops == rule(*shape, False)
    assert causal.matmul_flops == rule(*shape, True)


def test_halving_the_causal_case_is_exact_nowhere_and_far_off_in_decoding():
    rule = answer("attention-flops")
    for tokens in (1, 2, 64, 1024):
        dense, causal = (rule(1, 1, 1, tokens, tokens, 8, is_causal) for is_causal in (False, True))
        assert causal / dense == (tokens + 1) / (2 * tokens) > 0.5
    assert rule(1, 1, 1, 1, 1024, 8, True) == rule(1, 1, 1, 1, 1024, 8, False)


@pytest.mark.parametrize("name", ["gpt2", "opt-125m", "qwen2.5-0.5b"])
def test_flops_of_a_decoder_are_twice_the_weights_of_its_products_and_attention(name):
    model, shape = reference_decoder(model_shape(name)), model_shape(name)
    matrices = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    for batch, tokens in ((1, 1), (3, 5)):
        prompt = torch.zeros(batch, tokens, dtype=torch.int64, device="meta")
        counted = trace_torch(model, prompt, backward=False).matmul_flops
        dense = tokens * shape.attention_flops(1, tokens)  # as executed: masked pairs are computed, too
        assert counted == batch * (2 * matrices * tokens + dense)


def test_the_numbers_of_the_network_in_the_text_are_counted():
    trace = network_trace(32, (64, 128, 128, 10))
    with_gelu = network_trace(32, (64, 128, 128, 10), activation="gelu")
    products = [event.work for event in trace.events if event.op == "matmul"]
    small = [event.work for event in trace.events if event.op in ("add", "relu")]
    assert products[0].bytes_moved == 57_344
    assert (trace.saved_bytes, with_gelu.saved_bytes) == (40_960, 73_728)
    assert trace.raw_saved_bytes == with_gelu.raw_saved_bytes == 144_384
    assert trace.bytes_moved == with_gelu.bytes_moved
    assert trace.parameter_bytes == 104_488 == 4 * 26_122
    assert math.ceil(trace.parameter_bytes / (trace.saved_bytes / 32)) == 82
    assert round(100 * sum(work.flops for work in small) / trace.flops) == 1
    assert round(100 * sum(work.bytes_moved for work in small) / trace.bytes_moved) == 43
    for number in ("57,344", "40,960", "73,728", "144,384", "104,488", "26,122", "82 samples", "43 %"):
        assert number in TEXT


def test_the_numbers_of_the_puzzle_in_the_text_are_counted():
    model = reference_decoder(model_shape("gpt2"))
    trace = trace_torch(model, torch.zeros(1, 1, dtype=torch.int64, device="meta"), backward=False)
    parts = trace.by_module(depth=1)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert model.head.weight is model.embedding.weight
    assert (parameters, model.head.weight.numel()) == (124_439_808, 38_597_376)
    assert (parts["embedding"].flops, parts["head"].matmul_flops) == (0, 77_194_752)
    assert trace.matmul_flops == 247_100_928
    assert round(100 * model.head.weight.numel() / parameters) == 31
    assert round(100 * parts["head"].matmul_flops / trace.matmul_flops, 1) == 31.2
    assert round(100 * (1 - trace.matmul_flops / (2 * parameters)), 1) == 0.7
    assert model_shape("gpt2").attention_flops(1, 1) == 36_864
    assert model_shape("gpt2").attention_flops(1, 1024) == 37_748_736
    for number in ("124,439,808", "38,597,376", "77,194,752", "247,100,928", "248,879,616", "36,864", "37,748,736"):
        assert number in TEXT


def test_the_numbers_of_the_bill_in_the_text_are_computed():
    served, chip = reference_decoder(model_shape("llama-3-8b")), device("h100-sxm")
    weight_bytes = sum(2 * layer.weight.numel() for layer in served.modules() if isinstance(layer, torch.nn.Linear))
    step = trace_torch(served, torch.zeros(1, 1, dtype=torch.int64, device="meta"), backward=False)
    waiting = 1e6 * weight_bytes / chip.memory_bytes_per_second
    arithmetic = 1e6 * step.matmul_flops / chip.peak("bf16")
    assert (round(waiting), round(arithmetic, 1), round(waiting / arithmetic)) == (4_480, 15.2, 295)
    assert "4,480 s" in TEXT
    assert "15.2 s" in TEXT
    assert "295-fold" in TEXT


def test_every_number_of_the_hand_table_is_right():
    a, b = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[7, 8], [9, 10], [11, 12]])
    rows = re.findall(r"y\[(\d), (\d)\] \| 0 \+ ([^|]+) \| 3 \| 3 \| (\d+) \|", TEXT)
    assert len(rows) == 4
    for i, j, terms, value in rows:
        factors = [[int(factor) for factor in term.split("·")] for term in terms.split(" + ")]
        assert factors == [[int(x), int(w)] for x, w in zip(a[int(i)], b[:, int(j)])]
        assert sum(x * w for x, w in factors) == int(value) == (a @ b)[int(i), int(j)]


def test_an_operation_without_a_rule_is_named_and_never_a_silent_zero():
    trace = trace_torch(torch.nn.Softshrink(), torch.zeros(3, 4), backward=False)
    assert trace.uncounted == ("softshrink",)
    assert not trace.complete
    assert "unknown" in str(trace.table())


@drawn
@given(batch=SIZES, widths=WIDTHS, activation=st.sampled_from(ACTIVATIONS))
def test_the_rows_of_a_work_figure_add_up_to_the_trace(batch, widths, activation):
    trace = network_trace(batch, widths, activation=activation)
    flops, read, written, saved = (sum(column) for column in zip(*(row[1:] for row in work_rows(trace))))
    assert (flops, read, written, saved) == (trace.flops, trace.bytes_read, trace.bytes_written, trace.saved_bytes)


def test_figures_say_their_numbers_in_words_and_in_a_table():
    trace = network_trace(32, (64, 128, 128, 10))
    figure = work_figure(trace)
    assert "1,671,488 FLOPs is in matmul 2" in figure.alt
    assert figure.table[-1] == ("total", "1,671,488", "212,264", "100,864", "40,960")
    scaling = scaling_figure({samples: network_trace(samples, (64, 128, 10)) for samples in (1, 8)})
    assert "FLOPs 8 times" in scaling.alt
    assert "parameter bytes 1 times" in scaling.alt
    assert [row[0] for row in scaling.table] == ["batch", "1", "8"]


def test_figures_refuse_what_they_cannot_draw():
    with pytest.raises(InvalidInputError):
        work_figure(Trace())
    with pytest.raises(InvalidInputError):
        scaling_figure({4: network_trace(4, (2, 3))})
    with pytest.raises(InvalidInputError):
        scaling_figure({1: Trace(), 2: Trace()})


def test_a_network_with_impossible_sizes_or_an_unknown_activation_is_refused():
    with pytest.raises(UnknownNameError):
        network_trace(1, (2, 3), activation="rleu")
    for batch, widths in ((0, (2, 3)), (1, (2,)), (1, (2, 0))):
        with pytest.raises(InvalidInputError):
            network_trace(batch, widths)


def test_a_move_of_a_slider_counts_again_and_shows_the_static_figure():
    view = work_explorer(batch=4, widths=(6, 10, 3))
    batch, width, activation, dtype, picture = view.children
    assert picture.value.endswith(work_figure(network_trace(4, (6, 10, 3))).to_html())
    batch.value, width.value, activation.value, dtype.value = 5, 7, "gelu", "fp16"
    moved = network_trace(5, (6, 7, 3), activation="gelu", dtype="fp16")
    assert picture.value.endswith(work_figure(moved).to_html())
    assert f"{moved.saved_bytes:,} bytes saved" in picture.value


def test_the_explorer_refuses_sizes_beyond_its_sliders():
    for batch, widths in ((1, (2, 3)), (5000, (2, 3, 4)), (1, (2, 1000, 4))):
        with pytest.raises(InvalidInputError):
            work_explorer(batch=batch, widths=widths)


def test_the_question_put_beside_the_sliders_has_an_answer():
    def products_move_more(batch):
        rows = work_rows(network_trace(batch, (64, 128, 128, 10)))
        moved = dict.fromkeys((True, False), 0)
        for name, _, read, written, _ in rows:
            moved[name.startswith("matmul")] += read + written
        return moved[True] > moved[False]

    # 4 * (586 B + 25,856) against 4 * (1,044 B + 266): equal at B = 55.9
    assert products_move_more(55)
    assert not products_move_more(56)
