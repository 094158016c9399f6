"""The transformer equals the same one written in torch, weights copied over."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.tensor import SGD, AdamW, CausalLM, GroupedQueryAttention, Tensor, TransformerBlock, gradcheck

# float64 through some hundred operations: rounding differs in the last digits.
CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def torch_rope(x, base):
    tokens, size = x.shape[-2:]
    angle = torch.arange(tokens, dtype=x.dtype)[:, None] * base ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    turned = torch.cat([-x[..., size // 2:], x[..., :size // 2]], dim=-1)
    return x * angle.cos().repeat(1, 2) + turned * angle.sin().repeat(1, 2)


def torch_block(x, w, num_heads, num_kv_heads, base=10_000.0):
    """One block in torch's own functions; w maps our names to leaves."""
    batch, tokens, size = x.shape

    def heads(name, count):
        return F.linear(h, w[f"attention.{name}.weight"]).view(batch, tokens, count, -1).transpose(1, 2)

    h = F.rms_norm(x, (size,), w["attention_norm.weight"], eps=1e-5)
    q, k, v = heads("query", num_heads), heads("key", num_kv_heads), heads("value", num_kv_heads)
    q, k = torch_rope(q, base), torch_rope(k, base)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(mixed.transpose(1, 2).reshape(batch, tokens, -1), w["attention.output.weight"])
    h = F.rms_norm(x, (size,), w["feed_forward_norm.weight"], eps=1e-5)
    gate = F.silu(F.linear(h, w["feed_forward.gate.weight"])) * F.linear(h, w["feed_forward.up.weight"])
    return x + F.linear(gate, w["feed_forward.down.weight"])


def leaves_of(module):
    return {name: torch.tensor(p.data, requires_grad=True) for name, p in module.named_parameters()}


def assert_same_gradients(module, leaves):
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(parameter.grad.data, leaves[name].grad.numpy(), err_msg=name, **CLOSE)


@pytest.mark.parametrize("fused", [False, True])
@settings(max_examples=12, deadline=None)
@given(batch=st.integers(1, 3), tokens=st.integers(1, 5), kv_heads=st.integers(1, 2), group=st.integers(1, 3),
       half=st.integers(1, 2), feed_forward=st.integers(1, 7), transposed=st.booleans(), seed=st.integers(0, 999))
def test_a_block_with_grouped_queries_equals_torch(fused, batch, tokens, kv_heads, group, half, feed_forward,
                                                   transposed, seed):
    rng = np.random.default_rng(seed)
    heads, size = kv_heads * group, 2 * half * kv_heads * group
    block = TransformerBlock(size, heads, kv_heads, feed_forward, fused=fused, rng=rng, dtype="fp64")
    leaves = leaves_of(block)
    array = rng.standard_normal((batch, size, tokens)).swapaxes(1, 2) if transposed else rng.standard_normal(
        (batch, tokens, size))
    x, x_torch = Tensor(array, requires_grad=True), torch.tensor(array.copy(), requires_grad=True)
    got, expected = block(x), torch_block(x_torch, leaves, heads, kv_heads)
    np.testing.assert_allclose(got.data, expected.detach().numpy(), **CLOSE)
    weights = rng.standard_normal(got.shape)
    got.backward(weights)
    expected.backward(torch.tensor(weights))
    np.testing.assert_allclose(x.grad.data, x_torch.grad.numpy(), **CLOSE)
    assert_same_gradients(block, leaves)


@pytest.mark.parametrize("tied", [False, True])
def test_a_language_model_equals_torch_in_loss_and_gradients(tied):
    rng = np.random.default_rng(0)
    lm = CausalLM(vocab_size=11, model_size=8, num_layers=2, num_heads=4, num_kv_heads=2, feed_forward_size=12,
                  tied=tied, rng=rng, dtype="fp64")
    leaves = leaves_of(lm)
    tokens, targets = rng.integers(0, 11, (2, 5)), rng.integers(0, 11, (2, 5))
    x = F.embedding(torch.tensor(tokens), leaves["token_embedding.weight"])
    for i in range(2):
        prefix = f"blocks.{i}."
        x = torch_block(x, {n.removeprefix(prefix): v for n, v in leaves.items() if n.startswith(prefix)}, 4, 2)
    head = leaves["token_embedding.weight" if tied else "lm_head.weight"]
    logits = F.linear(F.rms_norm(x, (8,), leaves["norm.weight"], eps=1e-5), head)
    expected = F.cross_entropy(logits.reshape(-1, 11), torch.tensor(targets).reshape(-1))
    loss = lm.loss(Tensor(tokens), Tensor(targets))
    loss.backward()
    expected.backward()
    assert math.isclose(loss.item(), expected.item(), rel_tol=1e-10)
    assert_same_gradients(lm, leaves)


def test_weights_copied_from_torch_give_torch_outputs():
    rng = np.random.default_rng(0)
    block = TransformerBlock(8, 4, 2, 6, rng=rng, dtype="fp64")
    weights = {name: torch.randn(*p.shape, dtype=torch.float64) for name, p in block.named_parameters()}
    block.load_parameters({name: value.numpy() for name, value in weights.items()})
    x = rng.standard_normal((2, 3, 8))
    np.testing.assert_allclose(block(Tensor(x)).data, torch_block(torch.tensor(x), weights, 4, 2).numpy(), **CLOSE)


