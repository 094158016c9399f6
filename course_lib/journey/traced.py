"""A model known by what it did: parameters counted from real tensors, FLOPs traced, KV cache read off its attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.shape_record import ModelShape
from course_lib.tensor.dtypes import dtype_bits

if TYPE_CHECKING:
    from course_lib.trace import Trace, TraceEvent

__all__ = ["TracedModel", "traced_model"]

_TOKENS = 16  # traced at this length and at twice it: what grows with the square is attention
_FUSED = "scaled_dot_product"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """Counts of a real module, enough to serve it.

    Args:
        name: of the module.
        num_parameters: P, elements of its parameters, shared ones once.
        num_lookup_parameters: those that are only looked up (embedding rows), so that a step does not read them all.
        matmul_flops_per_token: traced FLOPs of matmuls for each token, attention over the context left out.
        attention_flops_per_pair: traced FLOPs for each (query, context) pair.
        kv_elements_per_token: elements that one more token adds to the cache, all layers.
        num_layers, model_size: depth and width; 0 where nothing says so (one device needs neither).
        max_context_tokens: the longest sequence it can see, where it says so.

    >>> TracedModel(name="m", num_parameters=10, num_lookup_parameters=2, matmul_flops_per_token=16,
    ...             attention_flops_per_pair=4, kv_elements_per_token=6).decode_weight_bytes(1, "bf16")
    16.0
    """

    name: str
    num_parameters: int
    num_lookup_parameters: int
    matmul_flops_per_token: int
    attention_flops_per_pair: float
    kv_elements_per_token: int
    num_layers: int = 0
    model_size: int = 0
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_parameters", "matmul_flops_per_token", "kv_elements_per_token"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} of a served model is above zero", given=getattr(self, name))

    def decode_weight_bytes(self, batch: int, dtype: str) -> float:
        """Bytes of all weights that are not looked up; the same at each batch."""
        return (self.num_parameters - self.num_lookup_parameters) * dtype_bits(dtype) / 8

    def kv_bytes_per_token(self, dtype: str) -> float:
        """Elements times bytes."""
        return self.kv_elements_per_token * dtype_bits(dtype) / 8

    def kv_bytes(self, context_tokens: int, dtype: str) -> float:
        """Every token is kept: a traced module says nothing of windows."""
        return context_tokens * self.kv_bytes_per_token(dtype)

    def attention_flops(self, num_query_tokens: int, context_tokens: int) -> float:
        """As executed in the trace: every query meets the whole context."""
        return self.attention_flops_per_pair * num_query_tokens * context_tokens


def traced_model(
    module: Any, *inputs: Any, kv_elements_per_token: int | None = None, name: str | None = None
) -> TracedModel:
    """Trace a torch module, or read a trace, into the counts that a journey needs.

    Args:
        module: an ``nn.Module`` that maps tokens (B, T) to logits, or a ``Trace`` of one forward pass of it.
        inputs: one tensor of token numbers (1, T) with T even; needed unless the module has a ``model_shape()``.
        kv_elements_per_token: elements cached for each token, all layers; needed unless the module says so
            (``model_shape()`` or ``kv_elements_per_token``) or its attention is torch's fused operation, whose key
            and value tensors the trace has seen.
        name: what to call it; the class's name by default.

    Raises:
        InvalidInputError: something is missing, and the message says what; the module's stated shape and its
            tensors disagree.
        UnsupportedError: an operation cannot be traced or has no cost rule; it is named.

    Assumes: one token passes through each weight at most once (no weight reuse across depth beyond what is traced).
    """
    from course_lib.trace import Trace, trace_torch

    if isinstance(module, Trace):
        return _from_traces(module, None, None, kv_elements_per_token, name or "traced module")
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidInputError(
            "model is a catalogue name, a config.json, a ModelShape, a torch module or a trace", given=repr(module)
        )
    shape = _stated_shape(module)
    tokens = inputs[0] if inputs else _tokens(module, shape)
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.shape[0] != 1 or tokens.shape[1] % 2:
        raise InvalidInputError(
            "a module is traced with token numbers of shape (1, T), T even",
            given=f"{tokens.dtype} {tuple(tokens.shape)}",
        )
    half = tokens[:, : tokens.shape[1] // 2]
    with torch.no_grad():
        short, long = (trace_torch(module, each, backward=False) for each in (half, tokens))
    stated = kv_elements_per_token or getattr(module, "kv_elements_per_token", None)
    if stated is None and shape is not None:
        stated = shape.num_layers * shape.cached_elements_per_layer
    model = _from_traces(long, short, shape, stated, name or (shape.name if shape else type(module).__name__))
    counted = sum(parameter.numel() for parameter in module.parameters())
    if shape is not None and shape.num_parameters != counted:
        raise InvalidInputError(
            f"the tensors of {model.name} and its model_shape() agree",
            given=f"{counted:,} parameters counted, {shape.num_parameters:,} stated",
        )
    return model


def _stated_shape(module: Any) -> ModelShape | None:
    if not callable(getattr(module, "model_shape", None)):
        return None
    stated = module.model_shape()
    return stated if isinstance(stated, ModelShape) else ModelShape(**stated)


def _tokens(module: Any, shape: ModelShape | None) -> Any:
    import torch

    if shape is None:
        raise InvalidInputError(
            f"{type(module).__name__} has no model_shape(), so it is traced with a tensor of tokens (1, T)",
            given="no tokens",
            next_step="Use traced_model(module, tokens) with tokens = torch.zeros(1, 32, dtype=torch.long).",
        )
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    length = min(2 * _TOKENS, (shape.max_context_tokens or 2 * _TOKENS) // 2 * 2)
    return torch.zeros(1, length, dtype=torch.long, device=device)


def _from_traces(
    trace: Trace, short: Trace | None, shape: ModelShape | None, kv_elements: int | None, name: str
) -> TracedModel:
    """Counts from one trace (attention must be the fused operation) or from two lengths (any attention)."""
    if trace.uncounted:
        raise UnsupportedError(f"{name} has operations without a cost rule: {', '.join(trace.uncounted)}.")
    forward = trace.forward
    fused = forward.where(lambda event: _FUSED in event.op)
    tokens = _num_tokens(forward, name)
    if short is None:
        if not fused.events:
            raise _missing_attention(name)
        pairs = _num_queries(fused.events[0]) ** 2 * fused.events[0].inputs[0].shape[0]
        attention = fused.matmul_flops / pairs
    else:
        few = _num_tokens(short.forward, name)
        excess = forward.matmul_flops - short.forward.matmul_flops * tokens / few
        attention = excess / (tokens**2 - tokens * few)
        pairs = tokens**2
    if kv_elements is None:
        if not fused.events:
            raise _missing_attention(name)
        kv_elements = sum(_size(event, 1) + _size(event, 2) for event in fused.events) // tokens
    storages = trace.storages
    parameters = {key: storage for key, storage in storages.items() if storage.kind == "parameter"}
    elements = {
        ref.storage_id: storages[ref.storage_id].nbytes * 8 / dtype_bits(ref.dtype)
        for event in forward.events for ref in event.inputs if ref.storage_id in parameters
    }  # fmt: skip
    multiplied = {ref.storage_id for event in forward.events if "embedding" not in event.op for ref in event.inputs}
    lookups = sum(count for key, count in elements.items() if key not in multiplied)
    return TracedModel(
        name=name, num_parameters=round(sum(elements.values())), num_lookup_parameters=round(lookups),
        matmul_flops_per_token=round((forward.matmul_flops - attention * pairs) / tokens),
        attention_flops_per_pair=attention, kv_elements_per_token=kv_elements,
        num_layers=shape.num_layers if shape else 0, model_size=shape.model_size if shape else 0,
        max_context_tokens=shape.max_context_tokens if shape else None,
    )  # fmt: skip


def _num_tokens(forward: Trace, name: str) -> int:
    """Tokens that went in: the indices of the first embedding."""
    for event in forward.events:
        if "embedding" in event.op:
            for ref in event.inputs:
                if ref.dtype.startswith("int"):
                    count = 1
                    for size in ref.shape:
                        count *= size
                    return count
    raise InvalidInputError(f"{name} looks tokens up in an embedding", given="a trace without one")


def _num_queries(event: TraceEvent) -> int:
    return event.inputs[0].shape[-2]


def _size(event: TraceEvent, index: int) -> int:
    count = 1
    for size in event.inputs[index].shape:
        count *= size
    return count


def _missing_attention(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"the KV cache of {name} is not known: the trace has no fused attention and the module has no model_shape()",
        next_step="Give traced_model(..., kv_elements_per_token=2 * layers * kv_heads * head_size).",
    )
