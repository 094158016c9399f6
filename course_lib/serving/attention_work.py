"""Work of attention over a context: how many tokens each query sees, and the FLOPs that costs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.serving.experts import require_counts

if TYPE_CHECKING:
    from course_lib.serving.shape_record import ModelShape

__all__ = ["LATENT_FORMS", "attention_flops", "query_key_pairs", "visible_tokens"]

LATENT_FORMS = ("auto", "absorbed", "expanded")
"""How latent attention is executed: on the latents themselves, or on keys and values rebuilt from them."""


def visible_tokens(shape: ModelShape, context_tokens: int) -> int:
    """Tokens that one query sees, summed over layers: ``sum of min(context, window)``.

    >>> from course_lib.serving.model_shape import model_shape
    >>> visible_tokens(model_shape("gpt-oss-20b"), 1000)          # 12 layers of 1000 and 12 of 128
    13536
    """
    require_counts("attention", positive={}, natural={"context_tokens": context_tokens})
    return sum(
        layers * (context_tokens if window is None else min(context_tokens, window))
        for window, layers in Counter(shape.attention_windows).items()
    )


def query_key_pairs(num_query_tokens: int, context_tokens: int, window: int | None, *, causal: bool = True) -> int:
    """Pairs of a query and a key it sees, in one layer.

    The last of q queries sees all S tokens, the one before it S - 1, and so on; a window caps each at w:
    ``sum over x = S-q+1 .. S of min(x, w)``. Without the causal mask each query meets all S (or w).

    >>> query_key_pairs(3, 5, None), query_key_pairs(3, 5, 4), query_key_pairs(3, 5, None, causal=False)
    (12, 11, 15)
    """
    if not causal:
        return num_query_tokens * (context_tokens if window is None else min(context_tokens, window))
    first, last = context_tokens - num_query_tokens + 1, context_tokens
    if window is None or last <= window:
        return num_query_tokens * (first + last) // 2
    num_capped = last - max(first - 1, window)
    below = num_query_tokens - num_capped
    return num_capped * window + below * (first + first + below - 1) // 2


def attention_flops(
    shape: ModelShape, num_query_tokens: int, context_tokens: int, *, causal: bool = True, latent_form: str = "auto"
) -> int:
    """FLOPs of scores and weighted values over all layers: ``4*N*H * pairs``, a multiply-add being 2.

    Args:
        shape: the model.
        num_query_tokens: q, new tokens, 0 or more (1 in a decode step, the prompt in a prefill).
        context_tokens: S, tokens the last query sees, itself included; at least q.
        causal: count only pairs a causal mask lets through (block-free); False counts dense ``q*S``.
        latent_form: for latent attention. ``"absorbed"`` works on the latents: ``2*N*(2*kv_rank + rope)`` for a
            pair. ``"expanded"`` rebuilds keys and values: ``2*N*(nope + rope + value)`` for a pair, plus
            ``2*N*kv_rank*(nope + value)`` for each cached token it rebuilds. ``"auto"`` takes the absorbed
            form for one query and the expanded form for more, as serving engines do.

    Returns:
        int: FLOPs; projections are not included (they are in ``matmul_flops_per_token``), nor is softmax.

    Source: Vaswani et al. (2017), section 3.2.1; DeepSeek-AI (2024), DeepSeek-V2, section 2.1.2.

    >>> from course_lib.serving.model_shape import model_shape
    >>> attention_flops(model_shape("llama-3-8b"), 1, 1650)       # 4 * 32 * 128 * 1650 * 32
    865075200
    """
    require_counts("attention", positive={}, natural={"num_query_tokens": num_query_tokens})
    require_counts("attention", positive={}, natural={"context_tokens": context_tokens})
    if latent_form not in LATENT_FORMS:
        raise UnknownNameError("form of latent attention", latent_form, LATENT_FORMS)
    if context_tokens < num_query_tokens:
        raise InvalidInputError(
            "the context includes the new tokens",
            allowed=f"context_tokens {num_query_tokens} or more",
            given=context_tokens,
        )
    pairs = sum(
        layers * query_key_pairs(num_query_tokens, context_tokens, window, causal=causal)
        for window, layers in Counter(shape.attention_windows).items()
    )
    latent = shape.latent_attention
    if latent is None:
        return 4 * shape.num_heads * shape.head_size * pairs
    if latent_form == "absorbed" or (latent_form == "auto" and num_query_tokens <= 1):
        return 2 * shape.num_heads * (latent.cached_elements + latent.kv_rank) * pairs
    rebuilt = shape.num_layers * (context_tokens - num_query_tokens) if num_query_tokens else 0
    rebuild = 2 * shape.num_heads * latent.kv_rank * (latent.nope_head_size + latent.value_head_size)
    return 2 * shape.num_heads * (latent.query_head_size + latent.value_head_size) * pairs + rebuild * rebuilt
