"""Is a gradient right? One directional derivative per input against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.tensor import Tensor, no_grad

__all__ = ["GradcheckReport", "InputCheck", "gradcheck"]

# A central difference of step h errs by h^2/6 * third derivative and eps/h of rounding: 1e-5 makes both near 1e-10
# for values near 1. The relative bound leaves five more digits for curvature; the rounding of the outputs
# themselves is bounded apart, at ten times eps/h.
STEP = 1e-5
RELATIVE_TOLERANCE = 1e-5
ROUNDING_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCheck:
    """One input's directional derivative, both ways.

    Args:
        position: which input, from 0.
        analytic: gradient from backward, projected on the direction.
        numeric: central difference along the same direction.
        tolerance: largest allowed difference.
    """

    position: int
    analytic: float
    numeric: float
    tolerance: float

    @property
    def error(self) -> float:
        """Absolute difference of the two."""
        return abs(self.analytic - self.numeric)

    @property
    def passed(self) -> bool:
        """Whether they agree; a nan does not."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        ratio = f", ratio {self.analytic / self.numeric:.6g}" if self.numeric else ""
        return (f"input {self.position}: backward says {self.analytic:.9g}, differences say {self.numeric:.9g} "
                f"(off by {self.error:.3g}{ratio}; allowed {self.tolerance:.3g})")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradcheckReport:
    """The checks of all inputs that require a gradient; true if all agree."""

    checks: tuple[InputCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether every input's gradient agrees."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[InputCheck, ...]:
        """The checks that disagree."""
        return tuple(check for check in self.checks if not check.passed)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        if self.passed:
            return f"gradients of {len(self.checks)} inputs agree with differences"
        return "gradient wrong for " + "; ".join(str(check) for check in self.failures)


def _in_float64(tensor: Tensor) -> Tensor:
    if not tensor.requires_grad:
        return tensor
    return Tensor(tensor.data.astype(np.float64, order="K"), requires_grad=True)


def gradcheck(function: Callable[..., Tensor], *inputs: Tensor, rng: np.random.Generator | None = None,
              step: float = STEP, relative_tolerance: float = RELATIVE_TOLERANCE) -> GradcheckReport:
    """Compare backward with central differences along one random direction per input.

    With u a random weight per output, L(x) = sum(u * f(x)) and v a random direction of the gradient's signs:
    ``sum(dL/dx * v) = (L(x + h v) - L(x - h v)) / 2h``. A wrong gradient agrees with probability 0.

    Args:
        function: takes the inputs, returns one tensor; deterministic.
        inputs: those with requires_grad are checked, in float64.
        rng: draws u and v; a fixed one by default, so that a failure repeats.
        step: h.
        relative_tolerance: largest difference, relative to the derivative.

    Returns:
        A report that is true if all agree; its text names each input that fails and by how much.

    Raises:
        InvalidInputError: no input requires a gradient.

    Assumes:
        The function is smooth at the inputs: at a kink of relu or max the two may differ rightly.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> print(gradcheck(lambda x: (x * x).sum(), x))
    gradients of 1 inputs agree with differences
    """
    rng = np.random.default_rng(0) if rng is None else rng
    doubles = [_in_float64(tensor) for tensor in inputs]
    if not any(tensor.requires_grad for tensor in doubles):
        raise InvalidInputError("gradcheck needs an input with requires_grad=True", given=f"{len(inputs)} inputs")
    output = function(*doubles)
    weights = rng.standard_normal(output.shape)
    output.backward(Tensor(weights.astype(output.data.dtype)))
    checks = []
    for position, tensor in enumerate(doubles):
        if tensor.requires_grad:
            gradient = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.data
            direction = _direction(gradient, rng)
            analytic = float((direction * gradient).sum())
            numeric = _difference(function, doubles, position, direction, weights, step)
            rounding = ROUNDING_TOLERANCE * float(np.abs(weights * output.data).sum())
            tolerance = relative_tolerance * max(abs(analytic), abs(numeric)) + rounding + 1e-12
            checks.append(InputCheck(position=position, analytic=analytic, numeric=numeric, tolerance=tolerance))
    return GradcheckReport(checks=tuple(checks))


def _direction(gradient: Any, rng: np.random.Generator) -> Any:
    """Random sizes, with the gradient's signs (random where it is 0), so that no terms cancel and hide an error."""
    draw = rng.standard_normal(gradient.shape)
    return np.where(np.abs(gradient) > 0, np.abs(draw) * np.sign(gradient), draw)


def _difference(function: Callable[..., Tensor], inputs: list[Tensor], position: int,
                direction: Any, weights: Any, step: float) -> float:
    values = []
    with no_grad():
        for sign in (1, -1):
            moved = list(inputs)
            moved[position] = Tensor(inputs[position].data + sign * step * direction)
            values.append(float((weights * function(*moved).data).sum()))
    return (values[0] - values[1]) / (2 * step)
