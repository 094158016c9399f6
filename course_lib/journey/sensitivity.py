"""Which number moves the bill: elasticities of dollars to every size and every assumption."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from course_lib.errors import InvalidInputError, UnknownNameError, UnsupportedError
from course_lib.journey.links import Chain
from course_lib.journey.served_model import Blend
from course_lib.serving.shape_record import ModelShape

__all__ = ["STEP", "Sensitivity", "sensitivity"]

STEP = 1e-3
"""Relative step of the central difference."""

_SIZES = (
    "num_layers", "model_size", "feed_forward_size", "head_size", "num_heads", "vocab_size", "num_kv_heads",
    "expert_feed_forward_size",
)  # fmt: skip
_NUMBERS = {
    "arrivals": "arrival_requests_per_second", "mean_prompt_tokens": "prompt_tokens",
    "mean_output_tokens": "output_tokens", "efficiency_compute": "efficiency_compute",
    "efficiency_bandwidth": "efficiency_bandwidth", "fixed_seconds": "fixed_seconds", "tpot_seconds": "tpot_seconds",
    "headroom_fraction": "headroom_fraction", "hours_per_month": "hours_per_month",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Elasticities of continuous dollars: a value of 0.5 means that 1 % more of it costs 0.5 % more.

    Args:
        elasticities: (name, d ln dollars / d ln name), largest first by magnitude.
        step: relative step of the central difference; the batch is continuous, so steps of whole requests
            do not hide the slope.
        undefined: sizes for which no neighbour exists in this model.
    """

    elasticities: tuple[tuple[str, float], ...]
    step: float = STEP
    undefined: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        """The elasticity of one size or assumption."""
        found = dict(self.elasticities)
        if name not in found:
            raise UnknownNameError("elasticity", name, found)
        return found[name]

    def table(self) -> str:
        """One line each."""
        lines = [f"{name:<30}{value:>+8.3f}" for name, value in self.elasticities]
        head = f"d ln $ / d ln x, continuous batch, central difference of {self.step:g}"
        return "\n".join([head, *lines])


def sensitivity(inputs: Mapping[str, Any]) -> Sensitivity:
    """Elasticities of the continuous dollars of a chain, by central differences with a continuous batch."""
    base = Chain(inputs["rules"], {**inputs, "continuous_batch": True})
    base["continuous_usd_per_month"]  # makes every link once; the steps below make only what they change
    tariff, model = inputs["tariff"], inputs["weight_model"]

    def priced(factor: float) -> dict[str, Any]:
        return {"tariff": tariff.with_changes(usd_per_hour=tariff.usd_per_hour * factor)}

    found = {"usd_per_hour": _slope(base, priced)}
    for name, shown in _NUMBERS.items():
        if inputs[name]:
            found[shown] = _slope(base, partial(_scaled, name, inputs[name]))
    sizes = _SIZES if isinstance(model, ModelShape) else ()
    neighbours = {size: _neighbour(model, size) for size in sizes}
    for size, end in neighbours.items():
        if end is not None:
            found[size] = _slope(base, partial(_resized, model, size, end))
    ordered = sorted(found.items(), key=lambda item: -abs(item[1]))
    return Sensitivity(
        elasticities=tuple(ordered), undefined=tuple(size for size, end in neighbours.items() if end is None)
    )


def _slope(base: Chain, change: Callable[[float], Mapping[str, Any]]) -> float:
    chains = (base.with_inputs(**change(factor)) for factor in (1 + STEP, 1 - STEP))
    up, down = (chain["continuous_usd_per_month"] for chain in chains)
    return math.log(up / down) / math.log((1 + STEP) / (1 - STEP))


def _scaled(name: str, value: float, factor: float) -> dict[str, Any]:
    return {name: value * factor}


def _resized(model: ModelShape, size: str, end: ModelShape, factor: float) -> dict[str, Any]:
    """The model with one size times a factor: on the line from the model to a neighbour that is valid."""
    start_size, end_size = _size(model, size), _size(end, size)
    blend = Blend(start=model, end=end, t=start_size * (factor - 1) / (end_size - start_size))
    return {"weight_model": blend, "kv_model": blend, "work_model": blend}


def _neighbour(model: ModelShape, size: str) -> ModelShape | None:
    """A valid shape that differs in this size alone: twice, half, or one of it."""
    now = _size(model, size)
    for other in (2 * now, now // 2, 1):
        if 0 < other != now:
            try:
                return model.with_changes(**{size: other})
            except (InvalidInputError, UnsupportedError):
                continue
    return None


def _size(model: ModelShape, size: str) -> int:
    if size == "expert_feed_forward_size":
        return model.experts.expert_feed_forward_size if model.experts else 0
    return int(getattr(model, size))
