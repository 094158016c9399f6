"""The spine: from a model's shape through work, machine and serving to the bill of a month."""

from course_lib.journey.compare import Diff, LinkChange
from course_lib.journey.explain import Explanation, format_link
from course_lib.journey.links import Chain, Link, LinkRule, link
from course_lib.journey.record import Journey
from course_lib.journey.rules import LINKS
from course_lib.journey.sensitivity import Sensitivity
from course_lib.journey.traced import TracedModel, traced_model
from course_lib.journey.uncertainty import BANDWIDTH_RANGE, COMPUTE_RANGE, Band

__all__ = [
    "BANDWIDTH_RANGE",
    "COMPUTE_RANGE",
    "LINKS",
    "Band",
    "Chain",
    "Diff",
    "Explanation",
    "Journey",
    "Link",
    "LinkChange",
    "LinkRule",
    "Sensitivity",
    "TracedModel",
    "format_link",
    "link",
    "traced_model",
]
