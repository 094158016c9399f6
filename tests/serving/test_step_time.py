"""Step times: the roofline formula term by term, its floor, and the straight line that lets a simulator jump."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.hardware import device
from course_lib.hardware.collectives import ring_all_reduce_seconds
from course_lib.serving import AffineStepTime, RooflineStepTime, StepBatch, model_shape

H100, LLAMA = device("h100-sxm"), model_shape("llama-3-8b")
ROOFLINE = RooflineStepTime(shape=LLAMA, device=H100)


def test_a_flagship_decode_step_is_the_formula_by_hand():
    # P_mm = 8,030,261,248 - 128,256 * 4096 = 7,504,924,672. Compute 2 * P_mm * 211 / (0.6 * 989e12) = 5.337 ms;
    # weights 2 * P_mm / (0.8 * 3.35e12) = 5.601 ms binds; KV 211 * 1650 * 131,072 / 2.68e12 = 17.027 ms; + 0.5 ms.
    step = ROOFLINE(StepBatch(decode_contexts=(1650,) * 211))
    weights, kv = 2 * 7_504_924_672 / 2.68e12, 211 * 1650 * 131_072 / 2.68e12
    assert step == pytest.approx(weights + kv + 5e-4, rel=1e-12)
    assert round(step * 1e3, 2) == 23.13


def test_a_prompt_takes_its_matmuls_and_shares_the_step_with_decodes():
    compute = 2 * 7_504_924_672 / (0.6 * H100.peak("bf16"))
    assert ROOFLINE(StepBatch(prefill=((1500, 1500),))) == pytest.approx(1500 * compute + 5e-4, rel=1e-12)
    both = ROOFLINE(StepBatch(prefill=((1500, 1500),), decode_contexts=(100,)))
    assert both == pytest.approx(1501 * compute + 100 * 131_072 / 2.68e12 + 5e-4, rel=1e-12)


def test_a_chunk_reads_the_keys_of_the_chunks_before_it():
    first, second = (ROOFLINE(StepBatch(prefill=((500, context),))) for context in (500, 1000))
    assert second - first == pytest.approx(500 * 131_072 / 2.68e12, rel=1e-9)


def test_prompt_attention_is_a_switch_and_counts_causal_pairs():
    switched = dataclasses.replace(ROOFLINE, prefill_attention=True)
    batch = StepBatch(prefill=((4000, 4000),))
    flops = LLAMA.attention_flops(4000, 4000)  # 4 N H L * 4000 * 4001 / 2
    assert switched(batch) - ROOFLINE(batch) == pytest.approx(flops / (0.6 * H100.peak("bf16")), rel=1e-9)


def test_weight_only_int4_saves_bytes_and_no_flops():
    int4 = dataclasses.replace(ROOFLINE, weight_dtype="int4-g64")
    small, large = StepBatch(decode_contexts=(10,)), StepBatch(prefill=((9000, 9000),))
    assert int4(small) < 0.4 * ROOFLINE(small)
    assert int4(large) == ROOFLINE(large)
    fp8 = dataclasses.replace(ROOFLINE, weight_dtype="fp8", compute_dtype="fp8")
    assert fp8(large) < 0.6 * ROOFLINE(large)


def test_experts_are_read_as_far_as_the_batch_needs_them():
    step = RooflineStepTime(shape=model_shape("mixtral-8x7b"), device=device("h200"), fixed_seconds=0)
    one, many = (step(StepBatch(decode_contexts=(1,) * batch)) for batch in (1, 64))
    assert one == pytest.approx(model_shape("mixtral-8x7b").decode_weight_bytes(1) / (0.8 * 4.8e12), rel=1e-3)
    assert 3 < many / one < 4  # 2 of 8 experts, then practically all


def test_two_ring_all_reduces_a_layer_are_added_under_tensor_parallelism():
    shape = model_shape("llama-3-70b")
    step = RooflineStepTime(shape=shape, device=H100, tensor_parallel=8)
    one = ring_all_reduce_seconds(
        32 * 8192 * 2, 8, bytes_per_second=H100.link_bytes_per_second, latency_seconds=H100.link_latency_seconds or 0.0
    )
    assert step.all_reduce_seconds(32) == pytest.approx(2 * 80 * one, rel=1e-12)
    batch = StepBatch(decode_contexts=(8192,) * 32)
    rest = step(batch) - step.all_reduce_seconds(32)
    # (P - norms) / 8 + norms, norms 161 * 8192; less the 16,032 rows of the table that are only looked up
    weights, kv = 8_820_367_360 - 16_032 * 8192, 32 * 8192 * 40_960  # on one of eight devices
    assert rest == pytest.approx((2 * weights + kv) / 2.68e12 + 5e-4, rel=1e-9)


def test_sliding_windows_cap_what_is_read_and_break_the_line():
    windowed = RooflineStepTime(shape=LLAMA.with_changes(attention_windows=(1000,) * 32), device=H100)
    assert not windowed.is_context_affine
    assert windowed(StepBatch(decode_contexts=(5000,))) == pytest.approx(ROOFLINE(StepBatch(decode_contexts=(1000,))))
    with pytest.raises(UnsupportedError, match="StepBatch"):
        windowed.totals_seconds()


chunks = st.tuples(st.integers(1, 3000), st.integers(0, 3000)).map(lambda c: (c[0], c[0] + c[1]))
batches = st.builds(
    StepBatch,
    prefill=st.lists(chunks, max_size=3).map(tuple),
    decode_contexts=st.lists(st.integers(1, 9000), max_size=40).map(tuple),
    num_idle_rows=st.integers(0, 3),
).filter(lambda batch: batch.num_tokens)


@settings(deadline=None)
@given(batches, st.sampled_from(("llama-3-8b", "mixtral-8x7b", "gpt2")), st.floats(0.05, 1), st.floats(0.05, 1))
def test_no_step_is_faster_than_light(batch, name, compute, bandwidth):
    step = RooflineStepTime(
        shape=model_shape(name), device=H100, efficiency_compute=compute, efficiency_bandwidth=bandwidth,
        fixed_seconds=0,
    )  # fmt: skip
    assert step(batch) >= step.floor_seconds(batch) * (1 - 1e-12)


@given(batches)
def test_the_totals_of_a_batch_say_all_a_step_time_needs(batch):
    affine = AffineStepTime(
        fixed_seconds=1e-3, seconds_per_sequence=1e-4, seconds_per_context_token=1e-6, seconds_per_prefill_token=1e-5
    )
    for step in (affine, ROOFLINE):
        assert step(batch) == step.totals_seconds()(*batch.totals)
        longer = dataclasses.replace(batch, decode_contexts=tuple(c + 1 for c in batch.decode_contexts))
        grown = step.seconds_per_context_token * len(batch.decode_contexts)
        assert step(longer) - step(batch) == pytest.approx(grown, rel=1e-6, abs=1e-15)
    pairs = sum(sum(range(context - new + 1, context + 1)) for new, context in batch.prefill)
    assert batch.totals[2] == pairs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"efficiency_compute": 1.1}, "efficiency_compute"),
        ({"efficiency_bandwidth": 0}, "efficiency_bandwidth"),
        ({"fixed_seconds": -1}, "fixed_seconds"),
        ({"tensor_parallel": 3}, "divide"),
    ],
)
def test_impossible_settings_are_named(change, words):
    with pytest.raises(InvalidInputError, match=words):
        dataclasses.replace(ROOFLINE, **change)


def test_formats_the_device_cannot_multiply_are_refused_and_fp16_stands_in_for_bf16():
    with pytest.raises(UnsupportedError, match="fp8"):
        RooflineStepTime(shape=LLAMA, device=device("a100-80gb-sxm"), compute_dtype="fp8")
    assert RooflineStepTime(shape=LLAMA, device=device("t4")).compute_dtype == "fp16"
    assert ROOFLINE.compute_dtype == "bf16"


def test_impossible_batches_and_a_step_without_time_are_refused():
    for bad in ({"prefill": ((5, 4),)}, {"prefill": ((0, 4),)}, {"decode_contexts": (0,)}, {"num_idle_rows": -1}):
        with pytest.raises(InvalidInputError):
            StepBatch(**bad)
    with pytest.raises(InvalidInputError, match="not all zero"):
        AffineStepTime()
