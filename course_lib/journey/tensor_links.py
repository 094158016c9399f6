"""Values become tensors, tensors become a workload: what the model is, and what people ask of it."""

from __future__ import annotations

import math

from course_lib.journey.links import LinkRule, link
from course_lib.journey.served_model import ServedModel
from course_lib.tensor.dtypes import dtype_bits

__all__ = ["LINKS"]


@link("parameters", "parameter", "P: every weight once", basis="counted")
def num_parameters(weight_model: ServedModel) -> float:
    return weight_model.num_parameters


@link("stored weights", "B", "P * bytes of the weight format", basis="counted")
def weight_bytes(num_parameters: float, weight_dtype: str) -> float:
    return num_parameters * dtype_bits(weight_dtype) / 8


@link("FLOPs of one token", "FLOP", "2 * P_mm, the active weights that multiply (no look-ups)", basis="counted")
def flops_per_token(work_model: ServedModel) -> float:
    return work_model.matmul_flops_per_token


@link("KV cache of one token", "B", "2 * L * K * H * bytes of the KV format", basis="counted")
def kv_bytes_per_token(kv_model: ServedModel, kv_dtype: str) -> float:
    return kv_model.kv_bytes_per_token(kv_dtype)


@link("arriving requests", "request/s", "given", basis="assumed")
def arrival_requests_per_second(arrivals: float) -> float:
    return arrivals


@link("prompt", "token", "mean of the workload", basis="assumed")
def prompt_tokens(mean_prompt_tokens: float) -> float:
    return mean_prompt_tokens


@link("output", "token", "mean of the workload", basis="assumed")
def output_tokens(mean_output_tokens: float) -> float:
    return mean_output_tokens


@link("prompt tokens to prefill", "token", "prompt * (1 - prefix hits)")
def prefill_tokens(prompt_tokens: float, prefix_hit_fraction: float) -> float:
    return prompt_tokens * (1 - prefix_hit_fraction)


@link("FLOPs of one prefill", "FLOP", "FLOPs of one token * tokens to prefill (+ attention, if switched on)")
def prefill_flops(
    flops_per_token: float, prefill_tokens: float, prompt_tokens: float, work_model: ServedModel,
    prefill_attention: bool,
) -> float:  # fmt: skip
    if not prefill_attention:
        return flops_per_token * prefill_tokens
    attention = work_model.attention_flops(max(1, round(prefill_tokens)), max(1, round(prompt_tokens)))
    return flops_per_token * prefill_tokens + attention


@link("tokens a sequence holds at its end", "token", "prompt + output, in whole blocks")
def held_tokens(prompt_tokens: float, output_tokens: float, kv_block_tokens: int) -> float:
    tokens = prompt_tokens + output_tokens
    return tokens if kv_block_tokens == 1 else math.ceil(tokens / kv_block_tokens) * kv_block_tokens


@link("mean context of a decode step", "token", "prompt + output / 2")
def context_tokens(prompt_tokens: float, output_tokens: float) -> float:
    return prompt_tokens + output_tokens / 2


LINKS: tuple[LinkRule, ...] = tuple(rule for rule in list(globals().values()) if isinstance(rule, LinkRule))
"""These links, in the order in which they are written above."""
