"""Arithmetic of elementwise operations, reductions and normalizations, counted an element.

Elementwise: 1 FLOP for each add, subtract, multiply, divide, comparison or selection; transcendentals apart.
The tables state (FLOPs, transcendentals) for each element; a learner can check any line by writing the formula out.
"""

from __future__ import annotations

from math import ceil, log2, prod

from course_lib.trace.events import TensorRef
from course_lib.trace.operation import Arithmetic, Operation, Rule

__all__ = ["ELEMENTWISE", "NORMALIZATION", "REDUCTION"]

_FLOATING = ("fp", "bf", "tf", "complex", "mx", "nv", "nf")

# op: (FLOPs, transcendentals) for each element of the output
_PER_ELEMENT: dict[str, tuple[int, int]] = {
    **dict.fromkeys((
        "add", "sub", "rsub", "mul", "div", "true_divide", "neg", "abs", "maximum", "minimum", "relu", "clamp_min",
        "clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill", "sign", "sgn", "floor", "ceil",
        "round", "trunc", "reciprocal", "threshold", "threshold_backward", "relu_backward", "fmod", "remainder",
        "floor_divide", "square", "isfinite", "copysign", "add_scalar", "mul_scalar"), (1, 0)),
    **dict.fromkeys(("clamp", "hardtanh", "hardtanh_backward", "relu6", "leaky_relu", "leaky_relu_backward",
                     "native_dropout", "native_dropout_backward", "dropout", "frac", "max_backward", "sgd_step",
                     "sqrt_backward"), (2, 0)),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp", "hardsigmoid_backward", "rope"), (3, 0)),
    "div_backward": (4, 0),         # -g * a / (b * b)
    **dict.fromkeys(("exp", "exp2", "log", "log2", "log10", "tanh", "erf", "erfc", "sqrt", "rsqrt", "sin", "cos",
                     "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"), (0, 1)),
    **dict.fromkeys(("expm1", "log1p"), (1, 1)),
    "hardsigmoid": (4, 0), "hardswish": (5, 0), "hardswish_backward": (5, 0),
    "sigmoid": (3, 1),              # 1 / (1 + exp(-x)): negate, add, divide; exp
    "sigmoid_backward": (3, 0),     # g * y * (1 - y)
    "tanh_backward": (3, 0),        # g * (1 - y*y)
    "silu": (4, 1),                 # x * sigmoid(x)
    "silu_backward": (8, 1),        # s = sigmoid(x); g * s * (1 + x * (1 - s))
    "elu": (3, 1), "elu_backward": (3, 1), "softplus": (4, 2), "softplus_backward": (4, 1),
    "log_sigmoid_forward": (4, 2), "log_sigmoid_backward": (5, 1), "mish": (4, 3), "mish_backward": (12, 3),
    "adamw_step": (14, 1),          # m 3, v 4, corrections 2, + eps, divide, * rate, decay, subtract; sqrt
    "mse_loss": (2, 0), "mse_loss_backward": (3, 0), "smooth_l1_loss": (4, 0), "huber_loss": (4, 0),
    "smooth_l1_loss_backward": (4, 0), "huber_loss_backward": (4, 0),
    "binary_cross_entropy": (5, 2), "binary_cross_entropy_backward": (5, 0),
    "binary_cross_entropy_with_logits": (6, 2),
}  # fmt: skip


def _is_floating(op: Operation) -> bool:
    return any(ref.dtype.startswith(_FLOATING) for ref in (*op.inputs, *op.outputs))


def _largest(op: Operation) -> int:
    """Points of the broadcast index space: a loss with reduction has a small output but works on its input."""
    return max((prod(ref.shape) for ref in (*op.outputs, *op.inputs)), default=0)


def elementwise(op: Operation) -> Arithmetic:
    """``flops = numel * FLOPs an element`` from the table; integer and boolean arithmetic counts 0.

    ``a + alpha * b`` with alpha other than 1 multiplies once more.
    """
    if not _is_floating(op):
        return Arithmetic(0)
    flops, transcendentals = _PER_ELEMENT[op.op]
    if op.attributes.get("alpha", 1) != 1:
        flops += 1
    num = _largest(op)
    return Arithmetic(flops * num, 0, transcendentals * num)


def gelu(op: Operation) -> Arithmetic:
    """GELU: erf form ``x/2 * (1 + erf(x / sqrt 2))`` 4 FLOPs; tanh form 8; one transcendental either way."""
    num = prod(op.outputs[0].shape)
    return Arithmetic((8 if op.attributes.get("approximate") == "tanh" else 4) * num, 0, num)


