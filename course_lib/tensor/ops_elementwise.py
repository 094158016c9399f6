"""Elementwise arithmetic: forward and backward of each operation side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel
from course_lib.tensor.dtypes import dtype as dtype_record
from course_lib.tensor.dtypes import dtype_of_array
from course_lib.tensor.ops_reduce import unbroadcast

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["add", "cast", "div", "exp", "log", "masked_fill", "mul", "neg", "power", "sqrt", "sub", "where"]


class Add(Op):
    """c = a + b, so da = dc and db = dc, summed over broadcast axes."""

    name = "add"

    def forward(self, context: Context, a: Any, b: Any) -> Any:
        return a + b

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(unbroadcast(grad, shape) if needed else None
                     for shape, needed in zip(context.input_shapes, context.needs))


class Sub(Op):
    """c = a - b, so da = dc and db = -dc."""

    name = "sub"

    def forward(self, context: Context, a: Any, b: Any) -> Any:
        return a - b

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        shape_a, shape_b = context.input_shapes
        return (unbroadcast(grad, shape_a) if context.needs[0] else None,
                -unbroadcast(grad, shape_b) if context.needs[1] else None)


class Mul(Op):
    """c = a * b, so da = dc * b and db = dc * a."""

    name = "mul"
    saves = "a if db, b if da"

    def forward(self, context: Context, a: Any, b: Any) -> Any:
        context.save(*([b] if context.needs[0] else []), *([a] if context.needs[1] else []))
        return a * b

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        shape_a, shape_b = context.input_shapes
        return (unbroadcast(grad * context.saved[0], shape_a) if context.needs[0] else None,
                unbroadcast(grad * context.saved[-1], shape_b) if context.needs[1] else None)


class Div(Op):
    """c = a / b, so da = dc / b and db = -dc * a / b^2."""

    name = "div"
    saves = "b, and a if db"

    def forward(self, context: Context, a: Any, b: Any) -> Any:
        context.save(b, *([a] if context.needs[1] else []))
        return a / b

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        (shape_a, shape_b), b = context.input_shapes, context.saved[0]
        grad_b = None
        if context.needs[1]:
            grad_b = unbroadcast(run_kernel("div_backward", self.gradient, grad, context.saved[1], b), shape_b)
        return (unbroadcast(grad / b, shape_a) if context.needs[0] else None), grad_b

    @staticmethod
    def gradient(grad: Any, a: Any, b: Any) -> Any:
        return -grad * (a / b) / b


class AddScalar(Op):
    """b = a + value, so da = db."""

    name = "add_scalar"

    def forward(self, context: Context, a: Any, *, value: float) -> Any:
        return a + value

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad,)


class MulScalar(Op):
    """b = a * value, so da = db * value."""

    name = "mul_scalar"

    def forward(self, context: Context, a: Any, *, value: float) -> Any:
        return a * value

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad * context.attributes["value"],)


class Pow(Op):
    """b = a^p, so da = db * p * a^(p-1)."""

    name = "pow"
    saves = "a"

    def forward(self, context: Context, a: Any, *, exponent: float) -> Any:
        context.save(a)
        return a ** exponent

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        exponent = context.attributes["exponent"]
        return (run_kernel("pow_backward", self.gradient, grad, context.saved[0], exponent=exponent),)

    @staticmethod
    def gradient(grad: Any, a: Any, *, exponent: float) -> Any:
        # a^0 has slope 0 everywhere; the formula would give 0 * inf at a = 0.
        return grad * 0 if exponent == 0 else grad * exponent * a ** (exponent - 1)


class Neg(Op):
    """b = -a, so da = -db."""

    name = "neg"

    def forward(self, context: Context, a: Any) -> Any:
        return -a

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (-grad,)


class Exp(Op):
    """b = e^a, so da = db * b."""

    name = "exp"
    saves = "output"

    def forward(self, context: Context, a: Any) -> Any:
        out = np.exp(a)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad * context.saved[0],)


class Log(Op):
    """b = ln a, so da = db / a."""

    name = "log"
    saves = "a"

    def forward(self, context: Context, a: Any) -> Any:
        context.save(a)
        return np.log(a)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad / context.saved[0],)


class Sqrt(Op):
    """b = sqrt(a), so da = db / (2 b)."""

    name = "sqrt"
    saves = "output"

    def forward(self, context: Context, a: Any) -> Any:
        out = np.sqrt(a)
        context.save(out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("sqrt_backward", self.gradient, grad, context.saved[0]),)

    @staticmethod
    def gradient(grad: Any, out: Any) -> Any:
        return grad / (2 * out)


class Where(Op):
    """c = a where condition, else b; the gradient follows the choice."""

    name = "where"
    saves = "condition"

    def forward(self, context: Context, condition: Any, a: Any, b: Any) -> Any:
        context.save(condition)
        return np.where(condition, a, b)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        (condition,), (_, shape_a, shape_b) = context.saved, context.input_shapes
        zero = grad.wrap(np.zeros((), dtype=grad.data.dtype), grad.dtype)
        return (None,
                unbroadcast(apply(Where(), condition, grad, zero), shape_a) if context.needs[1] else None,
                unbroadcast(apply(Where(), condition, zero, grad), shape_b) if context.needs[2] else None)


class MaskedFill(Op):
    """b = value where mask, else a; no gradient flows through the mask."""

    name = "masked_fill"
    saves = "mask"

    def forward(self, context: Context, a: Any, mask: Any, *, value: float) -> Any:
        context.save(mask)
        return np.where(mask, np.asarray(value, dtype=a.dtype), a)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        filled = apply(MaskedFill(), grad, context.saved[0], value=0.0)
        return unbroadcast(filled, context.input_shapes[0]), None


class Cast(Op):
    """The same values, rounded to another dtype; the gradient is rounded back."""

    name = "cast"

    def forward(self, context: Context, a: Any, *, dtype: str, source: str) -> Any:
        return a.astype(dtype_record(dtype).storage)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (cast(grad, context.attributes["source"]),)


def _promoted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands in one dtype: a float beats an integer, wider beats narrower, fp16 with bf16 makes fp32."""
    floats = {x.dtype for x in (a, b) if dtype_record(x.dtype).kind == "float"}
    if floats == {"bf16", "fp16"}:
        target = "fp32"
    elif floats:
        target = max(floats, key=lambda name: dtype_record(name).bits)
    else:
        target = dtype_of_array(np.result_type(a.data.dtype, b.data.dtype))
    return cast(a, target), cast(b, target)


