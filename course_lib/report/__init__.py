"""The report of a journey: text for a terminal, a page for a browser, data for a program, all of the same links."""

from course_lib.report.checks import CrossCheck, cross_checks
from course_lib.report.data import report_data, report_schema
from course_lib.report.page import html_report
from course_lib.report.record import Report, journey_report
from course_lib.report.text import text_report
from course_lib.report.what_if import Option, Switch, options, switches

__all__ = [
    "CrossCheck", "Option", "Report", "Switch", "cross_checks", "html_report", "journey_report", "options",
    "report_data", "report_schema", "switches", "text_report",
]  # fmt: skip
