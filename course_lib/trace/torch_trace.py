"""trace_torch(): the work of any torch module, counted from what its dispatcher really runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError, TraceATensorError, UnsupportedError
from course_lib.trace.operation import Rule
from course_lib.trace.rules import AttentionConvention, cost_rules
from course_lib.trace.trace import Trace

if TYPE_CHECKING:
    import torch

    from course_lib.trace.torch_mode import OperationMode

__all__ = ["trace_torch"]


def trace_torch(
    module: torch.nn.Module,
    *inputs: Any,
    backward: bool = True,
    attention_convention: AttentionConvention = "unfused",
    rules: Mapping[str, Rule] | None = None,
    **kwargs: Any,
) -> Trace:
    """Run a torch module once and count every operation it dispatches, forward and backward.

    The loss is ``output.loss`` where the output has one, else the sum of all outputs (its gradient, ones, is given
    to autograd directly, so the sum itself is not counted). Weights, gradients, buffers, hooks, mode and the random
    state are afterwards as they were.

    Args:
        module: any nn.Module on the CPU or the meta device.
        inputs: its arguments; dense tensors move to the meta device with a module that lives there.
        backward: also run the backward pass. If False, gradients are recorded or not as the caller's grad mode says.
        attention_convention: backward of fused attention as 4 products ("unfused", 2 x forward) or the 5 of a
            recomputing kernel ("flash", 2.5 x forward). With "flash" the meta device runs attention as one fused
            operation, too, so that no T x S matrix is saved; otherwise it runs the dense parts.
        rules: cost rules of your own by operation name ("mylib::op" outside of aten), added to ours.
        kwargs: keyword arguments of the module.

    Returns:
        A trace; ``trace.uncounted`` lists operations without a cost rule.

    Raises:
        InvalidInputError: no nn.Module given, or an unknown convention.
        UnsupportedError: the module cannot run here; the operation is named.

    Assumes:
        Operations go through torch's dispatcher: work done by NumPy or other libraries inside a module is invisible.
        Tensors that activation checkpointing keeps by its own hooks are not in ``saved_bytes``.

    >>> import torch
    >>> trace = trace_torch(torch.nn.Linear(64, 128), torch.zeros(32, 64))
    >>> trace.forward.matmul_flops, trace.backward.matmul_flops, trace.saved_bytes
    (524288, 524288, 8192)
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidInputError(
            "trace_torch takes a torch.nn.Module", given=type(module).__name__,
            next_step="For functions, wrap them in a Module's forward; for our tensors use record().",
        )  # fmt: skip
    table = {**cost_rules(attention_convention), **(rules or {})}
    module = getattr(module, "_orig_mod", module)  # a compiled module keeps its eager form here
    trace = Trace(attention_convention=attention_convention)
    with ExitStack() as stack:
        if backward:
            stack.enter_context(torch.enable_grad())
        stack.enter_context(_left_as_it_was(module))
        stack.enter_context(_collector_paused())
        _run(module, inputs, kwargs, backward, trace, table)
    return trace


def _run(
    module: torch.nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], backward: bool, trace: Trace,
    rules: Mapping[str, Rule],
) -> None:  # fmt: skip
    import torch

    from course_lib.trace.torch_mode import OperationMode, fused_attention_on_meta, module_paths

    inputs, kwargs = _private_inputs(module, inputs, kwargs)
    with module_paths(module) as path:
        mode = OperationMode(trace, rules, path)
        _list_state(mode, module, inputs, kwargs)
        try:
            with (
                fused_attention_on_meta(trace.attention_convention == "flash"),
                torch.autograd.graph.saved_tensors_hooks(mode.pack, mode.unpack),
                mode,
            ):
                output = module(*inputs, **kwargs)
            if backward:
                _backward(mode, output)
        except TraceATensorError:
            raise
        except Exception as error:
            raise UnsupportedError(_explain(module, mode, error)) from error
        finally:
            mode.release()
        mode.finish()


