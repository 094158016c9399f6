"""What lesson 3.1 states beyond the optimization room's own tests: ties, corrections, figures, sliders, the bill."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.hardware import device
from course_lib.journey import Journey
from course_lib.lesson import exercise, judge
from course_lib.optimization import (
    AttentionShape,
    FlopCount,
    break_even_block_q,
    flash_attention,
    flash_flops,
    flash_hbm_bytes,
    merge,
    scratchpad_ledger,
    standard_flops,
    standard_hbm_bytes,
    tile_bytes,
)
from course_lib.plotting.attention import attention_times, times_figure, traffic_figure
from course_lib.serving import Workload, model_shape
from course_lib.widgets.attention import attention_view

SHAPE = AttentionShape(num_queries=4096, head_size=128)


@settings(max_examples=40, deadline=None)
@given(passes=st.integers(1, 30), block_q=st.integers(1, 60), keys=st.integers(1, 200), d=st.integers(1, 130))
def test_flash_wins_above_the_tie_whatever_the_number_of_keys(passes, block_q, keys, d):
    shape = AttentionShape(num_queries=passes * block_q, num_keys=keys, head_size=d)
    flash, standard = flash_hbm_bytes(shape, block_q=block_q, block_k=16), standard_hbm_bytes(shape)
    tie = break_even_block_q(shape.num_queries, d)
    # T a multiple of Br, so the passes are not rounded: the sign of Br - tie decides, exactly
    margin = block_q * (2 * shape.num_queries + d) - d * shape.num_queries
    assert (flash < standard) == (margin > 0)
    assert (flash == standard) == (margin == 0)
    assert math.isclose(tie * (2 * shape.num_queries + d), d * shape.num_queries, rel_tol=1e-12)  # two roundings


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 80), block_q=st.integers(1, 40), block_k=st.integers(1, 40))
def test_each_score_is_one_exponential_and_each_row_one_more_a_tile(n, block_q, block_k):
    x = np.random.default_rng(n).standard_normal((n, 4))
    flops = FlopCount()
    flash_attention(x, x, x, block_q=block_q, block_k=block_k, flops=flops)
    assert flops.exponentials == n * n + n * math.ceil(n / block_k)


def test_the_formula_in_which_the_tile_cancels_is_not_what_the_machine_counts():
    q = np.zeros((120, 32), np.float16)
    counted = []
    for rows in (10, 20, 60):
        ledger = scratchpad_ledger()
        flash_attention(q, q, q, block_q=rows, block_k=16, ledger=ledger)
        counted.append(ledger.bytes_moved("hbm"))
    cancels = [2 * 32 * (2 * math.ceil(120 / rows) * rows + 2 * 120) for rows in (10, 20, 60)]
    assert len(set(cancels)) == 1
    # 2*(2*120*32 + 2*passes*120*32), passes 12, 6, 2
    assert counted == [199_680, 107_520, 46_080]
    assert min(counted) > cancels[0]


def test_twice_the_tokens_move_almost_four_times_the_bytes():
    long = AttentionShape(num_queries=8192, head_size=128)
    ratio = flash_hbm_bytes(long, block_q=128, block_k=64) / flash_hbm_bytes(SHAPE, block_q=128, block_k=64)
    assert ratio == pytest.approx(2 * (2 + 2 * 64) / (2 + 2 * 32))  # 3.94


def test_the_numbers_quoted_in_the_text():
    assert round(standard_hbm_bytes(SHAPE) / 1e6, 1) == 138.4
    assert [round(flash_hbm_bytes(SHAPE, block_q=rows, block_k=64) / 1e6, 1) for rows in (32, 256)] == [270.5, 35.7]
    assert round(tile_bytes(block_q=256, block_k=64, head_size=128).total / 1e3) == 297
    assert round(device("h100-sxm").peak("bf16") / 3.9e12) == 254  # FLOPs in the time of one exponential
    paper = AttentionShape(num_queries=1024, head_size=64, num_heads=64 * 16)
    assert round((standard_hbm_bytes(paper) + standard_hbm_bytes(paper, backward=True)) / 1e9, 1) == 25.2
    assert round(40.3e9 / (2 * 1024 * 1024 * paper.num_heads), 1) == 18.8  # passes over fp16 scores


def test_the_row_by_hand_is_33_in_either_order():
    # (1*12 + 3*24 + 6*36 + 2*48) / 12 = 33; the tiles alone: 84/4 = 21 and 312/8 = 39
    first, second = (np.array([[21.0]]), np.log([4.0])), (np.array([[39.0]]), np.log([8.0]))
    for a, b in ((first, second), (second, first)):
        assert merge(*a, *b)[0].item() == pytest.approx(33, rel=1e-12)


def test_the_traffic_figure_says_in_words_and_rows_what_it_draws():
    figure = traffic_figure(SHAPE, block_k=64, sram_bytes=100_000, counted=((64, 136_314_880),), block_q=100)
    rows = {row[0]: row[1:] for row in figure.table[1:]}
    assert rows["32"] == ("270.5 MB", "0.51", "65,792", "yes")
    assert rows["64"] == ("136.3 MB", "1.02", "98,816", "yes")
    assert rows["128"][-1] == "no"
    assert "100" in rows
    assert "63.0 rows" in figure.alt
    assert "138 MB" in figure.alt
    assert "do not fit" in figure.alt


def test_the_traffic_figure_bears_memories_that_hold_everything_or_nothing():
    tiny, huge = (traffic_figure(SHAPE, block_k=64, sram_bytes=size) for size in (1_000, 10**9))
    assert {row[-1] for row in tiny.table[1:]} == {"no"}
    assert {row[-1] for row in huge.table[1:]} == {"yes"}
    assert "All these tiles fit" in huge.alt


def test_times_are_rooflines_and_a_laptop_gains_nothing():
    machines = [device("h100-sxm"), device("laptop-cpu")]
    times = attention_times(SHAPE, machines, tiles=(32, 256), block_k=64)
    seconds = [each.bounds.seconds_floor for each in times]
    # H100: 138,412,032 / 3.35e12 and 35,651,584 / 3.35e12; laptop: 2^33 / 230.4e9, whatever the bytes
    assert seconds[0] == pytest.approx(41.317e-6, rel=1e-4)
    assert seconds[2] == pytest.approx(10.642e-6, rel=1e-4)
    assert seconds[3] == seconds[4] == seconds[5] == pytest.approx(2**33 / 230.4e9)
    figure = times_figure(times)
    assert len(figure.table) == 7
    assert figure.table[1][4] == "memory"
    assert figure.table[-1][4] == "compute"


def test_moving_a_slider_redraws_the_same_figure():
    view = attention_view(num_tokens=512, head_size=64, block_q=32, block_k=32, itemsize=2, sram_bytes=50_000)
    tokens, *_, picture = view.children
    before = picture.value
    tokens.value = 1024
    assert picture.value != before
    shape = AttentionShape(num_queries=1024, head_size=64)
    expected = traffic_figure(shape, block_k=32, itemsize=2, sram_bytes=50_000, block_q=32)
    assert picture.value == expected.to_html()


@pytest.mark.parametrize(("prompt_tokens", "rate", "change"), [(6000, 40, -0.255), (2000, 40, -0.11)])
def test_the_bill_falls_by_a_quarter_for_long_prompts_and_a_ninth_for_short_ones(prompt_tokens, rate, change):
    model = model_shape("llama-3.1-8b")
    work = Workload(arrival_requests_per_second=rate, prompt_tokens=prompt_tokens, output_tokens=200)
    journey = Journey(model=model, workload=work)
    shape = AttentionShape(num_queries=prompt_tokens, head_size=128, num_heads=32 * 32, causal=True)
    tile = {"block_q": 128, "block_k": 64}

    def attend(flops, num_bytes):
        def prefill_seconds(prefill_flops, flops_per_second, bytes_per_second):
            return prefill_flops / flops_per_second + max(flops / flops_per_second, num_bytes / bytes_per_second)

        return journey.with_link("prefill_seconds", prefill_seconds)

    plain = attend(standard_flops(shape), standard_hbm_bytes(shape))
    flash = attend(flash_flops(shape, **tile), flash_hbm_bytes(shape, **tile))
    assert flash.diff(plain).relative == pytest.approx(change, abs=0.005)  # printed in whole percent


@pytest.mark.parametrize("name", ["merge", "bytes", "tie", "largest-tile", "tiled-forward", "extra-flops"])
def test_fifty_drawn_cases_of_each_exercise_have_a_right_answer_and_never_the_wrong_ideas(name):
    record = exercise(f"w3-1-{name}")
    rng = np.random.default_rng(0)
    cases = [record.draw(rng) for _ in range(50 if name != "extra-flops" else 15)]
    assert all(record.expected(*case) is not None for case in cases)
    if record.probe is None:
        for wrong in (each.wrong for each in record.diagnoses if each.wrong):
            assert any(wrong(*case) != record.expected(*case) for case in cases)
            assert not judge(record, wrong).passed
