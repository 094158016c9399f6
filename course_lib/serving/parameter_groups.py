"""Count a model's parameters by what they do, from its shape alone."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.serving.shape_record import ModelShape

__all__ = ["ParameterGroups", "parameter_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroups:
    """A model's parameters, each counted once, by the part that holds them."""

    token_embedding: int
    position_embedding: int
    attention: int
    dense_feed_forward: int
    routers: int
    routed_experts: int
    shared_experts: int
    norms: int
    output_head: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(getattr(self, field.name) for field in fields(self))


def parameter_groups(shape: ModelShape) -> ParameterGroups:
    """Parameters by part; for Llama ``V*D*(1 or 2) + L*(2*D*N*H + 2*D*K*H + 3*D*F + 2*D) + D``.

    Families add to this: biases (GPT-2, OPT, Qwen2, gpt-oss), learned positions (GPT-2, OPT), norms of queries
    and keys (Qwen3, Gemma 3), two more norms a layer (Gemma 2 and 3), a sink for each head (gpt-oss).

    Args:
        shape: the model.

    Returns:
        ParameterGroups: exact counts.

    >>> from course_lib.serving.model_shape import model_shape
    >>> groups = parameter_groups(model_shape("gpt2"))
    >>> groups.token_embedding, groups.position_embedding, groups.total
    (38597376, 786432, 124439808)
    """
    size, experts = shape.model_size, shape.experts
    num_expert_layers = shape.num_expert_layers
    routed = routers = shared = 0
    if experts is not None:
        routed = experts.num_experts * expert_parameters(shape)
        routers = experts.num_experts * (size + experts.router_bias)
        inner = experts.num_shared_experts * experts.expert_feed_forward_size
        shared = feed_forward_parameters(shape, inner) if inner else 0
    norm = size * (2 if shape.norm_bias else 1)
    return ParameterGroups(
        token_embedding=shape.vocab_size * size,
        position_embedding=shape.num_positions * size,
        attention=shape.num_layers * attention_parameters(shape),
        dense_feed_forward=(shape.num_layers - num_expert_layers)
        * feed_forward_parameters(shape, shape.feed_forward_size),
        routers=num_expert_layers * routers,
        routed_experts=num_expert_layers * routed,
        shared_experts=num_expert_layers * shared,
        norms=(shape.norms_per_layer * shape.num_layers + 1) * norm,
        output_head=0 if shape.tied_embeddings else shape.vocab_size * size,
    )


def attention_parameters(shape: ModelShape) -> int:
    """Parameters of one layer's attention: matrices, biases, norms of queries and keys, sinks."""
    size, heads, kv_heads, head = shape.model_size, shape.num_heads, shape.num_kv_heads, shape.head_size
    latent = shape.latent_attention
    if latent is None:
        count = 2 * size * heads * head + 2 * size * kv_heads * head
        count += (heads + 2 * kv_heads) * head if shape.query_key_value_bias else 0
        count += 2 * head if shape.query_key_norms else 0
    else:
        queries = heads * latent.query_head_size
        if latent.query_rank is None:
            count = size * queries
        else:  # down, a norm of the latent, up
            count = latent.query_rank * (size + 1 + queries)
        count += size * latent.cached_elements + latent.kv_rank  # down, and a norm of the latent
        count += latent.kv_rank * heads * (latent.nope_head_size + latent.value_head_size)  # up
        count += heads * latent.value_head_size * size
    return count + (size if shape.output_bias else 0) + (heads if shape.attention_sinks else 0)


def feed_forward_parameters(shape: ModelShape, inner: int) -> int:
    """Parameters of one feed-forward block with ``inner`` hidden units: ``(2 or 3)*D*F`` and its biases."""
    inputs = 2 if shape.gated_feed_forward else 1
    bias = inputs * inner + shape.model_size if shape.feed_forward_bias else 0
    return (inputs + 1) * shape.model_size * inner + bias


def expert_parameters(shape: ModelShape) -> int:
    """Parameters of one routed expert; 0 where the model has none."""
    if shape.experts is None:
        return 0
    return feed_forward_parameters(shape, shape.experts.expert_feed_forward_size)
