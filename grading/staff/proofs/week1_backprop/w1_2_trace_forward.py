"""Proof of lesson 1.2's exercises."""

from itertools import pairwise

import numpy as np

from grading.proofs import Mutant, Proof

OTHER_SHAPES = (
    {
        "batch": 8, "widths": (24, 48, 40, 6), "attention_shape": (2, 3, 32, 16), "model_name": "opt-125m",
        "served_model": "qwen2.5-0.5b", "device_name": "l40s",
    },
    {
        "batch": 5, "widths": (100, 30, 70, 20), "attention_shape": (1, 4, 48, 32), "model_name": "gpt2-medium",
        "served_model": "mistral-7b", "device_name": "h200",
    },
)  # fmt: skip


def flops_by_loop(batch, inputs, outputs):
    count = 0
    for _ in range(batch):
        for _ in range(outputs):
            count += 2 * inputs
    return count


def flops_by_shapes(batch, inputs, outputs):
    return np.float64(2) * np.prod(np.array([batch, inputs, outputs]))


def bytes_by_tensor(batch, inputs, outputs, activation_bits, weight_bits):
    activations = [(batch, inputs), (batch, outputs)]
    activation_bytes = [n * m * activation_bits / 8 for n, m in activations]
    return sum(activation_bytes) + inputs * outputs * weight_bits / 8


