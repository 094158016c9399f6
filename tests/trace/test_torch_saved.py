"""What autograd keeps: exercises 1.3 and 1.4, and an oracle that walks the graph's own saved tensors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib.trace import trace_torch

UNIT = 32 * 64 * 4  # batch 32, width 64, fp32


def stack(activation: type[nn.Module], width: int = 64, layers: int = 4) -> nn.Sequential:
    parts: list[nn.Module] = []
    for index in range(layers):
        parts += [nn.Linear(width, width)] + ([activation()] if index < layers - 1 else [])
    return nn.Sequential(*parts)


@pytest.mark.parametrize(("activation", "units", "raw"), [
    (nn.ReLU, 4, 106_496), (nn.Tanh, 4, 106_496), (nn.Identity, 4, 81_920), (nn.GELU, 7, 106_496),
    (nn.SiLU, 7, 106_496)])  # fmt: skip
def test_activations_keep_four_or_seven_units_while_raw_bytes_hide_it(activation, units, raw):
    # 4 inputs of Linear; ReLU and Tanh keep their output, which is the next input; GELU and SiLU keep their input too
    for device in ("cpu", "meta"):
        trace = trace_torch(stack(activation).to(device), torch.zeros(32, 64, device=device))
        assert trace.saved_bytes == units * UNIT
        assert trace.raw_saved_bytes == raw


class Eager(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)
        return torch.softmax(scores, -1) @ v


class Fused(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 40))
def test_attention_keeps_its_matrix_unless_fused(h, n, d):
    q, k, v = (torch.zeros(1, h, n, d, requires_grad=True) for _ in range(3))
    assert trace_torch(Eager(), q, k, v).saved_bytes == (3 * h * n * d + h * n * n) * 4
    assert trace_torch(Fused(), q, k, v).saved_bytes == (4 * h * n * d + h * n) * 4


def test_fused_attention_of_the_course_keeps_264192_bytes_on_both_devices():
    for device in ("cpu", "meta"):
        q, k, v = (torch.zeros(1, 4, 128, 32, device=device, requires_grad=True) for _ in range(3))
        assert trace_torch(Fused(), q, k, v, attention_convention="flash").saved_bytes == 264_192


def storages_kept_by_the_graph(module: nn.Module, x: torch.Tensor) -> int:
    """Oracle: walk the graph and read each node's own ``_saved_*`` tensors."""
    output = module(x)
    parameters = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                value = getattr(node, name)
                for tensor in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(tensor, torch.Tensor):
                        storage = tensor.untyped_storage()
                        kept[storage.data_ptr()] = storage.nbytes()
        waiting.extend(following for following, _ in node.next_functions)
    return sum(nbytes for pointer, nbytes in kept.items() if pointer not in parameters)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.lists(st.sampled_from(
    [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus]), min_size=1, max_size=5))
def test_saved_bytes_equal_those_of_the_graph_itself(batch, width, activations):
    parts: list[nn.Module] = []
    for activation in activations:
        parts += [nn.Linear(width, width), nn.LayerNorm(width), activation()]
    module, x = nn.Sequential(*parts), torch.randn(batch, width)
    assert trace_torch(module, x).saved_bytes == storages_kept_by_the_graph(module, x)


def test_each_saved_tensor_is_named_at_the_operation_that_keeps_it():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    trace = trace_torch(module, torch.zeros(2, 4))
    events = {event.event_id: event for event in trace}
    tanh = events["forward:1:tanh:0"]
    assert tanh.saved_storages == (tanh.outputs[0].storage_id,)
    second = events["forward:2:addmm:0"]
    assert set(second.saved_storages) == {second.inputs[1].storage_id, second.inputs[2].storage_id}
    assert events["forward:0:addmm:0"].saved_storages == (events["forward:0:addmm:0"].inputs[1].storage_id,)


def test_nothing_is_saved_where_no_gradient_is_asked():
    with torch.no_grad():
        trace = trace_torch(stack(nn.GELU), torch.zeros(2, 64), backward=False)
    assert (trace.saved_bytes, trace.raw_saved_bytes, len(trace.backward)) == (0, 0, 0)


def test_a_saved_view_counts_its_whole_storage():
    class Half(nn.Module):
        def forward(self, x):
            return torch.exp(x.clone()[:, :4]) * x[:, 4:]

    x = torch.zeros(2, 8, requires_grad=True)
    # exp keeps its output (2 x 4) and mul keeps it again; mul also keeps half of x: its whole storage of 2 x 8
    assert trace_torch(Half(), x).saved_bytes == (2 * 4 + 2 * 8) * 4


def test_peak_is_at_least_inputs_and_saved_and_grows_with_the_batch():
    small, large = (trace_torch(stack(nn.GELU), torch.zeros(batch, 64)) for batch in (8, 16))
    assert small.peak_bytes >= small.saved_bytes
    assert small.peak_bytes < large.peak_bytes
    assert small.parameter_bytes == large.parameter_bytes == 4 * (64 * 64 + 64) * 4
