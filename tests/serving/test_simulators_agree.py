"""The event-jumping run against the iteration-exact one: the same events at the same instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.serving.event_jump import steps_to_reach
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.policies import chunked_prefill, continuous_batching, static_batching
from course_lib.serving.simulator import simulate
from course_lib.serving.step_time import AffineStepTime
from course_lib.serving.workload import RequestTrace

INSTANT = 1e-9  # both sum thousands of step times in another order; |dt| <= 1e-9 * max(1, t) is the promise

lengths = st.integers(1, 40)
milliseconds = st.integers(0, 4000).map(lambda n: n / 1000)  # whole ms, so that arrivals tie with ends of steps


@st.composite
def traces(draw):
    num = draw(st.integers(1, 30))
    arrival = np.sort(np.array(draw(st.lists(milliseconds, min_size=num, max_size=num))))
    prompt, output = (np.array(draw(st.lists(lengths, min_size=num, max_size=num)), dtype=np.int64) for _ in "po")
    cached = np.array([draw(st.integers(0, int(p) - 1)) for p in prompt], dtype=np.int64)
    return RequestTrace(arrival, prompt, output, cached)


@st.composite
def policies(draw):
    slots = draw(st.integers(1, 8))
    budget = slots + draw(st.integers(0, 40))
    return draw(st.sampled_from((static_batching(slots), continuous_batching(slots), chunked_prefill(budget, slots))))


step_times = st.builds(
    AffineStepTime,
    fixed_seconds=st.sampled_from((0.001, 0.01, 0.1)),
    seconds_per_sequence=st.sampled_from((0.0, 0.001)),
    seconds_per_context_token=st.sampled_from((0.0, 1e-5, 0.001)),
    seconds_per_prefill_token=st.sampled_from((0.0, 0.001)),
)


@settings(max_examples=300, deadline=None)
@given(traces(), policies(), step_times, st.integers(3, 60), st.sampled_from((1, 3, 16)))
def test_jumping_equals_stepping_event_by_event(trace, policy, step_time, num_blocks, block_tokens):
    stepping, jumping = (
        simulate(
            trace, step_time=step_time, policy=policy, kv_cache=PagedKVCache(num_blocks, block_tokens),
            rng=np.random.default_rng(0), method=method,
        )
        for method in ("stepping", "jumping")
    )  # fmt: skip
    assert [event[1:] for event in jumping.events] == [event[1:] for event in stepping.events]
    for ours, reference in zip(jumping.events, stepping.events, strict=True):
        assert abs(ours[0] - reference[0]) <= INSTANT * max(1.0, reference[0])
    assert jumping.rejected == stepping.rejected
    for name in (
        "num_iterations", "num_slot_iterations", "num_decode_tokens", "num_prefill_tokens", "kv_token_iterations",
        "kv_waste_iterations", "kv_peak_blocks", "kv_blocks_at_end",
    ):  # fmt: skip
        assert getattr(jumping.log, name) == getattr(stepping.log, name), name
    np.testing.assert_allclose(jumping.itl_max_seconds, stepping.itl_max_seconds, rtol=0, atol=1e-8)
    np.testing.assert_allclose(jumping.itl_seconds, stepping.itl_seconds, rtol=0, atol=1e-8)


def test_a_pool_under_pressure_preempts_the_same_requests_at_the_same_instants():
    rng = np.random.default_rng(3)
    num = 300
    trace = RequestTrace(
        np.cumsum(rng.exponential(0.05, num)), rng.integers(1, 60, num), rng.geometric(1 / 40, num),
        np.zeros(num, np.int64),
    )  # fmt: skip
    runs = [
        simulate(
            trace, step_time=AffineStepTime(fixed_seconds=0.01, seconds_per_context_token=1e-5),
            policy=chunked_prefill(48, 32), kv_cache=PagedKVCache(40, 16), rng=rng, method=method,
        )
        for method in ("stepping", "jumping")
    ]  # fmt: skip
    assert runs[0].num_preemptions > 50
    assert [who for _, who in runs[0].log.preemptions] == [who for _, who in runs[1].log.preemptions]
    assert runs[0].log.num_preemptions.tolist() == runs[1].log.num_preemptions.tolist()


@given(st.floats(1e-3, 1e3), st.floats(1e-4, 1.0), st.floats(0.0, 1e-2))
def test_steps_to_reach_is_the_least_count_that_gets_there(seconds, first, growth):
    steps = steps_to_reach(seconds, first, growth)

    def total(k: int) -> float:
        return k * first + growth * k * (k - 1) / 2

    assert total(steps) >= seconds
    assert steps == 1 or total(steps - 1) < seconds
