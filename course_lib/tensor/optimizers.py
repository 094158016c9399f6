"""Optimizers: the update phase, each step one operation that writes in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, grad_mode, phase
from course_lib.tensor.dtypes import round_to_bf16
from course_lib.tensor.tensor import Tensor

if TYPE_CHECKING:
    from course_lib.tensor.modules import Parameter

__all__ = ["SGD", "AdamW"]


class SgdStep(Op):
    """p -= lr * g, in place: reads p and g, writes p."""

    name = "sgd_step"
    is_view = True

    def forward(self, context: Context, parameter: Any, grad: Any, *, learning_rate: float) -> Any:
        parameter -= learning_rate * grad
        return parameter


class AdamwStep(Op):
    """One step of AdamW (Loshchilov and Hutter 2019), in place on the parameter and both moments.

    m = b1 m + (1 - b1) g; s = b2 s + (1 - b2) g^2;
    p = p (1 - lr decay) - lr m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + eps).
    """

    name = "adamw_step"
    is_view = True

    def forward(self, context: Context, parameter: Any, grad: Any, mean: Any, square: Any, *, learning_rate: float,
                betas: tuple[float, float], eps: float, weight_decay: float, step: int) -> Any:
        mean += (1 - betas[0]) * (grad - mean)
        square += (1 - betas[1]) * (grad * grad - square)
        size = learning_rate / (1 - betas[0] ** step)
        root = np.sqrt(square) / np.sqrt(square.dtype.type(1 - betas[1] ** step)) + eps
        parameter *= 1 - learning_rate * weight_decay
        parameter -= size * mean / root
        return parameter


def _checked(parameters: Iterable[Parameter], learning_rate: float) -> tuple[Parameter, ...]:
    if not learning_rate >= 0:
        raise InvalidInputError("a learning rate is not negative", given=learning_rate)
    found = tuple(parameters)
    if not found:
        raise InvalidInputError("an optimizer needs at least one parameter", given="none",
                                next_step="Pass module.parameters().")
    return found


def _update(op: Op, parameter: Parameter, *state: Tensor, **attributes: Any) -> None:
    with grad_mode(False), phase("update"):
        apply(op, parameter, *state, **attributes)
    if parameter.dtype == "bf16":
        parameter.data[...] = round_to_bf16(parameter.data)


class SGD:
    """Stochastic gradient descent: p -= learning_rate * gradient.

    >>> from course_lib.tensor import Parameter
    >>> p = Parameter([1.0])
    >>> (p * p).sum().backward()
    >>> SGD([p], learning_rate=0.25).step()
    >>> p.item()  # 1 - 0.25 * 2
    0.5
    """

    def __init__(self, parameters: Iterable[Parameter], *, learning_rate: float) -> None:
        self.parameters, self.learning_rate = _checked(parameters, learning_rate), learning_rate

    def step(self) -> None:
        """Move each parameter that has a gradient."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                _update(SgdStep(), parameter, parameter.grad, learning_rate=self.learning_rate)


class AdamW:
    """Adam with decoupled weight decay: two more numbers per parameter, 2.00 times its size in state."""

    def __init__(self, parameters: Iterable[Parameter], *, learning_rate: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2) -> None:
        self.parameters, self.learning_rate = _checked(parameters, learning_rate), learning_rate
        self.betas, self.eps, self.weight_decay, self.num_steps = betas, eps, weight_decay, 0
        self.state = tuple((Tensor(np.zeros_like(p.data), dtype=p.dtype), Tensor(np.zeros_like(p.data), dtype=p.dtype))
                           for p in self.parameters)

    @property
    def state_bytes(self) -> int:
        """Bytes of both moments."""
        return sum(mean.nbytes + square.nbytes for mean, square in self.state)

    def step(self) -> None:
        """Move each parameter that has a gradient."""
        self.num_steps += 1
        for parameter, (mean, square) in zip(self.parameters, self.state):
            if parameter.grad is not None:
                _update(AdamwStep(), parameter, parameter.grad, mean, square, learning_rate=self.learning_rate,
                        betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, step=self.num_steps)
