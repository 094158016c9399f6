"""The dimensions of the small language models trained here; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.models.corpus import VOCABULARY

__all__ = ["SIZES", "CharLMSize", "named_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CharLMSize:
    """The dimensions of a character model.

    Parameters: ``P = (V + T)*D + L*(12*D*D + 4*D) + 2*D`` for feed-forward size ``4*D``: token and position rows,
    four D x D matrices and two D x 4D ones a layer without bias, two LayerNorms a layer and one at the end.

    Args:
        model_size: D, the width of the residual stream.
        num_layers: L, transformer blocks.
        num_heads: N; divides D.
        num_positions: T, the longest context.
        vocab_size: V.

    >>> CharLMSize(model_size=96, num_layers=4, num_heads=4).num_parameters
    465600
    """

    model_size: int
    num_layers: int
    num_heads: int
    num_positions: int = 128
    vocab_size: int = len(VOCABULARY)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or value < 1:
                raise InvalidInputError(f"{name} is a whole number, 1 or more", given=repr(value))
        if self.model_size % self.num_heads:
            raise InvalidInputError(
                f"num_heads divides model_size {self.model_size}", given=self.num_heads,
                next_step="Pick a divisor of the model size.",
            )  # fmt: skip

    @property
    def feed_forward_size(self) -> int:
        """F = 4*D."""
        return 4 * self.model_size

    @property
    def head_size(self) -> int:
        """H = D / N."""
        return self.model_size // self.num_heads

    @property
    def num_parameters(self) -> int:
        """P, the closed form above."""
        d, f = self.model_size, self.feed_forward_size
        return (self.vocab_size + self.num_positions) * d + self.num_layers * (4 * d * d + 2 * d * f + 4 * d) + 2 * d

    def model_shape(self) -> dict[str, object]:
        """Describe the model in the fields of ``course_lib.serving.ModelShape``; totals equal ``numel()``."""
        return {
            "name": next((name for name, known in SIZES.items() if known == self), "char-lm"),
            "family": "gpt2", "num_layers": self.num_layers, "model_size": self.model_size,
            "num_heads": self.num_heads, "num_kv_heads": self.num_heads, "head_size": self.head_size,
            "feed_forward_size": self.feed_forward_size, "vocab_size": self.vocab_size,
            "num_positions": self.num_positions, "tied_embeddings": True, "gated_feed_forward": False,
            "norm_bias": True, "max_context_tokens": self.num_positions,
        }  # fmt: skip


SIZES: Mapping[str, CharLMSize] = {
    "char-lm": CharLMSize(model_size=96, num_layers=4, num_heads=4),
    "char-lm-small": CharLMSize(model_size=32, num_layers=1, num_heads=2),
}
"""The trained models, by name."""


def named_size(name: str) -> CharLMSize:
    """Look up a trained size by name.

    Raises:
        UnknownNameError: no trained model of that name.
    """
    if name not in SIZES:
        raise UnknownNameError("trained model", name, SIZES)
    return SIZES[name]
