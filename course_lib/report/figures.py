"""The figures of a report, by section; without matplotlib there are none, and the page says so."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from course_lib.errors import InvalidInputError
from course_lib.plotting import Figure
from course_lib.report.record import Report
from course_lib.serving.shape_record import ModelShape

__all__ = ["MISSING", "report_figures"]

MISSING = "Figures need matplotlib (pip install matplotlib). Every number of theirs stands in the tables."


def report_figures(report: Report) -> dict[str, str]:
    """HTML of each figure under its name; empty texts where it cannot be drawn."""
    if find_spec("matplotlib") is None:
        return {}
    from course_lib.plotting import journey as plots
    from course_lib.plotting.staircase import dollar_staircase

    journey, diff = report.journey, report.diff
    is_shape = isinstance(journey.model, ModelShape)
    bands = [(option.what, option.diff.relative_band) for option in report.options if option.diff is not None]
    makers: dict[str, Callable[[], Figure]] = {
        "strip": lambda: plots.links_strip(journey),
        "time": lambda: plots.time_shares_bar(journey),
        "options": lambda: plots.change_bands(bands),
        "tornado": lambda: plots.sensitivity_tornado(report.sensitivity),
        "stairs": lambda: dollar_staircase(journey, _dimension(report, is_shape)),
        "promise": lambda: dollar_staircase(journey, "tpot_seconds"),
    }
    if diff is not None:
        makers["waterfall"] = lambda: plots.attribution_waterfall(diff)
    return {name: _html(make) for name, make in makers.items()}


def _dimension(report: Report, is_shape: bool) -> str:
    """The size that the change edited, else the width of the feed-forward, else the load."""
    if not is_shape:
        return "arrival_requests_per_second"
    edited = report.change.split("=")[0]
    return edited if edited in ("num_layers", "model_size", "num_kv_heads", "vocab_size") else "feed_forward_size"


def _html(make: Callable[[], Figure]) -> str:
    try:
        return make().to_html()
    except InvalidInputError:  # nothing to draw: no promise was made, or nothing moved
        return ""
