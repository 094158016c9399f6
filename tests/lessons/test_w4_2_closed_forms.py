"""What lesson 4.2 says in words and numbers, held to the library; the serving room's own laws are tested there."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.hardware import device
from course_lib.plotting.batching import Engine, chunk_dial_figure, goodput_figure, ttft_figure
from course_lib.plotting.timetable import timetable, timetable_figure
from course_lib.serving import (
    SLO,
    AffineStepTime,
    Geometric,
    PagedKVCache,
    RequestTrace,
    RooflineStepTime,
    Workload,
    chunked_prefill,
    continuous_batching,
    model_shape,
    simulate,
    static_batching,
    static_slot_utilization,
)
from course_lib.widgets.batching import load_dial
from grading.cells import GRADING

ARRIVALS, LENGTHS = (0, 0, 1, 2), (2, 6, 3, 2)
ONE_SECOND = AffineStepTime(fixed_seconds=1.0)


@pytest.fixture(scope="module")
def checks():
    path = GRADING / "checks" / "week4_serving" / "w4_2_continuous_batching.py"
    spec = importlib.util.spec_from_file_location("w4_2_checks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def engine():
    # 25,243 blocks: what is left of 0.9 * 80 GB beside 16.06 GB of weights and 3 GB, in blocks of 16 * 131,072 B
    return Engine(
        workload=Workload(arrival_requests_per_second=4, prompt_tokens=1024, output_tokens=Geometric(200),
                          num_requests=2000),
        step_time=RooflineStepTime(shape=model_shape("llama-3-8b"), device=device("h100-sxm")),
        num_blocks=25_243, slo=SLO(ttft_seconds=0.5, tpot_seconds=0.02, attainment=0.95),
    )  # fmt: skip


def _trace(arrivals, lengths):
    ones = np.ones(len(lengths), dtype=np.int64)
    return RequestTrace(np.array(arrivals, dtype=float), ones, np.array(lengths), ones - 1)


def _events(policy):
    report = simulate(_trace(ARRIVALS, LENGTHS), step_time=ONE_SECOND, policy=policy, kv_cache=PagedKVCache(99),
                      rng=np.random.default_rng(0))  # fmt: skip
    return [(at, kind, "ABCD"[who]) for at, kind, who in report.events if kind != "arrival"]


def test_the_simulators_event_log_is_the_pencils_timetable():
    # A A - - - - C C C        A A C C C D D
    # B B B B B B D D -        B B B B B B
    assert [timetable(ARRIVALS, LENGTHS, policy).cells for policy in (static_batching(2), continuous_batching(2))] == [
        tuple(zip("AA----CCC", "BBBBBBDD-")), (*zip("AACCCD", "BBBBBB"), ("D", "")),
    ]  # fmt: skip
    assert _events(static_batching(2)) == [
        (1, "first_token", "A"), (1, "first_token", "B"), (2, "finish", "A"), (6, "finish", "B"),
        (7, "first_token", "C"), (7, "first_token", "D"), (8, "finish", "D"), (9, "finish", "C"),
    ]  # fmt: skip
    assert _events(continuous_batching(2)) == [
        (1, "first_token", "A"), (1, "first_token", "B"), (2, "finish", "A"), (3, "first_token", "C"),
        (5, "finish", "C"), (6, "finish", "B"), (6, "first_token", "D"), (7, "finish", "D"),
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 5))
def test_a_timetable_gives_every_token_once_and_takes_the_simulators_time(lengths, slots):
    for policy in (static_batching(slots), continuous_batching(slots)):
        table = timetable((0,) * len(lengths), lengths, policy)
        report = simulate(_trace((0,) * len(lengths), lengths), step_time=ONE_SECOND, policy=policy,
                          kv_cache=PagedKVCache(400), rng=np.random.default_rng(0))  # fmt: skip
        assert table.num_useful == sum(lengths)
        assert table.num_iterations == report.log.num_iterations
        assert table.num_useful + table.num_wasted + table.num_empty == slots * table.num_iterations


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30).map(tuple), slots=st.integers(1, 6))
def test_the_formulas_of_the_first_two_exercises_equal_the_executed_schedulers(checks, lengths, slots):
    batches = checks.batches_of(lengths, slots)
    assert checks.static_slot_steps(lengths, slots) == sum(len(b) * max(b) for b in batches)
    assert checks.continuous_steps(lengths, slots) == checks.greedy_steps(lengths, slots)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_with_memory_to_spare_the_admission_exercise_is_the_librarys_continuous_batching(checks, rows):
    rows = sorted(rows, key=lambda row: row[0])
    report = simulate(checks._trace(rows), step_time=ONE_SECOND, policy=continuous_batching(3),
                      kv_cache=PagedKVCache(1000, 4), rng=np.random.default_rng(0))  # fmt: skip
    found = checks.admission(tuple(rows), 3, 1000, 4)
    assert found["first token at"] == tuple(round(at) for at in report.log.first_token_at_seconds.tolist())
    assert found["order of admission"] == tuple(range(len(rows)))


def test_a_prudent_admission_never_runs_out_where_the_prompt_only_one_does(checks):
    for seed in range(30):
        inputs = checks._draw_admission(np.random.default_rng(seed))
        assert checks.admission(*inputs)["went wrong"] == "nothing"
    overrun = [
        checks.run_admission(checks.WRONG_ADMISSIONS["prompt-only"], *case)["went wrong"]
        for case in checks.EXERCISES[2].cases
    ]
    assert "a running sequence found no free block" in overrun


def test_served_rows_say_when_a_request_was_admitted(checks):
    # Steps of 1 s + 0.1 s a prompt token, one slot: admitted at 2, tokens at 3.4 and 4.4; the second waits till then.
    rows = checks.served(checks._report(((2.0, 4, 2), (2.5, 10, 1)), 1, 9.0, 9.0))
    assert [(round(r.admitted, 9), round(r.first_token, 9)) for r in rows] == [(2.0, 3.4), (4.4, 6.4)]


def test_three_of_four_rows_are_thrown_away_in_the_puzzle():
    assert round(1 - static_slot_utilization(200, 32), 4) == 0.7531


def test_two_servers_differ_in_nothing_but_the_wait(engine):
    static, continuous = (engine.run(policy, 4) for policy in (static_batching(32), continuous_batching(32)))
    assert static.requests_per_second == pytest.approx(continuous.requests_per_second, rel=0.01)
    assert static.tpot_quantile_seconds(0.5) == pytest.approx(continuous.tpot_quantile_seconds(0.5), rel=0.01)
    waits = [round(report.ttft_quantile_seconds(0.5), 2) for report in (static, continuous)]
    assert waits == [3.87, 0.03]


def test_rows_are_not_seconds(engine):
    static, continuous, chunked = (
        engine.run(policy) for policy in (static_batching(32), continuous_batching(32), chunked_prefill(256, 32))
    )
    fewer = static.log.num_iterations / continuous.log.num_iterations
    longer = (continuous.log.busy_seconds / continuous.log.num_iterations) / (
        static.log.busy_seconds / static.log.num_iterations
    )
    gain = continuous.requests_per_second / static.requests_per_second
    assert gain == pytest.approx(fewer / longer, rel=1e-9)  # an identity: a full queue is busy to the end
    assert [round(number, 2) for number in (fewer, longer, gain)] == [4.13, 1.5, 2.75]
    assert round(chunked.requests_per_second / static.requests_per_second, 1) == 3.5


def test_the_best_budget_is_the_ridge_point_at_the_assumed_efficiencies(engine):
    hides = 989e12 / 3.35e12 * 0.6 / 0.8
    assert round(hides) == 221
    budgets = (128, 192, 221, 256, 512)
    rates = {budget: engine.run(chunked_prefill(budget, 32)).requests_per_second for budget in budgets}
    assert max(rates, key=rates.get) == 221


@pytest.mark.parametrize("block", [1, 8, 16, 128])
def test_half_a_block_less_half_a_token_is_exact_when_every_remainder_is_equally_frequent(checks, block):
    lengths = tuple(range(1, 7 * block + 1))
    half, mean = (block - 1) / 2, (7 * block + 1) / 2
    assert checks.kv_waste(lengths, block) == pytest.approx(half / (mean + half), rel=1e-12)  # one rounding
    assert checks.kv_waste((3 * block,) * 5, block) == 0.0  # and it fails where they are not


def test_the_highest_rate_keeps_the_promise_and_a_little_more_breaks_it(engine):
    policy = chunked_prefill(256, 32)
    rate = engine.highest_rate(policy, lowest=8, highest=30)
    assert engine.run(policy, rate).meets_slo
    assert not engine.run(policy, rate * 1.02).meets_slo
    assert engine.highest_rate(static_batching(32), lowest=1.0) == 0.0
    with pytest.raises(InvalidInputError, match="above zero"):
        engine.highest_rate(policy, lowest=2, highest=1)


def test_figures_say_in_words_and_in_a_table_what_they_draw(engine):
    policies = static_batching(32), continuous_batching(32), chunked_prefill(256, 32)
    curves = [engine.curve(policy, (2.0, 12.0)) for policy in policies]
    for figure in (ttft_figure(curves), goodput_figure(curves)):
        assert figure.table[0] == ("offered [requests/s]", "static(32)", "continuous(32)", "chunked(32, 256)")
        assert [row[0] for row in figure.table[1:]] == ["2", "12"]
        assert "2 to 12 requests/s" in figure.alt
    dial = chunk_dial_figure(engine, (64, 221, 1024), slots=32, hides=221)
    assert [row[-1] for row in dial.table[1:]] == ["yes", "yes", "no"]  # beyond the ridge: less of both
    with pytest.raises(InvalidInputError, match="same rates"):
        ttft_figure([curves[0], engine.curve(policies[1], (3.0,))])
    with pytest.raises(InvalidInputError, match="ascending"):
        timetable((1, 0), (2, 2), policies[0])
    with pytest.raises(InvalidInputError, match="one timetable"):
        timetable_figure([])


def test_each_dial_moves_the_marked_run(engine):
    curves = [engine.curve(policy, (2.0, 12.0)) for policy in (static_batching(32), continuous_batching(32))]
    box = load_dial(engine, curves, slots=32, rate=8.0, chunk=256)
    load, who, tokens, view, picture = box.children
    seen = [picture.value]
    for control, value in ((load, 4.0), (tokens, 64), (who, "static"), (who, "continuous"), (view, "goodput")):
        control.value = value
        assert picture.value not in seen
        seen.append(picture.value)
    assert tokens.disabled
    assert "chunked(32, 256) at 8/s" in seen[0]
