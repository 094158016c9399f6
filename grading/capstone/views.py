"""What the capstone notebook shows: recordings, errors of a model, effects of a change. Nothing here is graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from course_lib.errors import InvalidInputError
from course_lib.lesson.pages import Page, table
from course_lib.lesson.running import NotAttempted
from course_lib.plotting import COLORS, MARKERS, Figure, canvas
from grading.capstone.accuracy import log_errors
from grading.capstone.contract import check_contract
from grading.capstone.execution import answers
from grading.capstone.findings import Finding
from grading.capstone.memo import read_memo
from grading.capstone.optimization import measured_effect
from grading.capstone.recordings import FIGURES, Recording, public, recording, replayed
from grading.capstone.records import Cell

TODO = "model.py has no prediction yet. Write predict, save the file, and run this cell again."
SHORT = {
    "ttft_seconds": "TTFT", "tpot_seconds": "TPOT", "tokens_per_second": "tokens/s", "bytes_moved": "bytes",
    "usd_per_month": "USD/month",
}  # fmt: skip


def recordings_page() -> Page:
    """The public recordings, one line each."""
    head = (
        "Recording", "Model", "Weights, cache", "Batch", "Arrivals [1/s]", "In, out [tokens]", "TPOT [ms]",
        "Tokens/s", "USD/month",
    )  # fmt: skip
    body = [_row(one) for one in public()]
    text = "\n".join("  ".join(row) for row in (head, *body))
    return Page(html=table(head, body, caption="Public recordings (simulated; means over 5 repetitions)"), text=text)


def _row(one: Recording) -> tuple[str, ...]:
    config, traffic, seen = one.cell.config, one.cell.traffic, one.measured
    rate = traffic.arrival_requests_per_second
    return (
        one.name, config.model, f"{config.weight_dtype}, {config.kv_dtype}", str(config.max_batch),
        "all waiting" if rate is None else f"{rate:g}", f"{traffic.prompt_tokens:,}, {traffic.output_tokens:,}",
        f"{1000 * seen['tpot_seconds']:.1f}", f"{seen['tokens_per_second']:,.0f}", f"{seen['usd_per_month']:,.0f}",
    )  # fmt: skip


def steps_figure(name: str) -> Figure:
    """A recording's sampled steps, and the time that its data sheet allows for each."""
    one = recording(name)
    tokens = [step[0] + step[1] for step in one.steps]
    seen = [1000 * step[3] for step in one.steps]
    floors = [1000 * step_floor_seconds(one.cell, step) for step in one.steps]
    ratios = [read / floor for read, floor in zip(seen, floors)]
    span = f"{min(ratios):.2f} to {max(ratios):.2f}"
    words = f"{len(tokens)} steps of {name}: {span} times as long as the data sheet allows."
    columns = zip(tokens, one.steps, seen, floors)
    rows = [(f"{t:,.0f}", f"{step[2]:,.0f}", f"{r:.2f}", f"{f:.2f}") for t, step, r, f in columns]
    with canvas(
        alt=f"Scatter of step time against tokens in the step, both logarithmic. {words}", caption=words,
        xlabel="Tokens in the step, prompt and decode", ylabel="Step time [ms]",
        table=(("Tokens", "KV tokens read", "Recorded [ms]", "Data sheet [ms]"), *rows),
    ) as (axes, finish):  # fmt: skip
        axes.loglog(
            tokens, seen, MARKERS["decode"], color=COLORS["decode"], label="recorded", markeredgecolor="black",
            markeredgewidth=0.5,
        )  # fmt: skip
        axes.loglog(tokens, floors, MARKERS["assumed"], color=COLORS["assumed"], label="data sheet")
        _ticks(axes.xaxis, (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000))
        _ticks(axes.yaxis, (1, 2, 5, 10, 20, 50, 100, 200, 500))
        axes.legend()
        return finish()


def step_floor_seconds(cell: Cell, step: Sequence[float]) -> float:
    """``max(products / peak, (weights + KV) / bandwidth)`` of one recorded step."""
    new, rows, context, *_ = step
    compute = (new + rows) * cell.config.shape.matmul_flops_per_token / cell.machine.peak_flops_per_second
    num_bytes = cell.config.step_weight_bytes + context * cell.config.kv_token_bytes
    return max(compute, num_bytes / cell.machine.memory_bytes_per_second)


def scoreboard(folder: Path | str) -> Page:
    """Median and worst error of each figure on the public recordings."""
    found = _answers(folder, [one.cell for one in public()])
    if isinstance(found, str):
        return _words(found)
    rows = []
    for name in FIGURES:
        errors = log_errors(name, public(), found)
        worst = max(range(len(errors)), key=errors.__getitem__)
        rows.append((SHORT[name], f"{median(errors):.1%}", f"{errors[worst]:.1%}", public()[worst].name))
    head = ("Figure", "Median error", "Worst error", "Where")
    text = "\n".join("  ".join(row) for row in (head, *rows))
    return Page(html=table(head, rows, caption="Your model on the recordings it may be fitted on"), text=text)


