"""Closed forms of queueing theory: what a simulator must agree with, and what a capacity plan starts from."""

from __future__ import annotations

import math

from course_lib.errors import InvalidInputError

__all__ = [
    "erlang_c", "harmonic_number", "kv_limited_requests_per_second", "md1_ttft_seconds", "mg1_wait_seconds",
    "mm1_sojourn_quantile_seconds", "mmc_wait_seconds", "static_slot_utilization",
]  # fmt: skip


def _load(arrival_requests_per_second: float, service_seconds: float, num_servers: int = 1) -> float:
    if not (arrival_requests_per_second >= 0 and service_seconds > 0):
        raise InvalidInputError(
            "a queue has a rate of 0 or more and a service time above 0",
            given=(arrival_requests_per_second, service_seconds),
        )
    if num_servers < 1:
        raise InvalidInputError("a queue has 1 server or more", given=num_servers)
    return arrival_requests_per_second * service_seconds / num_servers


def harmonic_number(n: int) -> float:
    """``H_n = 1 + 1/2 + ... + 1/n``.

    >>> round(harmonic_number(8), 4), round(harmonic_number(32), 4)
    (2.7179, 4.0585)
    """
    return math.fsum(1 / k for k in range(1, n + 1))


def static_slot_utilization(mean_output_tokens: float, batch_size: int) -> float:
    """Slot utilization of static batching with geometric lengths, exact.

    ``E[X] / E[max of B]`` with ``E[max] = sum over k >= 0 of 1 - (1 - (1-p)**k)**B`` and ``p = 1 / mean``. For long
    answers it falls towards ``1 / H_B``, the value for exponential lengths.

    Args:
        mean_output_tokens: mean length, 1 or more.
        batch_size: B, rows of a full batch.

    Assumes: every batch is full and waits for its longest request.

    >>> [round(static_slot_utilization(mean, 8), 4) for mean in (20, 50, 200)], round(1 / harmonic_number(8), 4)
    ([0.3739, 0.3703, 0.3685], 0.3679)
    """
    if mean_output_tokens < 1 or batch_size < 1:
        raise InvalidInputError("lengths and batches are 1 or more", given=(mean_output_tokens, batch_size))
    stays, alive, longest = 1 - 1 / mean_output_tokens, 1.0, 0.0
    while batch_size * alive > 1e-12:  # what is left of the sum is below mean * 1e-12
        longest += 1.0 if alive == 1.0 else -math.expm1(batch_size * math.log1p(-alive))
        alive *= stays
    return mean_output_tokens / longest


def mg1_wait_seconds(*, arrival_requests_per_second: float, service_seconds: float, squared_variation: float) -> float:
    """Pollaczek-Khinchine mean wait: ``W_q = rho / (1 - rho) * (1 + c**2) / 2 * E[S]``; infinite from rho = 1 on.

    Args:
        arrival_requests_per_second: lambda, Poisson.
        service_seconds: E[S].
        squared_variation: c**2 of the service time: 0 constant (M/D/1), 1 exponential (M/M/1).

    >>> queue = {"arrival_requests_per_second": 0.8, "service_seconds": 1}
    >>> [round(mg1_wait_seconds(**queue, squared_variation=c), 6) for c in (1, 0, 4)]
    [4.0, 2.0, 10.0]
    """
    load = _load(arrival_requests_per_second, service_seconds)
    return math.inf if load >= 1 else load / (1 - load) * (1 + squared_variation) / 2 * service_seconds


def mm1_sojourn_quantile_seconds(
    quantile: float, *, arrival_requests_per_second: float, service_seconds: float
) -> float:
    """Quantile of the stay in M/M/1: ``ln(1 / (1 - q)) / (mu - lambda)``; infinite from rho = 1 on.

    >>> round(mm1_sojourn_quantile_seconds(.99, arrival_requests_per_second=.8, service_seconds=1), 2)
    23.03
    """
    if not 0 <= quantile < 1:
        raise InvalidInputError("a quantile lies between 0 and 1", given=quantile)
    load = _load(arrival_requests_per_second, service_seconds)
    return math.inf if load >= 1 else -math.log1p(-quantile) * service_seconds / (1 - load)


