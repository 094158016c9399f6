"""record(): an observer of our own tensors' operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from course_lib.tensor.dispatch import OpCall, TensorMeta, observe
from course_lib.trace.builder import TraceBuilder
from course_lib.trace.events import TensorRef
from course_lib.trace.operation import Rule
from course_lib.trace.rules import cost, cost_rules
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
        self._rules = rules
        self._numbers: dict[int, int] = {}

    def _number(self, meta: TensorMeta, *, made_here: bool) -> int:
        """Number of a storage within this trace, in order of first appearance."""
        number = self._numbers.get(meta.storage_id)
        if number is None:
            kind = "parameter" if meta.is_parameter else "intermediate" if made_here else "input"
            number = self._numbers[meta.storage_id] = self._builder.add_storage(meta.storage_nbytes, kind)
        return number

    def _refs(self, metas: tuple[TensorMeta, ...], *, made_here: bool) -> tuple[TensorRef, ...]:
        return tuple([
            TensorRef(self._number(meta, made_here=made_here), meta.shape, meta.strides, meta.dtype) for meta in metas
        ])  # fmt: skip

    def on_call(self, call: OpCall) -> None:
        """Append one event."""
        inputs = self._refs(call.inputs, made_here=False)
        outputs = self._refs(call.outputs, made_here=True)
        is_view = call.op in _VIEWS and bool(inputs) and outputs[0].storage_id == inputs[0].storage_id
        saved = tuple([self._number(meta, made_here=True) for meta in call.saved])
        self._builder.add_event(
            call.op, call.phase, call.module, inputs, outputs,
            cost(call.op, inputs, outputs, call.attributes, rules=self._rules, is_view=is_view),
            saved, sum([meta.nbytes for meta in call.saved]),
        )  # fmt: skip


_VIEWS = frozenset({"reshape", "transpose", "expand", "slice"})


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