def error_figure(folder: Path | str) -> Figure | Page:
    """Predicted over recorded, for every public recording."""
    found = _answers(folder, [one.cell for one in public()])
    if isinstance(found, str):
        return _words(found)
    shown = {"tpot_seconds": "decode", "ttft_seconds": "prefill", "bytes_moved": "memory"}
    names = [one.name for one in public()]
    ratios = {
        name: [answer[name] / one.measured[name] for answer, one in zip(found, public())] for name in shown
    }  # fmt: skip
    rows = [(cell, *(f"{ratios[name][i]:.3f}" for name in shown)) for i, cell in enumerate(names)]
    everything = [value for values in ratios.values() for value in values]
    words = f"Predicted over recorded: from {min(everything):.3g} to {max(everything):.3g}; 1 is right."
    with canvas(
        alt=f"Dot plot, one row for each of {len(names)} recordings, three dots each. {words}", caption=words,
        xlabel="Predicted / recorded [ratio]", ylabel="Recording", height=5.2,
        table=(("Recording", *(SHORT[name] for name in shown)), *rows),
    ) as (axes, finish):  # fmt: skip
        for name, meaning in shown.items():
            axes.plot(
                ratios[name], range(len(names)), MARKERS[meaning], color=COLORS[meaning], label=SHORT[name],
                markeredgecolor="black", markeredgewidth=0.5, alpha=0.9,
            )  # fmt: skip
        axes.axvline(1.0, color=COLORS["assumed"], linestyle="--", zorder=0)
        axes.set_xscale("log")
        axes.set_yticks(range(len(names)), names, fontsize=9)
        _plain_ticks(axes, everything)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.1), ncols=3)
        return finish()


def _plain_ticks(axes: Any, values: Sequence[float]) -> None:
    """A few readable ratios instead of powers of ten."""
    low, high = min([0.95, *values]) * 0.98, max([1.05, *values]) * 1.02
    ticks = (0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 5, 10) if high / low > 1.3 else (0.9, 0.95, 1, 1.05, 1.1)
    axes.set_xlim(low, high)
    _ticks(axes.xaxis, ticks)


def _ticks(axis: Any, values: Sequence[float]) -> None:
    """Plain numbers on a logarithmic axis, at these values where they are in view."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axis.set_major_locator(FixedLocator(values))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def change_page(folder: Path | str, baseline: str, changes: Sequence[Mapping[str, Any]]) -> Page:
    """What your model says each change does to the bill of a recorded baseline."""
    base = recording(baseline).cell
    found = _answers(folder, [base, *(base.with_changes(**change) for change in changes)])
    if isinstance(found, str):
        return _words(found)
    first, *others = found
    rows = [("nothing", f"{first['usd_per_month']:,.0f}", "", _longest(first))]
    for change, one in zip(changes, others):
        what = ", ".join(f"{name} = {value}" for name, value in change.items())
        rows.append((what, f"{one['usd_per_month']:,.0f}", _percent(one, first), _longest(one)))
    head = ("Change", "USD/month", "Effect", "Longest term")
    text = "\n".join("  ".join(row) for row in (head, *rows))
    return Page(html=table(head, rows, caption=f"Your model on {baseline}"), text=text)


def regime_page(
    folder: Path | str, baseline: str, change: Mapping[str, Any], prompts: Sequence[int], outputs: Sequence[int]
) -> Page:
    """Your model's effect of one change over prompt and output lengths: where does it lose?"""
    base = recording(baseline).cell
    cells = [base.with_changes(prompt_tokens=p, output_tokens=o) for p in prompts for o in outputs]
    found = _answers(folder, [one for cell in cells for one in (cell, cell.with_changes(**change))])
    if isinstance(found, str):
        return _words(found)
    effects = [_percent(new, old) for old, new in zip(found[::2], found[1::2])]
    width = len(outputs)
    rows = [(f"{p:,} in", *effects[i * width : (i + 1) * width]) for i, p in enumerate(prompts)]
    head = ("", *(f"{o:,} out" for o in outputs))
    what = ", ".join(f"{k} = {v}" for k, v in change.items())
    text = "\n".join("  ".join(row) for row in (head, *rows))
    return Page(html=table(head, rows, caption=f"Effect of {what} on the bill of {baseline}, by your model"), text=text)


def replayed_percent(folder: Path | str) -> float:
    """The measured effect of the memo's change, from the replay: what the prediction is held against."""
    try:
        memo = read_memo(Path(folder) / "memo.md")
        return fmean(measured_effect(replayed, memo.baseline, memo.optimized))
    except NotAttempted:
        asked, then = "memo.md names the baseline and the change", "Fill in both, save, run again."
        raise InvalidInputError(asked, next_step=then) from None
    except Finding as found:
        raise InvalidInputError(str(found)) from None


def _answers(folder: Path | str, cells: Sequence[Cell]) -> list[Mapping[str, Any]] | str:
    """The model's answers, or words on why there are none."""
    try:
        found = answers(Path(folder).resolve(), cells)
        for cell, one in zip(cells, found, strict=True):
            check_contract(cell, one)
    except NotAttempted:
        return TODO
    except Finding as error:
        return str(error)
    return list(found)


def _words(text: str) -> Page:
    from html import escape

    return Page(html=f"<p>{escape(text)}</p>", text=text)


def _percent(new: Mapping[str, Any], old: Mapping[str, Any]) -> str:
    return f"{100 * (new['usd_per_month'] / old['usd_per_month'] - 1):+.1f} %"


def _longest(answer: Mapping[str, Any]) -> str:
    terms = answer["breakdown"]
    name = max(terms, key=terms.__getitem__)
    return f"{name}, {terms[name] / sum(terms.values()):.0%}"
