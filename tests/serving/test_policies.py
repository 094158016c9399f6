"""The schedulers on their own, driven as a real engine drives them; one contract for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.serving import PagedKVCache, Request
from course_lib.serving.policies import chunked_prefill, continuous_batching, static_batching

ALL = (static_batching(3), continuous_batching(3), chunked_prefill(5, 3))


def _drain(scheduler, cache, *, limit=10_000):
    """Run to the end as an engine would; returns output tokens by request and the steps."""
    tokens: dict[int, int] = {}
    steps = []
    while scheduler.num_unfinished:
        step = scheduler.schedule()
        assert step.chunks
        cache.check_invariants()
        for chunk in step.chunks:
            tokens[chunk.request_id] = tokens.get(chunk.request_id, 0) + chunk.emits_token
        scheduler.complete(step, {chunk.request_id: 7 for chunk in step.chunks})
        cache.check_invariants()
        steps.append(step)
        assert len(steps) < limit
    return tokens, steps


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=9),
    blocks=st.integers(10, 24),
)
def test_every_scheduler_serves_each_request_exactly_and_leaves_no_block(policy, sizes, blocks):
    cache = PagedKVCache(blocks, 2)
    scheduler = policy.scheduler(cache)
    for number, (prompt, output) in enumerate(sizes):
        scheduler.add(Request(request_id=number, prompt_tokens=prompt, max_output_tokens=output))
    tokens, steps = _drain(scheduler, cache)
    assert tokens == {number: output for number, (_, output) in enumerate(sizes)}
    assert cache.num_used_blocks == 0
    assert max(len(step.chunks) for step in steps) <= policy.num_slots
    if policy.name.startswith("chunked"):
        assert max(sum(chunk.new_tokens for chunk in step.chunks) for step in steps) <= 5


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_a_request_larger_than_the_pool_is_refused_at_the_door(policy):
    scheduler = policy.scheduler(PagedKVCache(2, 4))
    scheduler.add(Request(request_id=0, prompt_tokens=6, max_output_tokens=3))  # 8 tokens: exactly two blocks
    with pytest.raises(DoesNotFitError, match="request 1 needs 3 KV blocks"):
        scheduler.add(Request(request_id=1, prompt_tokens=6, max_output_tokens=4))


def test_decodes_come_first_and_the_chunk_takes_what_is_left_of_the_budget():
    scheduler = chunked_prefill(5, 3).scheduler(PagedKVCache(50, 4))
    scheduler.add(Request(request_id=0, prompt_tokens=2, max_output_tokens=9))
    scheduler.complete(scheduler.schedule())
    scheduler.add(Request(request_id=1, prompt_tokens=11, max_output_tokens=1))
    batches = []
    for _ in range(3):
        step = scheduler.schedule()
        batches.append((step.batch.prefill, step.batch.decode_contexts))
        scheduler.complete(step)
    assert batches == [(((4, 4),), (3,)), (((4, 8),), (4,)), (((3, 11),), (5,))]


def test_an_engine_can_stop_a_request_and_its_slot_is_taken_in_the_next_step():
    cache = PagedKVCache(50, 4)
    scheduler = continuous_batching(1).scheduler(cache)
    for number in range(2):
        scheduler.add(Request(request_id=number, prompt_tokens=3, max_output_tokens=100))
    scheduler.complete(scheduler.schedule())
    scheduler.stop(0)  # an end-of-text token
    assert cache.num_used_blocks == 0
    assert [chunk.request_id for chunk in scheduler.schedule().chunks] == [1]


def test_a_shared_beginning_is_not_computed_twice_when_the_cache_shares_prefixes():
    cache = PagedKVCache(50, 4, prefix_sharing=True)
    scheduler = continuous_batching(4).scheduler(cache)
    prompt = tuple(range(10))
    for number in range(2):
        ids = (*prompt, 100 + number)
        scheduler.add(Request(request_id=number, prompt_tokens=11, max_output_tokens=3, token_ids=ids))
        step = scheduler.schedule()
        (chunk,) = [chunk for chunk in step.chunks if not chunk.is_decode]
        assert (chunk.new_tokens, chunk.context_tokens) == ((11, 11), (3, 11))[number]  # 8 of 11 hit
        scheduler.complete(step, {chunk.request_id: 55 for chunk in step.chunks})
    assert cache.block_table(0)[:2] == cache.block_table(1)[:2]
    assert _drain(scheduler, cache)[0] == {0: 1, 1: 2}


def test_rows_of_finished_requests_idle_until_the_static_batch_ends():
    scheduler = static_batching(2).scheduler(PagedKVCache(50, 4))
    scheduler.add(Request(request_id=0, prompt_tokens=3, max_output_tokens=1))
    scheduler.add(Request(request_id=1, prompt_tokens=3, max_output_tokens=3))
    idle = []
    while scheduler.num_unfinished:
        step = scheduler.schedule()
        idle.append(step.num_idle_rows)
        scheduler.complete(step)
    assert idle == [0, 1, 1]
    assert scheduler.schedule().chunks == ()


def test_impossible_policies_and_requests_are_refused():
    for make in (
        lambda: static_batching(0), lambda: continuous_batching(-1), lambda: chunked_prefill(2, 3),
        lambda: chunked_prefill(0, 1), lambda: continuous_batching(True),
        lambda: Request(request_id=0, prompt_tokens=0, max_output_tokens=1),
        lambda: Request(request_id=0, prompt_tokens=4, max_output_tokens=1, cached_tokens=4),
        lambda: Request(request_id=0, prompt_tokens=4, max_output_tokens=1, token_ids=(1,)),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            make()