def gelu_backward(op: Operation) -> Arithmetic:
    """``g * (Phi(x) + x * phi(x))``: 9 FLOPs, erf and exp; the tanh form 17 FLOPs and one tanh."""
    num = prod(op.outputs[0].shape)
    if op.attributes.get("approximate") == "tanh":
        return Arithmetic(17 * num, 0, num)
    return Arithmetic(9 * num, 0, 2 * num)


def power(op: Operation) -> Arithmetic:
    """``x ** p``: |p| - 1 multiplications for a small whole p (one divide more if negative), else one pow."""
    num = prod(op.outputs[0].shape)
    exponent = op.attributes.get("exponent")
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 4:
        return Arithmetic((max(abs(int(exponent)) - 1, 0) + (exponent < 0)) * num)
    return Arithmetic(0, 0, num)


def power_backward(op: Operation) -> Arithmetic:
    """``g * p * x ** (p - 1)``: the power and 2 multiplications."""
    exponent = op.attributes.get("exponent", 0.5)
    inner = power(op._replace(attributes={"exponent": exponent - 1}))
    return Arithmetic(inner.flops + 2 * prod(op.outputs[0].shape), 0, inner.transcendentals)


def softmax(op: Operation) -> Arithmetic:
    """Softmax over rows: max, subtract, sum, divide: 4 FLOPs and one exp an element."""
    num = prod(op.inputs[0].shape)
    return Arithmetic(4 * num, 0, num)


def softmax_backward(op: Operation) -> Arithmetic:
    """``dx = y * (g - sum(g * y))``: multiply, add, subtract, multiply: 4 FLOPs an element."""
    return Arithmetic(4 * prod(op.inputs[0].shape))


