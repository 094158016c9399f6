"""The contract of ``predict``, and the laws that every honest model obeys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, isclose
from typing import Any

from grading.capstone.execution import UNTIMED
from grading.capstone.findings import Finding
from grading.capstone.recordings import FIGURES
from grading.capstone.records import Cell, EngineConfig, Traffic, catalogue_machine, usd_per_month

TERMS = ("weights", "compute", "kv", "other")
Answer = Mapping[str, Any]

# A scheduler is made of events: with a faster step another request may catch the batch, so the mean gap of one run
# may move a little the wrong way. The laws on direction leave that much room; those on bytes and floors leave none.
SCHEDULING_SLACK = 0.02
ROUNDING = 1e-6


def check_contract(cell: Cell, answer: Answer) -> None:
    """Every field is there, a number, and above zero where it must be."""
    if not isinstance(answer, Mapping):
        raise Finding("contract", f"{cell.name}: predict returns a dict, got {type(answer).__name__}")
    for name in FIGURES:
        value = answer.get(name)
        if not isinstance(value, (int, float)):
            raise Finding("contract", f"{cell.name}: the field {name!r} is missing or no number")
        if name != "usd_per_month" and value <= 0:
            raise Finding("contract", f"{cell.name}: {name} is {value:g}, but it is above zero")
    terms = answer.get("breakdown")
    if not isinstance(terms, Mapping) or set(terms) != set(TERMS):
        raise Finding("contract", f"{cell.name}: breakdown has the terms {', '.join(TERMS)}")
    if not all(isinstance(value, (int, float)) and value >= 0 for value in terms.values()) or not sum(terms.values()):
        raise Finding("contract", f"{cell.name}: terms of the breakdown are seconds, 0 or more, not all 0")


def check_reproducible(cells: Sequence[Cell], first: Sequence[Answer], second: Sequence[Answer]) -> None:
    """Two fresh processes give the same bytes; and the answer depends on what was asked."""
    for cell, one, two in zip(cells, first, second, strict=True):
        check_contract(cell, one)
        left, right = (_bytes(answer) for answer in (one, two))
        if left != right:
            field = next(key for key in one if key != UNTIMED and _bytes(one[key]) != _bytes(two.get(key)))
            words = f"{cell.name}: {field} was {one[field]} in one run, {two.get(field)} in the next"
            raise Finding("two-runs-differ", words)
    constant = [name for name in FIGURES if len({answer[name] for answer in first}) == 1]
    if constant:
        raise Finding("constant", f"{constant[0]} is {first[0][constant[0]]:g} for each of {len(cells)} configurations")


def _bytes(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key != UNTIMED}
    return json.dumps(value, sort_keys=True)


def soundness_cells() -> tuple[Cell, ...]:
    """Cells of constant lengths, whose compulsory bytes are exact, each with four variants."""
    bases = [
        Cell(
            name=f"{machine}/{model}/{batch}", machine=catalogue_machine(machine),
            config=EngineConfig(model=model, max_batch=batch, kv_dtype=kv),
            traffic=Traffic(
                arrival_requests_per_second=rate, prompt_tokens=prompt, output_tokens=output, length_sigma=0.0,
                num_requests=32,
            ),
        )
        for machine, model, batch, kv, rate, prompt, output in (
            ("h100-sxm", "llama-3-8b", 32, "bf16", None, 700, 40),
            ("a100-80gb-sxm", "qwen2.5-7b", 8, "fp8", 0.5, 300, 60),
            ("l40s", "llama-3.2-3b", 16, "bf16", None, 150, 80),
        )
    ]
    return tuple(variant for base in bases for variant in variants(base))


def variants(base: Cell) -> tuple[Cell, ...]:
    """The cell; more bandwidth; more compute; twice the price; twice the demand."""
    machine, traffic = base.machine, base.traffic
    faster = replace(machine, memory_bytes_per_second=1.5 * machine.memory_bytes_per_second)
    stronger = replace(machine, peak_flops_per_second=1.5 * machine.peak_flops_per_second)
    dearer = replace(machine, usd_per_hour=2 * machine.usd_per_hour)
    busier = replace(traffic, demand_tokens_per_second=2 * traffic.demand_tokens_per_second)
    changed = [replace(base, machine=one) for one in (machine, faster, stronger, dearer)]
    return (*changed, replace(base, traffic=busier))


def check_sound(cells: Sequence[Cell], answers: Sequence[Answer]) -> None:
    """Every law on every group of five variants."""
    for start in range(0, len(cells), 5):
        group = answers[start : start + 5]
        for cell, answer in zip(cells[start : start + 5], group, strict=True):
            check_contract(cell, answer)
            _check_floors(cell, answer)
        _check_directions(cells[start], group)


def _check_directions(cell: Cell, group: Sequence[Answer]) -> None:
    base, faster, stronger, dearer, busier = group
    for what, other in (("bandwidth", faster), ("compute", stronger)):
        for name, sign in (("tpot_seconds", 1), ("tokens_per_second", -1)):
            if sign * other[name] > sign * base[name] * (1 + sign * SCHEDULING_SLACK):
                change = f"{name} goes from {base[name]:.5g} to {other[name]:.5g}"
                words = f"{cell.name}: with 1.5 times the {what}, {change}"
                raise Finding("more-is-slower", words)
    for what, other in (("price", dearer), ("demand", busier)):
        if not isclose(other["usd_per_month"], 2 * base["usd_per_month"], rel_tol=ROUNDING):
            before, after = base["usd_per_month"], other["usd_per_month"]
            words = f"{cell.name}: twice the {what} takes {before:.6g} to {after:.6g} USD"
            raise Finding("dollars-do-not-double", words)


def _check_floors(cell: Cell, answer: Answer) -> None:
    """Bytes at least compulsory, times at least the speed of light, dollars as the contract defines them."""
    least = compulsory_bytes(cell)
    if answer["bytes_moved"] < least * (1 - ROUNDING):
        raise Finding("below-compulsory", f"{cell.name}: {answer['bytes_moved']:.6g} bytes, and {least:.6g} must move")
    floors = {"tpot_seconds": tpot_floor(cell), "ttft_seconds": ttft_floor(cell)}
    for name, floor in floors.items():
        if answer[name] < floor * (1 - ROUNDING):
            raise Finding("below-roofline", f"{cell.name}: {name} {answer[name]:.4g} is below its floor {floor:.4g}")
    if answer["usd_per_month"] < 0:
        raise Finding("negative-dollars", f"{cell.name}: {answer['usd_per_month']:.6g} USD")
    bill = usd_per_month(cell.machine, cell.traffic, answer["tokens_per_second"])
    if not isclose(answer["usd_per_month"], bill, rel_tol=ROUNDING):
        words = f"{cell.name}: {answer['usd_per_month']:.6g} USD, but your tokens per second make it {bill:.6g}"
        raise Finding("dollars-do-not-follow", words)


def compulsory_bytes(cell: Cell) -> float:
    """Weights once for each step that cannot be avoided, and every context once for each later token.

    A request needs ``output`` steps; at most ``max_batch`` share a step. Token j reads ``prompt + j`` KV tokens.
    """
    requests, traffic = cell.traffic.num_requests, cell.traffic
    steps = max(traffic.output_tokens, ceil(requests * traffic.output_tokens / cell.config.max_batch))
    later = traffic.output_tokens - 1
    contexts = requests * (later * traffic.prompt_tokens + later * (later + 1) // 2)
    return steps * cell.config.step_weight_bytes + contexts * cell.config.kv_token_bytes


def tpot_floor(cell: Cell) -> float:
    """Weights and one's own context at the data sheet's bandwidth."""
    kv = (cell.traffic.prompt_tokens + 1) * cell.config.kv_token_bytes
    return (cell.config.step_weight_bytes + kv) / cell.machine.memory_bytes_per_second


def ttft_floor(cell: Cell) -> float:
    """The prompt's products at the peak, or the weights at full bandwidth, whichever is longer."""
    flops = cell.config.shape.matmul_flops_per_token * cell.traffic.prompt_tokens
    weights = cell.config.step_weight_bytes / cell.machine.memory_bytes_per_second
    return max(flops / cell.machine.peak_flops_per_second, weights)
