"""Cost rules of operation families, shared by our tensors and torch's operations.

Conventions, stated once:

* A multiply-add is 2 FLOPs. ``macs`` counts multiply-adds of matrix products, convolutions and attention.
* The bias of a linear layer fused into its product (``addmm``) adds no FLOPs; a bias added by an operation of its
  own does.
* Elementwise arithmetic, comparisons and selections count 1 FLOP an element; casts, copies and integer work 0.
* exp, log, tanh, erf, sqrt, rsqrt, sin, cos and pow count in ``transcendentals``, not in ``flops``.
* Attention is counted as executed: a causal mask does not halve dense code.
* Bytes: each operand read once and each output written once per operation; a view moves none. A broadcast operand
  counts its distinct elements, a gather only the rows it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, NamedTuple

from course_lib.errors import InvalidInputError
from course_lib.trace.elementwise import ELEMENTWISE, NORMALIZATION, REDUCTION
from course_lib.trace.events import TensorRef
from course_lib.trace.operation import Arithmetic, Operation, Rule
from course_lib.trace.traffic import NO_ARITHMETIC, RESERVES, bytes_of
from course_lib.trace.work import Work

__all__ = ["AttentionConvention", "Cost", "CostBook", "cost", "cost_rules"]

AttentionConvention = Literal["unfused", "flash"]


class Cost(NamedTuple):
    """Work of an operation and the name of the rule that gave it ("uncounted" where none did)."""

    work: Work
    flop_source: str


def _products(macs: int, flops: int = 0, transcendentals: int = 0) -> Arithmetic:
    return Arithmetic(2 * macs + flops, macs, transcendentals)


def matmul(op: Operation) -> Arithmetic:
    """Matrix product: ``macs = numel(output) * K`` with K the inner size (last of the first operand)."""
    first = op.inputs[0].shape
    return _products(prod(op.outputs[0].shape) * first[-1])


def addmm(op: Operation) -> Arithmetic:
    """Product plus a fused bias, ``C + A @ B``: ``macs = numel(output) * K``; the bias is free, as in torch."""
    return _products(prod(op.outputs[0].shape) * op.inputs[1].shape[-1])


def linear(op: Operation) -> Arithmetic:
    """Linear layer ``x @ W.T + b``: ``macs = numel(x) * D_out`` (the bias is fused)."""
    return _products(prod(op.inputs[0].shape) * op.inputs[1].shape[0])


def dot(op: Operation) -> Arithmetic:
    """Inner product of two vectors, or matrix times vector: ``macs = numel(first operand)``."""
    return _products(prod(op.inputs[0].shape))


def _convolution_macs(x: TensorRef, w: TensorRef, y: TensorRef, transposed: bool) -> int:
    """``macs = B * positions * numel(W)``: each weight meets each position of the output (input if transposed).

    Groups need no factor: W has shape (C_out, C_in / groups, kernel...).
    """
    spatial = (x if transposed else y).shape[2:]
    return x.shape[0] * prod(spatial) * prod(w.shape)


def convolution(op: Operation) -> Arithmetic:
    """Convolution: ``macs = B * prod(output positions) * C_out * C_in / groups * prod(kernel)``."""
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    return _products(_convolution_macs(x, w, y, bool(op.attributes.get("transposed", False))))


def convolution_backward(op: Operation) -> Arithmetic:
    """Each of dX and dW costs the forward count; db costs one add for each element of dY.

    With groups > 1 this is ``groups`` times less than torch.utils.flop_counter gives for dW, which multiplies
    every input channel by every output channel.
    """
    dy, x, w = op.inputs[:3]
    mask = op.attributes.get("output_mask") or (True, True, False)
    macs = _convolution_macs(x, w, dy, bool(op.attributes.get("transposed", False)))
    return _products(macs * (bool(mask[0]) + bool(mask[1])), flops=prod(dy.shape) if mask[2] else 0)


def attention(op: Operation) -> Arithmetic:
    """Scaled dot-product attention forward, heads first: q (B, H, T, d), k (B, H_kv, S, d), v (B, H_kv, S, d_v).

    ``macs = B*H*T*S*(d + d_v)``; each of the B*H*T*S scores costs 5 more FLOPs (scale, max, subtract, sum,
    divide) and one exp. Causal masks are counted as dense.
    """
    return _attention(*(ref.shape for ref in op.inputs[:3]))


def attention_sequence_first(op: Operation) -> Arithmetic | None:
    """The same with layout (B, T, H, d); packed ragged batches (3 dimensions) have no rule."""
    shapes = [ref.shape for ref in op.inputs[:3]]
    if any(len(shape) != 4 for shape in shapes):
        return None
    return _attention(*((b, h, t, d) for b, t, h, d in shapes))


def _attention(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> Arithmetic:
    scores = prod(q[:-1]) * k[-2]
    return _products(scores * (q[-1] + v[-1]), 5 * scores, scores)


def attention_backward(op: Operation) -> Arithmetic:
    """Backward of unfused attention, 4 products: dV, dP (``d_v`` each), dQ, dK (``d`` each): 2 x forward.

    Softmax backward adds 5 FLOPs a score (multiply, add, subtract, multiply, scale).
    """
    q, k, v = (ref.shape for ref in op.inputs[1:4])
    scores = prod(q[:-1]) * k[-2]
    return _products(scores * 2 * (q[-1] + v[-1]), 5 * scores)


def flash_attention_backward(op: Operation) -> Arithmetic:
    """Backward of flash attention, 5 products: the scores are recomputed (``d`` more and one exp): 2.5 x forward."""
    q, k, v = (ref.shape for ref in op.inputs[1:4])
    scores = prod(q[:-1]) * k[-2]
    return _products(scores * (3 * q[-1] + 2 * v[-1]), 7 * scores, scores)


def recurrent_layer(op: Operation) -> Arithmetic:
    """A fused LSTM or GRU layer over T steps of B rows: ``macs = T*B*(numel(W_ih) + numel(W_hh))``.

    Gates: an LSTM cell does 4 transcendental gates and one tanh of the state, 5 and 13 FLOPs a hidden unit.
    """
    x, w_input, w_hidden = op.inputs[:3]
    rows = prod(x.shape[:-1])
    hidden = w_hidden.shape[-1]
    return _products(rows * (prod(w_input.shape) + prod(w_hidden.shape)), 13 * rows * hidden, 5 * rows * hidden)


def recurrent_layer_backward(op: Operation) -> Arithmetic:
    """Backward of a fused recurrent layer: dX, dh and both dW: 2 x the forward products."""
    forward = recurrent_layer(op)
    return _products(2 * forward.macs, 2 * (forward.flops - 2 * forward.macs), forward.transcendentals)


def encoder_layer(op: Operation) -> Arithmetic:
    """torch's fused transformer encoder layer (inference on CPU): four projections, attention, feed-forward.

    ``macs = B*T*(4*D*D + 2*D*F) + 2*B*T*T*D``.
    """
    batch, tokens, model_size = op.inputs[0].shape
    feed_forward = op.inputs[9].shape[0]
    heads = int(op.attributes.get("num_heads", 1))
    rows, scores = batch * tokens, batch * heads * tokens * tokens
    macs = rows * (4 * model_size**2 + 2 * model_size * feed_forward) + 2 * batch * tokens**2 * model_size
    # 2 layer norms (7 FLOPs an element, 3 a row), 2 residual adds, 1 activation, softmax and scale
    return _products(macs, rows * (2 * (7 * model_size + 3) + 2 * model_size + feed_forward) + 5 * scores,
                     2 * rows + scores)  # fmt: skip


def native_attention(op: Operation) -> Arithmetic:
    """torch's fused multi-head self-attention (inference on CPU): ``macs = 4*B*T*D*D + 2*B*T*T*D``."""
    batch, tokens, model_size = op.inputs[0].shape
    heads = int(op.attributes.get("num_head", 1))
    scores = batch * heads * tokens * tokens
    return _products(4 * batch * tokens * model_size**2 + 2 * batch * tokens**2 * model_size, 5 * scores, scores)


