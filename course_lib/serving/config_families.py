"""Turn a public ``config.json`` into a model shape: one small reader for each family.

Each reader states what its family adds to the common decoder: which linear maps carry a bias, which norms exist,
which layers see only a window, whether the output head is the embedding table when the file does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.config_fields import Fields, common_fields, head_size, layer_windows, qwen_windows
from course_lib.serving.config_mixtures import deepseek, gpt_oss, mixtral, qwen3, qwen3_moe
from course_lib.serving.config_reader import Config
from course_lib.serving.experts import require_counts
from course_lib.serving.shape_record import ModelShape

__all__ = ["FAMILIES", "shape_from_config"]

_NOT_MODELLED = {
    "vision_config": "a vision tower", "audio_config": "an audio tower", "is_encoder_decoder": "an encoder-decoder",
    "add_cross_attention": "cross-attention", "ssm_cfg": "a state-space (Mamba) layer",
    "mamba_d_state": "a state-space (Mamba) layer", "attn_layer_period": "a hybrid of attention and Mamba layers",
    "linear_attn_config": "linear attention", "index_topk": "sparse attention with an indexer",
    "num_kv_shared_layers": "a KV cache shared between layers", "hidden_size_per_layer_input": "per-layer embeddings",
    "adapter_attn_dim": "adapters in the attention", "cross_layer_kv_sharing": "a KV cache shared between layers",
}  # fmt: skip
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
_LATENT_KEYS = ("kv_lora_rank", "q_lora_rank")
_KINDS = {
    "t5": "an encoder-decoder", "bart": "an encoder-decoder", "whisper": "an encoder-decoder",
    "bert": "an encoder without a KV cache", "roberta": "an encoder without a KV cache",
    "mamba": "a state-space model", "mamba2": "a state-space model", "falcon_mamba": "a state-space model",
    "rwkv": "a recurrent model", "jamba": "a hybrid of attention and Mamba layers", "qwen3_next": "linear attention",
    "gemma3": "a vision tower", "mllama": "a vision tower", "llava": "a vision tower", "llama4": "a vision tower",
    "qwen2_vl": "a vision tower", "qwen2_5_vl": "a vision tower", "qwen3_vl": "a vision tower",
    "gemma3n": "per-layer embeddings", "gemma4": "a vision tower", "deepseek_v32": "sparse attention with an indexer",
    "qwen2_moe": "a gated shared expert",
}  # fmt: skip


def shape_from_config(values: Mapping[str, object], *, name: str, origin: str = "", source: str = "") -> ModelShape:
    """Read a parsed ``config.json`` by the rules of its ``model_type``.

    Args:
        values: the JSON object.
        name: what to call the model.
        origin: file or name for error messages; ``name`` where empty.
        source: citation kept on the shape.

    Raises:
        InvalidInputError: a key is missing or impossible.
        UnsupportedError: the family, or a setting of it, is not modelled; it is named.

    >>> shape_from_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
    ...                    "vocab_size": 50257}, name="mine").num_parameters
    124439808
    """
    config = Config(values=values, origin=origin or name)
    family = values.get("model_type")
    if not isinstance(family, str) or not family:
        raise InvalidInputError(
            f"{config.origin} needs the key 'model_type'", given=repr(family), allowed=", ".join(FAMILIES)
        )
    if family not in FAMILIES:
        reason = f", {_KINDS[family]}," if family in _KINDS else ""
        hint = " Its text model can be read: put the object 'text_config' in a file of its own." * (
            isinstance(values.get("text_config"), Mapping)
        )
        raise UnsupportedError(
            f"model_type {family!r}{reason} of {config.origin} is not modelled; modelled: {', '.join(FAMILIES)}.{hint}"
        )
    for key, reason in _NOT_MODELLED.items():
        config.refuse(key, reason)
    reader, keys = FAMILIES[family]
    for key in (*_EXPERT_KEYS, *_LATENT_KEYS):
        if key not in keys:
            config.refuse(key, f"{key} in a {family} model")
    for key in ("num_hidden_layers", "n_layer"):
        if config.values.get(key):  # before any list of layers is made
            require_counts(config.origin, positive={"num_layers": config.size(key)})
    fields = reader(config)
    if "attention_windows" not in fields:  # the family has none by itself, but layer_types may name some
        num_layers, window = fields["num_layers"], config.optional_size("sliding_window")
        assert isinstance(num_layers, int)
        fields["attention_windows"] = layer_windows(config, num_layers, window, lambda layer: False)
    return ModelShape(name=name, family=family, notes=_notes(config), source=source, **fields)  # type: ignore[arg-type]


def _notes(config: Config) -> tuple[str, ...]:
    """What the file says that the totals leave out or that changes the bytes; said, never dropped."""
    notes = []
    quantization = config.values.get("quantization_config")
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method", "an unnamed method")
        notes.append(f"the checkpoint is stored quantized ({method}); byte totals use the format asked for")
    if config.count("num_nextn_predict_layers"):
        notes.append("the multi-token-prediction layers of the checkpoint are not counted: main model only")
    return tuple(notes)


def _llama(config: Config) -> Fields:
    fields = common_fields(config, tied=False, kv_heads=config.size("num_attention_heads"))
    bias = config.flag("attention_bias", default=False)
    return fields | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads")),
        "query_key_value_bias": bias,
        "output_bias": bias,
        "feed_forward_bias": config.flag("mlp_bias", default=False),
    }


def _mistral(config: Config) -> Fields:
    num_layers = config.size("num_hidden_layers")
    # Absent means 4096, as in the first release; null (from v0.2 on) means none.
    window = config.optional_size("sliding_window") if "sliding_window" in config.values else 4096
    return common_fields(config, tied=False) | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads")),
        "attention_windows": layer_windows(config, num_layers, window, lambda layer: True),
    }


def _qwen2(config: Config) -> Fields:
    return common_fields(config, tied=False) | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads")),
        "query_key_value_bias": True,
        "attention_windows": qwen_windows(config, first=config.count("max_window_layers", default=28)),
    }


def _gemma(config: Config) -> Fields:
    bias = config.flag("attention_bias", default=False)
    fields = common_fields(config, tied=True)
    size = config.size("head_dim", default=256)
    return fields | {"head_size": size, "query_key_value_bias": bias, "output_bias": bias}


def _gemma2(config: Config) -> Fields:
    num_layers, window = config.size("num_hidden_layers"), config.size("sliding_window", default=4096)
    return _gemma(config) | {
        "norms_per_layer": 4,
        "attention_windows": layer_windows(config, num_layers, window, lambda layer: layer % 2 == 0),
    }


def _gemma3(config: Config) -> Fields:
    # The public files leave out heads, KV heads and vocabulary where they equal these.
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}
    config = Config(values=defaults | dict(config.values), origin=config.origin)
    window = config.size("sliding_window", default=4096)
    pattern = config.size("sliding_window_pattern", default=6)
    return _gemma(config) | {
        "norms_per_layer": 4,
        "query_key_norms": True,
        "attention_windows": layer_windows(
            config, config.size("num_hidden_layers"), window, lambda layer: (layer + 1) % pattern != 0
        ),
    }


def _gpt2(config: Config) -> Fields:
    size, heads = config.size("n_embd"), config.size("n_head")
    positions = config.size("n_positions")
    return {
        "num_layers": config.size("n_layer"),
        "model_size": size,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_size": head_size(config, size, heads),
        "feed_forward_size": config.size("n_inner", default=4 * size),
        "vocab_size": config.size("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=True),
        "num_positions": positions,
        "max_context_tokens": positions,
    } | _BIASED


def _opt(config: Config) -> Fields:
    size, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.refuse("_remove_final_layer_norm", "OPT without its final norm")
    config.refuse("word_embed_proj_dim", "OPT with a projected embedding (as in opt-350m)", allowed=size)
    for key, reason in (("do_layer_norm_before", "OPT with norms after its blocks (as in opt-350m)"),
                        ("enable_bias", "OPT without biases"),
                        ("layer_norm_elementwise_affine", "OPT with norms without parameters")):  # fmt: skip
        if not config.flag(key, default=True):
            raise UnsupportedError(f"{reason} is not modelled ({key} = False in {config.origin}).")
    positions = config.size("max_position_embeddings")
    return {
        "num_layers": config.size("num_hidden_layers"),
        "model_size": size,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_size": head_size(config, size, heads),
        "feed_forward_size": config.size("ffn_dim"),
        "vocab_size": config.size("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=True),
        "num_positions": positions + 2,  # OPT's table starts at row 2
        "max_context_tokens": positions,
    } | _BIASED


_BIASED: Fields = {
    "gated_feed_forward": False,
    "query_key_value_bias": True,
    "output_bias": True,
    "feed_forward_bias": True,
    "norm_bias": True,
}


FAMILIES: dict[str, tuple[Callable[[Config], Fields], tuple[str, ...]]] = {
    "gpt2": (_gpt2, ()),
    "opt": (_opt, ()),
    "llama": (_llama, ()),
    "mistral": (_mistral, ()),
    "mixtral": (mixtral, ("num_local_experts",)),
    "qwen2": (_qwen2, ()),
    "qwen3": (qwen3, ()),
    "qwen3_moe": (qwen3_moe, ("num_experts",)),
    "gemma": (_gemma, ()),
    "gemma2": (_gemma2, ()),
    "gemma3_text": (_gemma3, ()),
    "gpt_oss": (gpt_oss, ("num_local_experts", "num_experts")),
    "deepseek_v2": (deepseek, ("n_routed_experts", *_LATENT_KEYS)),
    "deepseek_v3": (deepseek, ("n_routed_experts", *_LATENT_KEYS)),
}
"""Reader of each modelled ``model_type``, and the expert or latent keys that it understands."""
