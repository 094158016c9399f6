"""Checks of lesson 1.2: the work of a forward pass, from its shapes. Right answers are counted, not derived."""

from functools import cache
from itertools import pairwise
from math import log2

import numpy as np

from course_lib.lesson import Diagnosis, Exercise
from course_lib.plotting.trace import network_trace
from course_lib.tensor import AdamW, Linear, Tensor, relu, scaled_dot_product_attention
from course_lib.trace import TensorRef, cost, cost_rules, record

FORMATS = {4: "int4", 8: "int8", 16: "bf16", 32: "fp32"}
DTYPES = {2: "fp16", 4: "fp32", 8: "fp64"}
ACTIVATIONS = ("none", "relu", "tanh", "gelu", "silu")
KEEP_THEIR_INPUT = ("gelu", "silu")


@cache
def linear_flops(batch, inputs, outputs):
    x, weights = Tensor(np.ones((batch, inputs)), dtype="fp32"), Tensor(np.ones((inputs, outputs)), dtype="fp32")
    with record() as trace:
        x @ weights
    return trace.flops


@cache
def linear_bytes(batch, inputs, outputs, activation_bits, weight_bits):
    x = TensorRef(0, (batch, inputs), (inputs, 1), FORMATS[activation_bits])
    weights = TensorRef(1, (inputs, outputs), (outputs, 1), FORMATS[weight_bits])
    y = TensorRef(2, (batch, outputs), (outputs, 1), FORMATS[activation_bits])
    return cost("mm", (x, weights), (y,), rules=cost_rules()).work.bytes_moved


@cache
def saved_bytes(batch, widths, element_bytes, activation):
    return network_trace(batch, widths, activation=activation, dtype=DTYPES[element_bytes]).saved_bytes


@cache
def attention_flops(batch, num_heads, num_kv_heads, query_tokens, context_tokens, head_size, causal):
    """Run attention and count; if causal, one query at a time with just the keys that it may see."""
    q = np.ones((batch, num_heads, query_tokens, head_size), np.float32)
    k = np.ones((batch, num_kv_heads, context_tokens, head_size), np.float32)
    cached = context_tokens - query_tokens
    pieces = [(q[:, :, i : i + 1], k[:, :, : cached + i + 1]) for i in range(query_tokens)] if causal else [(q, k)]
    with record() as trace:
        for queries, keys in pieces:
            scaled_dot_product_attention(Tensor(queries), Tensor(keys), Tensor(keys), fused=True)
    return trace.matmul_flops


def _training_counts(batch):
    """One step of training with AdamW, counted."""
    rng = np.random.default_rng(0)
    layers = [Linear(24, 40, rng=rng), Linear(40, 6, rng=rng)]
    weights = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    optimizer = AdamW(weights)
    with record() as trace:
        layers[1](relu(layers[0](Tensor(np.ones((batch, 24)), dtype="fp32")))).sum().backward()
        optimizer.step()
    forward_products = [event for event in trace.forward.events if event.op == "matmul"]
    return {
        "parameters": sum(layer.num_parameters for layer in layers),
        "flops": trace.matmul_flops,
        "saved_bytes": sum(
            trace.storages[number].nbytes
            for number in {n for event in forward_products for n in event.saved_storages}
            if trace.storages[number].kind != "parameter"
        ),
        "weight_gradient_bytes": sum(layer.weight.grad.nbytes for layer in layers),
        "optimizer_bytes": optimizer.state_bytes,
        "weight_bytes_read": sum(
            ref.nbytes for event in forward_products for ref in event.inputs
            if trace.storages[ref.storage_id].kind == "parameter"
        ),
    }  # fmt: skip


@cache
def _exponents():
    small, large = _training_counts(8), _training_counts(16)
    return {name: log2(large[name] / small[name]) for name in small}


def batch_exponents():
    return dict(_exponents())


def _grows(*names):
    """A predicate: each of these was said to grow with the batch."""
    return lambda got, expected: any(got[name] == 1 and expected[name] == 0 for name in names)


def _stays(*names):
    """A predicate: each of these was said not to grow with the batch."""
    return lambda got, expected: any(got[name] == 0 and expected[name] == 1 for name in names)


def _pairs(query_tokens, context_tokens):
    return sum(context_tokens - query_tokens + i + 1 for i in range(query_tokens))


def _draw_linear(rng):
    return tuple(int(size) for size in rng.integers(3, 200, size=3))


