"""One record for the sizes of a transformer, and what follows from them: parameters, bytes, FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from course_lib.errors import InvalidInputError
from course_lib.serving.attention_work import attention_flops, visible_tokens
from course_lib.serving.experts import Experts, LatentAttention, require_counts
from course_lib.serving.parameter_groups import ParameterGroups, expert_parameters, parameter_groups
from course_lib.serving.shape_edits import changed_shape
from course_lib.serving.tensor_parallel import TensorParallel, check_tensor_parallel
from course_lib.tensor.dtypes import dtype_bits

__all__ = ["ModelShape"]

_SIZES = (
    "num_layers", "model_size", "num_heads", "num_kv_heads", "head_size", "feed_forward_size", "vocab_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of one decoder-only transformer.

    Args:
        name: what to call it.
        family: the ``model_type`` of its public configuration.
        num_layers: L.
        model_size: D, width of the residual stream.
        num_heads: N, query heads.
        num_kv_heads: K, key and value heads; divides N (with latent attention K = N and nothing is cached per head).
        head_size: H; a field of its own, so ``N*H`` need not be D and stays when D changes.
        feed_forward_size: F of a dense layer (in a model whose layers all route, the experts hold the size in use).
        vocab_size: V.
        tied_embeddings: the output head is the embedding table.
        gated_feed_forward: three matrices (SwiGLU, GeGLU) instead of two.
        query_key_value_bias, output_bias, feed_forward_bias: linear maps with a bias.
        norm_bias: norms with scale and bias (LayerNorm) instead of scale alone (RMSNorm).
        norms_per_layer: norms of width D in a layer.
        query_key_norms: a norm of width H for queries and one for keys in each layer.
        attention_sinks: one learned logit for each head.
        num_positions: rows of a learned position table; 0 for rotary positions.
        max_context_tokens: the longest context the configuration promises; None where it is silent.
        attention_windows: for each layer the tokens it can see, None for all; empty means all layers see all.
        experts: routed experts, or None.
        latent_attention: latent attention, or None.
        notes: what the configuration says beyond the sizes (stored number format, parts left out).
        source: where the sizes come from.

    Raises:
        InvalidInputError: a size is not a positive whole number, K exceeds or does not divide N, a window or a
            dense layer belongs to no layer.

    Assumes:
        Each layer has the same attention sizes; the final norm is one of width D.

    >>> tiny = ModelShape(name="tiny", family="llama", num_layers=2, model_size=8, num_heads=4, num_kv_heads=2,
    ...                   head_size=2, feed_forward_size=16, vocab_size=10)
    >>> tiny.num_parameters                      # 2*80 + 2*(2*64 + 2*32 + 3*128 + 16) + 8
    1352
    """

    name: str
    family: str
    num_layers: int
    model_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    feed_forward_size: int
    vocab_size: int
    tied_embeddings: bool = False
    gated_feed_forward: bool = True
    query_key_value_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    norm_bias: bool = False
    norms_per_layer: int = 2
    query_key_norms: bool = False
    attention_sinks: bool = False
    num_positions: int = 0
    max_context_tokens: int | None = None
    attention_windows: tuple[int | None, ...] = ()
    experts: Experts | None = None
    latent_attention: LatentAttention | None = None
    notes: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        require_counts(
            f"model shape {self.name!r}",
            positive={name: getattr(self, name) for name in _SIZES},
            natural={"num_positions": self.num_positions, "norms_per_layer": self.norms_per_layer},
        )
        if not self.attention_windows:
            object.__setattr__(self, "attention_windows", (None,) * self.num_layers)
        self._check_heads()
        self._check_layers()

    def _check_heads(self) -> None:
        heads, kv_heads, latent = self.num_heads, self.num_kv_heads, self.latent_attention
        if kv_heads > heads:
            raise InvalidInputError(
                "there cannot be more key-value heads than query heads",
                allowed=f"num_kv_heads 1 to {heads}",
                given=kv_heads,
            )
        if heads % kv_heads:
            raise InvalidInputError(
                "key-value heads must divide query heads, so that groups are equal",
                allowed=", ".join(str(k) for k in range(1, heads + 1) if heads % k == 0),
                given=f"num_heads {heads}, num_kv_heads {kv_heads}",
            )
        if latent is not None and (kv_heads != heads or self.head_size != latent.query_head_size):
            raise InvalidInputError(
                "latent attention rebuilds one key for each query head, of nope_head_size + rope_head_size elements",
                allowed=f"num_kv_heads {heads}, head_size {latent.query_head_size}",
                given=f"num_kv_heads {kv_heads}, head_size {self.head_size}",
                next_step="Change kv_rank, rope_head_size and the others by latent_attention=LatentAttention(...).",
            )

    def _check_layers(self) -> None:
        windows = self.attention_windows
        if len(windows) != self.num_layers:
            raise InvalidInputError(
                "attention_windows needs one entry for each layer", allowed=str(self.num_layers), given=len(windows)
            )
        require_counts(f"model shape {self.name!r}", positive={f"window {w}": w for w in windows if w is not None})
        beyond = [i for i in (self.experts.dense_layers if self.experts else ()) if i >= self.num_layers]
        if beyond:
            raise InvalidInputError(
                "a dense layer must be one of the layers", allowed=f"0 to {self.num_layers - 1}", given=beyond[0]
            )

    # Parameters

    @property
    def num_expert_layers(self) -> int:
        """Layers whose feed-forward is routed."""
        return 0 if self.experts is None else self.num_layers - len(set(self.experts.dense_layers))

    @property
    def parameter_groups(self) -> ParameterGroups:
        """Parameters by part."""
        return parameter_groups(self)

    @property
    def num_parameters(self) -> int:
        """P, all parameters, tied tables once."""
        return self.parameter_groups.total

    @property
    def num_active_parameters(self) -> int:
        """Parameters in the path of one token: ``P - expert layers * (E - k) * parameters of an expert``.

        The embedding table counts in full, as in the published totals of Mixtral (12.9 B), Qwen3-30B-A3B (3.3 B)
        and DeepSeek-V3 (37 B). gpt-oss publishes totals without the input table (5.13 B and 3.61 B): that is
        :attr:`num_active_matmul_parameters`.
        """
        if self.experts is None:
            return self.num_parameters
        idle = self.experts.num_experts - self.experts.num_experts_per_token
        return self.num_parameters - self.num_expert_layers * idle * expert_parameters(self)

    @property
    def num_lookup_parameters(self) -> int:
        """Rows that are looked up and never multiplied: ``V*D`` (0 where tied) and the learned positions.

        A tied table is looked up too, but it also multiplies once, as the output head, so it stays in P_mm.
        """
        groups = self.parameter_groups
        return groups.position_embedding + (0 if self.tied_embeddings else groups.token_embedding)

    @property
    def num_matmul_parameters(self) -> int:
        """``P_mm = P - lookup``: what a step reads and multiplies (norms and biases, below 0.1 %, stay in)."""
        return self.num_parameters - self.num_lookup_parameters

    @property
    def num_active_matmul_parameters(self) -> int:
        """P_mm of one token: without look-ups and without the experts it does not use."""
        return self.num_active_parameters - self.num_lookup_parameters

    @property
    def matmul_flops_per_token(self) -> int:
        """``2 * active P_mm``: a multiply-add is 2 FLOPs; attention over the context comes on top."""
        return 2 * self.num_active_matmul_parameters

    # Bytes

    def weight_bytes(self, dtype: str = "bf16") -> int:
        """Bytes of all weights in one format: ``P * bits / 8``, rounded up."""
        return ceil(self.num_parameters * dtype_bits(dtype) / 8)

    def decode_weight_bytes(self, batch: int, dtype: str = "bf16") -> float:
        """Weight bytes one decode step reads: ``(P_mm - idle experts) * bits / 8``.

        Idle experts are those that none of the B tokens uses; ``E*(1-(1-k/E)^B)`` distinct ones are expected to
        work in each layer (:meth:`Experts.expected_distinct`). Dense models read P_mm at each batch.

        Args:
            batch: B, sequences in the step, 1 or more.
            dtype: format of the weights.

        >>> from course_lib.serving.model_shape import model_shape
        >>> round(model_shape("mixtral-8x7b").decode_weight_bytes(1) / 1e9, 2)
        25.5
        """
        require_counts("a decode step", positive={"batch": batch})
        read: float = self.num_matmul_parameters
        if self.experts is not None:
            idle = self.experts.num_experts - self.experts.expected_distinct(batch)
            read -= self.num_expert_layers * idle * expert_parameters(self)
        return float(read * dtype_bits(dtype) / 8)

    @property
    def cached_elements_per_layer(self) -> int:
        """Elements one layer caches for one token: ``2*K*H``, or ``kv_lora_rank + qk_rope_head_dim``."""
        if self.latent_attention is not None:
            return self.latent_attention.cached_elements
        return 2 * self.num_kv_heads * self.head_size

    def kv_bytes_per_token(self, dtype: str = "bf16") -> int:
        """KV bytes a token adds while no window is full: ``2*L*K*H*b``, or ``L*(kv_rank + rope)*b`` for a latent.

        >>> from course_lib.serving.model_shape import model_shape
        >>> model_shape("llama-3-8b").kv_bytes_per_token(), model_shape("deepseek-v3").kv_bytes_per_token()
        (131072, 70272)
        """
        return ceil(self.num_layers * self.cached_elements_per_layer * dtype_bits(dtype) / 8)

    def kv_bytes(self, context_tokens: int, dtype: str = "bf16") -> int:
        """KV bytes of one sequence: ``elements * b * sum over layers of min(context, window)``.

        Args:
            context_tokens: tokens of the sequence, 0 or more.
            dtype: format of the cache.

        Assumes:
            A window's cache never holds more than the window (a rolling buffer).
        """
        held = visible_tokens(self, context_tokens)
        return ceil(held * self.cached_elements_per_layer * dtype_bits(dtype) / 8)

    # Work

    def attention_flops(
        self, num_query_tokens: int, context_tokens: int, *, causal: bool = True, latent_form: str = "auto"
    ) -> int:
        """FLOPs of scores and weighted values; see :func:`course_lib.serving.attention_work.attention_flops`."""
        return attention_flops(self, num_query_tokens, context_tokens, causal=causal, latent_form=latent_form)

    # Devices

    def check_tensor_parallel(self, degree: int) -> TensorParallel:
        """The split over ``degree`` devices, or the size that does not divide; see :class:`TensorParallel`."""
        return check_tensor_parallel(self, degree)

    def weight_bytes_per_device(self, dtype: str = "bf16", degree: int = 1) -> int:
        """Weight bytes on each of ``degree`` tensor-parallel devices."""
        return check_tensor_parallel(self, degree).weight_bytes_per_device(dtype)

    def kv_bytes_per_token_per_device(self, dtype: str = "bf16", degree: int = 1) -> int:
        """KV bytes a token adds on each of ``degree`` tensor-parallel devices.

        >>> from course_lib.serving.model_shape import model_shape
        >>> model_shape("llama-3-70b").kv_bytes_per_token_per_device("bf16", 16)    # a head on 2 devices each
        40960
        >>> model_shape("deepseek-v3").kv_bytes_per_token_per_device("bf16", 8)     # one latent, 8 copies
        70272
        """
        return check_tensor_parallel(self, degree).kv_bytes_per_token_per_device(dtype)

    # Edits

    def with_changes(self, **changes: object) -> ModelShape:
        """The shape after a what-if edit; all fields not named stay as they are, and the result is validated.

        ``model_size=4224`` keeps N and H, so ``N*H`` stays 4096. ``num_heads`` keeps H and K. ``num_layers``
        continues the layers' pattern of windows. ``num_experts``, ``num_experts_per_token``,
        ``expert_feed_forward_size`` and ``num_shared_experts`` reach into :attr:`experts`.

        Raises:
            UnknownNameError: no such field. InvalidInputError: an impossible shape, or an edit without effect.

        >>> from course_lib.serving.model_shape import model_shape
        >>> edited = model_shape("llama-3-8b").with_changes(num_kv_heads=32)
        >>> edited.num_parameters, edited.kv_bytes_per_token()
        (8835567616, 524288)
        """
        return changed_shape(self, changes)
