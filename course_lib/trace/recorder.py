"""record(): an observer of our own tensors' operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from course_lib.tensor.dispatch import OpCall, TensorMeta, observe
from course_lib.tensor.op_table import OPS
from course_lib.trace.builder import TraceBuilder
from course_lib.trace.events import StorageKind, TensorRef
from course_lib.trace.operation import Rule
from course_lib.trace.rules import CostBook, cost_rules
from course_lib.trace.trace import Trace

__all__ = ["Recorder", "record"]


class Recorder:
    """Turns each executed operation into an event of a trace.

    Args:
        trace: the trace to fill.
        rules: cost rules by operation name.
    """

    def __init__(self, trace: Trace, rules: Mapping[str, Rule]) -> None:
        self._builder = TraceBuilder(trace)
        self._costs = CostBook(rules)
        self._numbers: dict[int, int] = {}
        # A tensor keeps its TensorMeta, so the identity of the record finds the reference again; holding the record
        # keeps that identity from being used by another.
        self._known: dict[int, tuple[TensorMeta, TensorRef]] = {}

    def _ref(self, meta: TensorMeta, kind: StorageKind) -> TensorRef:
        known = self._known.get(id(meta))
        if known is not None:
            return known[1]
        number = self._numbers.get(meta.storage_id)
        if number is None:
            number = self._builder.add_storage(meta.storage_nbytes, "parameter" if meta.is_parameter else kind)
            self._numbers[meta.storage_id] = number
        ref = TensorRef(number, meta.shape, meta.strides, meta.dtype)
        self._known[id(meta)] = (meta, ref)
        return ref

    def on_call(self, call: OpCall) -> None:
        """Append one event."""
        inputs = tuple([self._ref(meta, "input") for meta in call.inputs])
        outputs = tuple([self._ref(meta, "intermediate") for meta in call.outputs])
        op = call.op
        is_view = op in _VIEWS and outputs[0].storage_id == inputs[0].storage_id
        saved: tuple[int, ...] = ()
        raw = 0
        if call.saved:
            saved = tuple([self._ref(meta, "intermediate").storage_id for meta in call.saved])
            raw = sum([meta.nbytes for meta in call.saved])
        known = self._costs.cost(op, inputs, outputs, call.attributes, is_view=is_view)
        self._builder.add_event(op, call.phase, call.module, inputs, outputs, known, saved, raw)


_VIEWS = frozenset(name for name, row in OPS.items() if row.is_view)


@contextmanager
def record(*, rules: Mapping[str, Rule] | None = None) -> Iterator[Trace]:
    """Record the operations of our tensors inside the block.

    The trace is usable inside the block and complete after it; an exception leaves what was recorded until then.

    Args:
        rules: cost rules of your own by operation name, added to :func:`~course_lib.trace.rules.cost_rules`.

    >>> from course_lib.tensor import Tensor
    >>> with record() as trace:
    ...     y = Tensor([[1.0, 2.0]]) @ Tensor([[3.0], [4.0]])
    >>> trace.flops, trace.bytes_moved, [event.op for event in trace.events]
    (4, 20, ['matmul'])
    """
    trace = Trace()
    with observe(Recorder(trace, {**cost_rules(), **(rules or {})})):
        yield trace
