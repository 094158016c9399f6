"""Activation functions and dropout: forward and backward of each operation side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["dropout", "gelu", "relu", "sigmoid", "silu", "tanh"]


class Tanh(Op):
    """b = tanh(a), so da = db * (1 - b^2)."""

    name = "tanh"
    saves = "output"

    def forward(self, context: Context, a: Any) -> Any:
        out = np.tanh(a)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("tanh_backward", self.gradient, grad, context.saved[0]),)

    @staticmethod
    def gradient(grad: Any, out: Any) -> Any:
        return grad * (1 - out * out)


def _sigmoid(a: Any) -> Any:
    small = np.exp(-np.abs(a))  # never overflows
    return np.where(a >= 0, 1, small) / (1 + small)


class Sigmoid(Op):
    """b = 1 / (1 + e^-a), so da = db * b * (1 - b)."""

    name = "sigmoid"
    saves = "output"

    def forward(self, context: Context, a: Any) -> Any:
        out = _sigmoid(a)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("sigmoid_backward", self.gradient, grad, context.saved[0]),)

    @staticmethod
    def gradient(grad: Any, out: Any) -> Any:
        return grad * out * (1 - out)


class Relu(Op):
    """b = max(a, 0), so da = db where b > 0."""

    name = "relu"
    saves = "output"

    def forward(self, context: Context, a: Any) -> Any:
        out = np.maximum(a, 0)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("relu_backward", self.gradient, grad, context.saved[0]),)

    @staticmethod
    def gradient(grad: Any, out: Any) -> Any:
        return grad * (out > 0)


class Silu(Op):
    """b = a s with s = sigmoid(a), so da = db * s * (1 + a (1 - s))."""

    name = "silu"
    saves = "a"

    def forward(self, context: Context, a: Any) -> Any:
        context.save(a)
        return a * _sigmoid(a)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("silu_backward", self.gradient, grad, context.saved[0]),)

    @staticmethod
    def gradient(grad: Any, a: Any) -> Any:
        s = _sigmoid(a)
        return grad * s * (1 + a * (1 - s))


_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has no erf; this one is exact and slow
_TANH_GELU = (math.sqrt(2 / math.pi), 0.044715)  # Hendrycks and Gimpel 2016, eq. 2


class Gelu(Op):
    """b = a Phi(a), so da = db * (Phi(a) + a phi(a)); "tanh" approximates Phi."""

    name = "gelu"
    saves = "a"

    def forward(self, context: Context, a: Any, *, approximate: str) -> Any:
        context.save(a)
        return a * self.phi(a, approximate)[0]

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        approximate = context.attributes["approximate"]
        return (run_kernel("gelu_backward", self.gradient, grad, context.saved[0], approximate=approximate),)

    @staticmethod
    def phi(a: Any, approximate: str) -> tuple[Any, Any]:
        """The distribution function Phi and its slope, exact or by tanh."""
        if approximate == "tanh":
            scale, cubic = _TANH_GELU
            t = np.tanh(scale * (a + cubic * a ** 3))
            return 0.5 * (1 + t), 0.5 * (1 - t * t) * scale * (1 + 3 * cubic * a * a)
        distribution = 0.5 * (1 + np.asarray(_erf(a / math.sqrt(2))).astype(a.dtype))
        return distribution, np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)

    @staticmethod
    def gradient(grad: Any, a: Any, *, approximate: str) -> Any:
        distribution, slope = Gelu.phi(a, approximate)
        return grad * (distribution + a * slope)


class Dropout(Op):
    """b = a * noise, noise = 0 with the probability and 1/(1 - probability) else, so da = db * noise."""

    name = "dropout"
    saves = "noise (new memory, in the dtype of a, as torch keeps it on CPU)"
    unrecorded = ("rng",)

    def forward(self, context: Context, a: Any, *, probability: float, rng: np.random.Generator) -> Any:
        scale = 0.0 if probability == 1 else 1 / (1 - probability)
        noise = ((rng.random(a.shape) >= probability) * scale).astype(a.dtype)
        context.save(noise)
        return a * noise

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad * context.saved[0],)


def _apply(op: Op, a: Tensor, **attributes: Any) -> Tensor:
    result: Tensor = apply(op, a, **attributes)
    return result


def tanh(a: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return _apply(Tanh(), a)


def sigmoid(a: Tensor) -> Tensor:
    """1 / (1 + e^-a)."""
    return _apply(Sigmoid(), a)


def relu(a: Tensor) -> Tensor:
    """max(a, 0)."""
    return _apply(Relu(), a)


def silu(a: Tensor) -> Tensor:
    """a * sigmoid(a), also called swish."""
    return _apply(Silu(), a)


def gelu(a: Tensor, *, approximate: str = "none") -> Tensor:
    """a * Phi(a), Phi the normal distribution; approximate="tanh" is GPT-2's form."""
    if approximate not in ("none", "tanh"):
        raise InvalidInputError("gelu is exact or approximate", allowed="none, tanh", given=repr(approximate))
    return _apply(Gelu(), a, approximate=approximate)


def dropout(a: Tensor, probability: float, *, rng: np.random.Generator) -> Tensor:
    """Zero each element with the probability and scale the others by 1/(1 - probability)."""
    if not 0 <= probability <= 1:
        raise InvalidInputError("a dropout probability lies in 0..1", given=probability)
    return a if probability == 0 else _apply(Dropout(), a, probability=float(probability), rng=rng)
