"""The character model as later rooms see it: a model shape, and a traced module."""

from __future__ import annotations

import pytest
import torch

from course_lib.models import SIZES
from course_lib.models.char_lm import load_char_lm
from course_lib.serving.shape_record import ModelShape
from course_lib.trace import trace_torch


@pytest.mark.parametrize("name", SIZES)
def test_the_shape_record_has_the_models_exact_parameters(name):
    model = load_char_lm(name)
    shape = ModelShape(**model.model_shape())
    assert shape.name == name
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    # K and V of every layer, D values of 2 bytes each
    assert shape.kv_bytes_per_token("fp16") == 2 * model.size.num_layers * model.size.model_size * 2


def test_the_traced_forward_pass_multiplies_what_the_formula_says():
    model = load_char_lm()
    batch, tokens, d, layers, vocabulary = 2, 16, 96, 4, 96
    trace = trace_torch(model, torch.zeros(batch, tokens, dtype=torch.long), backward=False)
    # matrices 12*D*D a layer and V*D at the end, 1 multiply-add a parameter and token; QK and PV: 2*T*T*D a layer
    matrices = batch * tokens * (layers * 12 * d * d + vocabulary * d)
    attention = batch * layers * 2 * tokens * tokens * d
    assert sum(event.work.macs for event in trace.events) == matrices + attention
    assert not trace.uncounted
