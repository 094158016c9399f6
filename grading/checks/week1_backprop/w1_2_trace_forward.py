"""Checks of lesson 1.2: the work of a forward pass, from its shapes. Right answers are counted, not derived."""

from functools import cache

import numpy as np

from course_lib.lesson import Diagnosis, Exercise
from course_lib.tensor import GroupedQueryAttention, Tensor
from course_lib.trace import record

DTYPES = {2: "fp16", 4: "fp32", 8: "fp64"}


def _trace_product(batch, inputs, outputs, element_bytes):
    dtype = DTYPES[element_bytes]
    x, weights = Tensor(np.ones((batch, inputs)), dtype=dtype), Tensor(np.ones((inputs, outputs)), dtype=dtype)
    with record() as trace:
        x @ weights
    return trace


@cache
def linear_flops(batch, inputs, outputs):
    return _trace_product(batch, inputs, outputs, 4).flops


@cache
def linear_bytes(batch, inputs, outputs, element_bytes):
    return _trace_product(batch, inputs, outputs, element_bytes).bytes_moved


@cache
def attention_parameters(model_size, num_heads, num_kv_heads, head_size):
    rng = np.random.default_rng(0)
    return GroupedQueryAttention(model_size, num_heads, num_kv_heads, head_size=head_size, rng=rng).num_parameters


def _draw_linear(rng):
    return tuple(int(size) for size in rng.integers(3, 200, size=3))


def _draw_bytes(rng):
    return (*_draw_linear(rng), int(rng.choice([2, 4, 8])))


def _draw_attention(rng):
    num_kv_heads, group = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    return int(rng.integers(65, 200)), num_kv_heads * group, num_kv_heads, int(rng.choice([16, 24, 40]))


EXERCISES = (
    Exercise(
        id="w1-2-linear-flops",
        title="FLOPs of one linear layer without bias, from its three sizes.",
        points=2,
        unit="FLOP",
        expected=linear_flops,
        cases=((2, 3, 5), (1, 64, 128), (32, 64, 128)),
        draw=_draw_linear,
        diagnoses=(
            Diagnosis(
                name="forward-and-backward",
                ratio=3.0,
                hint="That is three times the forward pass: the backward pass (twice the forward) is in it. "
                "Only the forward pass is asked.",
            ),
            Diagnosis(
                name="exact-additions",
                wrong=lambda batch, inputs, outputs: batch * outputs * (2 * inputs - 1),
                hint="You counted inputs - 1 additions for each output, which is true on paper. The field counts a "
                "multiply-add for each input: the accumulator starts at zero and is added to inputs times.",
            ),
            Diagnosis(
                name="bias-counted",
                wrong=lambda batch, inputs, outputs: batch * outputs * (2 * inputs + 1),
                hint="You added one operation for each output: that is the bias, and this layer has none.",
            ),
            Diagnosis(
                name="weights-only",
                wrong=lambda batch, inputs, outputs: inputs * outputs,
                hint="That is the number of weights. Each weight is used once for every sample, in a multiply and an add.",
            ),
        ),
        concept="Every output element is a dot product of one input row with one weight column, and each step of a "
        "dot product is one multiply and one add.",
        formula="FLOPs = 2 * batch * inputs * outputs",
        worked="batch 1, inputs 2, outputs 3: three dot products of length 2 are 3 * 2 = 6 multiply-adds, so 12 FLOPs.",
    ),
    Exercise(
        id="w1-2-linear-bytes",
        title="Bytes that one linear layer must move: each operand read once, the result written once.",
        points=2,
        unit="byte",
        expected=linear_bytes,
        cases=((2, 3, 5, 4), (1, 16, 24, 2), (32, 64, 128, 2)),
        draw=_draw_bytes,
        diagnoses=(
            Diagnosis(
                name="result-not-written",
                wrong=lambda b, i, o, e: (b * i + i * o) * e,
                hint="You read both operands but the result is never written: batch x outputs elements are missing.",
            ),
            Diagnosis(
                name="weights-not-read",
                wrong=lambda b, i, o, e: (b * i + b * o) * e,
                hint="The activations are there, the weights are not: they are read too, and for a small batch they "
                "are most of the traffic.",
            ),
            Diagnosis(
                name="weights-once-per-sample",
                wrong=lambda b, i, o, e: (b * i + b * i * o + b * o) * e,
                hint="You read the weights again for every sample. One read serves the whole batch; that is what "
                "batching is for.",
            ),
            Diagnosis(
                name="elements-not-bytes",
                wrong=lambda b, i, o, e: b * i + i * o + b * o,
                hint="That is the number of elements. Each takes element_bytes bytes.",
            ),
        ),
        concept="Three tensors take part: the input, the weights, the output. Two are read, one is written.",
        formula="bytes = (batch * inputs + inputs * outputs + batch * outputs) * element_bytes",
        worked="batch 1, inputs 2, outputs 3, 4 bytes each: 2 + 6 + 3 = 11 elements, so 44 bytes.",
    ),
    Exercise(
        id="w1-2-attention-parameters",
        title="Parameters of the four projections of grouped-query attention, without biases.",
        points=2,
        unit="parameters",
        expected=attention_parameters,
        cases=((8, 4, 2, 6), (64, 8, 2, 16), (256, 16, 4, 32)),
        draw=_draw_attention,
        diagnoses=(
            Diagnosis(
                name="every-head-has-its-own-keys",
                wrong=lambda d, n, k, h: 4 * d * n * h,
                hint="You gave every query head its own keys and values. In grouped-query attention several query heads "
                "share one: the key and value projections have num_kv_heads * head_size columns.",
            ),
            Diagnosis(
                name="no-output-projection",
                wrong=lambda d, n, k, h: d * n * h + 2 * d * k * h,
                hint="Queries, keys and values are there. After attention the heads are mixed by a fourth matrix, the "
                "output projection.",
            ),
            Diagnosis(
                name="keys-without-values",
                wrong=lambda d, n, k, h: 2 * d * n * h + d * k * h,
                hint="Keys and values are two projections of the same size; one of them is missing.",
            ),
            Diagnosis(
                name="square-of-model-size",
                wrong=lambda d, n, k, h: 2 * d * d + 2 * d * k * h,
                hint="You took num_heads * head_size to be model_size. Often it is; nothing forces it.",
            ),
        ),
        concept="Four matrices: model_size to the query heads, to the key heads, to the value heads, and back.",
        formula="parameters = 2 * D * N * H + 2 * D * K * H, with D model size, N heads, K key/value heads, H head size",
        worked="D 4, N 2, K 1, head size 3: queries 4*6, keys 4*3, values 4*3, output 6*4, together 24 + 12 + 12 + 24 = 72.",
    ),
)
