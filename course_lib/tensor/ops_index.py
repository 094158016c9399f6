"""Reading by index, and its backward: adding into the places that were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["embedding", "gather"]


class Embedding(Op):
    """b = weight[indices]; rows of db are added to the rows of dweight that were read (scatter-add)."""

    name = "embedding"
    saves = "indices"

    def forward(self, context: Context, weight: Any, indices: Any) -> Any:
        context.save(indices)
        return weight[indices]

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return run_kernel("embedding_backward", self.gradient, grad, context.saved[0],
                          num_rows=context.input_shapes[0][0]), None

    @staticmethod
    def gradient(grad: Any, indices: Any, *, num_rows: int) -> Any:
        full = np.zeros((num_rows, *grad.shape[indices.ndim:]), dtype=grad.dtype)
        np.add.at(full, indices, grad)
        return full


class Gather(Op):
    """b[.., i, ..] = a[.., indices[.., i, ..], ..] along axis; db is added where it was read."""

    name = "gather"
    saves = "indices"

    def forward(self, context: Context, a: Any, indices: Any, *, axis: int) -> Any:
        context.save(indices)
        return np.take_along_axis(a, indices, axis=axis)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return run_kernel("gather_backward", self.gradient, grad, context.saved[0],
                          axis=context.attributes["axis"], shape=context.input_shapes[0]), None

    @staticmethod
    def gradient(grad: Any, indices: Any, *, axis: int, shape: tuple[int, ...]) -> Any:
        full = np.zeros(shape, dtype=grad.dtype)
        places = list(np.indices(indices.shape, sparse=True))
        places[axis] = indices
        np.add.at(full, tuple(places), grad)
        return full


def _checked_indices(indices: Tensor, size: int, what: str) -> None:
    if indices.data.dtype.kind not in "iu":
        raise InvalidInputError(f"{what} needs integer indices", given=indices.dtype, next_step='Use .to("int64").')
    if indices.size and not (indices.data.min() >= 0 and indices.data.max() < size):
        raise InvalidInputError(f"{what} needs indices below {size}", allowed=f"0..{size - 1}",
                                given=f"{indices.data.min()}..{indices.data.max()}")


def embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Rows of a table: ``weight[indices]``, (V, D) and (B, T) to (B, T, D)."""
    _checked_indices(indices, weight.shape[0], "embedding")
    result: Tensor = apply(Embedding(), weight, indices)
    return result


def gather(a: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Elements along an axis by index; indices have a's other sizes."""
    if indices.ndim != a.ndim or not -a.ndim <= axis < a.ndim:
        raise InvalidInputError("gather needs indices with as many axes as the tensor, and one of them",
                                given=f"shape {a.shape}, indices {indices.shape}, axis {axis}")
    axis %= a.ndim
    if any(have != want for i, (have, want) in enumerate(zip(indices.shape, a.shape)) if i != axis):
        raise InvalidInputError(f"gather needs equal sizes apart from axis {axis}",
                                given=f"shape {a.shape}, indices {indices.shape}")
    _checked_indices(indices, a.shape[axis], "gather")
    result: Tensor = apply(Gather(), a, indices, axis=axis)
    return result
