"""From what the command line says to a journey, and to the journey after ``--change``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from course_lib.cli.models import NamedModel
from course_lib.cost import Tariff, price
from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.hardware import Device, device
from course_lib.journey import BANDWIDTH_RANGE, COMPUTE_RANGE, Journey, traced_model
from course_lib.serving.experts import Experts
from course_lib.serving.model_shape import model_shape
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.slo import SLO
from course_lib.serving.workload import Workload

__all__ = [
    "OUTPUT_TOKENS", "PROMPT_TOKENS", "RATE", "changed", "check_sizes", "outside_band", "served", "tariff", "workload",
]  # fmt: skip

RATE, PROMPT_TOKENS, OUTPUT_TOKENS = 60.0, 1500, 300
"""The workload of the course's tables, used where none is given."""

_RECORDS = (
    "model", "device", "tariff", "workload", "slo", "rules", "as_of",
    "experts", "latent_attention", "attention_windows",
)  # fmt: skip
_MOST = 1e15  # a number beyond this is a slip of the keyboard
_TRACED_TOKENS = 32
_CHANGED = (ModelShape, Experts, Workload, SLO, Journey)


def check_sizes(options: Mapping[str, Any]) -> None:
    """Refuse numbers so large that the arithmetic overflows; what else is impossible its record says.

    Raises:
        InvalidInputError: an option is beyond 1e15.
    """
    for name, value in options.items():
        if type(value) in (int, float) and _MOST < abs(value) < float("inf"):
            given = f"{value:g}" if type(value) is float else f"{len(str(abs(value)))} digits"
            raise InvalidInputError(f"--{name.replace('_', '-')} takes numbers up to {_MOST:g}", given=given)


def outside_band(journey: Journey) -> tuple[str, ...]:
    """A note for each efficiency outside the range of the bands: then the headline may lie outside its band too."""
    return tuple(
        f"the {words} efficiency {value:g} lies outside the range of the bands, {low:g} to {high:g}, so a headline may "
        "lie outside its band"
        for words, value, (low, high) in (
            ("compute", journey.efficiency_compute, COMPUTE_RANGE),
            ("bandwidth", journey.efficiency_bandwidth, BANDWIDTH_RANGE),
        )
        if not low <= value <= high
    )


def served(model: NamedModel, kv_elements: int | None) -> Any:
    """The shape, or the counts of the traced module."""
    if model.shape is not None:
        if kv_elements is not None:
            raise InvalidInputError(
                f"the KV cache of {model.name} follows from its shape; --kv-elements is for a module", given=kv_elements
            )
        return model.shape
    inputs = model.inputs
    if not inputs and not callable(getattr(model.module, "model_shape", None)):
        import torch

        inputs = (torch.zeros(1, _TRACED_TOKENS, dtype=torch.long),)
    return traced_model(model.module, *inputs, kv_elements_per_token=kv_elements)


def tariff(machine: Device, prices: Path | None, provider: str | None, usd_per_hour: float | None) -> Tariff:
    """The price of a device hour: as given, or from a prices file, or from the course's own.

    Raises:
        InvalidInputError: two prices are given. UnknownNameError: no price for this device or from this provider.
    """
    if usd_per_hour is None:
        return price(machine.name, provider, path=prices)
    if prices is not None or provider is not None:
        raise InvalidInputError("one price", given="--usd-per-hour beside --prices or --provider")
    return Tariff(usd_per_hour=usd_per_hour, device=machine.name)


