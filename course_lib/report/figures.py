"""The figures of a report, by name."""

from __future__ import annotations

from course_lib.journey import Journey
from course_lib.plotting import Figure
from course_lib.plotting.journey import change_bands, time_shares_bar, tornado, waterfall
from course_lib.plotting.journey_staircase import along, current, next_step, staircase, sweep_values
from course_lib.plotting.journey_strip import link_strip
from course_lib.report.record import Report
from course_lib.serving.shape_record import ModelShape

__all__ = ["report_figures"]

_SIZES = ("num_layers", "model_size", "num_kv_heads", "vocab_size", "arrival_requests_per_second", "output_tokens")


def report_figures(report: Report) -> dict[str, str]:
    """HTML of each figure under its name; one that this report has no use for is absent."""
    journey, before, diff = report.journey, report.before, report.diff
    bands = [(option.what, option.diff.relative_band) for option in report.options if option.diff is not None]
    drawn = {
        "strip": link_strip(journey, before),
        "time": time_shares_bar(journey),
        "tornado": tornado(report.sensitivity),
        "stairs": _stairs(journey, _dimension(report)),
    }
    if bands:
        drawn["options"] = change_bands(bands)
    if journey.slo.tpot_seconds is not None:
        drawn["promise"] = _stairs(journey, "tpot_seconds")
    if before is not None and diff is not None:
        bills = (each.bill.billed_usd_per_month for each in (before, journey))
        drawn["waterfall"] = waterfall(diff.billed_attribution.terms, *bills)
    return {name: figure.to_html() for name, figure in drawn.items()}


def _dimension(report: Report) -> str:
    """The number that the change edited, else the width of the feed-forward, else the load."""
    if not isinstance(report.journey.model, ModelShape):
        return "arrival_requests_per_second"
    edited = report.change.split("=")[0]
    return edited if edited in _SIZES else "feed_forward_size"


def _stairs(journey: Journey, name: str) -> Figure:
    tried, now = sweep_values(journey, name), current(journey, name)
    points = along(journey, name, tried)
    step = next_step(journey, name, points, now)
    return staircase(points, name, now, step, num_left_out=len(tried) - len(points))
