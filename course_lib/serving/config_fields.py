"""Fields that families of decoders share, read from a configuration by common rules."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.config_reader import Config

__all__ = ["Fields", "common_fields", "head_size", "layer_windows", "qwen_windows"]

Fields = dict[str, object]
"""Arguments of a model shape, by name."""


def common_fields(config: Config, *, tied: bool, kv_heads: int | None = None) -> Fields:
    """Keys that all families of the Llama line share."""
    return {
        "num_layers": config.size("num_hidden_layers"),
        "model_size": config.size("hidden_size"),
        "num_heads": config.size("num_attention_heads"),
        "num_kv_heads": config.size("num_key_value_heads", default=kv_heads),
        "feed_forward_size": config.size("intermediate_size"),
        "vocab_size": config.size("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=tied),
        "max_context_tokens": config.optional_size("max_position_embeddings"),
    }


def head_size(config: Config, model_size: int, num_heads: int, *, default: int | None = None) -> int:
    """``head_dim``, else the family's default, else D / N, which must be whole."""
    if config.values.get("head_dim") is None and default is None and model_size % num_heads:
        raise InvalidInputError(
            f"{config.origin} has no head_dim, so num_attention_heads must divide hidden_size",
            given=f"hidden_size {model_size}, num_attention_heads {num_heads}",
        )
    return config.size("head_dim", default=default or model_size // num_heads)


def layer_windows(
    config: Config, num_layers: int, window: int | None, default: Callable[[int], bool]
) -> tuple[int | None, ...]:
    """The window of each layer: by ``layer_types`` where given, else by the family's rule for layer i."""
    kinds = config.items("layer_types")
    if not kinds:
        return tuple(window if window and default(i) else None for i in range(num_layers))
    if len(kinds) != num_layers:
        raise InvalidInputError(
            f"{config.origin} needs one entry of layer_types for each layer", allowed=str(num_layers), given=len(kinds)
        )
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedError(f"layer type {kind!r} of {config.origin} is not modelled.")
    if window is None and "sliding_attention" in kinds:
        raise InvalidInputError(f"{config.origin} has sliding layers, so it needs the key 'sliding_window'")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def qwen_windows(config: Config, *, first: int) -> tuple[int | None, ...]:
    """Windows of Qwen: off unless switched on, and then only from layer ``first``."""
    used = config.flag("use_sliding_window", default=False)
    window = config.size("sliding_window", default=4096) if used else None
    return layer_windows(config, config.size("num_hidden_layers"), window, lambda layer: layer >= first)