def workload(
    model: Any, file: Path | None, rate: float | None, prompt: int | None, output: int | None, hits: float
) -> tuple[Workload, tuple[str, ...]]:
    """What arrives, and a note where the default had to be made shorter for a small model.

    Raises:
        InvalidInputError: a file and lengths are both given, or the file cannot be read.
    """
    if file is not None:
        if (rate, prompt, output) != (None, None, None):
            raise InvalidInputError("a workload file or a rate and lengths", given="both")
        read = Workload.from_csv(file, prefix_hit_fraction=hits)
        if read.recorded is not None and not read.recorded.arrival_at_seconds.any():
            raise InvalidInputError(
                f"{file} gives a rate only if its requests come at different instants", given="one instant",
                next_step="Record more requests, or give --rate, --prompt-tokens and --output-tokens.",
            )  # fmt: skip
        return replace(read, arrivals="poisson", recorded=None), ()  # the journey uses rate and lengths, not instants
    most = getattr(model, "max_context_tokens", None)
    notes: tuple[str, ...] = ()
    if prompt is None and output is None and most is not None and most < PROMPT_TOKENS + OUTPUT_TOKENS:
        prompt = max(1, most * PROMPT_TOKENS // (PROMPT_TOKENS + OUTPUT_TOKENS))
        output = max(1, most - prompt)
        notes = (
            f"{model.name} sees at most {most:,} tokens, so the default workload of {PROMPT_TOKENS:,} tokens in and "
            f"{OUTPUT_TOKENS} out became {prompt:,} in and {output:,} out (--prompt-tokens, --output-tokens)",
        )  # fmt: skip
    made = Workload(
        arrival_requests_per_second=RATE if rate is None else rate,
        prompt_tokens=PROMPT_TOKENS if prompt is None else prompt,
        output_tokens=OUTPUT_TOKENS if output is None else output, prefix_hit_fraction=hits,
    )  # fmt: skip
    return made, notes


def changed(
    journey: Journey, changes: Sequence[str], prices: Path | None, provider: str | None, usd_per_hour: float | None
) -> Journey:
    """The journey after every ``FIELD=VALUE``: sizes of the model, or fields of the journey.

    Args:
        journey: before.
        changes: such as ``"num_kv_heads=32"``, ``"tpot_seconds=0.01"``, ``"device=h200"``.
        prices, provider, usd_per_hour: as in :func:`tariff`, for a device that changes.

    Raises:
        InvalidInputError: no FIELD=VALUE. UnknownNameError: no such field; near matches are offered.
    """
    values = dict(_pair(each) for each in changes)
    known = _known(journey)
    for name, value in values.items():
        if name not in known:
            raise UnknownNameError("field to change", name, known)
        _check_kind(name, value)
    if "model" in values:
        journey = replace(journey, model=model_shape(str(values.pop("model"))))
    if "device" in values:
        machine = device(str(values.pop("device")))
        journey = replace(journey, device=machine, tariff=tariff(machine, prices, provider, usd_per_hour))
    own = {name: value for name, value in values.items() if name in _fields(Journey, Workload, SLO)}
    sizes = {name: value for name, value in values.items() if name not in own}
    if sizes:  # with the others in one step: no half-changed journey has to work
        own["model"] = _edited(journey, sizes)
    return journey.with_changes(**own) if own else journey


def _edited(journey: Journey, sizes: Mapping[str, Any]) -> Any:
    if not isinstance(journey.model, ModelShape):
        return journey.with_shape(**sizes)  # says that a traced module cannot be edited
    return journey.model.with_changes(**sizes)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InvalidInputError(
            "--change takes FIELD=VALUE", given=repr(text), allowed="such as num_kv_heads=32 or tpot_seconds=0.01"
        )
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value.strip()


def _check_kind(name: str, value: Any) -> None:
    """Refuse a word where a field holds a number, and the other way; whether the value is possible its record says."""
    declared = {each.name: str(each.type) for record in _CHANGED for each in fields(record)}
    kinds = set(declared[name].split(" | ")) if name not in ("model", "device") else {"str"}
    takes = {
        "a number": (bool(kinds & {"int", "float"}), type(value) in (int, float) and abs(value) <= _MOST),
        "true or false": ("bool" in kinds, type(value) is bool),
        "a name": ("str" in kinds, type(value) is str),
        "null": ("None" in kinds, value is None),
    }
    if not any(held and fits for held, fits in takes.values()):
        raise InvalidInputError(
            f"--change {name} takes {' or '.join(words for words, (held, _) in takes.items() if held)}",
            given=str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}...",
        )


def _known(journey: Journey) -> set[str]:
    sizes = _fields(ModelShape, Experts) if isinstance(journey.model, ModelShape) else set()
    return (sizes | _fields(Journey, Workload, SLO) | {"model", "device"}) - {"name", "source", "notes", "recorded"}


def _fields(*records: type) -> set[str]:
    """Fields that hold one value; records in them are reached by their own fields."""
    return {each.name for record in records for each in fields(record) if each.init} - set(_RECORDS)
