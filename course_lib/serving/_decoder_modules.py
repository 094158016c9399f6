"""The torch modules of the reference decoder. Imports torch: loaded only when a decoder is built."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from course_lib.serving.shape_record import ModelShape

__all__ = ["Decoder"]


def _norm(size: int, *, bias: bool) -> nn.Module:
    return nn.LayerNorm(size) if bias else nn.RMSNorm(size)


class Attention(nn.Module):
    """Grouped-query attention: N query heads share K key-value heads.

    Args:
        shape: the model.
        cache_rows, cache_tokens: sequences and tokens of a KV cache; without tokens there is none.
    """

    cached_keys: Tensor | None
    cached_values: Tensor | None

    def __init__(self, shape: ModelShape, cache_rows: int = 0, cache_tokens: int = 0) -> None:
        super().__init__()
        size, head = shape.model_size, shape.head_size
        self.num_heads, self.num_kv_heads, self.head_size = shape.num_heads, shape.num_kv_heads, head
        self.query = nn.Linear(size, shape.num_heads * head, bias=shape.query_key_value_bias)
        self.key = nn.Linear(size, shape.num_kv_heads * head, bias=shape.query_key_value_bias)
        self.value = nn.Linear(size, shape.num_kv_heads * head, bias=shape.query_key_value_bias)
        self.output = nn.Linear(shape.num_heads * head, size, bias=shape.output_bias)
        self.query_norm = nn.RMSNorm(head) if shape.query_key_norms else nn.Identity()
        self.key_norm = nn.RMSNorm(head) if shape.query_key_norms else nn.Identity()
        cached = torch.zeros(cache_rows, shape.num_kv_heads, cache_tokens, head) if cache_tokens else None
        self.register_buffer("cached_keys", cached, persistent=False)  # (B, K, S, H)
        self.register_buffer("cached_values", None if cached is None else cached.clone(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Causal attention over x (B, T, D), or of x to a cache whose last tokens it becomes."""
        batch, tokens, _ = x.shape
        q = self.query_norm(self.query(x).view(batch, tokens, self.num_heads, self.head_size))  # (B, T, N, H)
        k = self.key_norm(self.key(x).view(batch, tokens, self.num_kv_heads, self.head_size))  # (B, T, K, H)
        v = self.value(x).view(batch, tokens, self.num_kv_heads, self.head_size)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, N or K, T, H)
        grouped = self.num_kv_heads != self.num_heads
        if self.cached_keys is not None and self.cached_values is not None:
            self.cached_keys[:, :, -tokens:] = k
            self.cached_values[:, :, -tokens:] = v
            k, v = self.cached_keys, self.cached_values  # (B, K, S, H)
        causal = self.cached_keys is None
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        return self.output(y.transpose(1, 2).reshape(batch, tokens, self.num_heads * self.head_size))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two matrices with an activation, or three with a gate."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        size, inner, bias = shape.model_size, shape.feed_forward_size, shape.feed_forward_bias
        self.gate = nn.Linear(size, inner, bias=bias) if shape.gated_feed_forward else None
        self.up = nn.Linear(size, inner, bias=bias)
        self.down = nn.Linear(inner, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x (B, T, D)."""
        inner = functional.gelu(self.up(x)) if self.gate is None else functional.silu(self.gate(x)) * self.up(x)
        return self.down(inner)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: norm, attention, norm, feed-forward; Gemma 2 and 3 norm the results too."""

    def __init__(self, shape: ModelShape, cache_rows: int, cache_tokens: int) -> None:
        super().__init__()
        self.attention_norm = _norm(shape.model_size, bias=shape.norm_bias)
        self.attention = Attention(shape, cache_rows, cache_tokens)
        self.feed_forward_norm = _norm(shape.model_size, bias=shape.norm_bias)
        self.feed_forward = FeedForward(shape)
        norms_both_results = shape.norms_per_layer == 4
        self.attention_after, self.feed_forward_after = (
            _norm(shape.model_size, bias=shape.norm_bias) if norms_both_results else nn.Identity() for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x (B, T, D)."""
        x = x + self.attention_after(self.attention(self.attention_norm(x)))
        return x + self.feed_forward_after(self.feed_forward(self.feed_forward_norm(x)))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, shape: ModelShape, cache_rows: int = 0, cache_tokens: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.model_size)
        # The rows of the table are what counts; which rows a prompt looks up does not change the work.
        self.positions = nn.Embedding(shape.num_positions, shape.model_size) if shape.num_positions else None
        self.blocks = nn.ModuleList(
            Block(shape, cache_rows, min(cache_tokens, window or cache_tokens)) for window in shape.attention_windows
        )
        self.norm = _norm(shape.model_size, bias=shape.norm_bias)
        self.head = nn.Linear(shape.model_size, shape.vocab_size, bias=False)
        if shape.tied_embeddings:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of token ids (B, T)."""
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]