def log_softmax(op: Operation) -> Arithmetic:
    """``x - max - log(sum(exp(x - max)))``: max, subtract, sum, subtract; one exp an element, one log a row."""
    num = prod(op.inputs[0].shape)
    return Arithmetic(4 * num, 0, num + num // max(_row(op), 1))


def log_softmax_backward(op: Operation) -> Arithmetic:
    """``dx = g - exp(y) * sum(g)``: add, multiply, subtract: 3 FLOPs and one exp an element."""
    num = prod(op.inputs[0].shape)
    return Arithmetic(3 * num, 0, num)


def _row(op: Operation) -> int:
    shape = op.inputs[0].shape
    dim = op.attributes.get("dim", op.attributes.get("axis", -1))
    return shape[dim] if shape and isinstance(dim, int) else 1


def _target(op: Operation) -> TensorRef:
    """The class indices: the operand of whole numbers."""
    return next((ref for ref in op.inputs if ref.dtype.startswith("int")), op.inputs[-1])


def nll_loss(op: Operation) -> Arithmetic:
    """Negative log-likelihood: one pick a row, then rows - 1 adds and one divide."""
    return Arithmetic(prod(_target(op).shape))


def nll_loss_backward(op: Operation) -> Arithmetic:
    """Writes ``-g / rows`` at one place a row: one operation a row."""
    return Arithmetic(prod(_target(op).shape))


def reduction(op: Operation) -> Arithmetic:
    """Sum, product, max or min of n elements into m: ``n - m`` operations."""
    num_in, num_out = prod(op.inputs[0].shape), prod(op.outputs[0].shape)
    return Arithmetic(max(num_in - num_out, 0)) if _is_floating(op) else Arithmetic(0)


def mean(op: Operation) -> Arithmetic:
    """Sum (``n - m`` adds) and one divide for each of m outputs: n FLOPs."""
    return Arithmetic(prod(op.inputs[0].shape))


def variance(op: Operation) -> Arithmetic:
    """Mean, subtract, square, add: 4 FLOPs an element (and one sqrt an output for a standard deviation)."""
    outputs = prod(op.outputs[0].shape)
    return Arithmetic(4 * prod(op.inputs[0].shape), 0, outputs if op.op.startswith("std") else 0)


def vector_norm(op: Operation) -> Arithmetic:
    """Square and add, then a root: ``2n - m`` FLOPs and m square roots."""
    num_in, num_out = prod(op.inputs[0].shape), prod(op.outputs[0].shape)
    return Arithmetic(max(2 * num_in - num_out, 0), 0, num_out)


def scan(op: Operation) -> Arithmetic:
    """Running sum or product: one operation an element."""
    return Arithmetic(prod(op.inputs[0].shape)) if _is_floating(op) else Arithmetic(0)


def logsumexp(op: Operation) -> Arithmetic:
    """Max, subtract, sum an element and an add a row; exp an element and log a row."""
    num_in, num_out = prod(op.inputs[0].shape), prod(op.outputs[0].shape)
    return Arithmetic(3 * num_in, 0, num_in + num_out)


def selection(op: Operation) -> Arithmetic:
    """Sort or top-k of rows of n: ``n * ceil(log2 n)`` comparisons (sort), ``n * ceil(log2(k + 1))`` (top-k)."""
    num = prod(op.inputs[0].shape)
    width = prod(op.outputs[0].shape[-1:]) + 1 if op.op == "topk" else max(_row(op), 1)
    return Arithmetic(num * ceil(log2(width))) if _is_floating(op) else Arithmetic(0)


def scatter_sum(op: Operation) -> Arithmetic:
    """Rows added into a table (embedding gradient, index_add): one add for each element of the source."""
    source = op.inputs[0] if op.op.endswith("_backward") else op.inputs[-1]
    return Arithmetic(prod(source.shape))


def put(op: Operation) -> Arithmetic:
    """Writes values at indices; with ``accumulate`` one add a value."""
    return Arithmetic(prod(op.inputs[-1].shape) if op.attributes.get("accumulate") else 0)


def pooling(op: Operation) -> Arithmetic:
    """Windows of k elements: max k - 1 comparisons, average k operations an output (k from ``kernel_size``)."""
    kernel = op.attributes.get("kernel_size", ())
    window = kernel**2 if isinstance(kernel, int) else prod(kernel) * (kernel[0] if len(kernel) == 1 else 1)
    return Arithmetic(prod(op.outputs[0].shape) * (window - 1 if op.op.startswith("max") else window))


def pooling_backward(op: Operation) -> Arithmetic:
    """Gradients routed back: one operation for each element of the larger side."""
    return Arithmetic(_largest(op))


def norm(op: Operation) -> Arithmetic:
    """Layer, group or batch normalization: mean, subtract, square, add, scale: 5 FLOPs an element.

    Weight and bias add one each; every row or channel adds 3 FLOPs and one rsqrt. RMS normalization skips the
    mean: 3 FLOPs an element and 2 a row.
    """
    num = prod(op.inputs[0].shape)
    affine = min(len(op.inputs) - 1, 2)
    if "rms_norm" in op.op:
        rows = num // max(prod(op.inputs[1].shape) if len(op.inputs) > 1 else op.inputs[0].shape[-1], 1)
        return Arithmetic((3 + min(affine, 1)) * num + 2 * rows, 0, rows)
    rows = prod(op.outputs[1].shape) if len(op.outputs) > 1 else num // max(op.inputs[0].shape[-1], 1)
    if op.attributes.get("training") is False:  # running statistics: subtract, scale
        return Arithmetic((2 + affine) * num, 0, rows)
    return Arithmetic((5 + affine) * num + 3 * rows, 0, rows)


def norm_backward(op: Operation) -> Arithmetic:
    """Backward of a normalization: dx 10 FLOPs an element, the weight's gradient 2, the bias's 1 (if asked).

    ``dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat))``; RMS normalization has no ``mean(gw)``: 7.
    """
    mask = op.attributes.get("output_mask") or op.attributes.get("needs") or (True,) * len(op.outputs)
    num = prod(op.inputs[1].shape)
    flops = (7 if "rms_norm" in op.op else 10) * bool(mask[0])
    for asked, each in zip(mask[1:], (2, 1)):
        flops += each * bool(asked)
    return Arithmetic(flops * num)


ELEMENTWISE: dict[str, Rule] = {
    **dict.fromkeys(_PER_ELEMENT, elementwise),
    "gelu": gelu, "gelu_backward": gelu_backward, "pow": power, "pow_backward": power_backward,
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), softmax),
    **dict.fromkeys(("_softmax_backward_data", "softmax_backward"), softmax_backward),
    **dict.fromkeys(("_log_softmax", "log_softmax"), log_softmax),
    **dict.fromkeys(("_log_softmax_backward_data", "log_softmax_backward"), log_softmax_backward),
    **dict.fromkeys(("nll_loss", "nll_loss_forward", "nll_loss2d_forward"), nll_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), nll_loss_backward),
}  # fmt: skip
REDUCTION: dict[str, Rule] = {
    **dict.fromkeys(("sum", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "nansum"), reduction),
    "mean": mean, "logsumexp": logsumexp,
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), variance),
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), scan),
    **dict.fromkeys(("sort", "topk", "argsort"), selection),
    **dict.fromkeys(("embedding_dense_backward", "embedding_backward", "gather_backward", "index_add",
                     "scatter_add"), scatter_sum),
    **dict.fromkeys(("index_put", "_index_put_impl"), put),
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d"), pooling),
    **dict.fromkeys(("_adaptive_avg_pool2d",), mean),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
                    pooling_backward),
}  # fmt: skip
NORMALIZATION: dict[str, Rule] = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
                     "layer_norm", "rms_norm", "_fused_rms_norm", "cudnn_batch_norm", "_batch_norm_with_update"), norm),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
                     "layer_norm_backward", "rms_norm_backward", "_fused_rms_norm_backward"), norm_backward),
}  # fmt: skip