def md1_ttft_seconds(
    *, arrival_requests_per_second: float, prefill_seconds: float, pipeline_stages: int = 1, speed_up: float = 1.0
) -> float:
    """Mean time to first token of a prefill-only replica (DistServe).

    ``D + R D**2 / (2 (1 - R D))`` on one device. Over n pipeline stages a request leaves after D, and the next may
    enter after ``D / n``; for two: ``D + R D**2 / (4 (2 - R D))``. Intra-operator parallelism divides D by K.

    Args:
        arrival_requests_per_second: R, Poisson.
        prefill_seconds: D, one prompt on one device.
        pipeline_stages: n equal stages.
        speed_up: K, by how much more devices shorten one prompt.

    Source: Zhong et al. (2024), DistServe, section 3.1.

    >>> md1_ttft_seconds(arrival_requests_per_second=0.8, prefill_seconds=1)
    3.0
    """
    if pipeline_stages < 1 or speed_up < 1:
        raise InvalidInputError("stages and speed-up are 1 or more", given=(pipeline_stages, speed_up))
    service = prefill_seconds / speed_up / pipeline_stages
    wait = mg1_wait_seconds(
        arrival_requests_per_second=arrival_requests_per_second, service_seconds=service, squared_variation=0
    )
    return round(prefill_seconds / speed_up + wait, 15)


def erlang_c(*, num_servers: int, load: float) -> float:
    """Probability of waiting in M/M/c at load rho, by the stable recursion of Erlang B.

    ``B(k) = a B(k-1) / (k + a B(k-1))``, ``C = B / (1 - rho (1 - B))``, ``a = c rho``.

    >>> [round(erlang_c(num_servers=c, load=.8), 4) for c in (1, 2, 4, 8, 16)]
    [0.8, 0.7111, 0.5964, 0.4576, 0.3049]
    """
    if num_servers < 1 or load < 0:
        raise InvalidInputError("a queue has 1 server or more and a load of 0 or more", given=(num_servers, load))
    if load >= 1:
        return 1.0
    blocked = 1.0
    for k in range(1, num_servers + 1):
        blocked = num_servers * load * blocked / (k + num_servers * load * blocked)
    return blocked / (1 - load * (1 - blocked))


def mmc_wait_seconds(*, num_servers: int, arrival_requests_per_second: float, service_seconds: float) -> float:
    """Mean wait in M/M/c: ``C * E[S] / (c (1 - rho))``: pooling servers shortens it.

    >>> def wait(c): return mmc_wait_seconds(num_servers=c, arrival_requests_per_second=.8 * c, service_seconds=1)
    >>> [round(wait(c), 3) for c in (1, 2, 16)]
    [4.0, 1.778, 0.095]
    """
    load = _load(arrival_requests_per_second, service_seconds, num_servers)
    if load >= 1:
        return math.inf
    return erlang_c(num_servers=num_servers, load=load) * service_seconds / (num_servers * (1 - load))


def kv_limited_requests_per_second(
    *, kv_capacity_tokens: float, step_seconds: float, prompt_tokens: float, output_tokens: float
) -> float:
    """Largest rate that the KV cache can hold: ``lambda = M / (b g)``, Little's law with memory as the room.

    A request occupies ``g = o l + o (o+1) / 2`` token-iterations.

    Args:
        kv_capacity_tokens: M.
        step_seconds: b, mean time of an iteration.
        prompt_tokens, output_tokens: l and o.

    Source: Nie, Si, Zhou (2026), arXiv 2605.04595.

    >>> round(kv_limited_requests_per_second(
    ...     kv_capacity_tokens=366e3, step_seconds=.02, prompt_tokens=512, output_tokens=128))
    248
    """
    token_iterations = output_tokens * prompt_tokens + output_tokens * (output_tokens + 1) / 2
    if min(kv_capacity_tokens, step_seconds, token_iterations) <= 0:
        raise InvalidInputError("capacity, step time and lengths are above zero", given=kv_capacity_tokens)
    return kv_capacity_tokens / (step_seconds * token_iterations)
