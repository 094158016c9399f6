"""Step time: how long one iteration of a serving engine takes, from what is in its batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from course_lib.errors import InvalidInputError

__all__ = ["AffineStepTime", "ContextAffineStepTime", "StepBatch", "StepTime", "StepTotals"]

StepTotals = Callable[[int, int, int, int, int], float]
"""Seconds of a step from five sums: new prompt tokens, tokens cached before those, query-key pairs of the prompts
(causal, one layer), rows that decode or idle, KV tokens the decoding rows read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What one iteration computes.

    Args:
        prefill: ``(new_tokens, context_tokens)`` for each prompt or chunk of one; the context includes the new
            tokens, so a whole prompt of 100 is ``(100, 100)`` and its second half ``(50, 100)``.
        decode_contexts: for each decoding sequence the KV tokens it reads, its own new token included.
        num_idle_rows: rows of a static batch whose request has finished: computed and thrown away, reading no KV.

    Raises:
        InvalidInputError: a count below 1, or a context smaller than its new tokens.

    >>> StepBatch(prefill=((100, 100),), decode_contexts=(7, 9)).num_tokens
    102
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode_contexts: tuple[int, ...] = ()
    num_idle_rows: int = 0

    def __post_init__(self) -> None:
        if self.decode_contexts and min(self.decode_contexts) < 1:
            raise InvalidInputError("a decoding sequence reads 1 token or more", given=min(self.decode_contexts))
        for new, context in self.prefill:
            if not 1 <= new <= context:
                raise InvalidInputError(
                    "a prefill has 1 new token or more, and its context includes them", given=f"({new}, {context})"
                )
        if self.num_idle_rows < 0:
            raise InvalidInputError("idle rows are 0 or more", given=self.num_idle_rows)

    @property
    def num_prefill_tokens(self) -> int:
        """New prompt tokens."""
        return sum(new for new, _ in self.prefill)

    @property
    def num_tokens(self) -> int:
        """Tokens that belong to requests, prompt and output."""
        return self.num_prefill_tokens + len(self.decode_contexts)

    @property
    def num_sequences(self) -> int:
        """Requests that advance."""
        return len(self.prefill) + len(self.decode_contexts)

    @property
    def totals(self) -> tuple[int, int, int, int, int]:
        """The five sums of :data:`StepTotals`.

        >>> StepBatch(prefill=((50, 100),), decode_contexts=(7, 9)).totals       # pairs: 51 + 52 + ... + 100
        (50, 50, 3775, 2, 16)
        """
        return (
            self.num_prefill_tokens,
            sum(context - new for new, context in self.prefill),
            sum(new * context - new * (new - 1) // 2 for new, context in self.prefill),
            len(self.decode_contexts) + self.num_idle_rows,
            sum(self.decode_contexts),
        )


class StepTime(Protocol):
    """Anything that says how long a batch takes: a closed form, a calibrated model, a table of measurements."""

    def __call__(self, batch: StepBatch, /) -> float:
        """Seconds of one iteration, above zero."""


@runtime_checkable
class ContextAffineStepTime(Protocol):
    """A step time that depends on its batch through five sums, and on the decode context along a straight line.

    That is what lets a simulator jump over many decode steps at once.
    """

    @property
    def is_context_affine(self) -> bool:
        """False where the line is broken, as by a sliding window."""

    @property
    def seconds_per_context_token(self) -> float:
        """Slope of the line [s for each KV token read]."""

    def totals_seconds(self) -> StepTotals:
        """The step time as a function of five sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineStepTime:
    """A step time in one line: ``fixed + a * rows + c * context + p * prompt tokens``.

    Args:
        fixed_seconds: each step, whatever is in it (reading weights, launching kernels) [s].
        seconds_per_sequence: each decoding or idle row [s].
        seconds_per_context_token: each KV token read, by decodes and by chunks that follow other chunks [s].
        seconds_per_prefill_token: each new prompt token [s].

    Raises:
        InvalidInputError: a time below zero, or all of them zero.

    >>> step_time = AffineStepTime(fixed_seconds=0.010, seconds_per_sequence=0.001)
    >>> round(step_time(StepBatch(decode_contexts=(5, 5, 5))), 6)
    0.013
    """

    fixed_seconds: float = 0.0
    seconds_per_sequence: float = 0.0
    seconds_per_context_token: float = 0.0
    seconds_per_prefill_token: float = 0.0

    def __post_init__(self) -> None:
        terms = [getattr(self, name) for name in self.__slots__]
        if not all(0 <= term < math.inf for term in terms) or sum(terms) == 0:
            raise InvalidInputError("a step takes time: terms are 0 or more and not all zero", given=terms)

    @property
    def is_context_affine(self) -> bool:
        """Always true."""
        return True

    def totals_seconds(self) -> StepTotals:
        """The step time as a function of five sums."""
        fixed, per_row = self.fixed_seconds, self.seconds_per_sequence
        per_context, per_prompt = self.seconds_per_context_token, self.seconds_per_prefill_token

        def seconds(new: int, prior: int, pairs: int, rows: int, context: int) -> float:
            return fixed + per_row * rows + per_prompt * new + per_context * (context + prior)

        return seconds

    def __call__(self, batch: StepBatch) -> float:
        """Seconds of one iteration."""
        return self.totals_seconds()(*batch.totals)
