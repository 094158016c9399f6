"""A journey as plain data and back: inputs in full, links and bill for whoever reads the file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from course_lib.cost import Tariff
from course_lib.errors import InvalidInputError, TraceATensorError, UnsupportedError
from course_lib.hardware import Device, MemoryLevel, device, devices
from course_lib.journey.rules import LINKS
from course_lib.journey.traced import TracedModel
from course_lib.serving.experts import Experts, LatentAttention
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.slo import SLO
from course_lib.serving.token_lengths import Constant, Empirical, Geometric, LogNormal
from course_lib.serving.workload import Workload
from course_lib.sources import Citation

if TYPE_CHECKING:
    from course_lib.journey.record import Journey

__all__ = ["FORMAT", "from_dict", "to_dict"]

FORMAT = "trace-a-tensor journey 1"
_RECORDS = ("model", "device", "workload", "tariff", "slo", "as_of", "rules")
_LENGTHS = {kind.__name__: kind for kind in (Constant, Empirical, Geometric, LogNormal)}


def to_dict(journey: Journey) -> dict[str, Any]:
    """Inputs, links and bill as JSON types.

    Raises:
        UnsupportedError: a link was replaced by a function, or arrivals are a recorded trace: neither is data.
    """
    if journey.rules != LINKS:
        raise UnsupportedError("A journey with a changed link holds a function, which is not data.")
    names = [each.name for each in fields(journey) if each.init and each.name not in _RECORDS]
    plain = {name: getattr(journey, name) for name in names}
    model, tariff = journey.model, journey.tariff
    if not isinstance(model, ModelShape | TracedModel):
        raise UnsupportedError(f"{model.name} is between two shapes and is not written.")
    return {
        "format": FORMAT,
        "inputs": {
            **plain,
            "model": {"kind": type(model).__name__, **asdict(model)},
            "device": _device_to_data(journey.machine),
            "workload": _workload_to_data(journey.workload),
            "tariff": {"kind": "Tariff", **asdict(tariff)} if isinstance(tariff, Tariff) else tariff,
            "slo": asdict(journey.slo),
            "as_of": journey.as_of and journey.as_of.isoformat(),
        },
        "links": [{**asdict(link), "inputs": dict(link.inputs)} for link in journey.links],
        "bill": {**asdict(journey.bill), "rows": [row.columns() for row in journey.bill.rows]},
        "band": asdict(journey.band),
    }


def from_dict(data: Mapping[str, Any]) -> Journey:
    """The journey of the inputs in :func:`to_dict`'s data; everything else is computed again."""
    from course_lib.journey.record import Journey

    if not isinstance(data, Mapping):
        raise InvalidInputError("a journey file is an object", given=type(data).__name__)
    if data.get("format") != FORMAT or not isinstance(data.get("inputs"), Mapping):
        raise InvalidInputError("a journey file has a format and inputs", given=data.get("format"), allowed=FORMAT)
    inputs = dict(data["inputs"])
    try:
        return Journey(
            **{
                **inputs,
                "model": _model_from_data(inputs["model"]),
                "device": _device_from_data(inputs["device"]),
                "workload": _workload_from_data(inputs["workload"]),
                "tariff": _tariff_from_data(inputs.get("tariff")),
                "slo": SLO(**inputs["slo"]),
                "as_of": datetime.date.fromisoformat(inputs["as_of"]) if inputs.get("as_of") else None,
            }
        )
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, TraceATensorError):
            raise
        raise InvalidInputError("a journey file holds the fields of a journey", given=str(error)) from error


def _model_from_data(data: Mapping[str, Any]) -> ModelShape | TracedModel:
    values = _with_tuples({name: value for name, value in data.items() if name != "kind"})
    if data["kind"] == TracedModel.__name__:
        return TracedModel(**values)
    for name, kind in (("experts", Experts), ("latent_attention", LatentAttention)):
        if values.get(name) is not None:
            values[name] = kind(**_with_tuples(values[name]))
    return ModelShape(**values)


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _device_to_data(machine: Device) -> Any:
    if machine.name in devices() and device(machine.name) == machine:
        return machine.name
    data = {each.name: getattr(machine, each.name) for each in fields(machine)}
    data |= {name: dict(data[name]) for name in ("peak_flops_per_second", "sparse_peak_flops_per_second")}
    data["on_chip"] = [asdict(level) for level in machine.on_chip]
    data["citations"] = {name: asdict(each) for name, each in machine.citations.items()}
    data["alternatives"] = {name: [asdict(each) for each in some] for name, some in machine.alternatives.items()}
    return data


def _device_from_data(data: Any) -> Any:
    if isinstance(data, str):
        return data
    return Device(
        **{
            **data,
            "matmul_tile": tuple(data["matmul_tile"]) if data.get("matmul_tile") else None,
            "on_chip": tuple(MemoryLevel(**level) for level in data["on_chip"]),
            "citations": {name: Citation(**each) for name, each in data["citations"].items()},
            "alternatives": {
                name: tuple(Citation(**each) for each in some) for name, some in data["alternatives"].items()
            },
        }
    )


def _workload_to_data(workload: Workload) -> dict[str, Any]:
    if workload.recorded is not None:
        raise UnsupportedError("Recorded arrivals stay in their own file; give a Workload with a rate and lengths.")
    data = {each.name: getattr(workload, each.name) for each in fields(workload) if each.name != "recorded"}
    for name in ("prompt_tokens", "output_tokens"):
        if not isinstance(data[name], int):
            kind = type(data[name]).__name__
            if kind not in _LENGTHS:
                raise UnsupportedError(f"Lengths of kind {kind} are not written; known: {', '.join(sorted(_LENGTHS))}.")
            data[name] = {"kind": kind, **asdict(data[name])}
    return data


def _workload_from_data(data: Mapping[str, Any]) -> Workload:
    values = dict(data)
    for name in ("prompt_tokens", "output_tokens"):
        if isinstance(values[name], Mapping):
            inner = {key: value for key, value in values[name].items() if key != "kind"}
            values[name] = _LENGTHS[values[name]["kind"]](**inner)
    return Workload(**values)


def _tariff_from_data(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    values = {name: value for name, value in data.items() if name != "kind"}
    if values.get("citation"):
        values["citation"] = Citation(**values["citation"])
    return Tariff(**values)
