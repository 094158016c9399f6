"""A real torch module goes from its tensors to dollars."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.journey import Journey, TracedModel, traced_model
from course_lib.models.char_lm import CharLM
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.workload import Workload
from course_lib.trace import trace_torch

SHORT = Workload(arrival_requests_per_second=60, prompt_tokens=64, output_tokens=64)
TOKENS = torch.zeros(1, 32, dtype=torch.long)


class Tiny(nn.Module):
    """One layer, two heads of 4, no stated shape; attention written out (eager) or fused."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.embedding = nn.Embedding(20, 8)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.head = nn.Linear(8, 20, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(x).view(*tokens.shape, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        output: Tensor = self.head(mixed.transpose(1, 2).reshape(*x.shape))
        return output


class OneHot(nn.Module):
    """Multiplies one-hot rows: no embedding to see tokens by."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(20, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output: Tensor = self.linear(torch.ones(*tokens.shape, 20))
        return output


def test_the_character_model_is_counted_from_its_tensors() -> None:
    model = traced_model(CharLM())
    assert model.num_parameters == 465_600
    assert model.num_lookup_parameters == 128 * 96  # learned positions; the tied table multiplies as the output head
    # 4 * (96*288 + 96*96 + 2*96*384) + 96*96 = 451,584 weights multiply; two FLOPs each
    assert model.matmul_flops_per_token == 2 * 451_584
    assert model.attention_flops_per_pair == 4 * 4 * 96  # 4 * N * H a layer, four layers
    assert model.kv_elements_per_token == 2 * 4 * 4 * 24


def test_the_character_model_goes_to_dollars_and_agrees_with_its_stated_shape() -> None:
    module = CharLM()
    traced = Journey(model=module, workload=SHORT)
    stated = Journey(model=ModelShape(**module.model_shape()), workload=SHORT)  # type: ignore[arg-type]
    assert traced["num_parameters"] == stated["num_parameters"] == 465_600
    assert traced["kv_bytes_per_token"] == stated["kv_bytes_per_token"]
    # The shape counts norm parameters among those that multiply (below 0.5 %), the trace does not.
    assert traced["flops_per_token"] == pytest.approx(stated["flops_per_token"], rel=0.005)
    assert traced.bill.billed_usd_per_month == stated.bill.billed_usd_per_month == 2 * 730 * 2.95
    assert "465,600 parameter" in traced.explain().text()


def test_a_traced_journey_survives_json_and_a_trace_is_enough() -> None:
    journey = Journey(model=CharLM(), workload=SHORT)
    again = Journey.from_dict(json.loads(json.dumps(journey.to_dict())))
    assert again.bill.continuous_usd_per_month == journey.bill.continuous_usd_per_month
    from_trace = Journey(model=trace_torch(CharLM(), TOKENS, backward=False), workload=SHORT)
    assert from_trace["num_parameters"] == 465_600
    assert from_trace["flops_per_token"] == journey["flops_per_token"]
    assert from_trace["kv_bytes_per_token"] == journey["kv_bytes_per_token"]


@pytest.mark.parametrize("fused", [True, False])
def test_a_module_without_a_shape_is_traced_with_the_tokens_given(fused: bool) -> None:
    model = traced_model(Tiny(fused=fused), TOKENS, kv_elements_per_token=None if fused else 16)
    assert model.num_parameters == 20 * 8 + 8 * 24 + 8 * 20
    assert model.num_lookup_parameters == 20 * 8
    assert model.matmul_flops_per_token == 2 * (8 * 24 + 8 * 20)
    assert model.attention_flops_per_pair == 4 * 8
    assert model.kv_elements_per_token == 16  # keys and values of 2 heads of 4
    assert Journey(model=model, workload=SHORT).bill.billed_usd_per_month > 0


def test_what_a_module_does_not_say_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"no model_shape\(\), so it is traced with a tensor of tokens"):
        Journey(model=Tiny(fused=True))
    with pytest.raises(InvalidInputError, match=r"KV cache of Tiny is not known.*kv_elements_per_token"):
        traced_model(Tiny(fused=False), TOKENS)
    with pytest.raises(InvalidInputError, match="token numbers of shape"):
        traced_model(nn.Linear(4, 4), torch.zeros(2, 4))
    with pytest.raises(InvalidInputError, match="looks tokens up in an embedding"):
        traced_model(OneHot(), TOKENS, kv_elements_per_token=1)


def test_a_module_whose_stated_shape_is_wrong_is_refused() -> None:
    class Liar(CharLM):
        def model_shape(self) -> dict[str, object]:
            return {**super().model_shape(), "num_layers": 5}

    with pytest.raises(InvalidInputError, match="465,600 parameters counted"):
        Journey(model=Liar(), workload=SHORT)


def test_a_traced_module_has_no_size_to_edit_and_no_heads_to_split() -> None:
    journey = Journey(model=CharLM(), workload=SHORT)
    with pytest.raises(InvalidInputError, match="no size can be edited"):
        journey.with_shape(num_layers=8)
    with pytest.raises(UnsupportedError, match="cannot be split"):
        journey.with_changes(tensor_parallel=2)
    assert "num_layers" not in dict(journey.sensitivity().elasticities)


def test_a_workload_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="sees at most 128 tokens"):
        Journey(model=CharLM())


def test_counts_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="above zero"):
        TracedModel(
            name="m", num_parameters=0, num_lookup_parameters=0, matmul_flops_per_token=1, attention_flops_per_pair=0,
            kv_elements_per_token=1,
        )  # fmt: skip