def bytes_as_array(batch, inputs, outputs, activation_bits, weight_bits):
    elements = np.array([batch * inputs, inputs * outputs, batch * outputs])
    return np.array([elements @ np.array([activation_bits, weight_bits, activation_bits]) // 8])


def saved_by_walking(batch, widths, element_bytes, activation):
    kept = {}
    block = "input"
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        kept[block] = batch * inputs
        block = f"linear {layer}"
        if layer == len(widths) - 2 or activation == "none":
            continue
        if activation in {"gelu", "silu"}:
            kept[block] = batch * outputs
        block = f"activation {layer}"
    return element_bytes * sum(kept.values())


def saved_by_rows(batch, widths, element_bytes, activation):
    blocks = {"none": 1, "relu": 1, "tanh": 1, "gelu": 2, "silu": 2}[activation]
    row = np.array(widths[:-1]) * np.array([1, *[blocks] * (len(widths) - 2)])
    return float(row.sum()) * batch * element_bytes


def attention_by_mask(batch, num_heads, num_kv_heads, query_tokens, context_tokens, head_size, causal):
    hidden = context_tokens - query_tokens
    seen = np.tri(query_tokens, context_tokens, hidden) if causal else np.ones((query_tokens, context_tokens))
    return 4 * batch * num_heads * head_size * int(seen.sum())


def attention_by_query(batch, num_heads, num_kv_heads, query_tokens, context_tokens, head_size, causal):
    flops = 0
    for query in range(query_tokens):
        keys = context_tokens - query_tokens + query + 1 if causal else context_tokens
        flops += 2 * head_size * keys + 2 * keys * head_size
    return batch * num_heads * flops


KEPT = {"parameters": 0, "flops": 1, "saved_bytes": 1, "weight_gradient_bytes": 0, "optimizer_bytes": 0,
        "weight_bytes_read": 0}  # fmt: skip


def hidden_blocks(activation):
    return 2 if activation in {"gelu", "silu"} else 1


PROOFS = (
    Proof(
        id="w1-2-linear-flops",
        styles={"loop": flops_by_loop, "numpy float": flops_by_shapes},
        mutants=(
            Mutant(name="half", answer=lambda b, i, o: b * i * o),
            Mutant(name="missing-factor-batch", answer=lambda b, i, o: 2 * i * o),
            Mutant(name="missing-factor-inputs", answer=lambda b, i, o: 2 * b * o),
            Mutant(name="extra-factor-batch", answer=lambda b, i, o: 2 * b * b * i * o),
            Mutant(name="forward-and-backward", answer=lambda b, i, o: 6 * b * i * o),
            Mutant(name="exact-additions", answer=lambda b, i, o: b * o * (i + i - 1)),
            Mutant(name="bias-counted", answer=lambda b, i, o: 2 * b * i * o + b * o),
            Mutant(name="weights-only", answer=lambda b, i, o: i * o),
            Mutant(name="elements-touched", answer=lambda b, i, o: b * (i + o) + i * o),
        ),
        extra_cases=((1, 1, 1), (1, 1000, 700)),
    ),
    Proof(
        id="w1-2-linear-bytes",
        styles={"by tensor": bytes_by_tensor, "one-element array": bytes_as_array},
        mutants=(
            Mutant(name="result-not-written", answer=lambda b, i, o, a, w: i * (b * a + o * w) / 8),
            Mutant(name="input-not-read", answer=lambda b, i, o, a, w: o * (b * a + i * w) / 8),
            Mutant(name="weights-not-read", answer=lambda b, i, o, a, w: (b * i + b * o) * a / 8),
            Mutant(name="weights-once-per-sample",
                   answer=lambda b, i, o, a, w: b * (i * a + i * o * w + o * a) / 8),
            Mutant(name="weights-in-the-activation-format",
                   answer=lambda b, i, o, a, w: (b * i + i * o + b * o) * a / 8),
            Mutant(name="result-in-the-weight-format",
                   answer=lambda b, i, o, a, w: (b * i * a + o * w * (i + b)) / 8),
            Mutant(name="everything-in-the-weight-format",
                   answer=lambda b, i, o, a, w: (b * i + i * o + b * o) * w / 8),
            Mutant(name="elements-not-bytes", answer=lambda b, i, o, a, w: b * i + i * o + b * o),
            Mutant(name="flops-not-bytes", answer=lambda b, i, o, a, w: 2 * b * i * o),
            Mutant(name="four-bytes-everywhere", answer=lambda b, i, o, a, w: (b * i + i * o + b * o) * 4),
            Mutant(name="weights-alone", answer=lambda b, i, o, a, w: i * o * w / 8),
            Mutant(name="half-bytes-lost",
                   answer=lambda b, i, o, a, w: b * i * (a // 8) + i * o * (w // 8) + b * o * (a // 8)),
            Mutant(name="bits-for-bytes", answer=lambda b, i, o, a, w: b * (i + o) * a + i * o * w),
            Mutant(name="double", answer=lambda b, i, o, a, w: 2 * (b * (i + o) * a + i * o * w) / 8),
        ),
        extra_cases=((1, 2, 4, 16, 4), (256, 256, 256, 32, 32), (1, 4096, 14336, 16, 4)),
    ),
    Proof(
        id="w1-2-batch-exponents",
        styles={"floats": {name: float(value) for name, value in KEPT.items()},
                "other order": dict(reversed([(name, np.int64(value)) for name, value in KEPT.items()]))},
        mutants=(
            Mutant(name="work-ignores-the-batch", answer=KEPT | {"flops": 0}),
            Mutant(name="activations-ignore-the-batch", answer=KEPT | {"saved_bytes": 0}),
            Mutant(name="parameters-grow-with-the-batch", answer=KEPT | {"parameters": 1}),
            Mutant(name="gradient-per-sample", answer=KEPT | {"weight_gradient_bytes": 1}),
            Mutant(name="optimizer-state-grows-with-the-batch", answer=KEPT | {"optimizer_bytes": 1}),
            Mutant(name="weights-read-per-sample", answer=KEPT | {"weight_bytes_read": 1}),
            Mutant(name="work-ignores-the-batch", answer=dict.fromkeys(KEPT, 0), label="all zero"),
            Mutant(name="not-six-exponents", answer={"parameters": 0, "flops": 1}, label="two keys only"),
            Mutant(name="not-six-exponents", answer={name: bool(one) for name, one in KEPT.items()}, label="bools"),
            Mutant(name="not-six-exponents", answer={name: str(one) for name, one in KEPT.items()}, label="text"),
            Mutant(name="not-six-exponents", answer=tuple(KEPT.values()), label="no names"),
            Mutant(name="not-six-exponents", answer=KEPT | {"optimizer_bytes": 2}, label="twice the parameters"),
            Mutant(name="parameters-grow-with-the-batch", answer=dict.fromkeys(KEPT, 1), label="all one"),
        ),
    ),
    Proof(
        id="w1-2-saved-bytes-rule",
        styles={"walk": saved_by_walking, "rows": saved_by_rows},
        mutants=(
            Mutant(name="raw-count", answer=lambda b, w, e, act: e * (
                b * w[0] + sum(b * n * (1 if act == "none" else 2) + n * m for n, m in pairwise(w[1:])))),
            Mutant(name="shared-blocks-twice", answer=lambda b, w, e, act: e * b * (
                sum(w[:-1]) + (sum(w[1:-1]) if act != "none" else 0))),
            Mutant(name="two-blocks-always", answer=lambda b, w, e, act: e * b * (sum(w[:-1]) + sum(w[1:-1]))),
            Mutant(name="tanh-keeps-its-input", answer=lambda b, w, e, act: saved_by_walking(
                b, w, e, "gelu" if act == "tanh" else act)),
            Mutant(name="nothing-kept-without-activation", answer=lambda b, w, e, act: (
                b * w[0] * e if act == "none" else saved_by_walking(b, w, e, act))),
            Mutant(name="no-activation-keeps-its-input",
                   answer=lambda b, w, e, act: e * sum(b * n for n in w[:-1])),
            Mutant(name="every-width-once", answer=lambda b, w, e, act: sum(b * n * e for n in w)),
            Mutant(name="silu-like-sigmoid", answer=lambda b, w, e, act: e * b * (
                w[0] + sum(w[1:-1]) * (2 if act == "gelu" else 1))),
            Mutant(name="input-not-kept",
                   answer=lambda b, w, e, act: e * b * hidden_blocks(act) * sum(w[1:-1])),
            Mutant(name="output-kept", answer=lambda b, w, e, act: e * b * (
                w[0] + hidden_blocks(act) * sum(w[1:-1]) + w[-1])),
            Mutant(name="parameters-included",
                   answer=lambda b, w, e, act: saved_by_walking(b, w, e, act) + e * sum(
                n * m + m for n, m in pairwise(w))),
            Mutant(name="missing-factor-batch", answer=lambda b, w, e, act: saved_by_walking(1, w, e, act)),
            Mutant(name="missing-factor-element_bytes",
                   answer=lambda b, w, e, act: saved_by_walking(b, w, 1, act)),
        ),
        extra_cases=((1, (1, 1), 4, "gelu"), (1, (2, 3, 5), 4, "gelu"), (32, (64, 128, 128, 10), 4, "relu")),
    ),
    Proof(
        id="w1-2-attention-flops",
        styles={"mask": attention_by_mask, "query by query": attention_by_query},
        mutants=(
            Mutant(name="half", answer=lambda *case: attention_by_mask(*case) / 2),
            Mutant(name="key-value-heads-counted",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, k, k, t, s, d, c)),
            Mutant(name="causal-ignored",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, n, k, t, s, d, False)),
            Mutant(name="group-counted-twice", answer=lambda b, n, k, t, s, d, c: n // k * attention_by_mask(
                b, n, k, t, s, d, c)),
            Mutant(name="half-and-causal-ignored",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, n, k, t, s, d, False) / 2),
            Mutant(name="key-value-heads-and-causal-ignored",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, k, k, t, s, d, False)),
            Mutant(name="causal-halved",
                   answer=lambda b, n, k, t, s, d, c: (2 if c else 4) * b * n * t * s * d),
            Mutant(name="cached-tokens-hidden", answer=lambda b, n, k, t, s, d, c: attention_by_mask(
                b, n, k, t, t if c else s, d, c)),
            Mutant(name="own-key-hidden", answer=lambda b, n, k, t, s, d, c: 4 * b * n * d * sum(
                s - t + i if c else s for i in range(t))),
            Mutant(name="first-keys-only", answer=lambda b, n, k, t, s, d, c: 4 * b * n * d * (
                t * s - (s * (s - 1) // 2 if c else 0))),
            Mutant(name="context-is-the-query",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, n, k, t, t, d, c)),
            Mutant(name="query-is-the-context",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, n, k, s, s, d, c)),
            Mutant(name="softmax-counted", answer=lambda b, n, k, t, s, d, c: attention_by_mask(
                b, n, k, t, s, d, c) // (4 * d) * (4 * d + 5)),
            Mutant(name="missing-factor-num_heads",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(b, 1, 1, t, s, d, c)),
            Mutant(name="missing-factor-batch",
                   answer=lambda b, n, k, t, s, d, c: attention_by_mask(1, n, k, t, s, d, c)),
        ),
        extra_cases=((1, 1, 1, 1, 1, 2, True), (1, 2, 2, 128, 128, 64, False), (2, 8, 2, 1, 100, 16, True)),
    ),
)  # fmt: skip
