"""Time to first token: prompts wait for one another and for the decode step under way (M/D/1 with vacations)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError

__all__ = ["mean_wait_seconds", "ttft_quantile_seconds", "wait_at_most_probability"]

_POINTS_PER_SERVICE = 64
_MOST_SERVICES, _HEAVY_POINTS = 1000, 20_001


def mean_wait_seconds(*, arrival_requests_per_second: float, service_seconds: float) -> float:
    """Mean wait in a queue with Poisson arrivals and one constant service time (Pollaczek-Khinchine).

    ``W = lambda D**2 / (2 (1 - lambda D))``; infinite when ``lambda D >= 1``.

    >>> mean_wait_seconds(arrival_requests_per_second=0.5, service_seconds=1)
    0.5
    """
    load = arrival_requests_per_second * service_seconds
    return math.inf if load >= 1 else load * service_seconds / (2 * (1 - load))


def wait_at_most_probability(
    seconds: NDArray[np.float64], *, arrival_requests_per_second: float, service_seconds: float
) -> NDArray[np.float64]:
    """P(wait <= t) in M/D/1, exact, as a sum of positive terms only.

    With ``k = floor(t / D) + 1`` and ``u = k D - t``:
    ``P(W <= t) = sum over j < k of Q[k-1-j] exp(-lambda u) (lambda u)**j / j!``, where ``Q[m]`` is the probability
    that at most ``m`` requests wait (not counting the one in service).

    Args:
        seconds: times t >= 0 [s].
        arrival_requests_per_second: lambda.
        service_seconds: D.

    Source: Franx (2001), A simple solution for the M/D/c waiting time distribution.

    >>> wait_at_most_probability(np.array([0.0]), arrival_requests_per_second=0.8, service_seconds=1).round(12).item()
    0.2
    """
    load = arrival_requests_per_second * service_seconds
    if load >= 1:
        return np.zeros_like(seconds)
    if load == 0 or seconds.size == 0:
        return np.ones_like(seconds)
    services = np.floor(seconds / service_seconds).astype(int) + 1
    num = int(services.max())
    waiting, log_factorial = _at_most_waiting(load, num), _log_factorial(num)
    result = np.empty_like(seconds)
    for k in np.unique(services):
        here = services == k
        mean = load * (k - seconds[here] / service_seconds)[:, None]
        js = np.arange(k)
        terms = np.exp(js * np.log(np.maximum(mean, 1e-300)) - mean - log_factorial[:k])
        result[here] = terms @ waiting[k - 1 - js]
    return result


def ttft_quantile_seconds(
    quantile: float, *, arrival_requests_per_second: float, prefill_seconds: float, step_seconds: float
) -> float:
    """Quantile of the time to first token of an engine that runs a waiting prompt before the next decode step.

    ``TTFT = R + W + D``: what is left of the decode step under way (uniform on 0..step, a server vacation), the
    wait behind earlier prompts (M/D/1), and the prefill itself. R and W are independent.

    Args:
        quantile: such as 0.5 or 0.99, below 1.
        arrival_requests_per_second: requests that reach this replica, Poisson.
        prefill_seconds: D, one prompt on its own, not chunked.
        step_seconds: one decode step.

    Returns:
        Seconds; infinite when prefill alone overloads the replica.

    Assumes: every prompt takes the mean time; memory is never the reason to wait. Very near to overload (where the
    quantile spans more than 1000 prefills) the wait is taken as exponential with the mean of M/D/1.

    Source: Fuhrmann and Cooper (1985), decomposition for M/G/1 with vacations; Kingman (1961), the single server queue
    in heavy traffic; Zhong et al. (2024), DistServe.

    >>> round(ttft_quantile_seconds(0.5, arrival_requests_per_second=0.0, prefill_seconds=1.0, step_seconds=0.2), 6)
    1.1
    """
    if not 0 < quantile < 1:
        raise InvalidInputError("a quantile lies between 0 and 1", given=quantile)
    load = arrival_requests_per_second * prefill_seconds
    if load >= 1:
        return math.inf
    if load == 0:
        return prefill_seconds + quantile * step_seconds
    # The tail of the wait falls about as exp(-2 (1 - load) / load * t / D); half as far again is safe for Q below.
    num_services = 2 + math.ceil(1.5 * load / (2 * (1 - load)) * math.log(1 / (1 - quantile)))
    if num_services > _MOST_SERVICES:  # heavy traffic: the wait is exponential, with an error of about 1 - load
        times = np.linspace(0.0, num_services * prefill_seconds, _HEAVY_POINTS)
        waits = -np.expm1(-times * 2 * (1 - load) / (load * prefill_seconds))
    else:
        times = np.arange(num_services * _POINTS_PER_SERVICE + 1) / _POINTS_PER_SERVICE * prefill_seconds
        waits = wait_at_most_probability(
            times, arrival_requests_per_second=arrival_requests_per_second, service_seconds=prefill_seconds
        )
    area = np.concatenate(([0.0], np.cumsum((waits[1:] + waits[:-1]) / 2 * np.diff(times))))
    sums = np.concatenate((times, times + step_seconds))
    sums.sort()
    if step_seconds:  # P(R + W <= t) = mean of P(W <= s) over s in [t - step, t]
        beyond = area[-1] + waits[-1] * np.maximum(sums - times[-1], 0)
        within = np.interp(sums, times, area) + (beyond - area[-1])
        probability = (within - np.interp(sums - step_seconds, times, area, left=0.0)) / step_seconds
    else:
        sums, probability = times, waits
    return float(np.interp(quantile, np.maximum.accumulate(probability), sums)) + prefill_seconds


def _at_most_waiting(load: float, num: int) -> NDArray[np.float64]:
    """Q[m], m < num: probability that at most m requests wait behind the one in service, M/D/1."""
    arrivals = np.exp(np.arange(num + 2) * math.log(load) - load - _log_factorial(num + 2))  # Poisson(load)
    tails = 1.0 - np.cumsum(arrivals)  # P(more than n arrivals in one service)
    states = np.zeros(num + 1)
    states[0] = 1 - load
    # Balance across the cut between n and n+1, all terms positive: flow down p[n+1] a[0] equals flow up.
    for n in range(num):
        up = states[0] * tails[n] + float(np.dot(states[1 : n + 1], tails[n:0:-1]))
        states[n + 1] = up / arrivals[0]
    return np.minimum(np.cumsum(states)[1:], 1.0)


def _log_factorial(num: int) -> NDArray[np.float64]:
    """log(j!) for j < num."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, max(num, 1))))))[:num]