def test_names_are_those_of_a_torch_module_and_shared_weights_appear_once():
    lm = CausalLM(vocab_size=11, model_size=8, num_layers=1, num_heads=4, num_kv_heads=2, feed_forward_size=12,
                  tied=True, rng=np.random.default_rng(0))
    names = [name for name, _ in lm.named_parameters()]
    assert names == ["token_embedding.weight", "blocks.0.attention_norm.weight", "blocks.0.attention.query.weight",
                     "blocks.0.attention.key.weight", "blocks.0.attention.value.weight",
                     "blocks.0.attention.output.weight", "blocks.0.feed_forward_norm.weight",
                     "blocks.0.feed_forward.gate.weight", "blocks.0.feed_forward.up.weight",
                     "blocks.0.feed_forward.down.weight", "norm.weight"]
    # V D + 2 D + (2*64 + 2*8*4) + 3*8*12 + D = 88 + 16 + 192 + 288 + 8
    assert lm.num_parameters == 592


def test_the_future_does_not_leak_into_the_past():
    lm = CausalLM(vocab_size=11, model_size=8, num_layers=2, num_heads=2, feed_forward_size=12,
                  rng=np.random.default_rng(0))
    one, other = lm(Tensor([[1, 2, 3, 4]])).data, lm(Tensor([[1, 2, 9, 9]])).data
    np.testing.assert_array_equal(one[:, :2], other[:, :2])
    assert not np.allclose(one[:, 2:], other[:, 2:])


@pytest.mark.parametrize("optimizer", [lambda p: SGD(p, learning_rate=0.5), lambda p: AdamW(p, learning_rate=0.02)])
def test_training_learns_a_repeating_sequence(optimizer):
    lm = CausalLM(vocab_size=5, model_size=8, num_layers=1, num_heads=2, feed_forward_size=16,
                  rng=np.random.default_rng(0))
    tokens, targets = Tensor([[0, 1, 2, 3, 4, 0, 1, 2]]), Tensor([[1, 2, 3, 4, 0, 1, 2, 3]])
    first = lm.loss(tokens, targets).item()
    update = optimizer(lm.parameters())
    for _ in range(60):
        lm.zero_grad()
        lm.loss(tokens, targets).backward()
        update.step()
    assert lm.loss(tokens, targets).item() < first / 10


def test_adamw_equals_torch_step_by_step():
    rng = np.random.default_rng(0)
    from course_lib.tensor import Parameter

    start = rng.standard_normal(6)
    ours, theirs = Parameter(start.copy()), torch.nn.Parameter(torch.tensor(start))
    a, b = AdamW([ours], learning_rate=0.1), torch.optim.AdamW([theirs], lr=0.1, weight_decay=1e-2)
    for _ in range(5):
        ours.zero_grad()
        theirs.grad = None
        (ours ** 4).sum().backward()
        (theirs ** 4).sum().backward()
        a.step()
        b.step()
        np.testing.assert_allclose(ours.data, theirs.detach().numpy(), **CLOSE)
    assert a.state_bytes == 2 * ours.nbytes


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(InvalidInputError, match="multiple of key-value heads"):
        GroupedQueryAttention(8, 4, 3, rng=np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match="multiple of the heads"):
        GroupedQueryAttention(9, 4, 2, rng=np.random.default_rng(0))


def test_loading_wrong_parameters_names_them():
    block = TransformerBlock(8, 4, 2, 6, rng=np.random.default_rng(0))
    values = {name: p.data for name, p in block.named_parameters()}
    with pytest.raises(UnknownNameError, match=r"attention\.query\.weight"):
        block.load_parameters(values | {"attention.quary.weight": 0})
    with pytest.raises(InvalidInputError, match="attention_norm"):
        block.load_parameters({})
    with pytest.raises(InvalidInputError, match="shape"):
        block.load_parameters(values | {"attention_norm.weight": np.ones(3)})


def test_gradcheck_passes_a_whole_block():
    block = TransformerBlock(8, 4, 2, 6, rng=np.random.default_rng(0), dtype="fp64")
    x = Tensor(np.random.default_rng(1).standard_normal((2, 3, 8)), requires_grad=True)
    report = gradcheck(block, x)
    assert report, str(report)


# Relative size of a rounding: 2^-9 for bf16, 2^-12 for fp16 gradients near 1; some hundred roundings add up.
@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-4), ("bf16", 0.1), ("fp16", 0.02)])
@pytest.mark.parametrize("fused", [False, True])
def test_every_dtype_trains_in_its_own_dtype_and_near_float64(dtype, tolerance, fused):
    def model(kind):
        return CausalLM(vocab_size=11, model_size=8, num_layers=2, num_heads=4, num_kv_heads=2, feed_forward_size=12,
                        fused=fused, rng=np.random.default_rng(0), dtype=kind)

    lm, exact = model(dtype), model("fp64")
    tokens, targets = Tensor([[1, 2, 3, 4]]), Tensor([[2, 3, 4, 5]])
    for one in (lm, exact):
        one.loss(tokens, targets).backward()
    for (name, parameter), reference in zip(lm.named_parameters(), exact.parameters()):
        assert parameter.grad.dtype == dtype, name
        error = np.linalg.norm(parameter.grad.data - reference.grad.data) / np.linalg.norm(reference.grad.data)
        assert error < tolerance, name
    AdamW(lm.parameters()).step()
    assert {parameter.dtype for parameter in lm.parameters()} == {dtype}