def _private_inputs(module: torch.nn.Module, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
    """The caller's tensors without the caller's graph; on the meta device if the module lives there.

    One tensor given twice stays one tensor: modules ask ``key is value``.
    """
    import torch
    from torch.utils._pytree import tree_map

    state = [*module.parameters(), *module.buffers()]
    to_meta = bool(state) and all(tensor.is_meta for tensor in state)
    seen: dict[int, torch.Tensor] = {}

    def private(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in seen:
            own = value.detach()
            seen[id(value)] = (own.to("meta") if to_meta else own).requires_grad_(value.requires_grad)
        return seen[id(value)]

    return tree_map(private, (inputs, kwargs))  # type: ignore[no-any-return]


def _list_state(mode: OperationMode, module: torch.nn.Module, inputs: Any, kwargs: Any) -> None:
    import torch
    from torch.utils._pytree import tree_leaves

    for parameter in module.parameters():
        mode.number(parameter, "parameter")
    for buffer in module.buffers():
        mode.number(buffer, "buffer")
    for value in tree_leaves((inputs, kwargs)):
        if isinstance(value, torch.Tensor):
            mode.number(value, "input")


def _backward(mode: OperationMode, output: Any) -> None:
    """Differentiate the loss with respect to every leaf of the graph, touching no ``.grad``."""
    import torch

    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    roots = [
        tensor for tensor in _tensors((loss,) if isinstance(loss, torch.Tensor) else output, set())
        if tensor.requires_grad
    ]  # fmt: skip
    leaves = _leaves(roots)
    if not leaves:
        return
    seeds = [torch.ones_like(root, memory_format=torch.contiguous_format) for root in roots]
    mode.phase = "backward"
    with mode:
        torch.autograd.grad(roots, leaves, seeds, allow_unused=True)


def _tensors(value: Any, seen: set[int]) -> list[torch.Tensor]:
    """Tensors of an output: nested tuples, mappings, dataclasses and plain objects."""
    import torch

    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        items: list[Any] = list(value.values())
    elif isinstance(value, list | tuple | set):
        items = list(value)
    elif is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, field.name) for field in fields(value)]
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        items = list(vars(value).values())
    else:
        return []
    return [tensor for item in items for tensor in _tensors(item, seen)]


def _leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    """Leaf tensors that the graph of the roots ends in, in order of first visit."""
    leaves: dict[int, torch.Tensor] = {id(root): root for root in roots if root.grad_fn is None}
    seen: set[Any] = set()
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and not node.next_functions:
            leaves[id(variable)] = variable
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    return list(leaves.values())


@contextmanager
def _left_as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """Put buffers and the random state back, whatever happens inside."""
    import torch

    buffers = [(owner, name, buffer, buffer.detach().clone()) for owner in module.modules()
               for name, buffer in owner._buffers.items() if buffer is not None]  # fmt: skip
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for owner, name, buffer, before in buffers:
                    owner._buffers[name] = buffer
                    buffer.copy_(before)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A trace makes many small records and no garbage cycles; collecting in between takes a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _explain(module: torch.nn.Module, mode: OperationMode, error: Exception) -> str:
    message = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if not mode.failed:
        return (
            f"{type(module).__name__} cannot be traced: it raised {type(error).__name__}: {message}. "
            "Call it with the same inputs outside of trace_torch and fix that first."
        )
    where = f" in module {mode.failed_module!r}" if mode.failed_module else ""
    on_meta = any(parameter.is_meta for parameter in module.parameters())
    advice = (
        "The meta device has shapes but no values: trace it on the CPU, with fewer layers if it is large."
        if on_meta else "Call it with the same inputs outside of trace_torch and fix that first."
    )  # fmt: skip
    return f"{type(module).__name__} cannot be traced: operation {mode.failed}{where} failed: {message}. {advice}"
