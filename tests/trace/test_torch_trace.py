"""Any module, left as it was, or an error that names the operation."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.trace import Arithmetic, trace_torch


class Call(nn.Module):
    """A module of one function."""

    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, *inputs, **kwargs):
        return self.function(self, *inputs, **kwargs)


def state_of(module: nn.Module):
    tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    gradients = {name: p.grad if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()]
    return tensors, gradients, hooks, [m.training for m in module.modules()], torch.random.get_rng_state()


def assert_same_state(one, two):
    for left, right in zip(one[:2], two[:2]):
        assert left.keys() == right.keys()
        for name in left:
            assert (left[name] is None) == (right[name] is None)
            assert left[name] is None or torch.equal(left[name], right[name])
    assert one[2:4] == two[2:4]
    assert torch.equal(one[4], two[4])


def global_hooks() -> int:
    hooks = torch.nn.modules.module
    return len(hooks._global_forward_hooks) + len(hooks._global_forward_pre_hooks)


@pytest.mark.parametrize("with_grad", [False, True])
def test_the_module_is_left_exactly_as_it_was(with_grad):
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 2))
    x = torch.randn(2, 2, 6, 6, requires_grad=True)
    if with_grad:
        module(x).sum().backward()
        x.grad = None
    before, buffers = state_of(module), [id(buffer) for buffer in module.buffers()]
    trace_torch(module, x)
    assert_same_state(before, state_of(module))
    assert buffers == [id(buffer) for buffer in module.buffers()]
    assert x.grad is None
    assert global_hooks() == 0


def test_an_exception_leaves_the_module_as_it_was_too():
    def fail(self, x):
        F.dropout(x) @ self.w
        raise ValueError("no luck")

    module = nn.Sequential(nn.BatchNorm1d(3), Call(fail, w=torch.ones(3, 3)))
    x = torch.randn(4, 3)
    before = state_of(module)
    with pytest.raises(UnsupportedError, match="no luck"):
        trace_torch(module, x)
    assert_same_state(before, state_of(module))
    assert global_hooks() == 0
    assert gc.isenabled()


def test_the_graph_is_let_go_without_a_backward_pass():
    def run() -> weakref.ref[torch.Tensor]:
        probe = torch.zeros(3, requires_grad=True)
        trace_torch(Call(lambda self, x: torch.exp(x * probe)), torch.zeros(3), backward=False)
        return weakref.ref(probe)

    reference = run()  # exp keeps its own output, a cycle through the graph that ends in the probe
    gc.collect()
    assert reference() is None


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    extra: tuple[torch.Tensor, ...]


@pytest.mark.parametrize("wrap", [
    lambda y: y, lambda y: (y, y * 1), lambda y: {"a": y, "n": 3}, lambda y: Output(y, (y,)), lambda y: [[y]]])
def test_outputs_of_every_kind_are_differentiated(wrap):
    trace = trace_torch(Call(lambda self, x: wrap(x @ self.w), w=torch.ones(4, 5)), torch.zeros(3, 4))
    assert trace.backward.matmul_flops == 2 * 3 * 4 * 5


def test_an_output_with_a_loss_is_differentiated_by_its_loss_alone():
    def two_heads(self, x):
        return {"loss": (x @ self.a).mean(), "logits": x @ self.b}

    trace = trace_torch(Call(two_heads, a=torch.ones(4, 5), b=torch.ones(4, 7)), torch.zeros(3, 4))
    assert trace.forward.matmul_flops == 2 * 3 * 4 * (5 + 7)
    assert trace.backward.matmul_flops == 2 * 3 * 4 * 5


def test_tied_weights_are_one_storage_with_two_gradients_added():
    module = Call(lambda self, tokens: F.embedding(tokens, self.w) @ self.w.t(), w=torch.zeros(7, 4))
    trace = trace_torch(module, torch.tensor([1, 2, 3]))
    assert trace.parameter_bytes == 7 * 4 * 4
    assert [event.op for event in trace.backward if event.op in ("add", "add_", "embedding_dense_backward")] == [
        "embedding_dense_backward", "add"]  # fmt: skip


def test_frozen_and_no_grad_parts_have_no_backward():
    def half(self, x):
        with torch.no_grad():
            x = x @ self.a
        return x @ self.b

    trace = trace_torch(Call(half, a=torch.ones(4, 4), b=torch.ones(4, 4)), torch.zeros(2, 4))
    assert trace.backward.matmul_flops == 2 * 2 * 4 * 4  # dB only
    module = nn.Linear(4, 4).requires_grad_(False)
    assert len(trace_torch(module, torch.zeros(2, 4)).backward) == 0
    assert trace_torch(module, torch.zeros(2, 4, requires_grad=True)).backward.matmul_flops == 64


def test_operations_in_place_are_counted_and_write_where_they_read():
    trace = trace_torch(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.zeros(2, 4))
    relu = next(event for event in trace if event.op == "relu_")
    assert relu.inputs[0].storage_id == relu.outputs[0].storage_id
    assert (relu.work.flops, relu.work.bytes_moved) == (8, 64)
    assert trace.complete


def test_a_leaf_that_is_no_parameter_is_differentiated_and_gets_no_grad():
    leaf = torch.ones(4, 5, requires_grad=True)
    trace = trace_torch(Call(lambda self, x: x @ leaf), torch.zeros(3, 4))
    assert trace.backward.matmul_flops == 2 * 3 * 4 * 5
    assert leaf.grad is None


def test_the_graph_of_the_caller_is_not_touched():
    base = torch.ones(3, 4, requires_grad=True)
    x = base.exp()
    trace_torch(nn.Linear(4, 2), x)
    assert base.grad is None
    x.sum().backward()  # its graph still stands
    assert base.grad is not None


def test_the_same_tensor_given_twice_stays_the_same_tensor():
    seen = []
    trace_torch(Call(lambda self, a, b, *, c: seen.append(a is b is c) or a), *[torch.zeros(2)] * 2, c=torch.zeros(2))
    x = torch.zeros(2)
    trace_torch(Call(lambda self, a, b, *, c: seen.append(a is b is c) or a), x, x, c=x)
    assert seen == [False, True]


def test_checkpointing_runs_the_forward_again_in_backward():
    block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    module = nn.Sequential(nn.Linear(8, 8), Call(lambda self, x: checkpoint(self.block, x, use_reentrant=False)))
    module[1].block = block
    plain = trace_torch(nn.Sequential(module[0], block), torch.zeros(2, 8))
    again = trace_torch(module, torch.zeros(2, 8))
    assert again.forward.matmul_flops == plain.forward.matmul_flops
    # torch stops the second run once all that is saved is back: the last product is not repeated
    assert again.backward.matmul_flops == plain.backward.matmul_flops + 2 * 2 * 8 * 8
    assert again.saved_bytes < plain.saved_bytes


def test_modules_are_named_in_forward_and_backward():
    module = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 2)))
    trace = trace_torch(module, torch.zeros(3, 4))
    for phase in (trace.forward, trace.backward):
        assert {event.module for event in phase} == {"0", "1.0", "1.1"}
    assert trace.by_module()["1"] == trace.by_module()["1.0"] + trace.by_module()["1.1"]
    assert trace.backward.by_module()["1.0"].flops == 3 * 3 * 8  # tanh backward, 3 FLOPs an element


def test_inputs_move_to_a_module_on_meta():
    trace = trace_torch(nn.Linear(4, 2, device="meta"), torch.zeros(3, 4))
    assert trace.forward.matmul_flops == 2 * 3 * 4 * 2


def test_cpu_and_meta_agree_on_work_event_by_event():
    def block():
        return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3), nn.LogSoftmax(-1))

    cpu, meta = (trace_torch(block().to(device), torch.zeros(4, 6, device=device)) for device in ("cpu", "meta"))
    assert [(e.event_id, e.work) for e in cpu] == [(e.event_id, e.work) for e in meta]


def test_traces_repeat_exactly():
    module, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.zeros(2, 3, 8)
    assert trace_torch(module, x) == trace_torch(module, x)


@torch.library.custom_op("tracetest::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_custom_operation_is_uncounted_until_it_gets_a_rule():
    module = Call(lambda self, x: double(x))
    trace = trace_torch(module, torch.zeros(5))
    assert trace.uncounted == ("tracetest::double",)
    assert "incomplete" in str(trace.table())
    rules = {"tracetest::double": lambda op: Arithmetic(op.inputs[0].num_elements)}
    counted = trace_torch(module, torch.zeros(5), rules=rules)
    assert (counted.flops, counted.complete) == (5, True)


def test_a_failing_operation_is_named_with_its_module_and_what_to_do():
    module = nn.Sequential(nn.Linear(4, 4), Call(lambda self, x: x[x > 0])).to("meta")
    with pytest.raises(UnsupportedError, match=r"aten::index in module '1'.*CPU"):
        trace_torch(module, torch.zeros(2, 4))
    with pytest.raises(UnsupportedError, match=r"aten::(mm|addmm)"):
        trace_torch(nn.Linear(4, 4), torch.zeros(2, 5))


def test_sparse_tensors_are_refused_by_layout():
    with pytest.raises(UnsupportedError, match="sparse"):
        trace_torch(Call(lambda self, x: torch.sparse.mm(x.to_sparse(), self.w), w=torch.ones(4, 2)), torch.eye(4))


@pytest.mark.parametrize("given", [lambda x: x, None, torch.zeros(2)])
def test_something_that_is_no_module_is_refused(given):
    with pytest.raises(InvalidInputError, match=r"torch\.nn\.Module"):
        trace_torch(given, torch.zeros(2))


def test_limits_of_empty_and_absent_inputs():
    assert trace_torch(nn.Linear(4, 2), torch.zeros(0, 4)).matmul_flops == 0
    assert trace_torch(Call(lambda self: self.w.sum(), w=torch.ones(3))).flops == 2
    assert len(trace_torch(Call(lambda self, x: x), torch.zeros(2))) == 0
    assert trace_torch(Call(lambda self, x: None), torch.zeros(2)).flops == 0


def test_a_sparse_input_is_refused_in_our_words():
    with pytest.raises(UnsupportedError, match="to_dense"):
        trace_torch(nn.Linear(8, 8), torch.eye(8).to_sparse())
