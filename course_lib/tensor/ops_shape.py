"""Shapes and layouts: views that move no bytes, and the copies that do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel
from course_lib.tensor.ops_index import embedding
from course_lib.tensor.ops_reduce import normalized_axes, unbroadcast

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["concat", "contiguous", "expand", "item_at", "permute", "reshape", "row_major_copy", "transpose"]


class Reshape(Op):
    """The same elements in another shape: a view, or a copy where the layout does not allow one."""

    name = "reshape"
    is_view = True

    def forward(self, context: Context, a: Any, *, shape: tuple[int, ...]) -> Any:
        return a.reshape(shape)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad.reshape(*context.input_shapes[0]),)


class Transpose(Op):
    """Axes permuted: a view. The gradient is permuted back."""

    name = "transpose"
    is_view = True

    def forward(self, context: Context, a: Any, *, axes: tuple[int, ...]) -> Any:
        return a.transpose(axes)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        axes = context.attributes["axes"]
        return (permute(grad, tuple(axes.index(position) for position in range(len(axes)))),)


class Expand(Op):
    """Sizes of 1 repeated with stride 0: a view. The gradient is summed over the repeats."""

    name = "expand"
    is_view = True

    def forward(self, context: Context, a: Any, *, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(a, shape)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (unbroadcast(grad, context.input_shapes[0]),)


def _numpy_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(slice(*entry) if isinstance(entry, tuple) else entry for entry in index)


class Slice(Op):
    """A part of the elements: a view. The gradient lies in zeros of the full shape."""

    name = "slice"
    is_view = True

    def forward(self, context: Context, a: Any, *, index: tuple[Any, ...]) -> Any:
        return a[(*_numpy_index(index), ...)]  # the ellipsis keeps a single element a view

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (run_kernel("slice_backward", self.gradient, grad, shape=context.input_shapes[0],
                           index=context.attributes["index"]),)

    @staticmethod
    def gradient(grad: Any, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
        full = np.zeros(shape, dtype=grad.dtype)
        full[_numpy_index(index)] = grad
        return full


class Contiguous(Op):
    """A row-major copy."""

    name = "contiguous"

    def forward(self, context: Context, a: Any) -> Any:
        return a.copy(order="C")

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad,)


class Concat(Op):
    """Operands joined along an axis. The gradient is cut where they met: views."""

    name = "concat"

    def forward(self, context: Context, *arrays: Any, axis: int) -> Any:
        return np.concatenate(arrays, axis=axis)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        axis, gradients, start = context.attributes["axis"], [], 0
        for shape, needed in zip(context.input_shapes, context.needs):
            stop = start + shape[axis]
            index = (slice(None),) * axis + (slice(start, stop),)
            gradients.append(item_at(grad, index) if needed else None)
            start = stop
        return tuple(gradients)


def _one(op: Op, a: Tensor, **attributes: Any) -> Tensor:
    result: Tensor = apply(op, a, **attributes)
    return result


def _flat(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """(2, 3) from either f(2, 3) or f((2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = tuple(sizes[0])
    return tuple(int(size) for size in sizes)


def reshape(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    wanted = _flat(shape)
    known = 1
    for size in wanted:
        known *= 1 if size == -1 else size
    if wanted.count(-1) == 1 and known and a.size % known == 0:
        wanted = tuple(a.size // known if size == -1 else size for size in wanted)
        known = a.size
    if known != a.size or any(size < 0 for size in wanted):
        raise InvalidInputError(f"reshape keeps the number of elements ({a.size})", given=f"{a.shape} to {wanted}",
                                next_step="Use -1 for one size to have it worked out.")
    return _one(Reshape(), a, shape=wanted)


def permute(a: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Axes in another order."""
    wanted = tuple(axis % a.ndim if a.ndim and -a.ndim <= axis < a.ndim else axis for axis in _flat(axes))
    if sorted(wanted) != list(range(a.ndim)):
        raise InvalidInputError(f"permute names each of the {a.ndim} axes once", given=_flat(axes))
    return _one(Transpose(), a, axes=wanted)


def transpose(a: Tensor, first: int, second: int) -> Tensor:
    """Two axes exchanged."""
    axes = list(range(a.ndim))
    (i,), (j,) = normalized_axes(first, a.ndim), normalized_axes(second, a.ndim)
    axes[i], axes[j] = j, i
    return _one(Transpose(), a, axes=tuple(axes))


def expand(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sizes of 1 repeated to the wanted shape; -1 keeps a size."""
    wanted = _flat(shape)
    own = (1,) * (len(wanted) - a.ndim) + a.shape
    wanted = tuple(have if size == -1 else size for have, size in zip(own, wanted))
    if len(own) != len(wanted) or any(have not in (1, size) for have, size in zip(own, wanted)):
        raise InvalidInputError("expand repeats sizes of 1 and adds axes on the left only",
                                given=f"{a.shape} to {wanted}")
    return _one(Expand(), a, shape=wanted)


def row_major_copy(a: Tensor) -> Tensor:
    """New memory, row-major, always."""
    return _one(Contiguous(), a)


def contiguous(a: Tensor) -> Tensor:
    """A row-major copy; a itself if it is row-major."""
    return a if a.is_contiguous else row_major_copy(a)


def concat(tensors: tuple[Tensor, ...] | list[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis; their other sizes agree."""
    if not tensors:
        raise InvalidInputError("concat needs at least one tensor", given="none")
    first = tensors[0]
    (position,) = normalized_axes(axis, first.ndim)
    for other in tensors[1:]:
        rest = [shape[:position] + shape[position + 1:] for shape in (first.shape, other.shape)]
        if other.ndim != first.ndim or rest[0] != rest[1] or other.dtype != first.dtype:
            raise InvalidInputError(
                f"concat along axis {position} needs equal other sizes and dtypes",
                given=f"{first.shape} {first.dtype} and {other.shape} {other.dtype}")
    result: Tensor = apply(Concat(), *tensors, axis=position)
    return result


def _entry(entry: Any, size: int, axis: int) -> int | tuple[int, int | None, int]:
    """One index entry in plain form: an integer, or (start, stop, step)."""
    if isinstance(entry, slice):
        start, stop, step = entry.indices(size)
        return start, (None if stop < 0 else stop), step
    position = int(entry)
    if not -size <= position < size:
        raise InvalidInputError(f"axis {axis} has {size} elements", allowed=f"{-size}..{size - 1}", given=position)
    return position % size


def item_at(a: Tensor, index: Any) -> Tensor:
    """a[index]: integers and slices give a view; an integer tensor picks rows (a copy)."""
    from course_lib.tensor.tensor import Tensor

    if isinstance(index, Tensor | np.ndarray | list):
        return embedding(a, index if isinstance(index, Tensor) else Tensor(np.asarray(index)))
    entries = index if isinstance(index, tuple) else (index,)
    if Ellipsis in entries:
        at = entries.index(Ellipsis)
        entries = entries[:at] + (slice(None),) * (a.ndim - len(entries) + 1) + entries[at + 1:]
    if len(entries) > a.ndim or not all(isinstance(entry, slice | int | np.integer) for entry in entries):
        raise InvalidInputError(f"an index of a tensor of shape {a.shape} has at most {a.ndim} integers or slices",
                                given=repr(index), next_step="Use gather(...) or embedding(...) to pick by tensors.")
    plain = tuple(_entry(entry, a.shape[axis], axis) for axis, entry in enumerate(entries))
    return _one(Slice(), a, index=plain)
