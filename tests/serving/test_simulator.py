"""The simulator against timetables done by hand, closed forms, and the laws of every run."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving import (
    SLO,
    AffineStepTime,
    Geometric,
    InvariantError,
    PagedKVCache,
    RequestTrace,
    Workload,
    simulate,
)  # fmt: skip
from course_lib.serving.policies import chunked_prefill, continuous_batching, static_batching
from course_lib.serving.queueing import md1_ttft_seconds, static_slot_utilization
from course_lib.serving.run_log import check_run

ONE_SECOND = AffineStepTime(fixed_seconds=1.0)
BOTH = pytest.mark.parametrize("method", ["stepping", "jumping"])


def _trace(*rows: tuple[float, int, int]) -> RequestTrace:
    arrival, prompt, output = zip(*rows, strict=True)
    return RequestTrace(np.array(arrival, float), np.array(prompt), np.array(output), np.zeros(len(rows), np.int64))


def _run(trace, policy, *, step_time=ONE_SECOND, blocks=1000, size=16, method="auto", slo=None):
    cache = PagedKVCache(blocks, size)
    rng = np.random.default_rng(0)
    return simulate(trace, step_time=step_time, policy=policy, kv_cache=cache, rng=rng, method=method, slo=slo)


@BOTH
def test_continuous_batching_follows_the_literal_timetable(method):
    # Two slots, steps of 1 s. 0: [0, 1) prompt, tokens at 1, 2, 3. 1: arrives 0.5, joins the step [1, 2), tokens
    # at 2, 3. 2: arrives 0.6, waits for a slot until 3, its one token comes at 4.
    report = _run(_trace((0.0, 5, 3), (0.5, 5, 2), (0.6, 5, 1)), continuous_batching(2), method=method)
    assert report.events == (
        (0.0, "arrival", 0), (0.5, "arrival", 1), (0.6, "arrival", 2), (1.0, "first_token", 0),
        (2.0, "first_token", 1), (3.0, "finish", 0), (3.0, "finish", 1), (4.0, "finish", 2), (4.0, "first_token", 2),
    )  # fmt: skip
    assert report.slot_utilization == 6 / 8  # 1 + 2 + 2 + 1 sequences in four steps of two slots


@BOTH
def test_static_batching_follows_the_literal_timetable(method):
    # 0 alone takes [0, 3). 1 and 2 arrived meanwhile and start together at 3; 2 ends at 4, its row idles until 5.
    report = _run(_trace((0.0, 5, 3), (0.5, 5, 2), (0.6, 5, 1)), static_batching(2), method=method)
    assert [event for event in report.events if event[1] != "arrival"] == [
        (1.0, "first_token", 0), (3.0, "finish", 0), (4.0, "finish", 2), (4.0, "first_token", 1),
        (4.0, "first_token", 2), (5.0, "finish", 1),
    ]  # fmt: skip


@BOTH
def test_a_prompt_is_cut_into_chunks_that_fill_the_token_budget(method):
    # Budget 4: request 0 (1 in, 4 out) and 3 tokens of request 1 (8 in) in the first step, then 1 decode and 3,
    # then 1 decode and the last 2: its first token comes with the third step.
    report = _run(_trace((0.0, 1, 4), (0.0, 8, 1)), chunked_prefill(4, 2), method=method)
    assert report.ttft_seconds.tolist() == [1.0, 3.0]
    assert report.log.num_prefill_tokens == 9


@BOTH
def test_running_out_of_blocks_preempts_the_last_admitted_and_computes_it_again(method):
    # Four blocks of 2. Both prompts take 1 block; KV tokens after steps 1, 2, 3: 2, 3, 4 each, 2 blocks each: full.
    # Step 4 needs a fifth block: request 1 gives its two back and waits; request 0 ends after step 5 (6 tokens, 3
    # blocks). Step 6 computes the 2 + 3 tokens of request 1 again and emits token 4; step 7 emits its last.
    report = _run(_trace((0.0, 2, 5), (0.0, 2, 5)), continuous_batching(2), blocks=4, size=2, method=method)
    assert [event for event in report.events if event[1] in ("preemption", "finish")] == [
        (3.0, "preemption", 1), (5.0, "finish", 0), (7.0, "finish", 1)
    ]  # fmt: skip
    assert report.log.num_prefill_tokens == 2 + 2 + 5
    assert report.itl_max_seconds.tolist() == [1.0, 3.0]  # tokens of request 1 at 1, 2, 3, 6, 7
    assert report.kv_peak_blocks == 4


@BOTH
def test_a_request_that_can_never_fit_is_rejected_by_name(method):
    report = _run(_trace((0.0, 30, 3), (0.0, 4, 2)), continuous_batching(2), blocks=2, size=16, method=method)
    assert report.num_served == 2  # 30 + 3 - 1 = 32 tokens are two blocks to the last slot: the last is never fed back
    report = _run(_trace((0.0, 31, 3), (0.0, 4, 2)), continuous_batching(2), blocks=2, size=16, method=method)
    assert report.rejected == (
        (0, "request 0 needs 3 KV blocks for 33 tokens and the pool has 2. Shorten it or enlarge the pool."),
    )
    assert report.num_served == 1
    assert math.isnan(report.requests[0].ttft_seconds)
    assert report.requests[0].rejection == report.rejected[0][1]


@BOTH
def test_when_all_are_rejected_the_report_is_empty_and_not_broken(method):
    report = _run(_trace((0.0, 90, 3)), static_batching(2), blocks=2, size=16, method=method)
    assert report.num_served == 0
    assert report.requests_per_second == 0.0
    assert math.isnan(report.ttft_quantile_seconds(0.5))
    assert report.slot_utilization == report.busy_fraction == report.kv_waste_fraction == 0.0


def test_prefill_only_service_is_the_m_d_1_queue():
    # o = 1 and one slot: Poisson arrivals, constant service 1 s. At rho = 0.8 the mean TTFT is 1 + 2 = 3 s.
    workload = Workload(arrival_requests_per_second=0.8, prompt_tokens=100, output_tokens=1, num_requests=200_000)
    report = simulate(
        workload, step_time=AffineStepTime(seconds_per_prefill_token=0.01), policy=continuous_batching(1),
        kv_cache=PagedKVCache(10), rng=np.random.default_rng(1),
    )  # fmt: skip
    expected = md1_ttft_seconds(arrival_requests_per_second=0.8, prefill_seconds=1.0)
    # Waits are correlated over about 1 / (1 - rho)**2 = 25 services: 200,000 arrivals are some 8,000 independent
    # ones, so the mean (standard deviation 2.3 s) is known to 0.03 s; four of those.
    assert abs(report.ttft_seconds.mean() - expected) < 0.12
    # The instants of an M/M/1 answer (1 + 4 = 5 s) are far outside.
    assert abs(report.busy_fraction - 0.8) < 0.01


@pytest.mark.parametrize(
    ("mean", "batch", "exact"), [(20, 8, 0.3739), (50, 8, 0.3703), (200, 8, 0.3685), (50, 32, 0.2483)]
)
def test_slots_of_static_batching_are_used_as_the_closed_form_says(mean, batch, exact):
    assert round(static_slot_utilization(mean, batch), 4) == exact
    workload = Workload(
        arrival_requests_per_second=1, prompt_tokens=8, output_tokens=Geometric(mean),
        num_requests=2000 * batch, arrivals="batch",
    )  # fmt: skip
    report = simulate(
        workload, step_time=ONE_SECOND, policy=static_batching(batch), kv_cache=PagedKVCache(20_000),
        rng=np.random.default_rng(2),
    )  # fmt: skip
    # 2,000 batches: the mean of the maximum (standard deviation 1.2 means of 2.7 or more) is known to about 1 %.
    assert report.slot_utilization == pytest.approx(exact, rel=0.03)


def test_continuous_batching_gains_what_static_batching_wastes():
    # All waiting at 0, steps of equal length: continuous keeps all slots full, so its rate is H_B = 2.72 times as high.
    workload = Workload(
        arrival_requests_per_second=1, prompt_tokens=8, output_tokens=Geometric(50), num_requests=8000, arrivals="batch"
    )
    rates = [
        simulate(workload, step_time=ONE_SECOND, policy=policy, kv_cache=PagedKVCache(20_000),
                 rng=np.random.default_rng(3))
        for policy in (static_batching(8), continuous_batching(8))
    ]  # fmt: skip
    gain = rates[1].requests_per_second / rates[0].requests_per_second
    assert gain == pytest.approx(1 / static_slot_utilization(50, 8), rel=0.05)  # 1,000 batches, and the last drains
    assert rates[1].slot_utilization > 0.99


def test_kv_waste_of_decoding_is_half_a_block_a_sequence():
    # Lengths 1..400 of one sequence, blocks of 16: waste (16-1)/2 over mean length 200.5 + 7.5: 3.6 %
    report = _run(_trace((0.0, 1, 400)), continuous_batching(1))
    assert report.kv_waste_fraction == pytest.approx(7.5 / (200.5 + 7.5), abs=1e-4)


def test_the_same_generator_state_gives_the_same_report():
    workload = Workload(arrival_requests_per_second=5, prompt_tokens=Geometric(40), output_tokens=Geometric(9))
    events = [
        simulate(workload, step_time=ONE_SECOND, policy=continuous_batching(4), kv_cache=PagedKVCache(500),
                 rng=np.random.default_rng(seed)).events
        for seed in (7, 7, 8)
    ]  # fmt: skip
    assert events[0] == events[1] != events[2]


def test_goodput_counts_requests_that_kept_every_promise():
    # Tokens at 1, 2, 3 / 2, 3 / 4: TTFT 1, 1.5, 3.4; TPOT 1, 1, none. Duration 4 s.
    trace = _trace((0.0, 5, 3), (0.5, 5, 2), (0.6, 5, 1))
    report = _run(trace, continuous_batching(2), slo=SLO(ttft_seconds=1.5, tpot_seconds=1.0, attainment=0.6))
    assert report.slo_attainment == pytest.approx(2 / 3)
    assert report.goodput_requests_per_second == 0.5
    assert report.meets_slo
    assert report.attainment(SLO(ttft_seconds=1.2)) == pytest.approx(1 / 3)
    assert report.attainment(SLO(tpot_seconds=0.9)) == pytest.approx(1 / 3)  # a single token cannot break it


def test_prefix_hits_save_prefill_and_no_memory():
    workload = Workload(
        arrival_requests_per_second=1, prompt_tokens=100, output_tokens=3, num_requests=10, prefix_hit_fraction=0.8
    )
    report = simulate(
        workload, step_time=AffineStepTime(seconds_per_prefill_token=1e-3, fixed_seconds=1e-3),
        policy=continuous_batching(4), kv_cache=PagedKVCache(100), rng=np.random.default_rng(0),
    )  # fmt: skip
    assert report.log.num_prefill_tokens == 10 * 20
    assert report.log.kv_token_iterations == 10 * (100 + 101 + 102)


def test_a_tampered_log_breaks_a_law_by_name():
    trace = _trace((0.0, 5, 3), (0.5, 5, 2))
    report = _run(trace, continuous_batching(2))
    early = report.log.finish_at_seconds - 10.0
    for change, law in (
        ({"finish_at_seconds": early}, "last token comes after the first"),
        ({"segments": report.log.segments[:-1]}, "tokens out equal"),
        ({"kv_blocks_at_end": 1}, "outlives"),
        ({"num_slot_iterations": 99}, "no more sequences run"),
        ({"rejected": ((0, "why"),)}, "served or rejected"),
        ({"num_prefill_tokens": 9}, "each prompt is computed"),
        ({"first_token_at_seconds": np.zeros(2)}, "first token comes after its request"),
    ):
        with pytest.raises(InvariantError, match=law):
            check_run(trace, dataclasses.replace(report.log, **change), num_slots=2)


def test_what_cannot_be_simulated_is_refused_with_the_way_out():
    trace = _trace((0.0, 5, 3))
    with pytest.raises(InvalidInputError, match="prefix_hit_fraction"):
        simulate(trace, step_time=ONE_SECOND, policy=continuous_batching(2), rng=np.random.default_rng(0),
                 kv_cache=PagedKVCache(9, prefix_sharing=True))  # fmt: skip
    used = PagedKVCache(9)
    used.append("x", 1)
    with pytest.raises(InvalidInputError, match="empty KV pool"):
        simulate(trace, step_time=ONE_SECOND, policy=continuous_batching(2), rng=np.random.default_rng(0),
                 kv_cache=used)  # fmt: skip
    with pytest.raises(UnsupportedError, match="stepping"):
        _run(trace, continuous_batching(2), step_time=lambda batch: 1.0, method="jumping")
    with pytest.raises(InvalidInputError, match="above zero"):
        _run(trace, continuous_batching(2), step_time=lambda batch: 0.0)
    with pytest.raises(InvalidInputError, match="known method"):
        _run(trace, continuous_batching(2), method="fast")


def test_one_trace_three_policies_shows_where_the_wait_and_the_stall_come_from():
    # W4.2 in small: 8 requests/s of 512 in and 128 out on 16 slots. A static batch of 16 takes 10 ms + 128 * 13 ms,
    # about 2 s for 16 requests: its limit is below the load, so its queue grows. Iteration-level scheduling keeps up.
    step_time = AffineStepTime(
        fixed_seconds=0.008, seconds_per_sequence=1e-4, seconds_per_context_token=1e-7, seconds_per_prefill_token=5e-5
    )
    workload = Workload(
        arrival_requests_per_second=8, prompt_tokens=512, output_tokens=Geometric(128), num_requests=600
    )
    reports = [
        simulate(workload, step_time=step_time, policy=policy, kv_cache=PagedKVCache(20_000),
                 rng=np.random.default_rng(0))
        for policy in (static_batching(16), continuous_batching(16), chunked_prefill(256, 16))
    ]  # fmt: skip
    static, continuous, chunked = (report.ttft_quantile_seconds(0.5) for report in reports)
    assert static > 100 * continuous
    assert continuous < chunked < 2 * continuous  # a prompt takes two or three steps instead of one
    stalls = [report.itl_max_quantile_seconds(0.99) for report in reports[1:]]
    assert stalls[1] < 0.5 * stalls[0]  # a chunk stalls the others for less time than a whole prompt
    assert max(report.tpot_quantile_seconds(0.5) for report in reports[1:]) < 0.013  # and the mean hides it
