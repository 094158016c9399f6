"""The one place where an operation happens.

Every operation of this library, forward, backward or update, is one call of `apply`. Whoever wants to know
what happened, to count, to draw or to replay it, is an `Observer` and gets one `OpCall` for each. This room
knows none of its observers. The names of all operations and the attributes each carries: `OPS` in
`course_lib.tensor.op_table`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["Context", "Kernel", "Node", "Observer", "Op", "OpCall", "Phase", "TensorMeta", "apply", "current_module",
           "current_phase", "grad_mode", "inside_module", "observe", "phase", "run_kernel"]

Phase = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta:
    """What an observer learns of a tensor: everything but its values.

    Args:
        storage_id: identity of the memory; a view has its base's. Never reused within a process.
        shape: sizes.
        strides: steps in elements (not bytes); 0 along an expanded axis.
        dtype: a name of `course_lib.tensor.dtypes`.
        nbytes: ``prod(shape) * dtype_bytes``, elements of an expanded axis counted as often as they appear.
        is_parameter: whether the memory belongs to a `Parameter` (views of one included).
        storage_nbytes: bytes of the whole memory, of which a view may show a part.
    """

    storage_id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    nbytes: int
    is_parameter: bool
    storage_nbytes: int

    @property
    def num_elements(self) -> int:
        """Product of the shape."""
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """One executed operation.

    Args:
        op: name, a key of `course_lib.tensor.op_table.OPS`; backward kernels end in "_backward".
        phase: "forward", "backward" or "update".
        module: dotted path of the module that ran it, "" outside of any. A backward operation carries the
            path of the forward operation that it differentiates.
        inputs: operands in the order of the table.
        outputs: results. An output whose storage_id is that of its input is a view: no bytes moved.
        attributes: plain values (numbers, strings, tuples, None), as listed in the table.
        saved: what was kept for the backward pass; empty where no gradient is needed.
    """

    op: str
    phase: Phase
    module: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    attributes: Mapping[str, Any]
    saved: tuple[TensorMeta, ...]


class Observer(Protocol):
    """Anything that wants to see each executed operation."""

    def on_call(self, call: OpCall) -> None:
        """Take notice of one executed operation."""


_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_PHASE: ContextVar[Phase] = ContextVar("phase", default="forward")
_MODULE: ContextVar[str] = ContextVar("module", default="")
_GRAD_ENABLED: ContextVar[bool] = ContextVar("grad_enabled", default=True)
_SEQUENCE = itertools.count()  # creation order of graph nodes: an input's node is always older than its user's


@contextmanager
def observe(observer: Observer) -> Iterator[Observer]:
    """Let an observer see every operation inside the block; nested observers all see each call.

    The observer is removed at the end of the block, by an exception too.

    >>> from course_lib.tensor import Tensor
    >>> class Names(list):
    ...     def on_call(self, call):
    ...         self.append(call.op)
    >>> with observe(Names()) as names:
    ...     _ = Tensor([1.0, 2.0]) * Tensor([3.0, 4.0])
    >>> names
    ['mul']
    """
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield observer
    finally:
        _OBSERVERS.reset(token)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Mark the operations of a block as "forward", "backward" or "update"."""
    token = _PHASE.set(name)
    try:
        yield
    finally:
        _PHASE.reset(token)


