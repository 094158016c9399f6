"""A torch decoder with exactly the sizes of a model shape: real tensors to trace, on any device torch knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.shape_record import ModelShape

if TYPE_CHECKING:
    from torch import nn

__all__ = ["reference_decoder"]


def reference_decoder(
    shape: ModelShape, *, torch_device: str = "meta", dtype: str = "bfloat16", batch: int = 1, cached_tokens: int = 0
) -> nn.Module:
    """Build the decoder that a shape describes, weights uninitialized on ``meta``, random elsewhere.

    It has the shape's parameters to the last one, so what ``trace_torch`` counts on it is the work of the real model:
    ``sum(p.numel() for p in module.parameters()) == shape.num_parameters``.

    Args:
        shape: a dense decoder (Llama, Mistral, Qwen, Gemma, GPT-2 and OPT families).
        torch_device: "meta" needs no memory: a 70B model is built in under a second.
        dtype: name of a torch floating-point type for weights and cache.
        batch: B, sequences in the KV cache (only read where there is one).
        cached_tokens: S, tokens that the KV cache of each sequence holds, the new ones included; 0 builds none.
            With a cache, call it with the newest token of each sequence (B, 1): that is one decode step. A layer
            with a sliding window caches at most its window.

    Returns:
        nn.Module: called with token ids (B, T); returns logits (B, T, V).

    Raises:
        UnsupportedError: routed experts, latent attention or attention sinks; the journey prices those from their
            closed forms, but no module is built for them here.
        InvalidInputError: torch has no such floating-point type; a batch or cache below the least.

    Assumes:
        Rotary positions are left out (no parameters, under 0.1 % of the FLOPs); without a cache, attention is
        dense over the prompt, windows or not; the activation is SiLU where there is a gate and GELU elsewhere.

    >>> from course_lib.serving.model_shape import model_shape
    >>> decoder = reference_decoder(model_shape("gpt2"))
    >>> sum(parameter.numel() for parameter in decoder.parameters())
    124439808
    """
    import torch

    from course_lib.serving._decoder_modules import Decoder

    missing = {
        "routed experts": shape.experts is not None,
        "latent attention": shape.latent_attention is not None,
        "attention sinks": shape.attention_sinks,
    }
    if named := [what for what, present in missing.items() if present]:
        raise UnsupportedError(
            f"no reference module is built for {' and '.join(named)} ({shape.name}). "
            "Trace your own nn.Module of it, or use the closed forms: trace-tensor bill --model " + shape.name
        )
    number_type: Any = getattr(torch, dtype, None)
    if not isinstance(number_type, torch.dtype) or not number_type.is_floating_point:
        raise InvalidInputError(
            "dtype is a floating-point type of torch", given=repr(dtype), allowed="bfloat16, float16, float32, ..."
        )
    if batch < 1 or cached_tokens < 0:
        raise InvalidInputError(
            "a cache has 1 or more sequences of 0 or more tokens", given=f"batch={batch}, cached_tokens={cached_tokens}"
        )
    with torch.device(torch_device):
        return Decoder(shape, batch, cached_tokens).to(number_type)
