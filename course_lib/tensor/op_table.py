"""The table of operations: every name that `OpCall.op` can carry, its operands, attributes and saved tensors.

Shapes: B batch, T query tokens, S key tokens, N query heads, K key-value heads, H head size, D model size,
V vocabulary. An axis is never negative in an attribute. Backward kernels run only in the phase "backward";
every other operation may also appear there (the backward of matmul is two matmul). A result with its input's
storage_id is a view and moves no bytes, apart from the phase "update", whose steps write in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["OPS", "OpInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """One row of the table.

    Args:
        operands: names of the inputs, in order.
        attributes: names of the attributes that each call carries.
        saves: what forward keeps for backward, in words; "x if dy" reads "x where y needs a gradient".
        is_view: whether the result shares memory with the first input (reshape copies where it must).
        formula: the equation.
    """

    operands: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    saves: str = "nothing"
    is_view: bool = False
    formula: str = ""


def _row(operands: str, formula: str, attributes: str = "", saves: str = "nothing", view: bool = False) -> OpInfo:
    return OpInfo(operands=tuple(operands.split()), attributes=tuple(attributes.split()), saves=saves,
                  is_view=view, formula=formula)


OPS: Mapping[str, OpInfo] = MappingProxyType({
    # Elementwise, with broadcasting.
    "add": _row("a b", "a + b"),
    "sub": _row("a b", "a - b"),
    "mul": _row("a b", "a * b", saves="a if db, b if da"),
    "div": _row("a b", "a / b", saves="b, and a if db"),
    "div_backward": _row("grad a b", "-grad * a / b^2 (the gradient of the divisor)"),
    "add_scalar": _row("a", "a + value", "value"),
    "mul_scalar": _row("a", "a * value", "value"),
    "pow": _row("a", "a ^ exponent", "exponent", saves="a"),
    "pow_backward": _row("grad a", "grad * exponent * a^(exponent - 1)", "exponent"),
    "neg": _row("a", "-a"),
    "exp": _row("a", "e^a", saves="output"),
    "log": _row("a", "ln a", saves="a"),
    "sqrt": _row("a", "a^(1/2)", saves="output"),
    "sqrt_backward": _row("grad out", "grad / (2 out)"),
    "tanh": _row("a", "tanh a", saves="output"),
    "tanh_backward": _row("grad out", "grad * (1 - out^2)"),
    "sigmoid": _row("a", "1 / (1 + e^-a)", saves="output"),
    "sigmoid_backward": _row("grad out", "grad * out * (1 - out)"),
    "relu": _row("a", "max(a, 0)", saves="output"),
    "relu_backward": _row("grad out", "grad where out > 0, else 0"),
    "silu": _row("a", "a * sigmoid(a)", saves="a"),
    "silu_backward": _row("grad a", "grad * s * (1 + a * (1 - s)), s = sigmoid(a)"),
    "gelu": _row("a", "a * Phi(a)", "approximate", saves="a"),
    "gelu_backward": _row("grad a", "grad * (Phi(a) + a * phi(a))", "approximate"),
    "where": _row("condition a b", "a where condition, else b", saves="condition"),
    "masked_fill": _row("a mask", "value where mask, else a", "value", saves="mask"),
    "dropout": _row("a", "a * noise, noise = 0 or 1/(1 - probability)", "probability", saves="noise (new memory)"),
    "cast": _row("a", "a in another dtype (source: the one it had)", "dtype source"),
    # Reductions.
    "sum": _row("a", "sum over axes", "axes keepdims"),
    "mean": _row("a", "mean over axes", "axes keepdims"),
    "max": _row("a", "max over axes", "axes keepdims", saves="a, output"),
    "max_backward": _row("grad a out", "grad shared evenly by the maxima", "axes keepdims"),
    # Shapes.
    "reshape": _row("a", "the same values in another shape", "shape", view=True),
    "transpose": _row("a", "axes permuted", "axes", view=True),
    "expand": _row("a", "sizes of 1 repeated with stride 0", "shape", view=True),
    "slice": _row("a", "a[index]; index: per axis an integer or (start, stop, step)", "index", view=True),
    "slice_backward": _row("grad", "zeros of shape, grad at index", "shape index"),
    "contiguous": _row("a", "a row-major copy"),
    "concat": _row("a ...", "operands joined along axis", "axis"),
    # Products.
    "matmul": _row("a b", "(..., m, k) @ (..., k, n) -> (..., m, n), batch axes broadcast",
                   saves="a if db, b if da"),
    # Tables.
    "embedding": _row("weight indices", "weight[indices]", saves="indices"),
    "embedding_backward": _row("grad indices", "rows added where they were read (scatter-add)", "num_rows"),
    "gather": _row("a indices", "a[..., indices, ...] along axis, indices of a's rank", "axis", saves="indices"),
    "gather_backward": _row("grad indices", "grad added where it was read", "axis shape"),
    # Networks.
    "softmax": _row("a", "e^a / sum e^a along axis", "axis", saves="output"),
    "softmax_backward": _row("grad out", "out * (grad - sum(grad * out))", "axis"),
    "log_softmax": _row("a", "a - ln sum e^a along axis", "axis", saves="output"),
    "log_softmax_backward": _row("grad out", "grad - e^out * sum(grad)", "axis"),
    "nll_loss": _row("log_probs targets", "-mean log_probs[i, targets[i]]; (R, V) and (R,)",
                     saves="targets"),
    "nll_loss_backward": _row("grad targets", "-grad / R at the targets, else 0", "num_classes"),
    "rms_norm": _row("a weight", "a * r * weight, r = (mean a^2 + eps)^(-1/2) over the last axis", "eps",
                     saves="a, r (new memory, one a row), weight if da"),
    "rms_norm_backward": _row("grad a r [weight]", "the gradients needed, in the order a, weight", "needs"),
    "layer_norm": _row("a weight bias", "(a - mean) * r * weight + bias over the last axis", "eps",
                       saves="a, mean and r (new memory, one a row), weight if da"),
    "layer_norm_backward": _row("grad a mean r [weight]", "the gradients needed, in the order a, weight, bias",
                                "needs"),
    "rope": _row("a cos sin", "the halves (x, y) of the last axis turned: (x cos - y sin, y cos + x sin)",
                 saves="cos, sin"),
    "attention": _row("query key value", "softmax(scale * q k^T) v, fused; (B, N, T, H), (B, K, S, H) twice",
                      "causal scale", saves="query, key, value, output, logsumexp (new memory, (B, N, T))"),
    "attention_backward": _row("grad query key value out logsumexp",
                               "dq, dk, dv by recomputing the probabilities (5 products)", "causal scale"),
    # Update.
    "sgd_step": _row("parameter grad", "parameter -= learning_rate * grad, in place", "learning_rate"),
    "adamw_step": _row("parameter grad mean square", "AdamW, in place on parameter, mean and square",
                       "learning_rate betas eps weight_decay step"),
})
