"""Reductions and their inverse, broadcasting: the gradient of a repeat is a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["max_over", "mean_over", "normalized_axes", "sum_over", "unbroadcast"]


def normalized_axes(axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative integers; None is all of them.

    >>> normalized_axes(-1, 3), normalized_axes(None, 2)
    ((2,), (0, 1))
    """
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if not -ndim <= one < ndim:
            raise InvalidInputError(f"a tensor of {ndim} axes has no axis {one}", allowed=f"{-ndim}..{ndim - 1}",
                                    given=one)
    result = tuple(sorted(one % ndim for one in axes))
    if len(set(result)) < len(result):
        raise InvalidInputError("each axis may be named once", given=axis)
    return result


def _kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if position in axes else size for position, size in enumerate(shape))


def _spread(grad: Tensor, context: Context) -> Tensor:
    """A reduced gradient repeated over the reduced axes: two views, no bytes."""
    shape = context.input_shapes[0]
    return grad.reshape(*_kept_shape(shape, context.attributes["axes"])).expand(*shape)


class Sum(Op):
    """b = sum of a over axes, so da = db repeated over them."""

    name = "sum"

    def forward(self, context: Context, a: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        return a.sum(axis=axes, keepdims=keepdims, dtype=a.dtype if a.dtype.kind == "f" else None)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (_spread(grad, context),)


class Mean(Op):
    """b = mean of a over axes, so da = db / count repeated over them."""

    name = "mean"

    def forward(self, context: Context, a: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        return a.sum(axis=axes, keepdims=keepdims) / a.dtype.type(_count(a.shape, axes))

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        count = _count(context.input_shapes[0], context.attributes["axes"])
        return (_spread(grad * (1 / count if count else 0.0), context),)


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


class Max(Op):
    """b = max of a over axes, so da = db shared evenly by the maxima (torch's amax)."""

    name = "max"
    saves = "a, output"

    def forward(self, context: Context, a: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        out = a.max(axis=axes, keepdims=keepdims)
        context.save(a, out)
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("max_backward", self.gradient, grad, *context.saved, **context.attributes),)

    @staticmethod
    def gradient(grad: Any, a: Any, out: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        kept = _kept_shape(a.shape, axes)
        is_max = a == out.reshape(kept)
        return is_max * (grad.reshape(kept) / is_max.sum(axis=axes, keepdims=True).astype(a.dtype))


def sum_over(a: Tensor, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
    """Sum over axes, all of them by default."""
    result: Tensor = apply(Sum(), a, axes=normalized_axes(axis, a.ndim), keepdims=keepdims)
    return result


def mean_over(a: Tensor, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
    """Mean over axes, all of them by default."""
    if a.data.dtype.kind != "f":
        raise InvalidInputError("a mean needs floating point values", given=a.dtype, next_step='Use .to("fp32").')
    result: Tensor = apply(Mean(), a, axes=normalized_axes(axis, a.ndim), keepdims=keepdims)
    return result


def max_over(a: Tensor, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
    """Maximum over axes, all of them by default."""
    axes = normalized_axes(axis, a.ndim)
    if axes and _count(a.shape, axes) == 0:
        raise InvalidInputError("a maximum needs at least one element", given=f"shape {a.shape}, axes {axes}")
    result: Tensor = apply(Max(), a, axes=axes, keepdims=keepdims)
    return result


def unbroadcast(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The inverse of broadcasting: sum a gradient over the axes along which its operand was repeated.

    Args:
        grad: gradient in the broadcast shape.
        shape: the operand's own shape.

    Returns:
        The gradient in that shape; `grad` itself if nothing was repeated.

    >>> from course_lib.tensor import Tensor
    >>> unbroadcast(Tensor([[1.0, 2.0], [3.0, 4.0]]), (2,))
    Tensor([4., 6.], dtype=fp32)
    """
    if grad.shape == shape:
        return grad
    lead = grad.ndim - len(shape)
    own = (1,) * lead + shape
    axes = tuple(axis for axis, (size, wanted) in enumerate(zip(grad.shape, own)) if size != wanted)
    if axes:
        grad = sum_over(grad, axes, keepdims=True)
    return grad if grad.shape == shape else grad.reshape(*shape)
