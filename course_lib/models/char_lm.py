"""A small language model, trained here: four transformer blocks that predict the next character.

465,600 parameters, 1.44 nats a character after some minutes on one core; small enough that every tensor can be
looked at, real enough that quantization, pruning and serving have consequences. This module needs torch and is
therefore not imported by ``course_lib.models``; import it by its own name.
"""

from __future__ import annotations

import hashlib
import json
import math
from importlib import resources

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from course_lib.errors import InvalidInputError
from course_lib.models.char_lm_size import SIZES, CharLMSize, named_size
from course_lib.models.corpus import VOCABULARY, corpus, cut_windows

__all__ = ["SIZES", "CharLM", "CharLMSize", "KVCache", "evaluation_loss", "evaluation_slice", "load_char_lm"]


class KVCache:
    """Keys and values of the tokens seen so far, one row a sequence; rows may have different lengths.

    Args:
        size: the model's dimensions.
        num_sequences: rows.

    >>> cache = KVCache(SIZES["char-lm"], num_sequences=2)
    >>> cache.lengths.tolist(), tuple(cache.keys.shape)
    ([0, 0], (4, 2, 4, 128, 24))
    """

    def __init__(self, size: CharLMSize, num_sequences: int = 1) -> None:
        shape = (size.num_layers, num_sequences, size.num_heads, size.num_positions, size.head_size)
        self.keys = torch.zeros(shape)  # (L, B, H, S, D)
        self.values = torch.zeros(shape)
        self.lengths = torch.zeros(num_sequences, dtype=torch.long)

    @property
    def nbytes(self) -> int:
        """Bytes reserved: ``2 * L * B * H * S * D`` values of 4 bytes."""
        return self.keys.nbytes + self.values.nbytes

    def store(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values (B, H, T, D) at ``positions`` (B, T); return all up to the longest row."""
        rows = torch.arange(positions.shape[0])[:, None]  # (B, 1)
        self.keys[layer][rows, :, positions] = keys.transpose(1, 2)  # (B, T, H, D)
        self.values[layer][rows, :, positions] = values.transpose(1, 2)
        longest = int(positions.max()) + 1
        return self.keys[layer][:, :, :longest], self.values[layer][:, :, :longest]


class Attention(nn.Module):
    """Causal multi-head self-attention: ``softmax(Q K^T / sqrt(D)) V``, then a projection."""

    def __init__(self, size: CharLMSize) -> None:
        super().__init__()
        self.num_heads = size.num_heads
        self.qkv = nn.Linear(size.model_size, 3 * size.model_size, bias=False)
        self.projection = nn.Linear(size.model_size, size.model_size, bias=False)

    def forward(self, x: Tensor, cache: KVCache | None, positions: Tensor, layer: int) -> Tensor:
        """Attend from ``x`` (B, T, E) to itself, or to all that ``cache`` holds after storing ``x``."""
        batch, tokens, width = x.shape
        heads = self.qkv(x).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)  # each (B, H, T, D)
        if cache is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k, v = cache.store(layer, k, v, positions)  # (B, H, S, D)
            visible = torch.arange(k.shape[2]) <= positions[:, None, :, None]  # (B, 1, T, S)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        output: Tensor = self.projection(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return output


class Block(nn.Module):
    """One transformer block: ``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``."""

    def __init__(self, size: CharLMSize) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size.model_size)
        self.attention = Attention(size)
        self.feed_forward_norm = nn.LayerNorm(size.model_size)
        self.up = nn.Linear(size.model_size, size.feed_forward_size, bias=False)
        self.down = nn.Linear(size.feed_forward_size, size.model_size, bias=False)

    def forward(self, x: Tensor, cache: KVCache | None, positions: Tensor, layer: int) -> Tensor:
        """Map the residual stream (B, T, E) to itself."""
        x = x + self.attention(self.attention_norm(x), cache, positions, layer)
        update: Tensor = self.down(functional.gelu(self.up(self.feed_forward_norm(x))))
        return x + update


class CharLM(nn.Module):
    """A decoder-only transformer over characters, its embedding tied to its output layer.

    Args:
        size: dimensions, or the name of a trained size. Weights are torch's defaults until they are loaded;
            on the meta device no memory is used.

    Source: Radford et al., 2019 (GPT-2: pre-norm blocks, learned positions, GELU, tied embedding); no biases.

    >>> model = CharLM()
    >>> sum(parameter.numel() for parameter in model.parameters())
    465600
    >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
    torch.Size([1, 5, 96])
    """

    def __init__(self, size: CharLMSize | str = "char-lm") -> None:
        super().__init__()
        self.size = named_size(size) if isinstance(size, str) else size
        self.vocabulary = VOCABULARY
        self.token_embedding = nn.Embedding(self.size.vocab_size, self.size.model_size)
        self.position_embedding = nn.Embedding(self.size.num_positions, self.size.model_size)
        self.blocks = nn.ModuleList(Block(self.size) for _ in range(self.size.num_layers))
        self.final_norm = nn.LayerNorm(self.size.model_size)

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Predict the next character after each token.

        Args:
            tokens: (B, T) integers below V.
            cache: keys and values of what came before; the new ones are added to it. Row b of ``tokens``
                continues row b of the cache at its own length.

        Returns:
            Logits (B, T, V).

        Raises:
            InvalidInputError: more tokens than positions.
        """
        steps = torch.arange(tokens.shape[1], device=tokens.device)[None]  # (1, T)
        positions = steps if cache is None else steps + cache.lengths[:, None]  # (B, T)
        self._require_room(tokens.shape[1] if cache is None else int(positions.max()) + 1)
        x = self.token_embedding(tokens) + self.position_embedding(positions)  # (B, T, E)
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, positions, layer)
        if cache is not None:
            cache.lengths += tokens.shape[1]
        return functional.linear(self.final_norm(x), self.token_embedding.weight)

    def model_shape(self) -> dict[str, object]:
        """Describe the model in the fields of ``course_lib.serving.ModelShape``; totals equal ``numel()``."""
        return self.size.model_shape()

    @torch.no_grad()
    def generate(self, prompt: Tensor, num_tokens: int) -> Tensor:
        """Continue ``prompt`` (B, T) greedily by ``num_tokens`` characters, one cached step each.

        Returns:
            The new tokens (B, num_tokens).
        """
        cache = KVCache(self.size, prompt.shape[0])
        logits = self(prompt, cache)
        new = [logits[:, -1].argmax(-1, keepdim=True)]
        while len(new) < num_tokens:
            new.append(self(new[-1], cache)[:, -1].argmax(-1, keepdim=True))
        return torch.cat(new, 1)

    def _require_room(self, num_tokens: int) -> None:
        if num_tokens > self.size.num_positions:
            raise InvalidInputError(
                f"the model has {self.size.num_positions} positions", given=f"{num_tokens} tokens",
                next_step="Give a shorter text or start a new cache.",
            )  # fmt: skip


