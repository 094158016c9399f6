"""The torch side of a trace: a dispatch mode that sees every operation. Imports torch; loaded when first used."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.errors import UnsupportedError
from course_lib.trace.builder import TraceBuilder
from course_lib.trace.events import Phase, StorageKind, TensorRef
from course_lib.trace.operation import Rule
from course_lib.trace.rules import CostBook
from course_lib.trace.trace import Trace

__all__ = ["OperationMode", "fused_attention_on_meta", "module_paths"]

_Tensor = torch.Tensor
_OPENED = (_Tensor, list, tuple, type(None))  # what a list holds when it may hold tensors
_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3",
          "float8_e5m2": "fp8_e5m2", "float8_e4m3fnuz": "fp8_e4m3", "float8_e5m2fnuz": "fp8_e5m2"}  # fmt: skip


class _Kind:
    """What is known of one torch operation before it runs."""

    __slots__ = ("argument_names", "is_composite", "is_mutable", "is_view", "name", "skips")

    def __init__(self, func: Any) -> None:
        schema_name = func._schema.name  # "aten::add_"
        namespace, _, name = schema_name.partition("::")
        self.name = name if namespace == "aten" else schema_name
        self.is_view = bool(func.is_view)
        self.is_mutable = bool(func._schema.is_mutable)
        self.argument_names = tuple(argument.name for argument in func._schema.arguments)
        self.skips = namespace == "prim" or name in ("is_same_size", "sym_size", "sym_numel", "sym_stride")
        # An operation that only has a composite form runs its parts; one with a kernel of its own runs that.
        self.is_composite = _has_kernel(func, "CompositeImplicitAutograd") and not _has_kernel(func, "CPU", "CUDA")


def _has_kernel(func: Any, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in keys)


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each dispatched operation and writes an event for it.

    Args:
        trace: the trace to fill.
        rules: cost rules by operation name.
        path: names of the modules that run now, innermost last, kept by :func:`module_paths`.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled below a trace, so the wrapper that keeps the compiler out is not needed."""
        return False

    def __init__(self, trace: Trace, rules: Mapping[str, Rule], path: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.failed = self.failed_module = ""
        self.phase: Phase = "forward"
        self._builder = TraceBuilder(trace)
        self._costs = CostBook(rules)
        self._path = path
        self._kinds: dict[Any, _Kind] = {}
        self._storages: dict[int, int] = {}
        self._dtypes: dict[torch.dtype, str] = {}
        self._guards: list[StorageWeakRef] = []  # an address is not used again while a weak reference lives
        self._calls: list[_Call] = []
        self._kept: list[weakref.ref[_Kept]] = []
        self._first_call: dict[int, int] = {}
        self._early_packs: dict[int, list[tuple[int, int]]] = {}
        self.module_of_node: dict[int, str] = {}

    # --- storages and references -----------------------------------------------------------------------------

    def number(self, tensor: _Tensor, kind: StorageKind) -> int:
        """Number of a tensor's storage within this trace; `kind` is used where it is new."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError) as error:
            raise _not_dense(tensor) from error
        address: int = storage._cdata
        number = self._storages.get(address)
        if number is None:
            number = self._storages[address] = self._builder.add_storage(storage.nbytes(), kind)
            self._guards.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return number

    def _ref(self, tensor: _Tensor, kind: StorageKind) -> TensorRef:
        try:
            number = self.number(tensor, kind)
            return TensorRef(number, tuple(tensor.shape), tensor.stride(), self._dtypes[tensor.dtype])
        except KeyError:
            name = str(tensor.dtype).removeprefix("torch.")
            self._dtypes[tensor.dtype] = _SHORT.get(name, name)
            return self._ref(tensor, kind)
        except (NotImplementedError, RuntimeError) as error:
            raise _not_dense(tensor) from error

    def _refs(self, values: Iterable[Any], kind: StorageKind) -> tuple[TensorRef, ...]:
        """References of the tensors among values, lists of tensors opened."""
        refs = []
        for value in values:
            if isinstance(value, _Tensor):
                refs.append(self._ref(value, kind))
            elif isinstance(value, list | tuple) and value and isinstance(value[0], _OPENED):
                refs.extend(self._refs(value, kind))
        return tuple(refs)

    # --- what autograd keeps ---------------------------------------------------------------------------------

    def pack(self, tensor: _Tensor) -> _Kept:
        """Note a tensor that autograd keeps, with the operation whose graph node keeps it."""
        if self.phase == "forward":
            node: int = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
            kept = (self.number(tensor, "input"), tensor.numel() * tensor.element_size())
            at = self._first_call.get(node)
            (self._early_packs.setdefault(node, []) if at is None else self._calls[at].saved).append(kept)
        holder = _Kept(tensor)
        self._kept.append(weakref.ref(holder))
        return holder

    @staticmethod
    def unpack(holder: _Kept) -> _Tensor:
        """Give a kept tensor back."""
        return holder.tensor

    # --- operations ------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kind = self._kinds.get(func)
        if kind is None:
            if isinstance(func, torch._ops.HigherOrderOperator):
                raise UnsupportedError(f"trace_torch sees single operations; {func} runs a whole graph. "
                                       "Call the eager form of the module.")  # fmt: skip
            kind = self._kinds[func] = _Kind(func)
        if kind.is_composite:
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        except Exception:
            if not self.failed:
                self.failed, self.failed_module = func._schema.name, self._module()
            raise
        if not kind.skips:
            self._note(kind, args, kwargs, result)
        return result

    def _note(self, kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any] | None, result: Any) -> None:
        inputs = self._refs(args, "input")
        if kwargs:
            inputs += self._refs(kwargs.values(), "input")
        outputs = self._refs(result if isinstance(result, list | tuple) else (result,), "intermediate")
        call = _Call(kind, self.phase, self._module(), inputs, outputs)
        if not call.is_view:
            call.attributes = _attributes(kind, args, kwargs)
        if self.phase == "forward":
            node: int = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
            if node not in self._first_call:
                self._first_call[node] = len(self._calls)
                self.module_of_node[node] = call.module
                if node in self._early_packs:
                    call.saved = self._early_packs.pop(node)
        self._calls.append(call)

    def _module(self) -> str:
        if self._path:  # also a checkpoint that runs its forward again during backward
            return self._path[-1]
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            if node is not None:
                return self.module_of_node.get(node._sequence_nr(), "")
        return ""

    def release(self) -> None:
        """Let go of what autograd keeps: an operation that saves its own output is a cycle Python cannot see."""
        for reference in self._kept:
            holder = reference()
            if holder is not None:
                del holder.tensor
        self._kept.clear()

    def finish(self) -> None:
        """Cost the noted calls and append them to the trace."""
        leftover = [kept for packs in self._early_packs.values() for kept in packs]
        if leftover and self._calls:
            self._calls[-1].saved.extend(leftover)
        for call in self._calls:
            found = self._costs.cost(call.kind.name, call.inputs, call.outputs, call.attributes, is_view=call.is_view)
            self._builder.add_event(
                call.kind.name, call.phase, call.module, call.inputs, call.outputs, found,
                tuple([number for number, _ in call.saved]), sum([nbytes for _, nbytes in call.saved]),
            )  # fmt: skip
        self._calls.clear()


def _not_dense(tensor: _Tensor) -> UnsupportedError:
    return UnsupportedError(
        f"trace_torch counts dense strided tensors; given: layout {tensor.layout}"
        f"{', nested' if tensor.is_nested else ''}. Pad or densify it (tensor.to_dense()) first."
    )


class _Kept:
    """A tensor that autograd keeps."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: _Tensor) -> None:
        self.tensor = tensor


class _Call:
    """An executed operation before it is costed."""

    __slots__ = ("attributes", "inputs", "is_view", "kind", "module", "outputs", "phase", "saved")

    def __init__(
        self, kind: _Kind, phase: Phase, module: str, inputs: tuple[TensorRef, ...], outputs: tuple[TensorRef, ...]
    ) -> None:
        self.kind, self.phase, self.module, self.inputs, self.outputs = kind, phase, module, inputs, outputs
        # Some operations rename memory without being declared a view (_unsafe_view, unsafe_split).
        self.is_view = kind.is_view or (
            not kind.is_mutable and bool(inputs) and bool(outputs)
            and all(ref.storage_id == inputs[0].storage_id for ref in outputs)
        )  # fmt: skip
        self.attributes: dict[str, Any] | None = None
        self.saved: list[tuple[int, int]] = []


def _attributes(kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> dict[str, Any] | None:
    """Plain arguments by name: numbers, strings, booleans and tuples of them."""
    found: dict[str, Any] = {}
    for name, value in (*zip(kind.argument_names, args), *(kwargs or {}).items()):
        if isinstance(value, list | tuple):
            if not any(isinstance(item, _Tensor) for item in value):
                found[name] = tuple(value)
        elif isinstance(value, int | float | str):
            found[name] = value
    return found or None


@contextmanager
def module_paths(module: torch.nn.Module) -> Iterator[list[str]]:
    """Keep the dotted path of the module that runs now at the end of a list.

    The hooks are torch's global ones: hooks on the modules themselves would switch off torch's fused inference
    paths and so change what is counted. They are removed at the end, by an exception too.
    """
    names = {id(child): name for name, child in module.named_modules()}
    path: list[str] = []

    def enter(child: torch.nn.Module, _: Any) -> None:
        path.append(names.get(id(child), path[-1] if path else ""))

    def leave(*_: Any) -> None:
        path.pop()

    hooks = torch.nn.modules.module
    entering = hooks.register_module_forward_pre_hook(enter)
    leaving = hooks.register_module_forward_hook(leave, always_call=True)
    try:
        yield path
    finally:
        entering.remove()
        leaving.remove()


@contextmanager
def fused_attention_on_meta(enabled: bool) -> Iterator[None]:
    """On the meta device, run scaled_dot_product_attention as one fused operation instead of its dense parts."""
    if not enabled:
        yield
        return
    with _FusedAttention():
        yield


class _FusedAttention(torch.overrides.TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _fused_attention(func, *args, **kwargs)
        return func(*args, **kwargs)


def _fused_attention(
    func: Any, query: _Tensor, key: _Tensor, value: _Tensor, attn_mask: _Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> _Tensor:  # fmt: skip
    if query.device.type != "meta" or dropout_p != 0.0 or query.dim() != 4 or query.shape[-1] != value.shape[-1]:
        result: _Tensor = func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return result
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output: _Tensor = fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return output
