"""Operations of networks: softmax, losses and norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel
from course_lib.tensor.ops_reduce import normalized_axes

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["cross_entropy", "layer_norm", "log_softmax", "nll_loss", "rms_norm", "softmax"]


class Softmax(Op):
    """b = e^a / sum e^a along an axis, so da = b * (db - sum(db * b))."""

    name = "softmax"
    saves = "output"

    def forward(self, context: Context, a: Any, *, axis: int) -> Any:
        powers = np.exp(a - a.max(axis=axis, keepdims=True))
        out = powers / powers.sum(axis=axis, keepdims=True)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("softmax_backward", self.gradient, grad, context.saved[0], **context.attributes),)

    @staticmethod
    def gradient(grad: Any, out: Any, *, axis: int) -> Any:
        return out * (grad - (grad * out).sum(axis=axis, keepdims=True))


class LogSoftmax(Op):
    """b = a - ln sum e^a along an axis, so da = db - e^b * sum(db)."""

    name = "log_softmax"
    saves = "output"

    def forward(self, context: Context, a: Any, *, axis: int) -> Any:
        shifted = a - a.max(axis=axis, keepdims=True)
        out = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("log_softmax_backward", self.gradient, grad, context.saved[0], **context.attributes),)

    @staticmethod
    def gradient(grad: Any, out: Any, *, axis: int) -> Any:
        return grad - np.exp(out) * grad.sum(axis=axis, keepdims=True)


class NllLoss(Op):
    """loss = -mean_i log_probs[i, targets[i]], so the gradient is -dloss/R at the targets and 0 elsewhere."""

    name = "nll_loss"
    saves = "targets"

    def forward(self, context: Context, log_probs: Any, targets: Any) -> Any:
        context.save(targets)
        picked = log_probs[np.arange(len(targets)), targets]
        return -picked.sum() / log_probs.dtype.type(len(targets))

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return run_kernel("nll_loss_backward", self.gradient, grad, context.saved[0],
                          num_classes=context.input_shapes[0][1]), None

    @staticmethod
    def gradient(grad: Any, targets: Any, *, num_classes: int) -> Any:
        rows = len(targets)
        full = np.zeros((rows, num_classes), dtype=grad.dtype)
        full[np.arange(rows), targets] = -grad / grad.dtype.type(rows)
        return full


class RmsNorm(Op):
    """b = a r w with r = (mean a^2 + eps)^(-1/2) over the last axis.

    With g = db w: da = r g - a r^3 mean(g a), and dw = sum over rows of db a r.
    """

    name = "rms_norm"
    saves = "a, r (one a row), weight if da"

    def forward(self, context: Context, a: Any, weight: Any, *, eps: float) -> Any:
        r = 1 / np.sqrt((a * a).mean(axis=-1, keepdims=True) + a.dtype.type(eps))
        context.save(a, r, *([weight] if context.needs[0] else []))
        return a * r * weight

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = iter(run_kernel("rms_norm_backward", self.gradient, grad, *context.saved, needs=context.needs))
        return tuple(next(found) if needed else None for needed in context.needs)

    @staticmethod
    def gradient(grad: Any, a: Any, r: Any, weight: Any = None, *, needs: tuple[bool, ...]) -> tuple[Any, ...]:
        gradients = []
        if needs[0]:
            g = grad * weight
            gradients.append(r * g - a * r ** 3 * (g * a).mean(axis=-1, keepdims=True))
        if needs[1]:
            gradients.append(_over_rows(grad * a * r))
        return tuple(gradients)


class LayerNorm(Op):
    """b = n w + bias with n = (a - mean) r, r = (variance + eps)^(-1/2) over the last axis.

    With g = db w: da = r (g - mean(g) - n mean(g n)), dw = sum over rows of db n, dbias = sum over rows of db.
    """

    name = "layer_norm"
    saves = "a, mean and r (one a row), weight if da"

    def forward(self, context: Context, a: Any, weight: Any, bias: Any, *, eps: float) -> Any:
        mean = a.mean(axis=-1, keepdims=True)
        r = 1 / np.sqrt(a.var(axis=-1, keepdims=True) + a.dtype.type(eps))
        context.save(a, mean, r, *([weight] if context.needs[0] else []))
        return (a - mean) * r * weight + bias

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = iter(run_kernel("layer_norm_backward", self.gradient, grad, *context.saved, needs=context.needs))
        return tuple(next(found) if needed else None for needed in context.needs)

    @staticmethod
    def gradient(grad: Any, a: Any, mean: Any, r: Any, weight: Any = None, *,
                 needs: tuple[bool, ...]) -> tuple[Any, ...]:
        n = (a - mean) * r
        gradients = []
        if needs[0]:
            g = grad * weight
            gradients.append(r * (g - g.mean(axis=-1, keepdims=True) - n * (g * n).mean(axis=-1, keepdims=True)))
        if needs[1]:
            gradients.append(_over_rows(grad * n))
        if needs[2]:
            gradients.append(_over_rows(grad))
        return tuple(gradients)


def _over_rows(array: Any) -> Any:
    """Sum over all axes but the last; a copy even where there is nothing to sum."""
    return array.sum(axis=tuple(range(array.ndim - 1)))


def _along(op: Op, a: Tensor, axis: int) -> Tensor:
    (position,) = normalized_axes(axis, a.ndim)
    result: Tensor = apply(op, a, axis=position)
    return result


def softmax(a: Tensor, axis: int = -1) -> Tensor:
    """e^a / sum e^a along an axis, the maximum subtracted first so that nothing overflows.

    >>> from course_lib.tensor import Tensor
    >>> softmax(Tensor([1000.0, 1000.0]))
    Tensor([0.5, 0.5], dtype=fp32)
    """
    return _along(Softmax(), a, axis)


def log_softmax(a: Tensor, axis: int = -1) -> Tensor:
    """a - ln sum e^a along an axis."""
    return _along(LogSoftmax(), a, axis)


def nll_loss(log_probs: Tensor, targets: Tensor) -> Tensor:
    """``-mean_i log_probs[i, targets[i]]`` for (R, V) and R class numbers."""
    if log_probs.ndim != 2 or targets.shape != log_probs.shape[:1] or targets.data.dtype.kind not in "iu":
        raise InvalidInputError("nll_loss needs log_probs (R, V) and integer targets (R,)",
                                given=f"{log_probs.shape} and {targets.shape} {targets.dtype}")
    values = targets.data
    if values.size and not (values.min() >= 0 and values.max() < log_probs.shape[1]):
        raise InvalidInputError(f"a target is a class number below {log_probs.shape[1]}",
                                given=f"{values.min()}..{values.max()}")
    result: Tensor = apply(NllLoss(), log_probs, targets)
    return result


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of ``-ln softmax(logits)[target]`` in nats.

    Args:
        logits: (..., V).
        targets: class numbers, the same shape without the last axis.

    >>> from course_lib.tensor import Tensor
    >>> round(cross_entropy(Tensor([[0.0, 0.0, 0.0, 0.0]]), Tensor([2])).item(), 4)  # ln 4
    1.3863
    """
    if logits.ndim < 1 or targets.shape != logits.shape[:-1]:
        raise InvalidInputError("cross_entropy needs logits (..., V) and targets of the same shape without V",
                                given=f"logits {logits.shape}, targets {targets.shape}")
    return nll_loss(log_softmax(logits.reshape(targets.size, logits.shape[-1])), targets.reshape(targets.size))


def _last_axis_parameter(what: str, a: Tensor, parameter: Tensor) -> None:
    if a.ndim < 1 or parameter.shape != a.shape[-1:]:
        raise InvalidInputError(f"{what} needs a weight of the last axis's size", allowed=str(a.shape[-1:]),
                                given=f"{parameter.shape}")


def rms_norm(a: Tensor, weight: Tensor, *, eps: float = 1e-5) -> Tensor:
    """a / sqrt(mean a^2 + eps) * weight over the last axis (Zhang and Sennrich 2019)."""
    _last_axis_parameter("rms_norm", a, weight)
    result: Tensor = apply(RmsNorm(), a, weight, eps=eps)
    return result


def layer_norm(a: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    """(a - mean) / sqrt(variance + eps) * weight + bias over the last axis (Ba et al. 2016)."""
    _last_axis_parameter("layer_norm", a, weight)
    _last_axis_parameter("layer_norm", a, bias)
    result: Tensor = apply(LayerNorm(), a, weight, bias, eps=eps)
    return result
