"""Closed forms equal the ledger of the executed algorithm to the byte; goldens; tiles that fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.hardware.scratchpad import CapacityError
from course_lib.optimization import (
    AttentionShape,
    FlopCount,
    break_even_block_q,
    flash_attention,
    flash_attention_backward,
    flash_flops,
    flash_hbm_bytes,
    flash_rescale_flops,
    largest_block_q,
    scratchpad_ledger,
    standard_attention,
    standard_attention_backward,
    standard_flops,
    standard_hbm_bytes,
    tile_bytes,
    zero_fill_bytes,
)
from course_lib.units import GB

GPT2_MEDIUM = AttentionShape(num_queries=1024, head_size=64, num_heads=64 * 16)  # batch 64, 16 heads


def total_bytes(block_k: int, **convention: int) -> int:
    forward = flash_hbm_bytes(GPT2_MEDIUM, block_q=64, block_k=block_k, order="fa1", training=True, **convention)
    backward = flash_hbm_bytes(GPT2_MEDIUM, block_q=64, block_k=block_k, order="fa1", backward=True, **convention)
    return forward + backward


SIZES = st.builds(
    AttentionShape,
    num_queries=st.integers(1, 90), num_keys=st.integers(1, 90), head_size=st.sampled_from([32, 64, 80, 128]),
    num_heads=st.integers(1, 2), causal=st.booleans(),
)  # fmt: skip
BLOCKS = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(lambda pair: (max(pair[0], 3), max(pair[1], 3)))


def arrays(shape: AttentionShape, dtype) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    queries = (1, shape.num_heads, shape.num_queries, shape.head_size)
    keys = (1, shape.num_heads, shape.num_keys, shape.head_size)
    return [rng.standard_normal(size).astype(dtype) for size in (queries, keys, keys, queries)]


@settings(max_examples=60, deadline=None)
@given(
    shape=SIZES, blocks=BLOCKS, dtype=st.sampled_from([np.float16, np.float32]), training=st.booleans(),
    order=st.sampled_from(["fa2", "fa1"]),
)  # fmt: skip
def test_forward_ledger_equals_the_closed_form_to_the_byte(shape, blocks, dtype, training, order):
    q, k, v, _ = arrays(shape, dtype)
    block_q, block_k = blocks
    ledger, flops = scratchpad_ledger(), FlopCount()
    flash_attention(
        q, k, v, block_q=block_q, block_k=block_k, causal=shape.causal, order=order, return_lse=training,
        ledger=ledger, flops=flops,
    )  # fmt: skip
    e = np.dtype(dtype).itemsize
    expected = flash_hbm_bytes(shape, block_q=block_q, block_k=block_k, itemsize=e, order=order, training=training)
    assert ledger.bytes_moved("hbm") == expected
    assert flops.matmul == flash_flops(shape, block_q=block_q, block_k=block_k)
    assert flops.rescale == flash_rescale_flops(shape, block_q=block_q, block_k=block_k)
    assert ledger.live_bytes["sram"] == 0
    sizes = {"head_size": shape.head_size, "itemsize": e}
    if order == "fa2":
        live = tile_bytes(block_q=min(block_q, shape.num_queries), block_k=min(block_k, shape.num_keys), **sizes).total
        assert ledger.peak_bytes["sram"] <= live
        if not shape.causal:
            assert ledger.peak_bytes["sram"] == live


@settings(max_examples=40, deadline=None)
@given(shape=SIZES, blocks=BLOCKS, order=st.sampled_from(["fa2", "fa1"]))
def test_backward_ledger_equals_the_closed_form_to_the_byte(shape, blocks, order):
    q, k, v, upstream = arrays(shape, np.float32)
    sizes = {"block_q": blocks[0], "block_k": blocks[1]}
    output, lse = flash_attention(q, k, v, causal=shape.causal, return_lse=True, **sizes)
    ledger, flops = scratchpad_ledger(), FlopCount()
    flash_attention_backward(
        q, k, v, output, lse, upstream, causal=shape.causal, order=order, ledger=ledger, flops=flops, **sizes
    )
    assert ledger.bytes_moved("hbm") == flash_hbm_bytes(shape, itemsize=4, order=order, backward=True, **sizes)
    assert flops.matmul == flash_flops(shape, backward=True, **sizes)
    assert ledger.live_bytes["sram"] == 0


@settings(max_examples=30, deadline=None)
@given(shape=SIZES)
def test_standard_ledger_equals_the_closed_form_to_the_byte(shape):
    q, k, v, upstream = arrays(shape, np.float32)
    for backward in (False, True):
        ledger, flops = scratchpad_ledger(), FlopCount()
        if backward:
            standard_attention_backward(q, k, v, upstream, causal=shape.causal, ledger=ledger, flops=flops)
        else:
            standard_attention(q, k, v, causal=shape.causal, ledger=ledger, flops=flops)
        assert ledger.bytes_moved("hbm") == standard_hbm_bytes(shape, itemsize=4, backward=backward)
        assert flops.matmul == standard_flops(shape, backward=backward)


def test_goldens_of_4096_tokens_and_head_size_128_in_fp16():
    shape = AttentionShape(num_queries=4096, head_size=128)
    # 2*(4*4096^2 + 4*4096*128) = 138,412,032
    assert standard_hbm_bytes(shape) == 138_412_032
    # 2*(2*4096*128 + 2*(4096/Br)*4096*128), Br = 32 -> 2*(2^20 + 128*2^20) = 270,532,608
    flash = {block: flash_hbm_bytes(shape, block_q=block, block_k=64) for block in (32, 64, 128, 256)}
    assert [round(value / 1e6, 1) for value in flash.values()] == [270.5, 136.3, 69.2, 35.7]
    assert [round(138_412_032 / value, 2) for value in flash.values()] == [0.51, 1.02, 2.0, 3.88]


def test_the_executed_4096_token_head_moves_the_golden_bytes():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((4096, 128)).astype(np.float16) for _ in range(3))
    ledger = scratchpad_ledger(400_000)
    flash_attention(q, k, v, block_q=256, block_k=128, ledger=ledger)
    assert ledger.bytes_moved("hbm") == 35_651_584
    # e*Br*D 65,536 + 2*e*Bc*D 65,536 + w*Br*D 131,072 + 2*w*Br 2,048 + w*Br*Bc 131,072
    assert ledger.peak_bytes["sram"] == 395_264


def test_gpt2_medium_totals_under_the_three_conventions():
    tiles = (384, 256, 128, 64)
    printed = {name: [] for name in ("fp32 statistics", "with zero fill", "2-byte statistics")}
    fill = zero_fill_bytes(GPT2_MEDIUM) + zero_fill_bytes(GPT2_MEDIUM, backward=True)
    for block_k in tiles:
        printed["fp32 statistics"].append(round(total_bytes(block_k) / GB, 2))
        printed["with zero fill"].append(round((total_bytes(block_k) + fill) / GB, 2))
        printed["2-byte statistics"].append(round(total_bytes(block_k, statistics_itemsize=2) / GB, 2))
    assert printed == {
        "fp32 statistics": [4.10, 5.20, 9.60, 18.39],
        "with zero fill": [4.37, 5.47, 9.87, 18.66],
        "2-byte statistics": [4.06, 5.15, 9.50, 18.19],
    }
    standard = standard_hbm_bytes(GPT2_MEDIUM) + standard_hbm_bytes(GPT2_MEDIUM, backward=True)
    assert round(standard / GB, 1) == 25.2


def test_training_flops_rise_by_one_product_in_six_while_bytes_fall():
    sizes = {"block_q": 128, "block_k": 128}
    standard = standard_flops(GPT2_MEDIUM) + standard_flops(GPT2_MEDIUM, backward=True)
    flash = flash_flops(GPT2_MEDIUM, **sizes) + flash_flops(GPT2_MEDIUM, backward=True, **sizes)
    assert flash * 6 == standard * 7
    assert (round(standard / 1e9, 1), round(flash / 1e9, 1)) == (824.6, 962.1)


def test_flash_moves_as_much_as_standard_at_the_break_even_tile():
    shape = AttentionShape(num_queries=4096, head_size=128)
    assert break_even_block_q(4096, 128) == pytest.approx(63.0, abs=0.05)
    below, above = (flash_hbm_bytes(shape, block_q=block, block_k=64) for block in (62, 64))
    assert below > standard_hbm_bytes(shape) > above
    assert break_even_block_q(10**9, 128) == pytest.approx(64, rel=1e-6)  # the limit is D/2


def test_causal_tiles_of_128_in_1024_tokens_do_36_of_64_blocks():
    shape = AttentionShape(num_queries=1024, head_size=64, causal=True)
    assert shape.scores_computed(128, 128) == 36 * 128 * 128
    # at N = 256 only a quarter is saved, not half
    assert AttentionShape(num_queries=256, head_size=64, causal=True).scores_computed(128, 128) * 4 == 3 * 256 * 256


@settings(max_examples=60, deadline=None)
@given(
    sram_bytes=st.integers(20_000, 400_000), head_size=st.sampled_from([32, 64, 80, 128]), block_k=st.integers(1, 64),
    itemsize=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_the_largest_tile_fits_and_the_next_does_not(sram_bytes, head_size, block_k, itemsize):
    sizes = {"head_size": head_size, "block_k": block_k, "itemsize": itemsize}
    try:
        block_q = largest_block_q(sram_bytes, **sizes)
    except DoesNotFitError:
        block_q = 0
    if block_q:
        assert tile_bytes(block_q=block_q, **sizes).total <= sram_bytes
    assert tile_bytes(block_q=block_q + 1, **sizes).total > sram_bytes


def test_the_machine_runs_the_largest_tile_and_refuses_one_row_more():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((200, 64)).astype(np.float32) for _ in range(3))
    block_q = largest_block_q(60_000, head_size=64, block_k=32, itemsize=4)
    # (60000 - 2*4*32*64) // (4*64 + 4*64 + 8 + 4*32) = 43616 // 648 = 67
    assert block_q == 67
    flash_attention(q, k, v, block_q=block_q, block_k=32, sram_bytes=60_000)
    ledger = scratchpad_ledger(60_000)
    with pytest.raises(CapacityError):
        flash_attention(q, k, v, block_q=block_q + 1, block_k=32, ledger=ledger)
    assert ledger.live_bytes["sram"] == 0  # a refused tile leaks nothing


def test_a_multiple_is_kept_and_a_hopeless_memory_says_so():
    assert largest_block_q(100_000, head_size=128, block_k=64, multiple_of=16) == 64
    with pytest.raises(DoesNotFitError, match="smaller block_k"):
        largest_block_q(1_000, head_size=128, block_k=64)


def test_exponentials_are_one_a_score_and_one_a_row_and_tile():
    q, k, v, _ = arrays(AttentionShape(num_queries=10, head_size=32), np.float32)
    flops = FlopCount()
    flash_attention(q, k, v, block_q=5, block_k=4, flops=flops)
    assert flops.exponentials == 10 * 10 + 10 * 3  # 3 key tiles


def test_a_mask_is_traffic_too():
    q, k, v, _ = arrays(AttentionShape(num_queries=10, head_size=32), np.float32)
    plain, masked = scratchpad_ledger(), scratchpad_ledger()
    flash_attention(q, k, v, block_q=5, block_k=4, ledger=plain)
    flash_attention(q, k, v, block_q=5, block_k=4, mask=np.ones((10, 10), bool), ledger=masked)
    assert masked.bytes_moved("hbm") - plain.bytes_moved("hbm") == 100


def test_sram_bytes_and_a_ledger_together_are_refused():
    x = np.zeros((4, 2))
    with pytest.raises(InvalidInputError, match="either sram_bytes or a ledger"):
        flash_attention(x, x, x, block_q=1, block_k=1, sram_bytes=10, ledger=scratchpad_ledger())


def test_impossible_sizes_are_refused():
    with pytest.raises(InvalidInputError, match="head_size"):
        AttentionShape(num_queries=4, head_size=0)
    with pytest.raises(InvalidInputError, match="order"):
        flash_hbm_bytes(GPT2_MEDIUM, block_q=1, block_k=1, order="fa9")
