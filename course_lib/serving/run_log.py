"""What a run leaves behind, the same from either simulator, and the laws that each run must obey."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.serving.workload import RequestTrace

__all__ = ["TIE", "InvariantError", "RunLog", "check_run", "ready_by"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIE = 1e-12
"""Two instants closer than ``TIE * (1 + t)`` are one: an arrival that close after a step counts as there. It is some
thousand times the rounding of a sum of step times and a millionth of any step."""


class InvariantError(AssertionError):
    """A run broke a law that holds for every run: a mistake in this library, not in the input."""


def ready_by(seconds: float) -> float:
    """The last arrival instant that counts as not later than ``seconds``."""
    return seconds + TIE * (1.0 + seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunLog:
    """Columns by request, rows by segment, and totals of one run.

    A segment is one iteration, or several decode iterations in a row whose times grow by a constant.

    Args:
        first_token_at_seconds, finish_at_seconds: nan for a rejected request.  # (requests,)
        itl_max_seconds: longest gap between two tokens of a request; 0 with a single token.  # (requests,)
        num_preemptions: by request.  # (requests,)
        preemptions: ``(instant, request)`` in order.
        rejected: ``(request, reason)``.
        segments: ``(iterations, seconds of the first, growth per iteration, decoding sequences)``.  # (segments, 4)
        recompute_gaps_seconds: gaps between tokens that span a preemption.
        num_slot_iterations: sequences scheduled, summed over iterations.
        num_prefill_tokens: prompt tokens computed, recomputed ones included.
        kv_token_iterations, kv_waste_iterations: slots with and without a token, summed over iterations.
        kv_peak_blocks: most blocks in use.
        kv_blocks_at_end: blocks still in use when all is over.
    """

    first_token_at_seconds: Floats
    finish_at_seconds: Floats
    itl_max_seconds: Floats
    num_preemptions: Ints
    preemptions: tuple[tuple[float, int], ...]
    rejected: tuple[tuple[int, str], ...]
    segments: Floats
    recompute_gaps_seconds: Floats
    num_slot_iterations: int
    num_prefill_tokens: int
    kv_token_iterations: int
    kv_waste_iterations: int
    kv_peak_blocks: int
    kv_blocks_at_end: int

    @property
    def num_iterations(self) -> int:
        """Steps that the engine ran."""
        return int(self.segments[:, 0].sum())

    @property
    def num_decode_tokens(self) -> int:
        """Tokens that came out of decode rows."""
        return int((self.segments[:, 0] * self.segments[:, 3]).sum())

    @property
    def busy_seconds(self) -> float:
        """Time in which a step ran: ``sum of k f + g k (k-1) / 2`` over segments."""
        k, first, growth = self.segments[:, 0], self.segments[:, 1], self.segments[:, 2]
        return float((k * first + growth * k * (k - 1) / 2).sum())


def check_run(requests: RequestTrace, log: RunLog, *, num_slots: int) -> None:
    """Hold a run to its laws.

    Raises:
        InvariantError: tokens lost or made up, a request neither served nor rejected, an effect before its cause,
            KV blocks left over, more sequences than slots, Little's law broken.
    """
    arrival, first, finish = requests.arrival_at_seconds, log.first_token_at_seconds, log.finish_at_seconds
    served = ~np.isnan(finish)
    rejected = np.zeros(len(requests), dtype=bool)
    rejected[[request_id for request_id, _ in log.rejected]] = True
    _require(bool((served ^ rejected).all()), "each request is served or rejected, never both")
    num_out = log.num_decode_tokens + int(served.sum()) + len(log.recompute_gaps_seconds)
    _require(num_out == int(requests.output_tokens[served].sum()), "tokens out equal tokens asked for")
    prompts = int((requests.prompt_tokens - requests.cached_tokens)[served].sum())
    _require(log.num_prefill_tokens >= prompts, "each prompt is computed")
    once = bool(log.preemptions) or log.num_prefill_tokens == prompts
    _require(once, "without preemption no prompt is computed twice")
    _require(bool((arrival[served] < first[served]).all()), "a first token comes after its request")
    _require(bool((first[served] <= finish[served]).all()), "a last token comes after the first")
    _require(log.kv_blocks_at_end == 0, "no KV block outlives its request")
    _require(log.num_slot_iterations <= num_slots * log.num_iterations, "no more sequences run than there are slots")
    if served.any():
        _check_time(arrival[served], finish[served], log.busy_seconds)


def _check_time(arrival: Floats, finish: Floats, busy_seconds: float) -> None:
    """Little's law over the whole run, exact: the area under the number in the system is the sum of stays."""
    instants = np.concatenate((arrival, finish))
    change = np.repeat((1, -1), len(arrival))
    order = np.argsort(instants, kind="stable")
    present = np.cumsum(change[order])[:-1]
    area = float(np.dot(present, np.diff(instants[order])))
    stays = float((finish - arrival).sum())
    _require(bool((present >= 0).all()) and abs(area - stays) <= 1e-9 * max(1.0, stays), "Little's law: L T = sum of W")
    span = float(finish.max() - arrival.min())
    _require(busy_seconds <= span * (1 + 1e-9) + 1e-9, "the engine is not busy longer than the run lasts")


def _require(holds: bool, law: str) -> None:
    if not holds:
        raise InvariantError(f"broken: {law}")
