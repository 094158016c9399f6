"""The block pool: golden traces, conservation, copy-on-write."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.serving.kv_cache import OutOfBlocksError, PagedKVCache


def _after_two_requests_ended() -> PagedKVCache:
    # vLLM's documented example: blocks of 4, a pool of 10. Request 0 has 15 tokens (blocks 0..3), decodes 2 more
    # (block 4); request 1 has 14 tokens, the first 10 equal: 2 whole blocks hit (8 tokens), blocks 5 and 6 are new.
    cache = PagedKVCache(10, 4, prefix_sharing=True)
    cache.append("r0", 15, token_ids=range(15))
    cache.append("r0", 2, token_ids=(15, 16))
    prompt = (*range(10), 90, 91, 92, 93)
    assert cache.adopt_prefix("r1", prompt) == 8
    cache.append("r1", 6, token_ids=prompt[8:])
    assert cache.block_table("r0") == (0, 1, 2, 3, 4)
    assert cache.block_table("r1") == (0, 1, 5, 6)
    cache.free("r0")
    assert cache.free_queue == (7, 8, 9, 4, 3, 2)
    cache.free("r1")
    return cache


def test_prefix_caching_follows_the_documented_golden_trace():
    cache = _after_two_requests_ended()
    assert cache.free_queue == (7, 8, 9, 4, 3, 2, 6, 5, 1, 0)
    prompt = (*range(12), *range(200, 217))  # 29 tokens, the first 12 as in request 0
    assert cache.adopt_prefix("r2", prompt) == 12
    assert cache.free_queue == (7, 8, 9, 4, 3, 6, 5)
    cache.append("r2", 17, token_ids=prompt[12:])
    assert cache.block_table("r2") == (0, 1, 2, 7, 8, 9, 4, 3)
    cache.check_invariants()


def test_a_block_taken_from_the_queue_is_known_no_more():
    cache = _after_two_requests_ended()
    cache.append("other", 40, token_ids=range(500, 540))  # all ten blocks
    cache.free("other")
    assert cache.cached_prefix_tokens(range(15)) == 0
    assert cache.cached_prefix_tokens(range(500, 541)) == 40


def test_one_token_of_a_fully_cached_prompt_is_left_to_compute():
    cache = PagedKVCache(4, 4, prefix_sharing=True)
    cache.append("a", 8, token_ids=range(8))
    assert cache.cached_prefix_tokens(range(8)) == 4
    assert cache.cached_prefix_tokens(range(9)) == 8


def test_the_same_tokens_after_another_beginning_are_another_block():
    cache = PagedKVCache(4, 2, prefix_sharing=True)
    cache.append("a", 4, token_ids=(1, 2, 3, 4))
    assert cache.cached_prefix_tokens((9, 9, 3, 4, 5)) == 0


def test_an_append_to_a_forked_sequence_copies_only_the_last_shared_block():
    cache = PagedKVCache(4, 4)
    cache.append("parent", 6)
    cache.fork("parent", "child")
    assert cache.num_used_blocks == 2
    assert cache.append("child", 1) == (2,)
    assert cache.block_table("child") == (0, 2)
    assert cache.block_table("parent") == (0, 1)
    assert cache.append("parent", 1) == ()  # now its own again
    cache.check_invariants()
    cache.free("parent")
    cache.free("child")
    assert cache.num_free_blocks == 4


def test_running_out_of_blocks_changes_nothing():
    cache = PagedKVCache(2, 4)
    cache.append("a", 5)
    before = (cache.free_queue, cache.block_table("a"), cache.num_tokens)
    with pytest.raises(OutOfBlocksError, match="needs 1 more blocks"):
        cache.append("a", 4)
    with pytest.raises(OutOfBlocksError, match="'b' needs 1"):
        cache.append("b", 1)
    assert (cache.free_queue, cache.block_table("a"), cache.num_tokens) == before
    assert cache.sequences == ("a",)


@pytest.mark.parametrize(("blocks", "size"), [(0, 16), (4, 0), (2.5, 16), (True, 16)])
def test_impossible_pools_are_refused(blocks, size):
    with pytest.raises(InvalidInputError, match="whole number"):
        PagedKVCache(blocks, size)


def test_unknown_sequences_and_missing_tokens_are_named():
    cache = PagedKVCache(2, 2, prefix_sharing=True)
    with pytest.raises(UnknownNameError, match="ghost"):
        cache.free("ghost")
    with pytest.raises(InvalidInputError, match="token_ids"):
        cache.append("a", 1)


def test_mean_waste_of_uniform_lengths_is_half_a_block_less_half_a_token():
    # lengths 1..160, all residues equally often: mean waste (16 - 1) / 2 = 7.5 slots a sequence
    cache = PagedKVCache(2000, 16)
    for length in range(1, 161):
        cache.append(length, length)
    assert cache.wasted_tokens / 160 == 7.5


@given(st.data(), st.booleans(), st.integers(1, 5))
def test_no_block_leaks_and_none_is_overlapped_whatever_happens(data, sharing, size):
    cache = PagedKVCache(12, size, prefix_sharing=sharing)
    for number in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(("start", "append", "fork", "free")))
        names = cache.sequences
        if action == "start":
            tokens = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
            done = cache.adopt_prefix(number, tokens) if sharing else 0
            if cache.can_append(number, len(tokens) - done):
                cache.append(number, len(tokens) - done, token_ids=tokens[done:] if sharing else None)
        elif names and action == "append":
            name = data.draw(st.sampled_from(names))
            num = data.draw(st.integers(1, 4))
            if cache.can_append(name, num):
                cache.append(name, num, token_ids=[0] * num if sharing else None)
        elif names and action == "fork":
            cache.fork(data.draw(st.sampled_from(names)), ("fork", number))
        elif names:
            cache.free(data.draw(st.sampled_from(names)))
        cache.check_invariants()
    for name in cache.sequences:
        cache.free(name)
    cache.check_invariants()
    assert cache.num_free_blocks == 12


def test_token_ids_may_be_an_array_and_are_appended_not_added():
    cache, ids = PagedKVCache(8, 2, prefix_sharing=True), np.arange(4)
    cache.append("a", 4, token_ids=ids)
    cache.append("a", 4, token_ids=ids + 4)  # a list += an array of its length would add the numbers
    cache.check_invariants()
    assert cache.cached_prefix_tokens(range(9)) == 8


@pytest.mark.parametrize("num_tokens", [1.5, math.nan, "3", None])
def test_a_refused_append_leaves_no_sequence_behind(num_tokens):
    cache = PagedKVCache(4)
    with pytest.raises(InvalidInputError, match="whole numbers"):
        cache.append("a", num_tokens)
    assert cache.sequences == ()
    assert cache.num_free_blocks == 4
