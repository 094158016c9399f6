"""Scheduling policies: static, iteration-level (continuous) and chunked-prefill batching.

Used by the simulator and by the real engine alike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.scheduling import Request, ScheduledChunk, ScheduledStep, SequenceState

__all__ = [
    "IterationLevelBatching", "IterationLevelScheduler", "StaticBatching", "StaticScheduler",
    "chunked_prefill", "continuous_batching", "static_batching",
]  # fmt: skip

_UNBOUNDED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBatching:
    """Request-level batching: a batch runs until its longest request has finished, then the next one starts."""

    batch_size: int

    def __post_init__(self) -> None:
        _require_count("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """``static(8)``."""
        return f"static({self.batch_size})"

    @property
    def num_slots(self) -> int:
        """Sequences that can run at once."""
        return self.batch_size

    def scheduler(self, kv_cache: PagedKVCache) -> StaticScheduler:
        """A fresh scheduler."""
        return StaticScheduler(self.batch_size, kv_cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLevelBatching:
    """Who runs is decided anew each iteration; ``token_budget`` bounds its tokens by cutting prompts into chunks."""

    max_batch: int
    token_budget: int | None = None

    def __post_init__(self) -> None:
        _require_count("max_batch", self.max_batch)
        if self.token_budget is not None:
            _require_count("token_budget", self.token_budget)
            if self.token_budget < self.max_batch:
                raise InvalidInputError(
                    "the token budget holds a decode token of every running sequence",
                    allowed=f"{self.max_batch} or more",
                    given=self.token_budget,
                )

    @property
    def name(self) -> str:
        """``continuous(64)`` or ``chunked(64, 512)``."""
        if self.token_budget is None:
            return f"continuous({self.max_batch})"
        return f"chunked({self.max_batch}, {self.token_budget})"

    @property
    def num_slots(self) -> int:
        """Sequences that can run at once."""
        return self.max_batch

    def scheduler(self, kv_cache: PagedKVCache) -> IterationLevelScheduler:
        """A fresh scheduler."""
        return IterationLevelScheduler(self.max_batch, kv_cache, token_budget=self.token_budget)


def static_batching(batch_size: int) -> StaticBatching:
    """Request-level (static) batching of up to ``batch_size`` requests.

    Takes whoever waits when the last batch has ended. Rows of finished requests are computed to the end and thrown
    away; room for the longest possible answer is set aside when a batch starts.

    >>> static_batching(8).name
    'static(8)'
    """
    return StaticBatching(batch_size=batch_size)


def continuous_batching(max_batch: int) -> IterationLevelBatching:
    """Iteration-level scheduling: a finished request's slot is taken in the next iteration, whole prompts at once.

    Source: Yu et al. (2022), Orca, section 3.1.

    >>> continuous_batching(64).name
    'continuous(64)'
    """
    return IterationLevelBatching(max_batch=max_batch)


def chunked_prefill(token_budget: int, max_batch: int) -> IterationLevelBatching:
    """Iteration-level scheduling with at most ``token_budget`` tokens a step: decodes first, then chunks of prompts.

    Source: Agrawal et al. (2024), Sarathi-Serve; vLLM documentation, chunked prefill.

    >>> chunked_prefill(512, 64).name
    'chunked(64, 512)'
    """
    return IterationLevelBatching(max_batch=max_batch, token_budget=token_budget)


def _require_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"{name} is a whole number, 1 or more", given=repr(value))


class _Queues:
    """Waiting and running requests, and the bookkeeping after a step; first come, first served."""

    def __init__(self, num_slots: int, kv_cache: PagedKVCache) -> None:
        self.num_slots, self.kv_cache = num_slots, kv_cache
        self.waiting: deque[SequenceState] = deque()
        self.running: dict[int, SequenceState] = {}  # in the order of admission

    @property
    def num_unfinished(self) -> int:
        """Requests waiting or running."""
        return len(self.waiting) + len(self.running)

    def add(self, request: Request) -> None:
        """A request arrives; one that the whole pool cannot hold is refused."""
        needed = self.kv_cache.blocks_for(request.most_kv_tokens)
        if needed > self.kv_cache.num_blocks:
            raise DoesNotFitError(
                f"request {request.request_id} needs {needed} KV blocks for {request.most_kv_tokens} tokens "
                f"and the pool has {self.kv_cache.num_blocks}. Shorten it or enlarge the pool."
            )
        self.waiting.append(SequenceState(request))

    def complete(self, step: ScheduledStep, token_ids: dict[int, int] | None = None) -> tuple[int, ...]:
        """Account for a step that has run; return who finished."""
        finished = []
        for chunk in step.chunks:
            state = self.running[chunk.request_id]
            state.num_computed, state.is_decoding = chunk.context_tokens, chunk.emits_token
            if chunk.emits_token:
                state.num_generated += 1
                if token_ids is not None:
                    state.generated_ids.append(token_ids[chunk.request_id])
                if state.is_finished:
                    finished.append(chunk.request_id)
        for request_id in finished:
            self.stop(request_id)
        return tuple(finished)

    def stop(self, request_id: int) -> None:
        """End a running request and free its blocks."""
        del self.running[request_id]
        self.kv_cache.free(request_id)

    def _chunk(self, state: SequenceState, num_tokens: int) -> ScheduledChunk:
        """Allocate the blocks of ``num_tokens`` more tokens and say what to compute."""
        request_id, known = state.request.request_id, state.known_ids()
        start = self.kv_cache.sequence_tokens(request_id)
        end = state.num_computed + num_tokens
        ids = None if known is None else known[start:end]
        self.kv_cache.append(request_id, end - start, token_ids=ids)
        return ScheduledChunk(request_id, num_tokens, end, end == state.num_known, state.is_decoding)


class StaticScheduler(_Queues):
    """The scheduler of :func:`static_batching`."""

    num_rows = 0  # of the batch under way

    def schedule(self) -> ScheduledStep:
        """Start a batch if none runs, else advance it by one token each."""
        if not self.running:
            self._start_batch()
        chunks = tuple(self._chunk(state, state.num_known - state.num_computed) for state in self.running.values())
        return ScheduledStep(chunks=chunks, num_idle_rows=self.num_rows - len(chunks) if chunks else 0)

    def _start_batch(self) -> None:
        room = self.kv_cache.num_free_blocks
        while self.waiting and len(self.running) < self.num_slots:
            request = self.waiting[0].request
            room -= self.kv_cache.blocks_for(request.most_kv_tokens)
            if room < 0:
                break
            state = self.waiting.popleft()
            state.num_computed = request.cached_tokens
            self.running[request.request_id] = state
        self.num_rows = len(self.running)


class IterationLevelScheduler(_Queues):
    """The scheduler of :func:`continuous_batching` and :func:`chunked_prefill`.

    Each step: running sequences in the order of admission (decodes, then at most one unfinished prompt), then new
    ones while slots, budget and blocks last. Where a running sequence finds no block, the one admitted last is
    preempted: its blocks are freed, it waits at the head of the queue and will be computed again, output included.
    Nobody is admitted in a step that preempts.
    """

    def __init__(self, max_batch: int, kv_cache: PagedKVCache, *, token_budget: int | None = None) -> None:
        super().__init__(max_batch, kv_cache)
        self.token_budget = token_budget

    def schedule(self) -> ScheduledStep:
        """The next iteration."""
        chunks: list[ScheduledChunk] = []
        preempted: list[int] = []
        left = self.token_budget or _UNBOUNDED
        for state in list(self.running.values()):
            request_id = state.request.request_id
            num_tokens = min(state.num_known - state.num_computed, left)
            while request_id in self.running and not self.kv_cache.can_append(request_id, num_tokens):
                preempted.append(self._preempt_last())
            if request_id not in self.running:
                break  # it was the last itself, and so were all after it
            chunks.append(self._chunk(state, num_tokens))
            left -= num_tokens
        if not preempted:
            chunks += self._admit(left)
        return ScheduledStep(chunks=tuple(chunks), preempted=tuple(preempted))

    def _preempt_last(self) -> int:
        request_id, state = self.running.popitem()
        self.kv_cache.free(request_id)
        state.num_computed = 0
        state.is_decoding = False
        self.waiting.appendleft(state)
        return request_id

    def _admit(self, left: int) -> list[ScheduledChunk]:
        """Start waiting requests with the tokens left in the budget."""
        chunks: list[ScheduledChunk] = []
        while self.waiting and left and len(self.running) < self.num_slots:
            state = self.waiting[0]
            request_id, known = state.request.request_id, state.known_ids()
            shares = self.kv_cache.prefix_sharing and known is not None
            cached = self.kv_cache.cached_prefix_tokens(known) if shares and known else state.request.cached_tokens
            num_tokens = min(state.num_known - cached, left)
            needed = self.kv_cache.blocks_to_start(cached + num_tokens, known if shares else None)
            if needed > self.kv_cache.num_free_blocks:
                break
            self.waiting.popleft()
            self.running[request_id] = state
            if shares and known:
                self.kv_cache.adopt_prefix(request_id, known)
            state.num_computed = cached
            chunks.append(self._chunk(state, num_tokens))
            left -= num_tokens
        return chunks
