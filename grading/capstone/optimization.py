"""The optimization: a committed prediction, the gain on the bench, the ablation, and a regime where it loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from grading.capstone.findings import Finding
from grading.capstone.memo import Effect, Memo
from grading.capstone.records import Cell

Repetitions = Callable[[Cell], tuple[float, ...] | None]
"""Dollars a month of a cell in each repetition, or None where this bench has no such run."""

MAX_INTERVAL_POINTS = 20.0
"""An interval from -100 to 100 is no prediction."""
MIN_ABLATED_SHARE = 0.8
ROUNDING_POINTS = 0.1
"""The memo may round a percentage to a tenth."""
MODEL_ROUNDING_POINTS = 0.5
"""The prediction was committed once; a model may be rounded to half a point in a memo."""


def effect_percents(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Change in per cent of each repetition, paired: the same requests before and after."""
    return [100 * (new / old - 1) for old, new in zip(before, after, strict=True)]


def half_range(values: Sequence[float]) -> float:
    """``(largest - smallest) / 2``: the error bar of the course's memo."""
    return (max(values) - min(values)) / 2


def measured_effect(run: Repetitions, before: Cell, after: Cell) -> list[float]:
    """Effects on the bench.

    Raises:
        Finding: the public replay has no such run.
    """
    old, new = run(before), run(after)
    if old is None or new is None:
        which = after if new is None else before
        raise Finding("not-replayed", f"replay.json holds no run of {describe(which)}; choose a change that it holds")
    return effect_percents(old, new)


def check_gain(memo: Memo, committed: Effect | None, run: Repetitions) -> None:
    """The committed interval holds the measured gain, and the gain is above the noise, stated and real."""
    if committed is None:
        raise Finding("not-committed", "no interval was committed with predict() for capstone-effect")
    width = committed.high - committed.low
    if width > MAX_INTERVAL_POINTS:
        words = f"the interval is {width:.3g} points wide; {MAX_INTERVAL_POINTS:g} is the most"
        raise Finding("interval-too-wide", words)
    effects = measured_effect(run, memo.baseline, memo.optimized)
    gain, noise = -fmean(effects), half_range(effects)
    if gain <= max(noise, memo.error_bar):
        words = f"the bill changes by {-gain:+.2f} %; noise is {noise:.2f} points, your error bar {memo.error_bar:.2f}"
        raise Finding("within-noise", words)
    if not committed.low <= -gain <= committed.high:
        words = f"the bill changes by {-gain:+.2f} %, outside {committed.low:g} to {committed.high:g}"
        raise Finding("outside-interval", words)


def check_ablation(memo: Memo, run: Repetitions) -> None:
    """Without the change, and with all else kept, at least 80 % of the gain is gone."""
    gain = -fmean(measured_effect(run, memo.baseline, memo.optimized))
    if gain <= 0:
        raise Finding("no-gain", f"the bill changes by {-gain:+.2f} %: there is no gain to ablate")
    left = -fmean(measured_effect(run, memo.baseline, memo.ablated)) if memo.enabling else 0.0
    if left > (1 - MIN_ABLATED_SHARE) * gain:
        words = f"without {_changes(memo.change)} {left:.2f} of the {gain:.2f} points of gain stay"
        raise Finding("gain-stays", words)


def check_losing(memo: Memo, model_percent: float, run: Repetitions, *, confirmed_by_bench: bool) -> None:
    """The memo's regime raises the bill, says the model; and so it does on the bench, above its noise."""
    before, after = memo.losing_pair
    if before == memo.baseline:
        raise Finding("same-regime", "losing_regime is the baseline itself")
    if model_percent <= 0:
        words = f"your model says {model_percent:+.2f} % in {describe(before)}: the change wins"
        raise Finding("model-says-wins", words)
    if confirmed_by_bench:
        effects = measured_effect(run, before, after)
        error = stdev(effects) / sqrt(len(effects))
        if fmean(effects) <= 2 * error:  # two standard errors above zero, with the same requests on both sides
            raise Finding("bench-says-wins", f"on the bench the bill changes by {fmean(effects):+.2f} % there")


def check_memo(memo: Memo, committed: Effect | None, model: Mapping[str, float], run: Repetitions) -> None:
    """Every number of the memo is the one it claims to be: of the model, of the commitment, of the replay.

    ``model`` holds the model's own effects: "change", "losing", and "alternative 1", ... in per cent.
    """
    if memo.problems:
        raise memo.problems[0]
    if committed is None:
        raise Finding("not-committed", "no interval was committed with predict() for capstone-effect")
    for name in ("percent", "low", "high"):
        said, true = getattr(memo.predicted, name), getattr(committed, name)
        _near(f"predicted_effect.{name}", said, true, 1e-6, "you committed")
    _near("predicted_effect", memo.predicted.percent, model["change"], MODEL_ROUNDING_POINTS, "your model says")
    _near("losing_regime", memo.losing_percent, model["losing"], MODEL_ROUNDING_POINTS, "your model says")
    for number, other in enumerate(memo.alternatives, 1):
        name = f"alternative {number}"
        _near(name, other.percent, model[name], MODEL_ROUNDING_POINTS, "your model says")
    effects = measured_effect(run, memo.baseline, memo.optimized)
    _near("measured_effect", memo.measured_percent, fmean(effects), ROUNDING_POINTS, "the replay says")
    _near("error_bar", memo.error_bar, half_range(effects), ROUNDING_POINTS, "half the range of the replay is")


def _near(what: str, said: float, true: float, allowed: float, source: str) -> None:
    if abs(said - true) > allowed:
        raise Finding("numbers-disagree", f"memo.md, {what}: it says {said:g}, {source} {true:.2f}")


def describe(cell: Cell) -> str:
    """A cell in a few words."""
    traffic, config = cell.traffic, cell.config
    return (
        f"{config.model} ({config.weight_dtype}, cache {config.kv_dtype}, batch {config.max_batch}) on "
        f"{cell.machine.name}, {traffic.prompt_tokens} in, {traffic.output_tokens} out"
    )


def _changes(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in change.items())
