"""Every link from a tensor's values to the bill, in order.

Each is one pure function; change one (``Journey.with_link``) and the text, the page and the bill change with it.
"""

from __future__ import annotations

from course_lib.journey import cost_links, machine_links, serving_links, step_links, tensor_links
from course_lib.journey.links import LinkRule

__all__ = ["LINKS"]

LINKS: tuple[LinkRule, ...] = (
    *tensor_links.LINKS, *machine_links.LINKS, *step_links.LINKS, *serving_links.LINKS, *cost_links.LINKS,
)  # fmt: skip
"""Values to tensors, a workload, a machine, shared steps, dollars."""
