"""Attention: rotary positions, the composed form and the fused one that saves no matrix of probabilities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Context, Op, apply, run_kernel
from course_lib.tensor.ops_nn import softmax

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["causal_mask", "rope", "rope_tables", "scaled_dot_product_attention"]


class Rope(Op):
    """The halves (x, y) of the last axis turned by an angle; the gradient is turned back by the same angle."""

    name = "rope"
    saves = "cos, sin"

    def forward(self, context: Context, a: Any, cos: Any, sin: Any) -> Any:
        context.save(cos, sin)
        x, y = np.split(a, 2, axis=-1)
        return np.concatenate([x * cos - y * sin, y * cos + x * sin], axis=-1)

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = context.saved
        return apply(Rope(), grad, cos, -sin), None, None


class Attention(Op):
    """out = P v with P = softmax(scale q k^T): forward keeps q, k, v, out and one logsumexp a row, never P.

    Backward makes P again from the logsumexp; with delta = sum(dout * out) a row:
    dv = P^T dout, dS = P * (dout v^T - delta), dq = scale dS k, dk = scale dS^T q (5 products, 1 of them again).

    Assumes:
        Fused as seen from outside: numpy holds P in scratch while the operation runs.
        `course_lib.optimization.flash_attention` is the tiled one that never holds it.
    """

    name = "attention"
    saves = "query, key, value, output, logsumexp"

    def forward(self, context: Context, query: Any, key: Any, value: Any, *, causal: bool, scale: float) -> Any:
        q, k, v = _grouped(query, key, value)
        scores = _scores(q, k, causal, scale)  # (B, K, G, T, S)
        top = scores.max(axis=-1, keepdims=True)
        logsumexp = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
        out = (np.exp(scores - logsumexp) @ v).reshape(*query.shape[:-1], value.shape[-1])
        context.save(query, key, value, out, logsumexp.reshape(query.shape[:-1]))
        return out

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = run_kernel("attention_backward", self.gradient, grad, *context.saved, **context.attributes)
        return tuple(one if needed else None for one, needed in zip(gradients, context.needs))

    @staticmethod
    def gradient(grad: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, *, causal: bool,
                 scale: float) -> tuple[Any, ...]:
        q, k, v = _grouped(query, key, value)
        rows = q.shape[:-1]
        p = np.exp(_scores(q, k, causal, scale) - logsumexp.reshape(*rows, 1))  # (B, K, G, T, S)
        d_out = grad.reshape(*rows, grad.shape[-1])
        delta = (d_out * out.reshape(d_out.shape)).sum(axis=-1, keepdims=True)
        d_scores = p * (d_out @ v.swapaxes(-2, -1) - delta) * scale
        d_key = (d_scores.swapaxes(-2, -1) @ q).sum(axis=2)  # the query heads of a group share one key head
        d_value = (p.swapaxes(-2, -1) @ d_out).sum(axis=2)
        return (d_scores @ k).reshape(query.shape), d_key, d_value


def _grouped(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Heads split into groups: (B, K, G, T, H), (B, K, 1, S, H) twice."""
    batch, num_heads, tokens, head_size = query.shape
    num_kv_heads = key.shape[1]
    q = query.reshape(batch, num_kv_heads, num_heads // num_kv_heads, tokens, head_size)
    return q, key[:, :, None], value[:, :, None]


def _scores(q: Any, k: Any, causal: bool, scale: float) -> Any:
    scores = q @ k.swapaxes(-2, -1) * scale
    if causal:
        scores = np.where(_hidden(*scores.shape[-2:]), scores.dtype.type(-np.inf), scores)
    return scores


def _hidden(num_queries: int, num_keys: int) -> Any:
    """True where a key lies in the future; the last query sees the last key."""
    return np.triu(np.ones((num_queries, num_keys), dtype=bool), k=1 + num_keys - num_queries)


def causal_mask(num_queries: int, num_keys: int) -> Tensor:
    """True where a key is hidden from a query: query i sees keys j <= i + S - T.

    >>> causal_mask(2, 3).data.tolist()
    [[False, False, True], [False, False, False]]
    """
    from course_lib.tensor.tensor import Tensor

    if not 0 <= num_queries <= num_keys:
        raise InvalidInputError("a causal mask needs at least as many keys as queries",
                                given=f"{num_queries} queries and {num_keys} keys")
    return Tensor(_hidden(num_queries, num_keys))


def rope_tables(num_positions: int, head_size: int, *, base: float = 10_000.0, first_position: int = 0,
                dtype: str = "fp32") -> tuple[Tensor, Tensor]:
    """cos and sin of ``position * base^(-2i/H)``, each (T, H/2).

    Args:
        num_positions: T, tokens.
        head_size: H, even.
        base: the slowest wavelength is 2 pi base.
        first_position: position of the first token (tokens already in a KV cache).
        dtype: of the tables.

    Source:
        Su et al. 2021 (RoFormer), with the halves of a head as pairs, as Llama's weights are laid out.

    >>> cos, sin = rope_tables(2, 4)
    >>> cos.shape, round(sin.data[1, 0].item(), 4)  # sin 1
    ((2, 2), 0.8415)
    """
    from course_lib.tensor.tensor import Tensor

    if head_size < 2 or head_size % 2:
        raise InvalidInputError("rotary positions need an even head size", given=head_size)
    frequencies = base ** (-np.arange(0, head_size, 2) / head_size)
    angles = np.arange(first_position, first_position + num_positions)[:, None] * frequencies
    return Tensor(np.cos(angles), dtype=dtype), Tensor(np.sin(angles), dtype=dtype)


def rope(a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: (..., T, H) turned by tables (T, H/2)."""
    wanted = (*a.shape[-2:-1], a.shape[-1] // 2)
    if a.shape[-1] % 2 or cos.shape != wanted or sin.shape != wanted:
        raise InvalidInputError("rope needs tables of shape (T, H/2)", allowed=str(wanted),
                                given=f"a {a.shape}, cos {cos.shape}, sin {sin.shape}")
    result: Tensor = apply(Rope(), a, cos, sin)
    return result


def _checked_heads(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> None:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise InvalidInputError("attention needs (B, N, T, H), (B, K, S, H) and (B, K, S, H)", given=shapes)
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise InvalidInputError("attention needs one batch, one head size, and as many keys as values", given=shapes)
    if query.shape[1] % key.shape[1]:
        raise InvalidInputError("query heads must be a multiple of key-value heads",
                                given=f"{query.shape[1]} and {key.shape[1]}",
                                next_step="Each key-value head serves a group of N/K query heads.")
    if causal and query.shape[2] > key.shape[2]:
        raise InvalidInputError("causal attention needs at least as many keys as queries", given=shapes)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False,
                                 scale: float | None = None, fused: bool = False) -> Tensor:
    """Attention ``softmax(scale * q k^T) v`` with grouped key-value heads.

    Args:
        query: (B, N, T, H).
        key: (B, K, S, H), K dividing N: each key head serves N/K query heads.
        value: (B, K, S, H).
        causal: query i sees keys j <= i + S - T only.
        scale: 1/sqrt(H) if left out.
        fused: one operation that saves no (T, S) matrix, in place of the composed products and softmax.

    Returns:
        (B, N, T, H).

    Raises:
        InvalidInputError: shapes or heads that do not fit.

    Assumes:
        Composed causal attention computes the hidden scores too, and masks them: it is dense code.
    """
    _checked_heads(query, key, value, causal)
    batch, num_heads, tokens, head_size = query.shape
    num_kv_heads, num_keys = key.shape[1:3]
    scale = 1 / math.sqrt(head_size) if scale is None else float(scale)
    if fused:
        result: Tensor = apply(Attention(), query, key, value, causal=causal, scale=scale)
        return result
    q = query.reshape(batch, num_kv_heads, num_heads // num_kv_heads, tokens, head_size)
    k = key.reshape(batch, num_kv_heads, 1, num_keys, head_size)
    v = value.reshape(batch, num_kv_heads, 1, num_keys, value.shape[-1])
    scores = q @ k.transpose(-2, -1) * scale  # (B, K, G, T, S)
    if causal and tokens > 1:
        scores = scores.masked_fill(causal_mask(tokens, num_keys), -math.inf)
    return (softmax(scores) @ v).reshape(batch, num_heads, tokens, value.shape[-1])
