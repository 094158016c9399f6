"""Parts some models have and others lack: routed experts, and attention that caches one latent vector."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.errors import InvalidInputError

__all__ = ["Experts", "LatentAttention", "require_counts"]


_MOST_LAYERS, _MOST = 10_000, 10**12  # beyond these a size is a slip; a list of layers would fill the memory


def require_counts(owner: str, *, positive: dict[str, object], natural: dict[str, object] | None = None) -> None:
    """Refuse sizes that are not whole numbers of 1 or more (``positive``) or of 0 or more (``natural``).

    >>> require_counts("a shape", positive={"num_layers": 0})
    Traceback (most recent call last):
        ...
    course_lib.errors.InvalidInputError: a shape needs num_layers to be a whole number, 1 or more; given: 0.
    """
    for least, sizes in ((1, positive), (0, natural or {})):
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < least:
                raise InvalidInputError(
                    f"{owner} needs {name} to be a whole number, {least} or more", given=repr(size)
                )
            most = _MOST_LAYERS if name == "num_layers" else _MOST
            if size > most:
                shown = f"{size:,}" if size.bit_length() < 128 else f"a number of {size.bit_length():,} bits"
                raise InvalidInputError(f"{owner} needs {name} to be at most {most:,}", given=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: a router sends each token to ``k`` of ``E`` feed-forward blocks.

    Args:
        num_experts: E, routed experts in one layer.
        num_experts_per_token: k, routed experts that work on one token, 1 to E.
        expert_feed_forward_size: inner size of one expert.
        num_shared_experts: experts of the same size that work on each token.
        dense_layers: indices of the layers that keep one dense feed-forward block.
        router_bias: the router adds one learned number for each expert (gpt-oss), or the checkpoint holds
            one correction for each expert that steers the choice (DeepSeek-V3).

    >>> round(Experts(num_experts=128, num_experts_per_token=4, expert_feed_forward_size=8)
    ...       .expected_distinct(32), 1)
    81.7
    """

    num_experts: int
    num_experts_per_token: int
    expert_feed_forward_size: int
    num_shared_experts: int = 0
    dense_layers: tuple[int, ...] = ()
    router_bias: bool = False

    def __post_init__(self) -> None:
        require_counts(
            "a mixture of experts",
            positive={
                "num_experts": self.num_experts,
                "num_experts_per_token": self.num_experts_per_token,
                "expert_feed_forward_size": self.expert_feed_forward_size,
            },
            natural={"num_shared_experts": self.num_shared_experts, **{f"layer {i}": i for i in self.dense_layers}},
        )
        if self.num_experts_per_token > self.num_experts:
            raise InvalidInputError(
                "a token cannot use more experts than there are",
                allowed=f"num_experts_per_token 1 to {self.num_experts}",
                given=self.num_experts_per_token,
            )

    def expected_distinct(self, batch: int) -> float:
        """Experts of one layer that at least one of ``B`` tokens uses: ``E * (1 - (1 - k/E)^B)``.

        Args:
            batch: B, tokens in the step, 1 or more.

        Assumes:
            Each token picks its k experts uniformly and independently of the others. Real routers are
            skewed, so fewer experts are read.

        >>> mixtral = Experts(num_experts=8, num_experts_per_token=2, expert_feed_forward_size=14336)
        >>> mixtral.expected_distinct(1), mixtral.expected_distinct(2)
        (2.0, 3.5)
        """
        require_counts("a decode step", positive={"batch": batch})
        if batch == 1:
            return float(self.num_experts_per_token)
        share = self.num_experts_per_token / self.num_experts
        return float(self.num_experts * (1.0 - (1.0 - share) ** batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: the cache holds one compressed vector for all heads.

    Args:
        kv_rank: ``kv_lora_rank``, elements of the latent that keys and values are rebuilt from.
        rope_head_size: ``qk_rope_head_dim``, elements of the one rotary key that all heads share.
        nope_head_size: ``qk_nope_head_dim``, elements of each head's query and key without position.
        value_head_size: ``v_head_dim``, elements of each head's value.
        query_rank: ``q_lora_rank``, elements of the query latent; None where queries are projected directly.

    Source: DeepSeek-AI (2024), DeepSeek-V2, section 2.1.

    >>> LatentAttention(kv_rank=512, rope_head_size=64, nope_head_size=128, value_head_size=128).cached_elements
    576
    """

    kv_rank: int
    rope_head_size: int
    nope_head_size: int
    value_head_size: int
    query_rank: int | None = None

    def __post_init__(self) -> None:
        sizes: dict[str, object] = {
            "kv_rank": self.kv_rank,
            "rope_head_size": self.rope_head_size,
            "nope_head_size": self.nope_head_size,
            "value_head_size": self.value_head_size,
        }
        if self.query_rank is not None:
            sizes["query_rank"] = self.query_rank
        require_counts("latent attention", positive=sizes)

    @property
    def cached_elements(self) -> int:
        """Elements a layer caches for one token: ``kv_lora_rank + qk_rope_head_dim``."""
        return self.kv_rank + self.rope_head_size

    @property
    def query_head_size(self) -> int:
        """Elements of one head's query (and rebuilt key): the part without position and the rotary part."""
        return self.nope_head_size + self.rope_head_size
