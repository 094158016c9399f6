"""The report as plain data, for programs; its keys are those of ``schema.json``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from importlib.resources import files
from typing import Any, cast

from course_lib.errors import UnsupportedError
from course_lib.journey import Band, Diff, Journey
from course_lib.report.record import Report

__all__ = ["FORMAT", "report_data", "report_schema"]

FORMAT = "trace-a-tensor bill 1"


def report_schema() -> dict[str, Any]:
    """The published JSON Schema of :func:`report_data`.

    >>> report_schema()["title"]
    'Bill'
    """
    return cast(dict[str, Any], json.loads((files("course_lib.report") / "schema.json").read_text(encoding="utf-8")))


def report_data(report: Report) -> dict[str, Any]:
    """Inputs, links, bill, bands, options and change as JSON types; what has no bound is null."""
    said, bill = report.explanation, report.explanation.bill
    return {
        "format": FORMAT,
        "title": said.title,
        "change": report.change,
        "command": report.command,
        "inputs": _inputs(report.journey),
        "links": [{**asdict(link), "inputs": dict(link.inputs)} for link in said.links],
        "binding": list(report.journey.binding),
        "bill": {**asdict(bill), "rows": [row.columns() for row in bill.rows]},
        "billed_band": _band(said.billed_band),
        "continuous_band": _band(said.band),
        "time_shares": dict(said.time_shares),
        "options": [
            {"what": option.what, "changes": dict(option.changes), "refused": option.refused,
             "effect": None if option.diff is None else _effect(option.diff)}
            for option in report.options
        ],
        "diff": None if report.diff is None else _diff(report.diff),
        "elasticities": dict(report.sensitivity.elasticities),
        "warnings": list(report.warnings),
    }  # fmt: skip


def _inputs(journey: Journey) -> dict[str, Any] | None:
    """What ``Journey.from_dict`` reads back; None where an input is a function or a recorded trace."""
    try:
        return cast(dict[str, Any], journey.to_dict()["inputs"])
    except UnsupportedError:
        return None


def _band(band: Band) -> dict[str, Any]:
    high = band.high if math.isfinite(band.high) else None
    return {**asdict(band), "high": high}


def _effect(diff: Diff) -> dict[str, Any]:
    return {
        "continuous_usd_per_month": diff.usd_per_month, "billed_usd_per_month": diff.billed_usd_per_month,
        "relative": diff.relative, "relative_band": _band(diff.relative_band),
        "flip_probability": diff.flip_probability,
    }  # fmt: skip


def _diff(diff: Diff) -> dict[str, Any]:
    return {
        **_effect(diff),
        "attribution": dict(diff.attribution.terms),
        "billed_attribution": dict(diff.billed_attribution.terms),
        "links": [asdict(moved) for moved in diff.links],
    }