def _broadcast_cure(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    """A reshape that would make two shapes broadcast, if there is an evident one."""
    if len(b) == 1 and b[0] in a:
        cure = (b[0],) + (1,) * (len(a) - 1 - a.index(b[0]))
        return f"Did you mean b.reshape{cure}?"
    if len(a) == len(b) == 2 and a == b[::-1]:
        return "Did you mean b.T?"
    return "Insert axes of size 1 with .reshape(...) where a shape should repeat."


def _binary(op: Op, a: Tensor, b: Any) -> Tensor:
    other = a.as_operand(b)
    try:
        if a.shape != other.shape:
            np.broadcast_shapes(a.shape, other.shape)
    except ValueError:
        raise InvalidInputError(f"{op.name} needs shapes that broadcast (equal or 1, from the right)",
                                given=f"a is {a.shape} and b is {other.shape}",
                                next_step=_broadcast_cure(a.shape, other.shape)) from None
    if a.dtype != other.dtype:
        a, other = _promoted(a, other)
    result: Tensor = apply(op, a, other)
    return result


def _unary(op: Op, a: Tensor, **attributes: Any) -> Tensor:
    result: Tensor = apply(op, a, **attributes)
    return result


def _number(value: Any) -> int | float | None:
    """A Python number, or None for anything else (numpy's float64 would widen an fp32 array)."""
    if isinstance(value, float):
        return float(value)
    return int(value) if isinstance(value, int) else None


def add(a: Tensor, b: Any) -> Tensor:
    """a + b, with broadcasting."""
    value = _number(b)
    return _binary(Add(), a, b) if value is None else _unary(AddScalar(), a, value=value)


def sub(a: Tensor, b: Any) -> Tensor:
    """a - b, with broadcasting."""
    value = _number(b)
    return _binary(Sub(), a, b) if value is None else _unary(AddScalar(), a, value=-value)


def mul(a: Tensor, b: Any) -> Tensor:
    """a * b, with broadcasting."""
    value = _number(b)
    return _binary(Mul(), a, b) if value is None else _unary(MulScalar(), a, value=value)


def div(a: Tensor, b: Any) -> Tensor:
    """a / b, with broadcasting."""
    value = _number(b)
    return _binary(Div(), a, b) if value is None or value == 0 else _unary(MulScalar(), a, value=1 / value)


def power(a: Tensor, exponent: float) -> Tensor:
    """a ** exponent, the exponent a number."""
    value = _number(exponent)
    if value is None:
        raise InvalidInputError("the exponent of ** must be a number", given=type(exponent).__name__,
                                next_step="Use (b * a.log()).exp() for a tensor b and positive a.")
    return _unary(Pow(), a, exponent=value)


def neg(a: Tensor) -> Tensor:
    """-a."""
    return _unary(Neg(), a)


def exp(a: Tensor) -> Tensor:
    """e^a."""
    return _unary(Exp(), a)


def log(a: Tensor) -> Tensor:
    """ln a."""
    return _unary(Log(), a)


def sqrt(a: Tensor) -> Tensor:
    """a^(1/2)."""
    return _unary(Sqrt(), a)


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where condition, else b; all three broadcast."""
    result: Tensor = apply(Where(), condition, *(_promoted(a, b) if a.dtype != b.dtype else (a, b)))
    return result


def masked_fill(a: Tensor, mask: Tensor, value: float) -> Tensor:
    """`value` where mask, else a."""
    if mask.dtype != "bool":
        raise InvalidInputError("a mask holds booleans", given=mask.dtype, next_step='Use mask.to("bool").')
    result: Tensor = apply(MaskedFill(), a, mask, value=float(value))
    return result


def cast(a: Tensor, dtype: str) -> Tensor:
    """a in another dtype; a itself if it has it."""
    if not dtype_record(dtype).computes:
        raise UnsupportedError(f"no operation computes in {dtype}: it is a format of stored weights. "
                               "Quantize instead, or hold the rounded values in bf16 or fp32.")
    return a if a.dtype == dtype else _unary(Cast(), a, dtype=dtype, source=a.dtype)
