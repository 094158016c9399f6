"""The matrix product: where nearly all FLOPs of a network are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply
from course_lib.tensor.ops_reduce import unbroadcast

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["matmul"]


class Matmul(Op):
    """C = A B with 2mnk FLOPs, so dA = dC B^T and dB = A^T dC: two products of the same size, if both are needed.

    fp16 operands are multiplied in float32 and rounded once, as tensor cores accumulate.
    """

    name = "matmul"
    saves = "a if db, b if da"

    def forward(self, context: Context, a: Any, b: Any) -> Any:
        context.save(*([b] if context.needs[0] else []), *([a] if context.needs[1] else []))
        context.note = b.strides[-2] == b.itemsize != b.strides[-1]  # is b laid out as a transpose?
        if a.dtype == np.float16:
            return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
        return np.matmul(a, b)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        shape_a, shape_b = context.input_shapes
        grad_a = grad_b = None
        if context.needs[0]:
            grad_a = unbroadcast(_product(grad, context.saved[0].transpose(-2, -1)), shape_a)
        if context.needs[1]:
            grad_b = unbroadcast(_grad_of_right(context.saved[-1], grad, context.note), shape_b)
        return grad_a, grad_b


def _grad_of_right(a: Tensor, grad: Tensor, is_transposed: bool) -> Tensor:
    """dB = A^T dC, laid out as B is: for B = W^T (a Linear) as (dC^T A)^T, so that dW comes out row-major."""
    if is_transposed:
        return _product(grad.transpose(-2, -1), a).transpose(-2, -1)
    return _product(a.transpose(-2, -1), grad)


def _product(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = apply(Matmul(), a, b)
    return result


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a[-1] == b[-2]


def _mismatch(a: tuple[int, ...], b: tuple[int, ...]) -> InvalidInputError:
    """The error with the nearest product that would work, if there is one."""
    given = f"a is {a} and b is {b}, so {a[-1]} != {b[-2]}"
    a_t, b_t = (*a[:-2], a[-1], a[-2]), (*b[:-2], b[-1], b[-2])
    name = ".T" if len(a) == len(b) == 2 else ".transpose(-2, -1)"
    nearest = [text for text, left, right in (
        (f"a @ b{name}", a, b_t), (f"a{name} @ b", a_t, b), ("b @ a", b, a), (f"a{name} @ b{name}", a_t, b_t),
    ) if _fits(left, right)]
    hint = f"Did you mean {nearest[0]}?" if nearest else "No transpose of them fits: check where each was made."
    return InvalidInputError("matmul needs inner sizes to agree", given=given, next_step=hint)


def _checked(a: Tensor, b: Tensor) -> None:
    if not _fits(a.shape, b.shape):
        raise _mismatch(a.shape, b.shape)
    try:
        if a.shape[:-2] != b.shape[:-2]:
            np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise InvalidInputError(
            "matmul needs batch axes that broadcast (equal or 1, from the right)",
            given=f"a is {a.shape} and b is {b.shape}",
            next_step="The last two axes are the matrices; reshape the axes before them.") from None
    if a.dtype != b.dtype:
        raise InvalidInputError("matmul needs one dtype", given=f"a is {a.dtype} and b is {b.dtype}",
                                next_step=f'Did you mean a.to("{b.dtype}") @ b?')


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product ``c[..., i, j] = sum over l of a[..., i, l] * b[..., l, j]``.

    Args:
        a: (..., m, k), or (k,).
        b: (..., k, n), or (k,). Axes before the last two broadcast.

    Returns:
        (..., m, n); an operand of one axis adds none. A batch of rows times one matrix is run as one
        (rows, k) @ (k, n) product, as torch does.

    Raises:
        InvalidInputError: inner sizes differ (with the nearest product that fits), batch axes or dtypes differ.

    >>> from course_lib.tensor import Tensor
    >>> Tensor([[1.0, 2.0]]) @ Tensor([[3.0], [4.0]])
    Tensor([[11.]], dtype=fp32)
    """
    if a.ndim == 0 or b.ndim == 0:
        raise InvalidInputError("matmul needs at least one axis on each side",
                                given=f"a is {a.shape} and b is {b.shape}", next_step="Use * to scale by a number.")
    if a.ndim == 1:
        product = matmul(a.reshape(1, a.size), b)  # (..., 1, n), or (1,) where b is a vector
        return product.reshape(*(product.shape[:-1] if b.ndim == 1 else (*product.shape[:-2], product.shape[-1])))
    if b.ndim == 1:
        product = matmul(a, b.reshape(b.size, 1))
        return product.reshape(*product.shape[:-1])
    _checked(a, b)
    if a.ndim > 2 and b.ndim == 2:
        rows = _product(a.reshape(_rows(a), a.shape[-1]), b)
        return rows.reshape(*a.shape[:-1], b.shape[-1])
    return _product(a, b)


def _rows(a: Tensor) -> int:
    count = 1
    for size in a.shape[:-1]:
        count *= size
    return count
