"""A transformer of today in small: grouped-query attention, rotary positions, RMSNorm, SwiGLU."""

from __future__ import annotations

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.modules import Embedding, Linear, Module, RMSNorm
from course_lib.tensor.ops_activation import silu
from course_lib.tensor.ops_attention import rope, rope_tables, scaled_dot_product_attention
from course_lib.tensor.ops_nn import cross_entropy
from course_lib.tensor.tensor import Tensor

__all__ = ["CausalLM", "GroupedQueryAttention", "SwiGLU", "TransformerBlock"]


class SwiGLU(Module):
    """y = (silu(x W_gate^T) * (x W_up^T)) W_down^T, three matrices of D * F (Shazeer 2020)."""

    def __init__(self, model_size: int, feed_forward_size: int, *, rng: np.random.Generator,
                 dtype: str = "fp32") -> None:
        self.gate = Linear(model_size, feed_forward_size, bias=False, rng=rng, dtype=dtype)
        self.up = Linear(model_size, feed_forward_size, bias=False, rng=rng, dtype=dtype)
        self.down = Linear(feed_forward_size, model_size, bias=False, rng=rng, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        result: Tensor = self.down(silu(self.gate(x)) * self.up(x))
        return result


class GroupedQueryAttention(Module):
    """Attention whose N query heads share K key-value heads (Ainslie et al. 2023).

    Args:
        model_size: D.
        num_heads: N query heads.
        num_kv_heads: K, dividing N; N is multi-head attention, 1 is multi-query attention.
        head_size: H; D/N if left out.
        rope_base: base of the rotary positions; None for no positions.
        fused: use the fused attention operation.
    """

    def __init__(self, model_size: int, num_heads: int, num_kv_heads: int, *, head_size: int | None = None,
                 rope_base: float | None = 10_000.0, fused: bool = False, rng: np.random.Generator,
                 dtype: str = "fp32") -> None:
        if num_kv_heads < 1 or num_heads < 1 or num_heads % num_kv_heads:
            raise InvalidInputError("query heads must be a multiple of key-value heads",
                                    given=f"{num_heads} query heads and {num_kv_heads} key-value heads")
        if head_size is None and model_size % num_heads:
            raise InvalidInputError("the model size must be a multiple of the heads",
                                    given=f"{model_size} and {num_heads} heads", next_step="Or give head_size.")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_size = model_size // num_heads if head_size is None else head_size
        self.rope_base, self.fused = rope_base, fused
        self.query = Linear(model_size, num_heads * self.head_size, bias=False, rng=rng, dtype=dtype)
        self.key = Linear(model_size, num_kv_heads * self.head_size, bias=False, rng=rng, dtype=dtype)
        self.value = Linear(model_size, num_kv_heads * self.head_size, bias=False, rng=rng, dtype=dtype)
        self.output = Linear(num_heads * self.head_size, model_size, bias=False, rng=rng, dtype=dtype)

    def _heads(self, x: Tensor, num_heads: int) -> Tensor:
        batch, tokens, _ = x.shape
        return x.reshape(batch, tokens, num_heads, self.head_size).transpose(1, 2)  # (B, N, T, H)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D), causal."""
        batch, tokens, _ = x.shape
        query = self._heads(self.query(x), self.num_heads)
        key = self._heads(self.key(x), self.num_kv_heads)
        value = self._heads(self.value(x), self.num_kv_heads)
        if self.rope_base is not None:
            cos, sin = rope_tables(tokens, self.head_size, base=self.rope_base, dtype=x.dtype)
            query, key = rope(query, cos, sin), rope(key, cos, sin)
        mixed = scaled_dot_product_attention(query, key, value, causal=True, fused=self.fused)
        rows = mixed.transpose(1, 2).reshape(batch, tokens, self.num_heads * self.head_size)
        result: Tensor = self.output(rows)
        return result


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)): pre-norm, as in Llama."""

    def __init__(self, model_size: int, num_heads: int, num_kv_heads: int, feed_forward_size: int, *,
                 head_size: int | None = None, rope_base: float | None = 10_000.0, fused: bool = False,
                 rng: np.random.Generator, dtype: str = "fp32") -> None:
        self.attention_norm = RMSNorm(model_size, dtype=dtype)
        self.attention = GroupedQueryAttention(model_size, num_heads, num_kv_heads, head_size=head_size,
                                               rope_base=rope_base, fused=fused, rng=rng, dtype=dtype)
        self.feed_forward_norm = RMSNorm(model_size, dtype=dtype)
        self.feed_forward = SwiGLU(model_size, feed_forward_size, rng=rng, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        x = x + self.attention(self.attention_norm(x))
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class CausalLM(Module):
    """A language model: token embedding, L blocks, a norm and a head over the vocabulary.

    Args:
        vocab_size: V.
        model_size: D.
        num_layers: L.
        num_heads: N query heads.
        num_kv_heads: K key-value heads; N if left out.
        feed_forward_size: F.
        tied: the head shares the embedding's matrix.
        rng: draws the parameters.

    >>> lm = CausalLM(vocab_size=11, model_size=8, num_layers=1, num_heads=4, num_kv_heads=2,
    ...               feed_forward_size=12, rng=np.random.default_rng(0))
    >>> lm(Tensor([[1, 2, 3]])).shape
    (1, 3, 11)
    >>> lm.num_parameters  # 2 V D + L (2 D + 2 D N H + 2 D K H + 3 D F) + D
    680
    """

    def __init__(self, *, vocab_size: int, model_size: int, num_layers: int, num_heads: int,
                 num_kv_heads: int | None = None, feed_forward_size: int, head_size: int | None = None,
                 rope_base: float | None = 10_000.0, tied: bool = False, fused: bool = False,
                 rng: np.random.Generator, dtype: str = "fp32") -> None:
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.token_embedding = Embedding(vocab_size, model_size, rng=rng, dtype=dtype)
        self.blocks = tuple(
            TransformerBlock(model_size, num_heads, kv_heads, feed_forward_size, head_size=head_size,
                             rope_base=rope_base, fused=fused, rng=rng, dtype=dtype)
            for _ in range(num_layers))
        self.norm = RMSNorm(model_size, dtype=dtype)
        self.lm_head = Linear(model_size, vocab_size, bias=False, rng=rng, dtype=dtype)
        if tied:
            self.lm_head.weight = self.token_embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) for tokens (B, T)."""
        x = self.token_embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats of targets (B, T)."""
        return cross_entropy(self(tokens), targets)
