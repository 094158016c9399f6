"""How near a model comes to recorded runs: median errors, ranking, the binding term."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from grading.capstone.findings import Finding
from grading.capstone.recordings import Recording

# What a model fitted on the public steps reaches with room to spare, and one at the data sheet's speed does not.
MAX_TIME_ERROR = 0.10
MAX_TTFT_ERROR = 0.20
MAX_BYTES_ERROR, MIN_BYTES_SHARE = 0.05, 0.75
MIN_TAU = 0.90
MIN_BINDING_SHARE = 0.8
NEAR_TIE = 0.15
"""Two terms of the truth closer than this share of the larger are both right."""


def log_errors(name: str, truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]) -> list[float]:
    """``exp(|ln(predicted / measured)|) - 1`` of each cell: 0.1 is ten per cent, too high and too low alike."""
    pairs = zip(answers, truth, strict=True)
    return [math.expm1(abs(math.log(answer[name] / one.measured[name]))) for answer, one in pairs]


def check_figures(
    names: Sequence[str], allowed: float, truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]
) -> None:
    """The median error of each named figure is at most the allowed one."""
    for name in names:
        errors = log_errors(name, truth, answers)
        if median(errors) > allowed:
            worst = max(range(len(errors)), key=errors.__getitem__)
            high = answers[worst][name] > truth[worst].measured[name]
            words = (
                f"{name}: the median error over {len(errors)} cells is {median(errors):.1%}, allowed {allowed:.0%}; "
                f"worst is {truth[worst].name}, too {'high' if high else 'low'} by {errors[worst]:.0%}"
            )
            raise Finding("inaccurate", words)


def check_bytes(truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]) -> None:
    """Bytes within their band in three of four cells; a cache of every query head is recognised.

    A share and not a median: where contexts are short the weights hide the cache, whatever is wrong with it.
    """
    errors = log_errors("bytes_moved", truth, answers)
    share = sum(error <= MAX_BYTES_ERROR for error in errors) / len(errors)
    if share < MIN_BYTES_SHARE:
        worst = max(range(len(errors)), key=errors.__getitem__)
        high = answers[worst]["bytes_moved"] > truth[worst].measured["bytes_moved"]
        words = (
            f"bytes_moved: {share:.0%} of {len(errors)} cells are within {MAX_BYTES_ERROR:.0%}, needed "
            f"{MIN_BYTES_SHARE:.0%}; worst is {truth[worst].name}, too {'high' if high else 'low'} by "
            f"{errors[worst]:.0%}"
        )
        raise Finding("kv-of-every-query-head" if _keeps_every_head(truth, answers) else "inaccurate", words)


def _keeps_every_head(truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether bytes fit once the KV part is taken N/K times, in most cells of models that group their heads."""
    grouped = [(one, answer) for one, answer in zip(truth, answers) if _group(one) > 1]
    hits = 0
    for one, answer in grouped:
        wrong = one.measured["bytes_moved"] + (_group(one) - 1) * one.kv_bytes
        hits += abs(math.log(answer["bytes_moved"] / wrong)) < abs(
            math.log(answer["bytes_moved"] / one.measured["bytes_moved"])
        )
    return bool(grouped) and hits > 0.7 * len(grouped)


def _group(one: Recording) -> int:
    shape = one.cell.config.shape
    return shape.num_heads // shape.num_kv_heads


def kendall_tau(left: Sequence[float], right: Sequence[float]) -> float:
    """``(concordant - discordant) / pairs``: 1 for the same order, -1 for the reverse.

    >>> kendall_tau((1, 2, 3), (10, 30, 20))       # two pairs of three agree, one does not: (2 - 1) / 3
    0.3333333333333333
    """
    pairs = list(combinations(range(len(left)), 2))
    signs = [_sign(left[i] - left[j]) * _sign(right[i] - right[j]) for i, j in pairs]
    return sum(signs) / len(pairs)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def binding_share(truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]) -> float:
    """Share of cells whose longest predicted term is the longest recorded one, near ties allowed."""
    hits = 0
    for one, answer in zip(truth, answers, strict=True):
        named = max(answer["breakdown"], key=answer["breakdown"].__getitem__)
        hits += one.breakdown[named] >= (1 - NEAR_TIE) * max(one.breakdown.values())
    return hits / len(truth)


def check_ranking(truth: Sequence[Recording], answers: Sequence[Mapping[str, Any]]) -> None:
    """Dollars are in the right order and the binding term is named."""
    tau = kendall_tau([a["usd_per_month"] for a in answers], [one.measured["usd_per_month"] for one in truth])
    if tau < MIN_TAU:
        raise Finding("wrong-order", f"Kendall's tau of the dollars is {tau:.3f}, needed {MIN_TAU}")
    share = binding_share(truth, answers)
    if share < MIN_BINDING_SHARE:
        words = f"the longest term of breakdown is right in {share:.0%} of the cells, needed {MIN_BINDING_SHARE:.0%}"
        raise Finding("wrong-binding-term", words)
