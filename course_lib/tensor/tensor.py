"""The tensor: numpy-backed values with a layout, a dtype, a storage identity and a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.tensor import autograd, ops_activation, ops_elementwise, ops_matmul, ops_reduce, ops_shape
from course_lib.tensor.dispatch import Node, TensorMeta, grad_mode
from course_lib.tensor.dtypes import dtype as dtype_record
from course_lib.tensor.dtypes import dtype_of_array, round_to_bf16

__all__ = ["Tensor", "no_grad"]

_STORAGE_IDS = itertools.count(1)  # never reused, unlike id(): a trace can tell two lives of the same address


@contextmanager
def no_grad() -> Iterator[None]:
    """Run a block without building a graph: nothing is saved for backward.

    >>> with no_grad():
    ...     y = Tensor([1.0], requires_grad=True) * 2
    >>> y.requires_grad
    False
    """
    with grad_mode(False):
        yield


def _array_of(values: Any, dtype: str | None) -> tuple[Any, str]:
    """The array and dtype name of anything array-like; Python floats become fp32, as in torch."""
    array = np.asarray(values)
    if dtype is None and array.dtype == np.float64 and not isinstance(values, np.ndarray | np.generic):
        dtype = "fp32"
    if dtype is None:
        return array, dtype_of_array(array.dtype)
    record = dtype_record(dtype)
    if not record.computes:
        raise UnsupportedError(f"no operation computes in {dtype}: it is a format of stored weights. "
                               "Quantize instead, or hold the rounded values in bf16 or fp32.")
    array = array.astype(record.storage, copy=False)
    return (round_to_bf16(array) if dtype == "bf16" else array), dtype


class Tensor:
    """An array with a layout, a dtype, a storage identity and a gradient.

    Args:
        values: numbers, nested lists or a numpy array. An array is not copied, so its layout is kept.
        dtype: a computing dtype name; by default that of the array, fp32 for Python floats.
        requires_grad: whether `backward` should leave a gradient here. Only floats have one.

    Raises:
        InvalidInputError: a gradient for integers; UnsupportedError: a weight format such as int4.

    Assumes:
        bf16 is held as float32 values that are rounded after each operation, and counted as 2 bytes.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([[2., 4.],
            [6., 8.]], dtype=fp32)
    """

    __slots__ = ("_meta", "_retains_grad", "data", "dtype", "grad", "is_parameter", "node", "requires_grad",
                 "storage_id", "storage_nbytes")
    __array_ufunc__ = None  # numpy_array * tensor comes to our __rmul__

    def __init__(self, values: Any, *, dtype: str | None = None, requires_grad: bool = False) -> None:
        if isinstance(values, Tensor):
            raise InvalidInputError("Tensor(...) takes numbers or an array", given="a Tensor",
                                    next_step="Use t.detach() for a view without a graph, t.copy() for a copy.")
        data, name = _array_of(values, dtype)
        self._fill(data, name)
        if requires_grad and dtype_record(name).kind != "float":
            raise InvalidInputError("only floating point tensors have gradients", given=name,
                                    allowed="fp64, fp32, bf16, fp16")
        self.requires_grad = requires_grad

    def _fill(self, data: Any, name: str) -> None:
        self.data, self.dtype = data, name
        self.grad: Tensor | None = None
        self.node: Node | None = None
        self.requires_grad = False
        self.is_parameter = False
        self.storage_id = next(_STORAGE_IDS)
        self.storage_nbytes = data.nbytes // 2 if name == "bf16" else data.nbytes
        self._meta: TensorMeta | None = None
        self._retains_grad = False

    # What dispatch needs.

    def wrap(self, array: Any, dtype: str | None = None) -> Tensor:
        """A tensor of new memory around an array."""
        tensor = object.__new__(Tensor)
        tensor._fill(array, dtype or dtype_of_array(array.dtype))
        return tensor

    def wrap_result(self, result: Any, inputs: tuple[Tensor, ...], is_view: bool,
                    dtype: str | None = None) -> Tensor:
        """The output tensor of an operation on these inputs: dtype settled, storage shared by a view."""
        array = np.asarray(result)
        if dtype is None and array.dtype == np.float32 and "bf16" in [x.dtype for x in inputs]:
            others = [x.dtype for x in inputs if x.dtype in ("fp32", "fp16", "fp64")]
            dtype = None if others else "bf16"
        if dtype == "bf16" and not is_view:
            array = round_to_bf16(array)
        tensor = self.wrap(array, dtype)
        if is_view and np.may_share_memory(array, self.data):
            self._share_storage(tensor)
        return tensor

    def _share_storage(self, view: Tensor) -> None:
        view.storage_id, view.storage_nbytes = self.storage_id, self.storage_nbytes
        view.is_parameter = self.is_parameter

    # What it is.

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        shape: tuple[int, ...] = self.data.shape
        return shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between neighbours along each axis, in elements."""
        itemsize = self.data.itemsize
        return tuple([step // itemsize for step in self.data.strides])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return int(self.data.ndim)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.data.size)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements: ``size * dtype_bytes(dtype)``."""
        return int(self.data.nbytes) // 2 if self.dtype == "bf16" else int(self.data.nbytes)

    @property
    def is_leaf(self) -> bool:
        """Whether no operation of the graph made it."""
        return self.node is None

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return bool(self.data.flags.c_contiguous)

    @property
    def meta(self) -> TensorMeta:
        """What an observer learns of it."""
        if self._meta is None:
            self._meta = TensorMeta(
                storage_id=self.storage_id, shape=self.data.shape, strides=self.strides, dtype=self.dtype,
                nbytes=self.nbytes, is_parameter=self.is_parameter, storage_nbytes=self.storage_nbytes)
        return self._meta

    def numpy(self) -> Any:
        """The numpy array, shared and not copied."""
        return self.data

    def item(self) -> float:
        """The one number of a tensor of one element."""
        if self.size != 1:
            raise InvalidInputError("item() needs one element", given=f"shape {self.shape}",
                                    next_step="Reduce first, for example with .sum() or .mean().")
        return float(self.data.reshape(()))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a tensor with no axes has no length")
        return int(self.data.shape[0])

    def __bool__(self) -> bool:
        return bool(self.data)

    def __repr__(self) -> str:
        text = np.array2string(self.data, separator=", ", prefix="Tensor(")
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({text}, dtype={self.dtype}{grad})"

    # The graph.

    def backward(self, grad: Tensor | Any | None = None, *, retain_graph: bool = False) -> None:
        """Leave d(self)/d(leaf), times `grad`, in every leaf's `.grad`, added to what is there.

        Args:
            grad: gradient of this tensor; may be left out where it has one element.
            retain_graph: keep the saved tensors for another backward.

        Raises:
            InvalidInputError: no graph, a graph already used, a missing or misshapen `grad`.
        """
        autograd.backward(self, grad, retain_graph=retain_graph)

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this intermediate tensor in `.grad` too; returns itself."""
        self._retains_grad = True
        return self

    def detach(self) -> Tensor:
        """The same memory, without a graph."""
        tensor = self.wrap(self.data, self.dtype)
        self._share_storage(tensor)
        return tensor

    def copy(self) -> Tensor:
        """New memory with the same values and layout, without a graph and outside of any trace."""
        return self.wrap(np.copy(self.data, order="K"), self.dtype)

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.grad = None

    def as_operand(self, other: Any) -> Tensor:
        """Anything array-like as a tensor, Python numbers in this tensor's dtype."""
        if isinstance(other, Tensor):
            return other
        is_number = isinstance(other, int | float)
        return Tensor(other, dtype=self.dtype if is_number else None)

    # Operators.

    def __add__(self, other: Any) -> Tensor:
        return ops_elementwise.add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return ops_elementwise.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return ops_elementwise.add(-self, other)

    def __mul__(self, other: Any) -> Tensor:
        return ops_elementwise.mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        return ops_elementwise.div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return ops_elementwise.mul(self ** -1.0, other)

    def __pow__(self, exponent: float) -> Tensor:
        return ops_elementwise.power(self, exponent)

    def __neg__(self) -> Tensor:
        return ops_elementwise.neg(self)

    def __matmul__(self, other: Any) -> Tensor:
        return ops_matmul.matmul(self, self.as_operand(other))

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops_matmul.matmul(self.as_operand(other), self)

    def __getitem__(self, index: Any) -> Tensor:
        return ops_shape.item_at(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[position] for position in range(len(self)))

    # Elementwise.

    def exp(self) -> Tensor:
        """e to each element."""
        return ops_elementwise.exp(self)

    def log(self) -> Tensor:
        """Natural logarithm of each element."""
        return ops_elementwise.log(self)

    def sqrt(self) -> Tensor:
        """Square root of each element."""
        return ops_elementwise.sqrt(self)

    def tanh(self) -> Tensor:
        """Hyperbolic tangent of each element."""
        return ops_activation.tanh(self)

    def relu(self) -> Tensor:
        """max(a, 0) of each element."""
        return ops_activation.relu(self)

    def masked_fill(self, mask: Tensor, value: float) -> Tensor:
        """`value` where mask, else the element."""
        return ops_elementwise.masked_fill(self, mask, value)

    def to(self, dtype: str) -> Tensor:
        """The values in another dtype; itself if it has it."""
        return ops_elementwise.cast(self, dtype)

    # Reductions.

    def sum(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Sum over the axes, all of them by default."""
        return ops_reduce.sum_over(self, axis, keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Mean over the axes, all of them by default."""
        return ops_reduce.mean_over(self, axis, keepdims=keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Maximum over the axes; its gradient is shared evenly by equal maxima."""
        return ops_reduce.max_over(self, axis, keepdims=keepdims)

    # Shapes.

    def reshape(self, *shape: int) -> Tensor:
        """The same elements in another shape (one size may be -1): a view where the layout allows it."""
        return ops_shape.reshape(self, shape)

    def permute(self, *axes: int) -> Tensor:
        """Axes in another order: a view."""
        return ops_shape.permute(self, axes)

    def transpose(self, first: int, second: int) -> Tensor:
        """Two axes exchanged: a view."""
        return ops_shape.transpose(self, first, second)

    @property
    def T(self) -> Tensor:
        """The transpose of a matrix: a view."""
        if self.ndim != 2:
            raise InvalidInputError("T needs two axes", given=f"shape {self.shape}",
                                    next_step="Use .transpose(-2, -1) or .permute(...).")
        return ops_shape.transpose(self, 0, 1)

    def expand(self, *shape: int) -> Tensor:
        """Sizes of 1 repeated without copying (stride 0): a view."""
        return ops_shape.expand(self, shape)

    def contiguous(self) -> Tensor:
        """A row-major copy; itself if it is row-major already."""
        return ops_shape.contiguous(self)
