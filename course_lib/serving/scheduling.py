"""What a scheduler and whoever runs it say to each other: requests, their state, and the next step.

Nothing here knows whether a simulator or a real engine runs the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from course_lib.errors import InvalidInputError
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.step_time import StepBatch

__all__ = ["Policy", "Request", "ScheduledChunk", "ScheduledStep", "Scheduler", "SequenceState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as a scheduler sees it.

    Args:
        request_id: its number.
        prompt_tokens: tokens in, 1 or more.
        max_output_tokens: tokens out at most, 1 or more.
        cached_tokens: leading prompt tokens that need no computing (a simulator's prefix hits), below prompt_tokens.
        token_ids: the prompt itself, where the KV cache shares prefixes.
    """

    request_id: int
    prompt_tokens: int
    max_output_tokens: int
    cached_tokens: int = 0
    token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.max_output_tokens < 1 or not 0 <= self.cached_tokens < self.prompt_tokens:
            raise InvalidInputError("a request has 1 token in and 1 out or more, and one to compute", given=self)
        if self.token_ids is not None and len(self.token_ids) != self.prompt_tokens:
            raise InvalidInputError("token_ids is the whole prompt", given=f"{len(self.token_ids)} tokens")

    @property
    def most_kv_tokens(self) -> int:
        """KV tokens at the end: the last output token is never fed back."""
        return self.prompt_tokens + self.max_output_tokens - 1


@dataclass(slots=True)
class SequenceState:
    """A request under way: what has been computed and what has come out."""

    request: Request
    num_computed: int = 0  # tokens whose keys and values are in the cache
    num_generated: int = 0
    is_decoding: bool = False  # its last step emitted a token, so the next computes just that one
    generated_ids: list[int] = field(default_factory=list)

    @property
    def num_known(self) -> int:
        """Tokens whose keys and values the next output token needs: prompt and output so far."""
        return self.request.prompt_tokens + self.num_generated

    @property
    def is_finished(self) -> bool:
        """All output tokens are there."""
        return self.num_generated >= self.request.max_output_tokens

    def known_ids(self) -> tuple[int, ...] | None:
        """The tokens themselves, if the request brought them."""
        ids = self.request.token_ids
        return None if ids is None else (*ids, *self.generated_ids)


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """One sequence's part of a step: ``new_tokens`` to compute; ``emits_token`` if an output token follows."""

    request_id: int
    new_tokens: int
    context_tokens: int
    emits_token: bool
    is_decode: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStep:
    """The next iteration: who computes what, who was preempted to make room, and what it costs."""

    chunks: tuple[ScheduledChunk, ...] = ()
    preempted: tuple[int, ...] = ()
    num_idle_rows: int = 0

    @property
    def batch(self) -> StepBatch:
        """The same as a batch for a :class:`~course_lib.serving.step_time.StepTime`."""
        return StepBatch(
            prefill=tuple((c.new_tokens, c.context_tokens) for c in self.chunks if not c.is_decode),
            decode_contexts=tuple(c.context_tokens for c in self.chunks if c.is_decode),
            num_idle_rows=self.num_idle_rows,
        )


class Scheduler(Protocol):
    """Decides the next iteration from who waits and who runs; owns the blocks of the sequences it runs."""

    @property
    def num_unfinished(self) -> int:
        """Requests waiting or running."""

    def add(self, request: Request) -> None:
        """A request arrives."""

    def schedule(self) -> ScheduledStep:
        """The next step; its blocks are allocated. No chunks: nothing to do until something arrives."""

    def complete(self, step: ScheduledStep, token_ids: dict[int, int] | None = None) -> tuple[int, ...]:
        """The step has run: account for its tokens and return who finished.

        Args:
            step: what :meth:`schedule` returned last.
            token_ids: a real engine's output token of each emitting request.
        """

    def stop(self, request_id: int) -> None:
        """End a running request now (an end-of-text token, a client gone); its blocks are freed."""


class Policy(Protocol):
    """A named choice of scheduler; a frozen record that can be compared and printed."""

    @property
    def name(self) -> str:
        """What to call it in a table."""

    @property
    def num_slots(self) -> int:
        """Sequences that can run at once."""

    def scheduler(self, kv_cache: PagedKVCache) -> Scheduler:
        """A fresh scheduler on an empty cache."""