def no_arithmetic(op: Operation) -> Arithmetic:
    """Copies, casts, gathers, fills, random draws and integer index work: bytes but no FLOPs."""
    return Arithmetic(0, 0, 0)


_MATMUL: dict[str, Rule] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "_int_mm", "_scaled_mm"), matmul),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "_addmm_activation", "addmv"), addmm),
    "linear": linear, "dot": dot, "vdot": dot, "mv": dot,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "conv2d",
                     "mkldnn_convolution", "_slow_conv2d_forward", "_conv_depthwise2d"), convolution),
    "convolution_backward": convolution_backward,
    "mkldnn_rnn_layer": recurrent_layer, "mkldnn_rnn_layer_backward": recurrent_layer_backward,
    "_transformer_encoder_layer_fwd": encoder_layer, "_native_multi_head_attention": native_attention,
}  # fmt: skip
_SDPA = "_scaled_dot_product_"
_ATTENTION: dict[str, Rule] = {
    **dict.fromkeys(
        ("attention", *(f"{_SDPA}{kind}" for kind in (
            "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
            "fused_attention_overrideable", "attention_math", "attention_math_for_mps"))),
        attention),
    **dict.fromkeys(("_flash_attention_forward", "_efficient_attention_forward"), attention_sequence_first),
}  # fmt: skip
_ATTENTION_BACKWARD = (
    *(f"{_SDPA}{kind}_backward" for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention",
                                            "cudnn_attention", "fused_attention_overrideable")),
)  # fmt: skip