def _draw_bytes(rng):
    sizes = tuple(2 * int(size) for size in rng.integers(3, 100, size=3))
    return (*sizes, int(rng.choice([16, 32])), int(rng.choice([4, 8])))


def _draw_saved(rng):
    widths = tuple(int(width) for width in rng.integers(3, 60, size=int(rng.integers(3, 7))))
    return int(rng.integers(2, 40)), widths, int(rng.choice([2, 4, 8])), str(rng.choice(ACTIVATIONS))


def _draw_attention(rng):
    num_kv_heads, group = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    query_tokens = int(rng.integers(2, 9))
    return (
        int(rng.integers(2, 6)), num_kv_heads * group, num_kv_heads, query_tokens,
        query_tokens + int(rng.integers(1, 12)), int(rng.choice([6, 10, 14])), bool(rng.integers(2)),
    )  # fmt: skip


def _heads_by_pairs(pairs):
    """A wrong rule for the causal case; dense pairs otherwise."""

    def flops(b, n, k, t, s, d, causal):
        return 4 * b * n * d * (pairs(t, s) if causal else t * s)

    return flops


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
                hint="That is the number of weights. Each weight is used once for every sample, in a multiply and "
                "an add.",
            ),
            Diagnosis(
                name="elements-touched",
                wrong=lambda batch, inputs, outputs: batch * inputs + inputs * outputs + batch * outputs,
                hint="That counts the elements of the three tensors. Each element is used many times: how long is the "
                "dot product behind one output?",
            ),
        ),
        concept="Every output element is a dot product of one input row with one weight column, and each step of a "
        "dot product is one multiply and one add.",
        formula="FLOPs = 2 * batch * inputs * outputs",
        worked="batch 1, inputs 2, outputs 3: three dot products of length 2 are 3 * 2 = 6 multiply-adds, so 12 FLOPs.",
    ),
    Exercise(
        id="w1-2-linear-bytes",
        title="Bytes that one linear layer must move, with weights and activations in formats of their own.",
        points=2,
        unit="byte",
        expected=linear_bytes,
        cases=((2, 6, 10, 32, 8), (10, 14, 34, 16, 4), (32, 64, 128, 32, 4)),
        draw=_draw_bytes,
        signatures=("bits-for-bytes", "half", "double"),
        diagnoses=(
            Diagnosis(
                name="result-not-written",
                wrong=lambda b, i, o, a, w: (b * i * a + i * o * w) // 8,
                hint="You read both operands, but the result is never written. It has as many elements as there are "
                "dot products.",
            ),
            Diagnosis(
                name="input-not-read",
                wrong=lambda b, i, o, a, w: (b * o * a + i * o * w) // 8,
                hint="Weights and result are there. What does the product read besides the weights?",
            ),
            Diagnosis(
                name="weights-not-read",
                wrong=lambda b, i, o, a, w: b * (i + o) * a // 8,
                hint="The activations are there, the weights are not: they are read too, and for a small batch they "
                "are most of the traffic.",
            ),
            Diagnosis(
                name="weights-once-per-sample",
                wrong=lambda b, i, o, a, w: (b * (i + o) * a + b * i * o * w) // 8,
                hint="You read the weights again for every sample. Ask what is shared by the whole batch; that sharing "
                "is what batching is for.",
            ),
            Diagnosis(
                name="weights-in-the-activation-format",
                wrong=lambda b, i, o, a, w: (b * (i + o) + i * o) * a // 8,
                hint="Every tensor has activation_bits in your count. Which of the three is stored in another format?",
            ),
            Diagnosis(
                name="four-bytes-everywhere",
                wrong=lambda b, i, o, a, w: 4 * (b * (i + o) + i * o),
                hint="You take 4 bytes for every element: right for fp32. The two formats are inputs now.",
            ),
            Diagnosis(
                name="weights-alone",
                wrong=lambda b, i, o, a, w: i * o * w // 8,
                hint="Those are the weights. What else does the product read, and where does its result go?",
            ),
            Diagnosis(
                name="half-bytes-lost",
                wrong=lambda b, i, o, a, w: b * (i + o) * (a // 8) + i * o * (w // 8),
                hint="Only the cases with 4-bit weights fail: what is 4 // 8 in Python? Half bytes add up before "
                "they are rounded.",
            ),
            Diagnosis(
                name="result-in-the-weight-format",
                wrong=lambda b, i, o, a, w: (b * i * a + i * o * w + b * o * w) // 8,
                hint="You write the result in the weights' format. It is an activation: the next layer's input.",
            ),
            Diagnosis(
                name="everything-in-the-weight-format",
                wrong=lambda b, i, o, a, w: (b * (i + o) + i * o) * w // 8,
                hint="Every tensor has weight_bits in your count. Only the weights are compressed here.",
            ),
            Diagnosis(
                name="elements-not-bytes",
                wrong=lambda b, i, o, a, w: b * (i + o) + i * o,
                hint="That is the number of elements. How many bytes does each take, tensor by tensor?",
            ),
            Diagnosis(
                name="flops-not-bytes",
                wrong=lambda b, i, o, a, w: 2 * b * i * o,
                hint="That is the number of FLOPs. Bytes belong to tensors, not to the dot products between them.",
            ),
        ),
        concept="Three tensors take part: the input, the weights, the output. Two are read, one is written, each in "
        "its own format.",
        formula="bytes = (batch * inputs * A + inputs * outputs * W + batch * outputs * A) / 8, with A and W the bits",
        worked="batch 1, inputs 2, outputs 4, activations 16 bits, weights 4 bits: 2*16 + 8*4 + 4*16 = 128 bits, "
        "so 16 bytes.",
    ),
    Exercise(
        id="w1-2-batch-exponents",
        title="Exponent of the batch, 0 or 1, in each of six quantities of a training step.",
        points=2,
        kind="value",
        expected=batch_exponents,
        diagnoses=(
            Diagnosis(
                name="not-six-exponents",
                predicate=lambda got, expected: (
                    not isinstance(got, dict)
                    or set(got) != set(expected)
                    or any(isinstance(value, bool) or value not in (0, 1) for value in got.values())
                ),
                hint="A dict is needed with exactly the six keys of the list, spelled as there, and for each the "
                "number 0 or 1 (no text, no True or False).",
            ),
            Diagnosis(
                name="work-ignores-the-batch",
                predicate=_stays("flops"),
                hint="You say that FLOPs do not grow with the batch. Look at the second person in the list of "
                "six: what "
                "happens to a weight when one more sample comes?",
            ),
            Diagnosis(
                name="activations-ignore-the-batch",
                predicate=_stays("saved_bytes"),
                hint="You say that what is kept for the backward pass does not grow. It holds values of every sample: "
                "which axis of an activation has the size of the batch?",
            ),
            Diagnosis(
                name="parameters-grow-with-the-batch",
                predicate=_grows("parameters"),
                hint="You say that there are more parameters for more samples. Is the batch an axis of a weight "
                "matrix?",
            ),
            Diagnosis(
                name="gradient-per-sample",
                predicate=_grows("weight_gradient_bytes"),
                hint="You keep a weight gradient for every sample. The gradient of a loss over the batch is a sum over "
                "samples: which shape has that sum?",
            ),
            Diagnosis(
                name="optimizer-state-grows-with-the-batch",
                predicate=_grows("optimizer_bytes"),
                hint="You say that AdamW's state grows with the batch. It holds two numbers for each what?",
            ),
            Diagnosis(
                name="weights-read-per-sample",
                predicate=_grows("weight_bytes_read"),
                hint="You read the weights once for each sample. In the convention of this course a product reads each "
                "operand once: how many products run for a larger batch?",
            ),
        ),
        concept="Whatever has the batch as an axis, or is done once for every sample, doubles with it. Whatever "
        "has the "
        "shape of a weight does not.",
        formula="exponent = log2(quantity at 2 * batch / quantity at batch)",
        worked="The bytes of the network's input: shape (batch, features), so twice the batch, twice the bytes, "
        "exponent 1. The bytes of a bias: shape (features,), exponent 0.",
    ),
    Exercise(
        id="w1-2-saved-bytes-rule",
        title="Bytes that a network of linear layers keeps for its backward pass, for five activations.",
        points=3,
        unit="byte",
        expected=saved_bytes,
        cases=(
            (3, (5, 7), 4, "relu"), (3, (5, 7, 11), 4, "relu"), (3, (5, 7, 11), 4, "gelu"),
            (6, (10, 7, 13, 9), 2, "silu"), (6, (10, 7, 13, 9), 8, "tanh"), (6, (10, 7, 13, 9), 4, "none"),
        ),
        draw=_draw_saved,
        diagnoses=(
            Diagnosis(
                name="raw-count",
                wrong=lambda b, widths, e, act: e * (
                    b * (sum(widths[:-1]) + (act != "none") * sum(widths[1:-1]))
                    + sum(n * m for n, m in pairwise(widths[1:]))
                ),
                hint="You added up what each operation saves: blocks that two operations share are in it twice, and "
                "weights too. Memory is counted by block, and parameters exist anyway.",
            ),
            Diagnosis(
                name="shared-blocks-twice",
                wrong=lambda b, widths, e, act: e * b * (sum(widths[:-1]) + (act != "none") * sum(widths[1:-1])),
                hint="You keep two blocks for every hidden layer that has an activation. ReLU and tanh find "
                "their derivative "
                "from their output, and the next product keeps that too: two blocks of memory, or one with two owners?",
            ),
            Diagnosis(
                name="two-blocks-always",
                wrong=lambda b, widths, e, act: e * b * (widths[0] + 2 * sum(widths[1:-1])),
                hint="You keep two blocks for every hidden layer, whatever the activation. Without one, which two would "
                "they be? And how many does the table above count for ReLU?",
            ),
            Diagnosis(
                name="tanh-keeps-its-input",
                wrong=lambda b, widths, e, act: (
                    e * b * (widths[0] + (2 - (act in ("none", "relu"))) * sum(widths[1:-1]))
                ),
                hint="All but tanh is right. Write down the derivative of tanh: can you say it in terms of tanh(x)?",
            ),
            Diagnosis(
                name="nothing-kept-without-activation",
                wrong=lambda b, widths, e, act: (
                    e * b * (widths[0] + ((act != "none") + (act in KEEP_THEIR_INPUT)) * sum(widths[1:-1]))
                ),
                hint="Only the networks without an activation are wrong. What does the second product need for the "
                "gradient of its weights, whoever made it?",
            ),
            Diagnosis(
                name="no-activation-keeps-its-input",
                wrong=lambda b, widths, e, act: e * b * sum(widths[:-1]),
                hint="You keep one block for each layer's input, whatever the activation. Can GELU's derivative "
                "be read "
                "off its output? Two different inputs can give the same output.",
            ),
            Diagnosis(
                name="every-width-once",
                wrong=lambda b, widths, e, act: e * b * sum(widths),
                hint="You keep one block for every width, the network's output too, whatever the activation. Which "
                "operation would need that output to go backward, and what does GELU need that ReLU does not?",
            ),
            Diagnosis(
                name="silu-like-sigmoid",
                wrong=lambda b, widths, e, act: e * b * (widths[0] + (1 + (act == "gelu")) * sum(widths[1:-1])),
                hint="GELU is right, SiLU is not. Sigmoid's derivative is a function of its output; SiLU is x times "
                "sigmoid(x), and not one-to-one.",
            ),
            Diagnosis(
                name="input-not-kept",
                wrong=lambda b, widths, e, act: e * b * (1 + (act in KEEP_THEIR_INPUT)) * sum(widths[1:-1]),
                hint="The network's own input is missing. It needs no gradient, but the gradient of the first weights "
                "is computed from it.",
            ),
            Diagnosis(
                name="output-kept",
                wrong=lambda b, widths, e, act: e * b * (
                    widths[0] + (1 + (act in KEEP_THEIR_INPUT)) * sum(widths[1:-1]) + widths[-1]
                ),
                hint="You keep the network's output. Which operation of this network would need it to go backward?",
            ),
            Diagnosis(
                name="parameters-included",
                wrong=lambda b, widths, e, act: e * (
                    b * (widths[0] + (1 + (act in KEEP_THEIR_INPUT)) * sum(widths[1:-1]))
                    + sum(n * m + m for n, m in pairwise(widths))
                ),
                hint="The parameters are in your count. They are in memory with or without a backward pass; ask what "
                "is kept because of it.",
            ),
        ),
        concept="Walk through the operations: a product keeps its input, a bias keeps nothing, an activation keeps its "
        "output if its derivative can be found from that, else its input. Then strike out blocks named twice.",
        formula="bytes = element_bytes * batch * (widths[0] + c * sum of hidden widths), c = 1, or 2 for GELU and SiLU",
        worked="batch 1, widths (2, 3, 5), 4 bytes, GELU: the input (2) for product 1, GELU's input (3), GELU's "
        "output (3) "
        "for product 2: 8 elements, 32 bytes.",
    ),
    Exercise(
        id="w1-2-attention-flops",
        title="FLOPs of the two products of attention, grouped heads and causal masks included.",
        points=3,
        unit="FLOP",
        expected=attention_flops,
        cases=(
            (3, 6, 2, 4, 7, 10, False), (3, 6, 2, 4, 7, 10, True), (2, 10, 5, 3, 11, 14, True),
            (5, 3, 1, 6, 6, 14, True), (2, 3, 3, 1, 17, 10, True),
        ),
        draw=_draw_attention,
        diagnoses=(
            Diagnosis(
                name="key-value-heads-counted",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * k * d * (_pairs(t, s) if c else t * s),
                hint="You counted num_kv_heads. Sharing keys saves memory; does a query head skip its dot "
                "products because "
                "another head uses the same keys?",
            ),
            Diagnosis(
                name="group-counted-twice",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * n * (n // k) * d * (_pairs(t, s) if c else t * s),
                hint="You multiplied by the query heads and by the size of a group. The groups are inside num_heads "
                "already: how many rows of scores does one query head have?",
            ),
            Diagnosis(
                name="causal-ignored",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * n * t * s * d,
                hint="Right for dense attention. With causal=True some pairs of query and key need not be computed: "
                "how many does query 0 see, and how many the last one?",
            ),
            Diagnosis(
                name="half-and-causal-ignored",
                wrong=lambda b, n, k, t, s, d, c: 2 * b * n * t * s * d,
                hint="First the cases without a mask: they are exactly half. There are two products, and a multiply-add "
                "is two operations: which of these did you count once? With causal=True fewer pairs are left, but not "
                "half as many.",
            ),
            Diagnosis(
                name="key-value-heads-and-causal-ignored",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * k * t * s * d,
                hint="First the cases without a mask: you counted num_kv_heads. Does a query head skip its dot products "
                "because another head uses the same keys? Then: with causal=True, how many keys does query 0 see?",
            ),
            Diagnosis(
                name="causal-halved",
                wrong=_heads_by_pairs(lambda t, s: t * s / 2),
                hint="You halved the causal case. That is near for long prompts and far off for a token that "
                "looks back "
                "at a full cache: with one query, which keys are hidden?",
            ),
            Diagnosis(
                name="cached-tokens-hidden",
                wrong=_heads_by_pairs(lambda t, s: t * (t + 1) / 2),
                hint="Your queries see only each other. The S - T tokens before them are in the cache, and "
                "every query sees "
                "all of those.",
            ),
            Diagnosis(
                name="own-key-hidden",
                wrong=_heads_by_pairs(lambda t, s: _pairs(t, s) - t),
                hint="Your queries do not see their own key. Read the range again: query 0 sees keys 0 to S - T, both "
                "included.",
            ),
            Diagnosis(
                name="first-keys-only",
                wrong=_heads_by_pairs(lambda t, s: t * s - s * (s - 1) / 2),
                hint="You hide a triangle with the side of the context. There are only T queries, so the triangle has "
                "another side.",
            ),
            Diagnosis(
                name="context-is-the-query",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * n * d * (t * (t + 1) / 2 if c else t * t),
                hint="You compare the queries with themselves only: context_tokens does not appear in your count.",
            ),
            Diagnosis(
                name="query-is-the-context",
                wrong=lambda b, n, k, t, s, d, c: 4 * b * n * d * (s * (s + 1) / 2 if c else s * s),
                hint="You let every token of the context ask. Only query_tokens of them do; the others were "
                "asked before "
                "and live in the cache.",
            ),
            Diagnosis(
                name="softmax-counted",
                wrong=lambda b, n, k, t, s, d, c: b * n * (4 * d + 5) * (_pairs(t, s) if c else t * s),
                hint="You count five operations for each score besides the products: that is scale and softmax. "
                "Only the "
                "two products are asked.",
            ),
        ),
        concept="One pair of a query and a visible key costs a dot product of length d for the score, and a "
        "multiply-add "
        "of length d for the value. Count the pairs, for every query head.",
        formula="FLOPs = 4 * batch * num_heads * d * pairs; pairs = T * S, less T * (T - 1) / 2 if causal",
        worked="batch 1, one head, T = 2, S = 3, d = 1, causal: query 0 sees 2 keys, query 1 sees 3: 5 pairs, "
        "20 FLOPs.",
    ),
)  # fmt: skip
