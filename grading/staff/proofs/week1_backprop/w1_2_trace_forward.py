"""Proof of lesson 1.2's exercises."""

import numpy as np

from grading.proofs import Mutant, Proof

DRAFT = True
OTHER_SHAPES = (
    {"batch": 8, "widths": (24, 48, 40, 6), "element_bytes": 2},
    {"batch": 5, "widths": (100, 30, 70, 20), "element_bytes": 4},
)


def flops_by_loop(batch, inputs, outputs):
    count = 0
    for _ in range(batch):
        for _ in range(outputs):
            count += 2 * inputs
    return count


def flops_by_shapes(batch, inputs, outputs):
    return np.float64(2) * np.prod(np.array([batch, inputs, outputs]))


def bytes_by_arrays(batch, inputs, outputs, element_bytes):
    kind = {2: np.float16, 4: np.float32, 8: np.float64}[element_bytes]
    shapes = ((batch, inputs), (inputs, outputs), (batch, outputs))
    return sum(np.empty(shape, kind).nbytes for shape in shapes)


def bytes_as_array(batch, inputs, outputs, element_bytes):
    return np.array([element_bytes * (inputs * (batch + outputs) + batch * outputs)])


def parameters_by_matrices(model_size, num_heads, num_kv_heads, head_size):
    widths = [num_heads * head_size, num_kv_heads * head_size, num_kv_heads * head_size]
    matrices = [np.broadcast_to(0, (model_size, width)) for width in widths]
    matrices.append(np.broadcast_to(0, (widths[0], model_size)))
    return sum(matrix.size for matrix in matrices)


def parameters_in_float32(model_size, num_heads, num_kv_heads, head_size):
    return np.float32(2 * model_size * head_size) * np.float32(num_heads + num_kv_heads)


PROOFS = (
    Proof(
        id="w1-2-linear-flops",
        styles={"loop": flops_by_loop, "numpy float": flops_by_shapes},
        mutants=(
            Mutant(name="half", answer=lambda b, i, o: b * i * o),
            Mutant(name="missing-factor-batch", answer=lambda b, i, o: 2 * i * o),
            Mutant(name="missing-factor-inputs", answer=lambda b, i, o: 2 * b * o),
            Mutant(name="forward-and-backward", answer=lambda b, i, o: 6 * b * i * o),
            Mutant(name="exact-additions", answer=lambda b, i, o: b * o * (i + i - 1)),
            Mutant(name="bias-counted", answer=lambda b, i, o: 2 * b * i * o + b * o),
            Mutant(name="weights-only", answer=lambda b, i, o: i * o),
        ),
        extra_cases=((1, 1, 1), (1, 1000, 700)),
    ),
    Proof(
        id="w1-2-linear-bytes",
        styles={"arrays": bytes_by_arrays, "one-element array": bytes_as_array},
        mutants=(
            Mutant(name="result-not-written", answer=lambda b, i, o, e: e * i * (b + o)),
            Mutant(name="weights-not-read", answer=lambda b, i, o, e: e * b * (i + o)),
            Mutant(name="weights-once-per-sample", answer=lambda b, i, o, e: e * b * (i + i * o + o)),
            Mutant(name="elements-not-bytes", answer=lambda b, i, o, e: b * i + i * o + b * o),
            Mutant(name="double", answer=lambda b, i, o, e: 2 * e * (b * i + i * o + b * o)),
        ),
        extra_cases=((1, 1, 1, 2), (256, 256, 256, 8)),
    ),
    Proof(
        id="w1-2-attention-parameters",
        styles={"matrices": parameters_by_matrices, "float32": parameters_in_float32},
        mutants=(
            Mutant(name="every-head-has-its-own-keys", answer=lambda d, n, k, h: 4 * d * n * h),
            Mutant(name="no-output-projection", answer=lambda d, n, k, h: d * h * (n + 2 * k)),
            Mutant(name="keys-without-values", answer=lambda d, n, k, h: d * h * (2 * n + k)),
            Mutant(name="square-of-model-size", answer=lambda d, n, k, h: 2 * d * (d + k * h)),
            Mutant(name="half", answer=lambda d, n, k, h: d * h * (n + k)),
        ),
        extra_cases=((192, 12, 12, 16), (100, 8, 1, 40)),
    ),
)