def load_char_lm(name: str = "char-lm") -> CharLM:
    """Load a trained model, in evaluation mode; the stored 2-byte weights are widened to fp32.

    Raises:
        UnknownNameError: no trained model of that name.
        InvalidInputError: the weight file is not the committed one.

    >>> model = load_char_lm()
    >>> model.training, model.size.num_layers
    (False, 4)
    """
    model = CharLM(name)
    data = resources.files("course_lib.models") / "data"
    record = json.loads((data / f"{name}.json").read_text())
    content = (data / f"{name}.npz").read_bytes()
    if hashlib.sha256(content).hexdigest() != record["weights_sha256"]:
        raise InvalidInputError(f"{name}.npz must be the file its record describes", next_step="Restore it from git.")
    with (data / f"{name}.npz").open("rb") as stream, np.load(stream) as archive:
        model.load_state_dict({key: torch.from_numpy(archive[key].astype(np.float32)) for key in archive.files})
    return model.eval()


def evaluation_slice() -> NDArray[np.int64]:
    """Text the models never saw, in windows (num_windows, 129): 128 inputs and, one later, their targets.

    Windows of the held-out tenth that repeat a passage of the training text are left out (129 of 363).

    >>> evaluation_slice().shape
    (234, 129)
    """
    tokens = corpus()
    return cut_windows(tokens.evaluation)[tokens.is_unseen].astype(np.int64)


@torch.no_grad()
def evaluation_loss(model: nn.Module, windows: NDArray[np.int64] | None = None) -> float:
    """Mean negative log-likelihood of the next character: ``-mean(log p)`` [nats/char].

    Args:
        model: maps tokens (B, T) to logits (B, T, V).
        windows: (num_windows, T + 1) tokens; the evaluation slice when left out.
    """
    chosen = torch.from_numpy(evaluation_slice() if windows is None else windows)
    total = 0.0
    for start in range(0, len(chosen), 64):
        batch = chosen[start : start + 64]
        logits = model(batch[:, :-1])
        total += float(functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"))
    return total / (chosen.shape[0] * (chosen.shape[1] - 1))


def initialize(model: CharLM, seed: int) -> None:
    """Draw the starting weights: N(0, 0.02), the two projections into the residual stream by 1/sqrt(2L) less."""
    generator = torch.Generator().manual_seed(seed)
    residual = 0.02 / math.sqrt(2 * model.size.num_layers)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            is_residual = name.endswith(("projection.weight", "down.weight"))
            nn.init.normal_(parameter, std=residual if is_residual else 0.02, generator=generator)
