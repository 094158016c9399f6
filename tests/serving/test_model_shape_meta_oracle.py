"""An independent route to each total: build the network with torch modules on the meta device and count.

The builder reads the raw ``config.json`` keys, never a ``ModelShape``; nothing here uses the library's formulas.
"""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
import torch
from torch import nn

from course_lib.serving.model_shape import model_shape, model_shapes


class Scale(nn.Module):
    """RMSNorm: one scale for each feature."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*shape))


class GroupedAttention(nn.Module):
    def __init__(self, c: dict, bias: tuple[bool, bool], norms: bool, sinks: bool) -> None:
        super().__init__()
        size, heads = c["hidden_size"], c["num_attention_heads"]
        head = c.get("head_dim") or size // heads
        kv = c.get("num_key_value_heads", heads)
        self.q = nn.Linear(size, heads * head, bias=bias[0])
        self.k = nn.Linear(size, kv * head, bias=bias[0])
        self.v = nn.Linear(size, kv * head, bias=bias[0])
        self.o = nn.Linear(heads * head, size, bias=bias[1])
        if norms:
            self.q_norm, self.k_norm = Scale(head), Scale(head)
        if sinks:
            self.sinks = nn.Parameter(torch.empty(heads))


class LatentAttention(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        size, heads, rank = c["hidden_size"], c["num_attention_heads"], c["q_lora_rank"]
        query = heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        if rank:
            self.q_down, self.q_norm = nn.Linear(size, rank, bias=False), Scale(rank)
        self.q_up = nn.Linear(rank or size, query, bias=False)
        self.kv_down = nn.Linear(size, c["kv_lora_rank"] + c["qk_rope_head_dim"], bias=False)
        self.kv_norm = Scale(c["kv_lora_rank"])
        self.k_up = nn.Linear(c["kv_lora_rank"], heads * c["qk_nope_head_dim"], bias=False)
        self.v_up = nn.Linear(c["kv_lora_rank"], heads * c["v_head_dim"], bias=False)
        self.o = nn.Linear(heads * c["v_head_dim"], size, bias=False)


class Gated(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, inner, bias=False), nn.Linear(size, inner, bias=False)
        self.down = nn.Linear(inner, size, bias=False)


class Routed(nn.Module):
    """Experts as stacked tensors, as engines store them."""

    def __init__(self, size: int, inner: int, count: int, *, biased: bool, shared: int = 0, corrected: bool = False):
        super().__init__()
        self.router = nn.Linear(size, count, bias=biased)
        self.gate_up = nn.Parameter(torch.empty(count, size, 2 * inner))
        self.down = nn.Parameter(torch.empty(count, inner, size))
        if biased:
            self.gate_up_bias = nn.Parameter(torch.empty(count, 2 * inner))
            self.down_bias = nn.Parameter(torch.empty(count, size))
        if shared:
            self.shared = Gated(size, shared * inner)
        if corrected:
            self.correction = nn.Parameter(torch.empty(count))


def feed_forward(c: dict, layer: int) -> nn.Module:
    size, kind = c["hidden_size"], c["model_type"]
    if kind == "mixtral":
        return Routed(size, c["intermediate_size"], c["num_local_experts"], biased=False)
    if kind == "gpt_oss":
        return Routed(size, c["intermediate_size"], c["num_local_experts"], biased=True)
    if kind == "qwen3_moe":
        return Routed(size, c["moe_intermediate_size"], c["num_experts"], biased=False)
    if kind.startswith("deepseek") and layer >= c["first_k_dense_replace"]:
        return Routed(
            size, c["moe_intermediate_size"], c["n_routed_experts"],
            biased=False, shared=c["n_shared_experts"], corrected=kind == "deepseek_v3",
        )  # fmt: skip
    return Gated(size, c["intermediate_size"])


def llama_line(c: dict) -> nn.Module:
    size, kind = c["hidden_size"], c["model_type"]
    bias = {"qwen2": (True, False), "gpt_oss": (True, True)}.get(kind, (False, False))
    layers = []
    for layer in range(c["num_hidden_layers"]):
        attention = (
            LatentAttention(c)
            if kind.startswith("deepseek")
            else GroupedAttention(c, bias, kind in ("qwen3", "qwen3_moe", "gemma3_text"), kind == "gpt_oss")
        )
        norms = [Scale(size) for _ in range(4 if kind in ("gemma2", "gemma3_text") else 2)]
        layers.append(nn.ModuleList([attention, feed_forward(c, layer), *norms]))
    parts = [nn.Embedding(c["vocab_size"], size), *layers, Scale(size)]
    if not c["tie_word_embeddings"]:
        parts.append(nn.Linear(size, c["vocab_size"], bias=False))
    return nn.ModuleList(parts)


def layer_norm_line(vocab: int, positions: int, size: int, inner: int, heads: int, layers: int) -> nn.Module:
    """GPT-2 and OPT: torch's own encoder layer has the same parameters as their blocks."""
    blocks = [nn.TransformerEncoderLayer(size, heads, inner, batch_first=True) for _ in range(layers)]
    return nn.ModuleList([nn.Embedding(vocab, size), nn.Embedding(positions, size), *blocks, nn.LayerNorm(size)])


def build(c: dict) -> nn.Module:
    if c["model_type"] == "gpt2":
        size = c["n_embd"]
        return layer_norm_line(c["vocab_size"], c["n_positions"], size, 4 * size, c["n_head"], c["n_layer"])
    if c["model_type"] == "opt":
        return layer_norm_line(
            c["vocab_size"], c["max_position_embeddings"] + 2, c["hidden_size"], c["ffn_dim"],
            c["num_attention_heads"], c["num_hidden_layers"],
        )  # fmt: skip
    return llama_line(c)


@pytest.mark.parametrize("name", model_shapes())
def test_the_total_equals_the_network_built_from_the_same_configuration(name):
    config = json.loads(files("course_lib.models").joinpath("shapes", f"{name}.json").read_text())
    with torch.device("meta"):
        network = build(config)
    assert model_shape(name).num_parameters == sum(p.numel() for p in network.parameters())


def test_the_parts_equal_the_parts_of_the_network():
    name = "deepseek-v3"
    config = json.loads(files("course_lib.models").joinpath("shapes", f"{name}.json").read_text())
    with torch.device("meta"):
        modules = list(build(config).modules())
    routed = [m for m in modules if isinstance(m, Routed)]
    groups = model_shape(name).parameter_groups
    assert groups.routed_experts == sum(m.gate_up.numel() + m.down.numel() for m in routed)
    attention = [p for m in modules if isinstance(m, LatentAttention) for p in m.parameters()]
    assert groups.attention == sum(p.numel() for p in attention)
