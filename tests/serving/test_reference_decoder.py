"""The reference decoder has a shape's parameters to the last one, and its trace has the shape's work."""

from __future__ import annotations

import pytest
import torch

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.model_shape import model_shape, model_shapes
from course_lib.serving.reference_decoder import reference_decoder
from course_lib.serving.shape_record import ModelShape
from course_lib.trace import trace_torch


def is_dense(shape: ModelShape) -> bool:
    return shape.experts is None and shape.latent_attention is None and not shape.attention_sinks


DENSE = [name for name in model_shapes() if is_dense(model_shape(name))]
OTHER = [name for name in model_shapes() if name not in DENSE]
ONE_OF_EACH_FAMILY = ["gpt2", "opt-125m", "llama-3-8b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2b",
                      "gemma-2-2b", "gemma-3-1b"]  # fmt: skip


def num_vector_parameters(module: torch.nn.Module) -> int:
    """Norm weights and biases: they are read, and multiply nothing in a matrix product."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == 1)


@pytest.mark.parametrize("name", DENSE)
def test_parameters_equal_the_shape_to_the_last_one(name: str) -> None:
    shape = model_shape(name)
    decoder = reference_decoder(shape)
    assert sum(parameter.numel() for parameter in decoder.parameters()) == shape.num_parameters
    assert all(parameter.is_meta for parameter in decoder.parameters())


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_traced_flops_of_a_prompt_equal_the_closed_form(name: str) -> None:
    # 2 P_mm T for the weights, without norms and biases, and 4 T^2 N H L for dense attention. On the meta device the
    # attention of grouped queries runs as two batched products, so every FLOP below is one that was dispatched.
    shape, tokens = model_shape(name), 64
    decoder = reference_decoder(shape)
    trace = trace_torch(decoder, torch.zeros(1, tokens, dtype=torch.long), backward=False)
    weights = shape.matmul_flops_per_token - 2 * num_vector_parameters(decoder)
    attention = 4 * tokens**2 * shape.num_heads * shape.head_size * shape.num_layers
    assert trace.matmul_flops == weights * tokens + attention
    assert trace.uncounted == ()


def test_backward_costs_twice_the_forward() -> None:
    shape = model_shape("qwen2.5-0.5b")
    trace = trace_torch(reference_decoder(shape), torch.zeros(1, 32, dtype=torch.long))
    assert trace.backward.matmul_flops == 2 * trace.forward.matmul_flops


def test_a_decode_step_reads_the_weights_and_the_cache() -> None:
    shape, batch, context = model_shape("llama-3-8b"), 8, 1024
    decoder = reference_decoder(shape, batch=batch, cached_tokens=context)
    tokens = torch.zeros(batch, 1, dtype=torch.long)
    trace = trace_torch(decoder, tokens, backward=False, attention_convention="flash")
    attention = trace.where(lambda event: event.flop_source == "attention")
    # 2 * 8 sequences * 1,024 tokens * 131,072 B / 2 ... = 1,073,741,824 B of cache, read once; q is 1/4096 of it.
    assert 0 <= attention.bytes_read - batch * shape.kv_bytes(context) <= 0.005 * attention.bytes_read
    products = trace.where(lambda event: event.flop_source == "matmul")
    weights = 2 * (shape.num_matmul_parameters - num_vector_parameters(decoder))
    assert 0 <= products.bytes_read - weights <= 0.01 * weights


def test_a_sliding_window_caps_what_its_layer_caches() -> None:
    shape = model_shape("gemma-3-1b")
    decoder = reference_decoder(shape, batch=1, cached_tokens=4096)
    cached = sum(buffer.numel() for buffer in decoder.buffers()) * 2
    assert cached == shape.kv_bytes(4096) < 4096 * shape.kv_bytes_per_token()


def test_it_runs_with_real_numbers_and_its_cache_gives_the_logits_of_the_whole_prompt() -> None:
    shape = model_shape("qwen3-0.6b").with_changes(num_layers=2, vocab_size=64)
    torch.manual_seed(0)
    whole = reference_decoder(shape, torch_device="cpu", dtype="float32")
    step = reference_decoder(shape, torch_device="cpu", dtype="float32", cached_tokens=5)
    step.load_state_dict(whole.state_dict())
    tokens = torch.randint(64, (1, 5))
    seen: dict[str, torch.Tensor] = {}
    for name, module in whole.named_modules():
        if name.endswith(("key_norm", "value")):
            module.register_forward_hook(lambda _, __, output, name=name: seen.__setitem__(name, output))
    with torch.no_grad():
        expected = whole(tokens)[:, -1]
        for name, module in step.named_modules():
            if name.endswith("attention"):
                heads = (1, 5, shape.num_kv_heads, shape.head_size)
                module.cached_keys.copy_(seen[f"{name}.key_norm"].view(heads).transpose(1, 2))
                module.cached_values.copy_(seen[f"{name}.value"].view(heads).transpose(1, 2))
        # fp32 sums in another order: 5 digits of the largest logit
        assert torch.allclose(step(tokens[:, -1:])[:, -1], expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_built_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"(experts|latent|sinks).*{name}"):
        reference_decoder(model_shape(name))


def test_bad_arguments_are_said() -> None:
    shape = model_shape("gpt2")
    for wrong in ({"dtype": "int8"}, {"dtype": "bf17"}, {"batch": 0}, {"cached_tokens": -1}):
        with pytest.raises(InvalidInputError):
            reference_decoder(shape, **wrong)  # type: ignore[arg-type]
