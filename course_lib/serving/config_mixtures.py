"""Readers of families with routed experts: Qwen3-MoE, Mixtral, gpt-oss, DeepSeek-V2 and V3."""

from __future__ import annotations

from course_lib.errors import InvalidInputError
from course_lib.serving.config_fields import Fields, common_fields, head_size, layer_windows, qwen_windows
from course_lib.serving.config_reader import Config
from course_lib.serving.experts import Experts, LatentAttention

__all__ = ["deepseek", "gpt_oss", "mixtral", "qwen3", "qwen3_moe"]


def qwen3(config: Config) -> Fields:
    """Qwen3: norms of queries and keys, heads of 128 unless the file says otherwise."""
    bias = config.flag("attention_bias", default=False)
    return common_fields(config, tied=False) | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads"), default=128),
        "query_key_value_bias": bias,
        "output_bias": bias,
        "query_key_norms": True,
        "attention_windows": qwen_windows(config, first=config.count("max_window_layers", default=28)),
    }


def qwen3_moe(config: Config) -> Fields:
    """Qwen3 with routed experts in every layer, every ``decoder_sparse_step``-th, or all but those named."""
    num_layers = config.size("num_hidden_layers")
    step = config.size("decoder_sparse_step", default=1)
    named = config.layer_indices("mlp_only_layers", num_layers)
    return qwen3(config) | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads")),
        "attention_windows": qwen_windows(config, first=0),
        "experts": Experts(
            num_experts=config.size("num_experts"),
            num_experts_per_token=config.size("num_experts_per_tok"),
            expert_feed_forward_size=config.size("moe_intermediate_size"),
            dense_layers=tuple(i for i in range(num_layers) if i in named or (i + 1) % step),
        ),
    }


def mixtral(config: Config) -> Fields:
    """Mixtral: Mistral with ``num_local_experts`` experts in each layer."""
    num_layers, window = config.size("num_hidden_layers"), config.optional_size("sliding_window")
    return common_fields(config, tied=False) | {
        "head_size": head_size(config, config.size("hidden_size"), config.size("num_attention_heads")),
        "attention_windows": layer_windows(config, num_layers, window, lambda layer: True),
        "experts": Experts(
            num_experts=config.size("num_local_experts"),
            num_experts_per_token=config.size("num_experts_per_tok"),
            expert_feed_forward_size=config.size("intermediate_size"),
        ),
    }


def gpt_oss(config: Config) -> Fields:
    """gpt-oss: biases everywhere, a sink for each head, windows in every other layer."""
    bias = config.flag("attention_bias", default=True)
    num_layers, window = config.size("num_hidden_layers"), config.size("sliding_window", default=128)
    return common_fields(config, tied=False) | {
        "head_size": config.size("head_dim", default=64),
        "query_key_value_bias": bias,
        "output_bias": bias,
        "feed_forward_bias": True,
        "attention_sinks": True,
        "attention_windows": layer_windows(config, num_layers, window, lambda layer: layer % 2 == 0),
        "experts": Experts(
            num_experts=config.size("num_local_experts"),
            num_experts_per_token=config.size("num_experts_per_tok"),
            expert_feed_forward_size=config.size("intermediate_size"),
            router_bias=True,
        ),
    }


def deepseek(config: Config) -> Fields:
    """DeepSeek-V2 and V3: latent attention; leading dense layers, then routed and shared experts."""
    config.refuse("attention_bias", "latent attention with biases")
    heads, num_layers = config.size("num_attention_heads"), config.size("num_hidden_layers")
    if config.size("num_key_value_heads", default=heads) != heads:
        raise InvalidInputError(
            f"{config.origin} uses latent attention, so num_key_value_heads equals num_attention_heads",
            allowed=str(heads),
            given=config.size("num_key_value_heads"),
        )
    latent = LatentAttention(
        kv_rank=config.size("kv_lora_rank"),
        rope_head_size=config.size("qk_rope_head_dim"),
        nope_head_size=config.size("qk_nope_head_dim"),
        value_head_size=config.size("v_head_dim"),
        query_rank=config.optional_size("q_lora_rank"),
    )
    first, every = config.count("first_k_dense_replace"), config.size("moe_layer_freq", default=1)
    experts = Experts(
        num_experts=config.size("n_routed_experts"),
        num_experts_per_token=config.size("num_experts_per_tok"),
        expert_feed_forward_size=config.size("moe_intermediate_size"),
        num_shared_experts=config.count("n_shared_experts"),
        dense_layers=tuple(i for i in range(num_layers) if i < first or i % every),
        # V3 corrects its choice of experts by one number each, kept in the checkpoint.
        router_bias=config.values.get("model_type") == "deepseek_v3",
    )
    return common_fields(config, tied=False, kv_heads=heads) | {
        "head_size": latent.query_head_size,
        "latent_attention": latent,
        "experts": experts,
    }
