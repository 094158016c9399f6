"""From names, paths and modules to records; and the fewest devices that hold a model."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from course_lib.cost import Tariff, price
from course_lib.errors import DoesNotFitError, InvalidInputError
from course_lib.hardware import Device, device
from course_lib.journey.links import Chain
from course_lib.journey.served_model import Blend, ServedModel
from course_lib.journey.traced import TracedModel, traced_model
from course_lib.serving.model_shape import model_shape
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.tensor_parallel import tensor_parallel_degrees
from course_lib.serving.workload import Workload
from course_lib.units import format_bytes

__all__ = [
    "check_context", "resolve_compute_dtype", "resolve_device", "resolve_model", "resolve_parallelism",
    "resolve_tariff",
]  # fmt: skip


def resolve_model(model: Any) -> ServedModel:
    """A shape by name, path or configuration; a torch module by its counts."""
    if isinstance(model, ModelShape | TracedModel | Blend):
        return model
    if isinstance(model, str | PathLike | Mapping):
        return model_shape(model)
    return traced_model(model)


def resolve_device(given: Any) -> Device:
    """A device by name or path, or as it is."""
    if isinstance(given, Device):
        return given
    if isinstance(given, str | PathLike):
        return device(str(given))
    raise InvalidInputError("device is a name, a path to a device file, or a Device", given=repr(given))


def resolve_tariff(given: Tariff | float | str | None, machine: Device) -> Tariff:
    """A tariff as it is, dollars an hour, a provider's price, or the default price of the device."""
    if isinstance(given, Tariff):
        return given
    if given is None or isinstance(given, str):
        return price(machine.name, given)
    return Tariff(usd_per_hour=given, device=machine.name)


def resolve_compute_dtype(machine: Device, given: str | None) -> str:
    """The format that is multiplied: as given, or bf16, or fp16, or fp32, whichever the device has first."""
    if given is not None:
        machine.peak(given)
        return given
    return next((dtype for dtype in ("bf16", "fp16", "fp32") if dtype in machine.formats), machine.formats[0])


def resolve_parallelism(inputs: Mapping[str, Any], degree: int | str) -> int:
    """The tensor-parallel degree, checked to hold the weights and one sequence.

    Raises:
        DoesNotFitError: it does not; the smallest degree that does is proposed.
    """
    if degree == "auto":
        found = _smallest_degree(inputs)
        if found is None:
            raise DoesNotFitError(_too_big(inputs, 1) + _way_out(inputs, found))
        return found
    if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
        raise InvalidInputError("tensor_parallel is a number of devices or 'auto'", given=repr(degree))
    if not _fits(inputs, degree):
        raise DoesNotFitError(_too_big(inputs, degree) + _way_out(inputs, _smallest_degree(inputs)))
    return degree


def check_context(model: ServedModel, workload: Workload) -> None:
    """Refuse a workload that is longer than the model can see."""
    tokens = workload.mean_prompt_tokens + workload.mean_output_tokens
    most = getattr(model, "max_context_tokens", None)
    if most is not None and tokens > most:
        raise DoesNotFitError(
            f"{model.name} sees at most {most:,} tokens and a request of the workload has {tokens:,.0f} (prompt and "
            "output). Shorten it, for example with prompt_tokens=..., output_tokens=...."
        )


def _chain(inputs: Mapping[str, Any], degree: int) -> Chain:
    return Chain(inputs["rules"], {**inputs, "tensor_parallel": degree})


def _fits(inputs: Mapping[str, Any], degree: int) -> bool:
    return bool(_chain(inputs, degree)["memory_batch"] >= 1)


def _smallest_degree(inputs: Mapping[str, Any]) -> int | None:
    model, machine = inputs["weight_model"], inputs["device"]
    degrees: tuple[int, ...] = (1,)
    if isinstance(model, ModelShape) and machine.link_bytes_per_second:
        degrees = tensor_parallel_degrees(model)
    return next((degree for degree in degrees if _fits(inputs, degree)), None)


def _way_out(inputs: Mapping[str, Any], found: int | None) -> str:
    """The degree that holds the model, or why none is proposed; and the other way, fewer bits."""
    if found is not None:
        degree = f"tensor_parallel={found} is the smallest degree that holds it."
        return f" {degree} Or store weights or KV cache in fewer bits."
    machine = inputs["device"]
    if not isinstance(inputs["weight_model"], ModelShape):
        reason = "A module known by its counts is not split over devices"
    elif not machine.link_bytes_per_second:
        reason = f"No tensor-parallel degree is proposed: no link between devices is on record for {machine.title}"
    else:
        reason = f"No tensor-parallel degree up to {tensor_parallel_degrees(inputs['weight_model'])[-1]} holds it"
    return f" {reason}. Store weights or KV cache in fewer bits, or take a larger device."


def _too_big(inputs: Mapping[str, Any], degree: int) -> str:
    chain, machine = _chain(inputs, degree), inputs["device"]
    usable = inputs["memory_fraction"] * machine.memory_bytes - inputs["reserve_bytes"]
    return (
        f"{inputs['weight_model'].name} does not fit {degree} x {machine.title}: "
        f"{format_bytes(chain['weight_bytes_per_device'])} of weights and "
        f"{format_bytes(chain['kv_bytes_held'])} of KV cache for one sequence, "
        f"and {format_bytes(usable)} usable on each device."
    )
