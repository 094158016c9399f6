"""What the journey leaves out, and how each omission moves the bill: printed on every report."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something real that is not modelled.

    Args:
        what: the thing.
        effect: which way the true bill differs, as far as that is known.
    """

    what: str
    effect: str


LIMITS = (
    Limit(what="Efficiencies are assumed, not measured", effect="the bands show what that is worth; calibrate yours"),
    Limit(what="Lengths enter by their means", effect="long outputs hold memory longer: the true bill is higher"),
    Limit(what="Load is constant through the day", effect="with a daily peak you pay for the peak, or you scale"),
    Limit(what="Uneven use of experts", effect="the busiest expert sets the pace of a mixture model: higher"),
    Limit(what="Unpacking weights stored in few bits", effect="free here, arithmetic on a real machine: higher"),
    Limit(what="Arithmetic hides perfectly behind reading the weights", effect="it does so only in part: higher"),
    Limit(what="Communication never overlaps arithmetic", effect="good engines hide part of it: lower"),
    Limit(what="Speculative decoding", effect="pays at small batches, costs at large ones: either way"),
    Limit(what="Host: tokenizing, scheduling, Python", effect="small models wait for it: higher"),
    Limit(what="Cold starts, failures beyond the spares, deployments", effect="higher"),
    Limit(what="Network egress, disks, people, discounts", effect="not on this invoice"),
)
