"""Figures of batching: who runs when, waiting and goodput against load, the chunk dial.

Every number comes from a run of :func:`course_lib.serving.simulate` or of a policy's own scheduler; this module
only collects and draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.plotting import COLORS, Figure, canvas
from course_lib.serving import (
    SLO,
    IterationLevelBatching,
    PagedKVCache,
    Policy,
    ServingReport,
    StaticBatching,
    StepTime,
    Workload,
    simulate,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Engine", "LoadCurve", "chunk_dial_figure", "goodput_figure", "ttft_figure"]

_STYLES = {"static": ("miss", "v"), "continuous": ("compute", "o"), "chunked": ("hit", "^")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One replica under one workload: everything of a run but the policy and the rate.

    Args:
        workload: lengths and number of requests; its rate is replaced by the one asked for.
        step_time: seconds of an iteration.
        num_blocks, block_tokens: the KV pool.
        slo: the promise.
        seed: of the arrivals and lengths; the same for every rate, so that rates are compared on one draw.
    """

    workload: Workload
    step_time: StepTime = field(repr=False)
    num_blocks: int
    block_tokens: int = 16
    slo: SLO | None = None
    seed: int = 0

    def run(self, policy: Policy, requests_per_second: float | None = None) -> ServingReport:
        """The report at a rate; ``None``: every request is there at the start, so the queue is never empty."""
        if requests_per_second is None:
            workload = replace(self.workload, arrivals="batch")
        else:
            workload = replace(self.workload, arrival_requests_per_second=requests_per_second)
        return simulate(
            workload, step_time=self.step_time, policy=policy, slo=self.slo, rng=np.random.default_rng(self.seed),
            kv_cache=PagedKVCache(self.num_blocks, self.block_tokens),
        )  # fmt: skip

    def curve(self, policy: Policy, rates: Sequence[float]) -> LoadCurve:
        """One run for each rate."""
        return LoadCurve(
            policy=policy, rates=tuple(rates), reports=tuple(self.run(policy, rate) for rate in rates)
        )

    def highest_rate(self, policy: Policy, *, lowest: float = 0.01, highest: float = 100.0, digits: float = 2) -> float:
        """The largest rate at which the promise is still kept [requests/s]; 0 where even ``lowest`` is too much.

        Bisection on a logarithmic scale, until two rates agree to a factor of ``1 + 10**-digits``.

        Assumes: attainment falls with the rate (on one draw of requests it nearly does).
        """
        if not 0 < lowest < highest:
            raise InvalidInputError("a range of rates above zero", given=f"{lowest} to {highest}")
        if not self.run(policy, lowest).meets_slo:
            return 0.0
        while highest / lowest > 1 + 10.0**-digits:
            middle = (lowest * highest) ** 0.5
            lowest, highest = (middle, highest) if self.run(policy, middle).meets_slo else (lowest, middle)
        return lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Reports of one policy at several rates.

    Args:
        policy: who was scheduled how.
        rates: offered requests/s, ascending.
        reports: one for each rate.
    """

    policy: Policy
    rates: tuple[float, ...]
    reports: tuple[ServingReport, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.rates or len(self.rates) != len(self.reports):
            raise InvalidInputError("a curve has a report for each rate", given=(len(self.rates), len(self.reports)))


Reading = Callable[[ServingReport], float]


def ttft_figure(curves: Sequence[LoadCurve], *, marked: tuple[Policy, float, ServingReport] | None = None) -> Figure:
    """Median time to first token against offered load, one line for each policy.

    Args:
        curves: two or more policies at the same rates.
        marked: one further run ``(policy, rate, report)``, drawn large.
    """
    note = ""
    if marked:
        policy, rate, report = marked
        note = (
            f" Marked: {policy.name} at {rate:g}/s, TTFT {report.ttft_quantile_seconds(0.5):.3f} s, longest gap "
            f"{1e3 * report.itl_max_quantile_seconds(0.99):.0f} ms (99 % of requests), goodput "
            f"{report.goodput_requests_per_second:.2f}/s."
        )
    return _load_figure(
        curves, lambda report: report.ttft_quantile_seconds(0.5), ylabel="median time to first token [s]", log=True,
        number="{:.3f}", marked=marked,
        caption="Waiting against load. Where a line turns upward the queue grows without end, and its height says "
        "only how long the trace was." + note,
    )  # fmt: skip


def goodput_figure(curves: Sequence[LoadCurve], *, marked: tuple[Policy, float, ServingReport] | None = None) -> Figure:
    """Requests per second that kept every promise, against offered load; dashed: all of them would."""
    return _load_figure(
        curves, lambda report: report.goodput_requests_per_second, ylabel="goodput [good requests/s]", log=False,
        number="{:.2f}", marked=marked,
        caption="Goodput against load. Past its knee a policy is as busy as before and keeps fewer promises.",
    )  # fmt: skip


def _load_figure(
    curves: Sequence[LoadCurve], reading: Reading, *, ylabel: str, log: bool, number: str, caption: str,
    marked: tuple[Policy, float, ServingReport] | None,
) -> Figure:  # fmt: skip
    if not curves or len({curve.rates for curve in curves}) != 1:
        raise InvalidInputError("curves over the same rates", given=[curve.rates for curve in curves])
    rates, readings = curves[0].rates, [[reading(report) for report in curve.reports] for curve in curves]
    names = [curve.policy.name for curve in curves]
    rows = tuple(
        (f"{rate:g}", *(number.format(values[i]) for values in readings)) for i, rate in enumerate(rates)
    )
    ends = "; ".join(f"{name} {number.format(v[0])} to {number.format(v[-1])}" for name, v in zip(names, readings))
    with canvas(
        alt=f"{ylabel} against offered load from {rates[0]:g} to {rates[-1]:g} requests/s: {ends}.",
        caption=caption, xlabel="offered load [requests/s]", ylabel=ylabel, width=8.4,
        table=(("offered [requests/s]", *names), *rows),
    ) as (axes, finish):  # fmt: skip
        for curve, values in zip(curves, readings):
            color, marker = _style(curve.policy)
            axes.plot(rates, values, marker + "-", color=color, linewidth=1.6, label=curve.policy.name)
        if marked:
            color, marker = _style(marked[0])
            axes.plot([marked[1]], [reading(marked[2])], marker, color=color, markersize=13, markeredgecolor="black",
                      label="your run")  # fmt: skip
        if log:
            axes.set_yscale("log")
        else:
            axes.plot(rates, rates, "--", color=COLORS["assumed"], linewidth=1.2, label="every request good")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return finish()


def _style(policy: Policy) -> tuple[str, str]:
    if isinstance(policy, StaticBatching):
        meaning = "static"
    else:
        whole = isinstance(policy, IterationLevelBatching) and policy.token_budget is None
        meaning = "continuous" if whole else "chunked"
    color, marker = _STYLES[meaning]
    return COLORS[color], marker


def chunk_dial_figure(engine: Engine, budgets: Sequence[int], *, slots: int, hides: float) -> Figure:
    """Throughput against the longest gap for each token budget, with every slot always wanted.

    Args:
        engine: the replica.
        budgets: tokens a step, ascending, each at least ``slots``.
        slots: sequences that can run at once.
        hides: the budget at which a step's arithmetic takes as long as reading the weights, named in the caption.
    """
    policies = [IterationLevelBatching(max_batch=slots, token_budget=budget) for budget in budgets]
    reports = [engine.run(policy) for policy in policies]
    gaps = [1e3 * report.itl_max_quantile_seconds(0.99) for report in reports]
    rates = [report.requests_per_second for report in reports]
    best = [not any(g <= gaps[i] and r > rates[i] for g, r in zip(gaps, rates)) for i in range(len(budgets))]
    rows = tuple(
        (str(budget), f"{rate:.2f}", f"{gap:.1f}", f"{report.ttft_quantile_seconds(0.5):.1f}", "yes" if good else "no")
        for budget, rate, gap, report, good in zip(budgets, rates, gaps, reports, best)
    )
    top = max(range(len(budgets)), key=rates.__getitem__)
    with canvas(
        alt=f"Requests per second against the longest gap between tokens for token budgets {budgets[0]} to "
        f"{budgets[-1]}. Throughput rises with little gap up to a budget of {budgets[top]} ({rates[top]:.1f} "
        f"requests/s at {gaps[top]:.1f} ms) and falls beyond while the gap grows to {gaps[-1]:.0f} ms.",
        caption=f"The chunk dial, saturated. Labels are token budgets. Arithmetic hides behind the weights up to "
        f"{hides:.0f} tokens a step. Filled: no other budget is better in both. Hollow: one is.",
        xlabel="longest gap between tokens, 99 % of requests [ms]", ylabel="throughput [requests/s]",
        table=(("budget [tokens]", "requests/s", "longest gap p99 [ms]", "median TTFT [s]", "best of both"), *rows),
    ) as (axes, finish):  # fmt: skip
        _draw_dial(axes, budgets, gaps, rates, best)
        return finish()


def _draw_dial(
    axes: Axes, budgets: Sequence[int], gaps: list[float], rates: list[float], best: list[bool]
) -> None:
    color = COLORS["compute"]
    axes.plot(gaps, rates, "-", color=color, linewidth=1)
    for budget, gap, rate, good in zip(budgets, gaps, rates, best):
        axes.plot([gap], [rate], "o", color=color, markersize=8, markerfacecolor=color if good else "white")
        place = (-26, -3) if good else (7, 5)
        axes.annotate(str(budget), (gap, rate), xytext=place, textcoords="offset points", fontsize=9)
    axes.set_xscale("log")
    ticks = [t for t in (5, 6, 7, 8, 10, 15, 20, 30, 50, 100, 200, 500) if gaps[0] * 0.9 <= t <= gaps[-1] * 1.2]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(gaps[0] * 0.85, gaps[-1] * 1.25)
    axes.set_ylim(bottom=0)
