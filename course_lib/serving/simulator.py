"""Simulate a serving engine: a workload, a policy, a step time and a KV pool become one report."""

from __future__ import annotations

import numpy as np

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.serving.event_jump import run_jumping
from course_lib.serving.kv_cache import PagedKVCache
from course_lib.serving.policies import IterationLevelBatching, StaticBatching
from course_lib.serving.report import ServingReport
from course_lib.serving.run_log import RunLog, check_run
from course_lib.serving.scheduling import Policy
from course_lib.serving.slo import SLO
from course_lib.serving.static_jump import run_static_jumping
from course_lib.serving.step_time import ContextAffineStepTime, StepTime
from course_lib.serving.stepping import run_stepping
from course_lib.serving.workload import RequestTrace, Workload

__all__ = ["METHODS", "simulate"]

METHODS = ("auto", "stepping", "jumping")
"""One iteration after the other (any step time and policy), from event to event (same answer), or the faster."""


def simulate(
    workload: Workload | RequestTrace, *, step_time: StepTime, policy: Policy, kv_cache: PagedKVCache,
    slo: SLO | None = None, rng: np.random.Generator, method: str = "auto",
) -> ServingReport:  # fmt: skip
    """Serve a workload iteration by iteration and report what each request saw.

    A prompt's last prefill step emits the first token; each decode step emits one token of every running sequence
    and reads its whole context. A request whose tokens the whole pool cannot hold is rejected by name.

    Args:
        workload: the law of arrivals and lengths, or requests already drawn.
        step_time: seconds of a :class:`StepBatch`.
        policy: who runs when; see :mod:`course_lib.serving.policies`.
        kv_cache: an empty pool, without prefix sharing (``Workload.prefix_hit_fraction`` models hits).
        slo: the promise that goodput counts against.
        rng: randomness of the workload; the same state gives the same report.
        method: one of :data:`METHODS`.

    Returns:
        ServingReport: frozen. Conservation of tokens, causality, Little's law and an empty pool at the end are
        checked on each run.

    Raises:
        InvalidInputError: a pool in use or with sharing, a step time of zero, an unknown method.
        UnsupportedError: ``"jumping"`` for a step time or a policy that cannot be jumped.

    Assumes: scheduling takes no time beyond the step; no failures; clients never leave.

    >>> from course_lib.serving.policies import continuous_batching
    >>> from course_lib.serving.step_time import AffineStepTime
    >>> report = simulate(
    ...     Workload(arrival_requests_per_second=1, prompt_tokens=4, output_tokens=3, num_requests=2, arrivals="batch"),
    ...     step_time=AffineStepTime(fixed_seconds=0.5), policy=continuous_batching(8),
    ...     kv_cache=PagedKVCache(8), rng=np.random.default_rng(0))
    >>> [(at, kind, who) for at, kind, who in report.events if kind != "arrival"]
    [(0.5, 'first_token', 0), (0.5, 'first_token', 1), (1.5, 'finish', 0), (1.5, 'finish', 1)]
    """
    if method not in METHODS:
        raise InvalidInputError("a known method", allowed=", ".join(METHODS), given=repr(method))
    if kv_cache.num_used_blocks:
        raise InvalidInputError("a run starts with an empty KV pool", given=f"{kv_cache.num_used_blocks} blocks in use")
    if kv_cache.prefix_sharing:
        raise InvalidInputError(
            "a simulation knows lengths and no tokens, so it cannot share prefixes",
            next_step="Use PagedKVCache without prefix_sharing and set Workload.prefix_hit_fraction.",
        )
    requests = workload.requests(rng) if isinstance(workload, Workload) else workload
    log = _run(requests, step_time, policy, kv_cache, method)
    check_run(requests, log, num_slots=policy.num_slots)
    flops, peak = getattr(step_time, "flops_per_token", None), getattr(step_time, "peak_flops_per_second", None)
    return ServingReport(
        policy=policy.name,
        num_slots=policy.num_slots,
        slo=slo,
        requests_trace=requests,
        log=log,
        compute_peak=(flops, peak) if flops and peak else None,
    )


def _run(requests: RequestTrace, step_time: StepTime, policy: Policy, kv_cache: PagedKVCache, method: str) -> RunLog:
    if method != "stepping" and isinstance(step_time, ContextAffineStepTime) and step_time.is_context_affine:
        if type(policy) is IterationLevelBatching:
            return run_jumping(requests, step_time=step_time, policy=policy, kv_cache=kv_cache)
        if type(policy) is StaticBatching:
            return run_static_jumping(requests, step_time=step_time, policy=policy, kv_cache=kv_cache)
    if method == "jumping":
        raise UnsupportedError(
            "Only the three built-in policies with a step time on a straight line in context can be jumped. "
            "Use method='auto' or 'stepping'."
        )
    return run_stepping(requests, step_time=step_time, policy=policy, kv_cache=kv_cache)