@contextmanager
def inside_module(path: str) -> Iterator[None]:
    """Mark the operations of a block as those of the module with this dotted path."""
    token = _MODULE.set(path)
    try:
        yield
    finally:
        _MODULE.reset(token)


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Build a graph for backward inside the block, or not."""
    token = _GRAD_ENABLED.set(enabled)
    try:
        yield
    finally:
        _GRAD_ENABLED.reset(token)


def current_phase() -> Phase:
    """The phase that an operation executed now would carry."""
    return _PHASE.get()


def current_module() -> str:
    """The dotted path of the module that runs now, "" outside of any."""
    return _MODULE.get()


class Context:
    """What one operation keeps between its forward and its backward.

    Args:
        needs: for each input, whether its gradient is needed.
        inputs: the operands.
        attributes: the operation's attributes.
    """

    __slots__ = ("_arrays", "attributes", "input_shapes", "needs", "note", "saved")

    def __init__(self, needs: tuple[bool, ...], inputs: tuple[Tensor, ...], attributes: dict[str, Any]) -> None:
        self.needs = needs
        self.input_shapes = tuple([operand.data.shape for operand in inputs])
        self.attributes = attributes
        self.note: Any = None  # a plain fact that forward leaves for backward
        self.saved: tuple[Tensor, ...] = ()
        self._arrays: tuple[Any, ...] = ()

    def save(self, *arrays: Any) -> None:
        """Keep arrays for backward: an input, the output, or an intermediate result (new memory)."""
        self._arrays = arrays

    def resolve(self, inputs: tuple[Tensor, ...], output: Tensor, result: Any) -> None:
        """Turn the kept arrays into tensors: the input or output they are, else new memory."""
        self.saved = tuple([_owner(array, inputs, output, result) for array in self._arrays])
        self._arrays = ()


def _owner(array: Any, inputs: tuple[Tensor, ...], output: Tensor, result: Any) -> Tensor:
    for operand in inputs:
        if operand.data is array:
            return operand
    if array is result:
        return output.detach()  # not the output itself: it owns the node that owns this context
    return output.wrap(np.asarray(array))


class Op:
    """An operation: forward on arrays, backward on tensors, side by side.

    A subclass sets `name`, says in `saves` what it keeps for backward, and defines `forward` and `backward`.
    `backward` returns one gradient per input, None where `context.needs` says that none is needed, and does
    its own work through `apply`, so that observers see it.
    """

    name: str = ""
    saves: str = "nothing"
    is_view: bool = False
    follows_first_dtype: bool = False  # else the dtype is that of the operands together
    unrecorded: tuple[str, ...] = ()  # attributes that are tools and not facts, such as a random generator

    def forward(self, context: Context, *arrays: Any, **attributes: Any) -> Any:
        """The result, a numpy array (a tuple of them for backward kernels)."""
        raise NotImplementedError

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs, given the gradient of the output."""
        raise NotImplementedError(f"{self.name} has no backward")


class Kernel(Op):
    """An operation of the backward pass: one formula on arrays, not differentiable again."""

    follows_first_dtype = True  # a gradient has the dtype of its output's, fp32 statistics notwithstanding

    def __init__(self, name: str, formula: Callable[..., Any]) -> None:
        self.name, self._formula = name, formula

    def forward(self, context: Context, *arrays: Any, **attributes: Any) -> Any:
        """The formula's result."""
        return self._formula(*arrays, **attributes)


class Node:
    """One step of the graph: which operation made a tensor, from what, and where."""

    __slots__ = ("context", "inputs", "is_freed", "module", "op", "sequence")

    def __init__(self, op: Op, context: Context, inputs: tuple[Tensor, ...], module: str) -> None:
        self.op, self.context, self.inputs, self.module = op, context, inputs, module
        self.sequence = next(_SEQUENCE)
        self.is_freed = False

    def free(self) -> None:
        """Let go of the saved tensors."""
        self.context.saved = ()
        self.is_freed = True


def run_kernel(name: str, formula: Callable[..., Any], *inputs: Tensor, **attributes: Any) -> Any:
    """Execute a backward formula on arrays as one operation with its own name."""
    return apply(Kernel(name, formula), *inputs, **attributes)


def apply(op: Op, *inputs: Tensor, **attributes: Any) -> Any:
    """Execute one operation: run it, wrap the result, keep what backward needs, tell the observers.

    Args:
        op: what to do.
        inputs: tensors, at least one.
        attributes: plain values that the operation needs.

    Returns:
        A tensor, or a tuple of them for backward kernels with several results.
    """
    needs: tuple[bool, ...] = ()
    if _GRAD_ENABLED.get():
        needs = tuple([operand.requires_grad for operand in inputs])
    tracked = True in needs
    context = Context(needs if tracked else (False,) * len(inputs), inputs, attributes)
    with np.errstate(all="ignore"):  # inf and nan are values here, as in torch; no warnings
        result = op.forward(context, *[operand.data for operand in inputs], **attributes)
    if type(result) is tuple:
        outputs = tuple([inputs[0].wrap_result(array, inputs, False, inputs[0].dtype) for array in result])
        returned: Any = outputs
    else:
        dtype = inputs[0].dtype if op.follows_first_dtype else attributes.get("dtype")
        returned = inputs[0].wrap_result(result, inputs, op.is_view, dtype)
        outputs = (returned,)
        if tracked:
            context.resolve(inputs, returned, result)
            returned.requires_grad = True
            returned.node = Node(op, context, inputs, _MODULE.get())
    observers = _OBSERVERS.get()
    if observers:
        _tell(observers, op, inputs, outputs, context)
    return returned


def _tell(observers: tuple[Observer, ...], op: Op, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...],
          context: Context) -> None:
    attributes = context.attributes
    if op.unrecorded:
        attributes = {name: value for name, value in attributes.items() if name not in op.unrecorded}
    call = OpCall(
        op=op.name, phase=_PHASE.get(), module=_MODULE.get(),
        inputs=tuple([operand.meta for operand in inputs]),
        outputs=tuple([output.meta for output in outputs]),
        attributes=attributes, saved=tuple([kept.meta for kept in context.saved]))
    for observer in observers:
        observer.on_call(call)
