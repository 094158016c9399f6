"""Oracle: torch.utils.flop_counter on the meta device, forward and backward, to the exact integer."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.serving.model_shape import model_shape
from course_lib.serving.reference_decoder import reference_decoder
from course_lib.trace import trace_torch

SIZE = st.integers(1, 8)


def stock(module: nn.Module, *inputs: torch.Tensor) -> tuple[int, int]:
    """Forward and backward FLOPs by torch's own counter."""
    with FlopCounterMode(display=False) as forward:
        output = module(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    module.zero_grad(set_to_none=True)
    return forward.get_total_flops(), backward.get_total_flops()


def assert_equal(module: nn.Module, *inputs: torch.Tensor) -> None:
    trace = trace_torch(module, *inputs)
    assert (trace.forward.matmul_flops, trace.backward.matmul_flops) == stock(module, *inputs)
    assert trace.matmul_flops > 0
    assert trace.complete, trace.uncounted


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


class Einsum(nn.Module):
    def forward(self, a, b):
        return torch.einsum("bij,bkj->bik", a, b)


class Functional(nn.Module):
    """Raw products and a tied weight, no submodules."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        return torch.baddbmm(x, torch.bmm(x, x.transpose(1, 2) @ x), self.w.expand(x.shape[0], 6, 6)) @ self.w.t()


def modules_and_inputs():
    x, image = torch.randn(2, 5, 16), torch.randn(2, 4, 9, 9)
    yield "mlp", nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)), (
        torch.randn(32, 64),)  # fmt: skip
    yield "convolutions", nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.ConvTranspose2d(6, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 3)), (image,)  # fmt: skip
    yield "convolution 1d and 3d", nn.Sequential(nn.Conv1d(5, 7, 3), nn.GroupNorm(7, 7), nn.Unflatten(2, (1, 2, 7)),
                                                 nn.Conv3d(7, 2, (1, 2, 3))), (torch.randn(2, 5, 16),)  # fmt: skip
    yield "multi-head attention", nn.MultiheadAttention(16, 4, batch_first=True), (x, x, x)
    yield "encoder layer", nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (x,)
    yield "decoder layer", nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), (x, x)
    yield "lstm", nn.LSTM(16, 8, num_layers=2, bidirectional=True), (x,)
    yield "gru", nn.GRU(16, 8), (x,)
    yield "einsum", Einsum(), (x.clone().requires_grad_(), x.clone().requires_grad_())
    yield "functional", Functional(), (torch.randn(3, 6, 6, requires_grad=True),)


NAMES = ["mlp", "convolutions", "convolution 1d and 3d", "multi-head attention", "encoder layer", "decoder layer",
         "lstm", "gru", "einsum", "functional"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_matmul_flops_equal_the_stock_counter_on_meta(name):
    with torch.device("meta"):
        module, inputs = next((m, i) for n, m, i in modules_and_inputs() if n == name)
        assert_equal(module, *inputs)


@settings(max_examples=25, deadline=None)
@given(st.lists(SIZE, min_size=2, max_size=5), SIZE, st.sampled_from([nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh]),
       st.booleans())
def test_random_mlps_equal_the_stock_counter(sizes, batch, activation, requires_grad):
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), activation()]
        assert_equal(nn.Sequential(*layers), torch.randn(batch, sizes[0], requires_grad=requires_grad))


@settings(max_examples=25, deadline=None)
@given(SIZE, st.integers(1, 3), st.integers(1, 3), SIZE, SIZE, SIZE, st.booleans())
def test_random_grouped_query_attention_equals_the_stock_counter_on_both_devices(b, kv, group, t, s, d, causal):
    module = Attention(is_causal=causal, enable_gqa=True)
    shapes = [(b, kv * group, t, d), (b, kv, s, d), (b, kv, s, d)]
    inputs = [torch.randn(shape, device="meta", requires_grad=True) for shape in shapes]
    expected = stock(module, *inputs)
    for device in ("meta", "cpu"):  # the stock counter answers 0 for the kernel that the CPU runs
        trace = trace_torch(module, *[torch.zeros(shape, device=device, requires_grad=True) for shape in shapes])
        assert (trace.forward.matmul_flops, trace.backward.matmul_flops) == expected


@settings(max_examples=20, deadline=None)
@given(SIZE, SIZE, SIZE, st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.booleans())
def test_random_convolutions_equal_the_stock_counter(batch, c_in, c_out, kernel, stride, padding, transposed):
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    with torch.device("meta"):
        module = kind(c_in, c_out, kernel, stride=stride, padding=padding)
        assert_equal(module, torch.randn(batch, c_in, 6, 6, requires_grad=True))


def test_the_stock_counter_multiplies_the_weight_gradient_of_grouped_convolutions_by_the_groups():
    # An independent route: the same layer as `groups` separate layers on slices of the channels.
    groups = 4
    whole = nn.Conv1d(8, 12, 3, groups=groups, device="meta")
    part = nn.Conv1d(2, 3, 3, device="meta")
    x = torch.randn(2, 8, 9, device="meta", requires_grad=True)
    one = trace_torch(part, torch.randn(2, 2, 9, device="meta", requires_grad=True))
    trace = trace_torch(whole, x)
    assert trace.matmul_flops == groups * one.matmul_flops
    forward, backward = stock(whole, x)
    assert trace.forward.matmul_flops == forward
    # dX equals the forward count; the stock dW is `groups` times the true one
    assert backward == forward + groups * (trace.backward.matmul_flops - forward)


def test_attention_of_the_course_counts_its_published_numbers():
    # 4*B*H*N^2*d = 8,388,608 forward; backward 2 x or, recomputing, 2.5 x
    for device in ("cpu", "meta"):
        for convention, backward in (("unfused", 16_777_216), ("flash", 20_971_520)):
            q = torch.zeros(1, 2, 128, 64, device=device, requires_grad=True)
            trace = trace_torch(Attention(), q, q.detach().requires_grad_(), q.detach().requires_grad_(),
                                attention_convention=convention)  # fmt: skip
            assert trace.forward.matmul_flops == 8_388_608
            assert trace.backward.matmul_flops == backward
            assert trace.complete
            assert convention in str(trace.table())


def test_the_stock_counter_answers_zero_on_the_cpu_where_we_do_not():
    q = torch.zeros(1, 2, 16, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        Attention()(q, q, q)
    assert counter.get_total_flops() == 0
    assert trace_torch(Attention(), q, q, q).forward.matmul_flops == 4 * 2 * 16 * 16 * 8


def test_freezing_follows_the_rule_of_exercise_two():
    # L = 4 square layers: train only the last 0.25 x forward, only the first 1.00 x (3 dX and 1 dW)
    for trainable, factor in ((3, 0.25), (0, 1.0)):
        layers = [nn.Linear(16, 16, device="meta") for _ in range(4)]
        for index, layer in enumerate(layers):
            layer.requires_grad_(index == trainable)
        trace = trace_torch(nn.Sequential(*layers), torch.randn(8, 16, device="meta"))
        assert trace.backward.matmul_flops == factor * trace.forward.matmul_flops


@pytest.mark.parametrize("kind", ["encoder layer", "attention"])
def test_fused_inference_kernels_of_the_cpu_count_what_their_parts_count_on_meta(kind):
    module = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True) if kind == "encoder layer" else (
        nn.MultiheadAttention(16, 4, batch_first=True))  # fmt: skip
    module.eval()
    counts = []
    with torch.no_grad():
        for device in ("cpu", "meta"):
            x = torch.zeros(2, 5, 16, device=device)
            inputs = (x,) if kind == "encoder layer" else (x, x, x)
            counts.append(trace_torch(module.to(device), *inputs, backward=False))
    fused, parts = counts
    assert fused.matmul_flops == parts.matmul_flops > 0
    assert any(event.op in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention") for event in fused)


def test_composite_operations_of_inference_mode_are_opened():
    with torch.inference_mode():
        trace = trace_torch(nn.Linear(8, 4), torch.zeros(2, 3, 8), backward=False)
    assert trace.matmul_flops == 2 * 6 * 8 * 4
    assert trace.complete


def test_a_70b_model_traces_on_meta_and_equals_its_closed_form():
    # Per token 2 * P_mm, P_mm = P - V*D less norms; attention 4*T*T*D a layer forward (causal counted as dense)
    tokens = 2048
    model = reference_decoder(model_shape("llama-3-70b"))
    batch = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    assert sum(p.numel() for p in model.parameters()) == 70_553_706_496
    trace = trace_torch(model, batch)
    matrices = sum(p.numel() for p in model.parameters() if p.dim() == 2) - 128_256 * 8192
    forward = 2 * tokens * matrices + 80 * 4 * tokens * tokens * 8192
    assert trace.forward.matmul_flops == forward
    assert trace.backward.matmul_flops == 2 * forward  # tokens need no gradient, but every matrix is above them
    assert trace.complete
    assert trace.by_module(depth=2)["blocks.79"] == trace.by_module(depth=2)["blocks.7"]