def cost_rules(attention_convention: AttentionConvention = "unfused") -> dict[str, Rule]:
    """All cost rules by operation name; add your own to the returned table.

    Args:
        attention_convention: backward of fused attention as 4 products ("unfused", 2 x forward, what
            torch.utils.flop_counter says on the meta device) or as the 5 that a recomputing flash kernel runs
            ("flash", 2.5 x forward).

    Raises:
        InvalidInputError: unknown convention.

    >>> cost_rules()["mm"].__name__, "erfinv" in cost_rules()
    ('matmul', False)
    """
    if attention_convention not in ("unfused", "flash"):
        raise InvalidInputError(
            "attention_convention says how fused attention's backward is counted",
            given=repr(attention_convention), allowed="'unfused' (2 x forward) or 'flash' (2.5 x forward)",
        )  # fmt: skip
    backward = attention_backward if attention_convention == "unfused" else flash_attention_backward
    return {
        **dict.fromkeys(NO_ARITHMETIC, no_arithmetic), **ELEMENTWISE, **REDUCTION, **NORMALIZATION, **_MATMUL,
        **_ATTENTION, **dict.fromkeys(_ATTENTION_BACKWARD, backward),
        "attention_backward": flash_attention_backward,  # our kernel recomputes the scores, so 5 products run
    }  # fmt: skip


def cost(
    op: str,
    inputs: tuple[TensorRef, ...],
    outputs: tuple[TensorRef, ...],
    attributes: Mapping[str, Any] | None = None,
    *,
    rules: Mapping[str, Rule],
    is_view: bool = False,
) -> Cost:
    """Work of one operation: arithmetic by its rule, bytes by its operands.

    Args:
        op: name of the operation; a trailing underscore (in place) is the same arithmetic.
        inputs: tensors read.
        outputs: tensors written.
        attributes: arguments that are no tensors, by name.
        rules: table from :func:`cost_rules`.
        is_view: the caller knows that the operation only renames memory.

    >>> a, b = TensorRef(0, (32, 64), (64, 1), "fp32"), TensorRef(1, (64, 128), (128, 1), "fp32")
    >>> y = TensorRef(2, (32, 128), (128, 1), "fp32")
    >>> cost("mm", (a, b), (y,), rules=cost_rules())
    Cost(work=Work(flops=524288, macs=262144, bytes_read=40960, bytes_written=16384, transcendentals=0),
         flop_source='matmul')
    >>> cost("mystery", (a,), (y,), rules=cost_rules()).flop_source
    'uncounted'
    """
    if is_view or op in RESERVES:
        return _VIEW
    name = op
    rule = rules.get(name)
    if rule is None and op.endswith("_"):
        name = op.rstrip("_")
        rule = rules.get(name)
    operation = Operation(name, inputs, outputs, attributes or {})
    arithmetic = rule(operation) if rule is not None else None
    read, written = bytes_of(operation, in_place=name != op)
    if arithmetic is None or rule is None:
        return Cost(Work(0, 0, read, written), "uncounted")
    return Cost(Work(arithmetic.flops, arithmetic.macs, read, written, arithmetic.transcendentals), rule.__name__)


_VIEW = Cost(Work(0, 0, 0, 0, 0), "view")


class CostBook:
    """:func:`cost` with a memory: the same operation on the same shapes is counted once and looked up after.

    Args:
        rules: table from :func:`cost_rules`.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self._known: dict[object, Cost] = {}

    def cost(
        self, op: str, inputs: tuple[TensorRef, ...], outputs: tuple[TensorRef, ...],
        attributes: Mapping[str, Any] | None, *, is_view: bool,
    ) -> Cost:  # fmt: skip
        """Work of one operation."""
        if is_view:
            return _VIEW
        key = (
            op, tuple(attributes.items()) if attributes else None,
            tuple([(ref.shape, ref.strides, ref.dtype) for ref in inputs]),
            tuple([(ref.shape, ref.strides, ref.dtype) for ref in outputs]),
        )  # fmt: skip
        try:
            known = self._known.get(key)
        except TypeError:  # an attribute without a hash
            return cost(op, inputs, outputs, attributes, rules=self._rules)
        if known is None:
            known = self._known[key] = cost(op, inputs, outputs, attributes, rules=self._rules)
        return known
