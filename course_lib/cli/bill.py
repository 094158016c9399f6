"""``trace-tensor bill``: from a tensor's shape to the dollars of a month."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.cli.errors import reported
from course_lib.cli.options import (
    Compute,
    DeviceName,
    Json,
    KVElements,
    ModelName,
    Prices,
    Provider,
    UsdPerHour,
    Weights,
)

__all__ = ["bill"]

_LOAD, _PROMISE, _ASSUMED, _OUT = "Workload", "Promise", "Assumptions", "Output"


def _option(flag: str, panel: str, words: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(flag, rich_help_panel=panel, help=words, metavar=metavar, **more)


@reported
def bill(
    context: typer.Context,
    model: ModelName = "llama-3-8b",
    device: DeviceName = "h100-sxm",
    kv_elements: KVElements = None,
    prices: Prices = None,
    provider: Provider = None,
    usd_per_hour: UsdPerHour = None,
    workload: Annotated[Path | None, _option("--workload", _LOAD, "Recorded requests, a .csv file.", "FILE")] = None,
    rate: Annotated[float | None, _option("--rate", _LOAD, "Requests a second; 60.", "N")] = None,
    prompt_tokens: Annotated[int | None, _option("--prompt-tokens", _LOAD, "Tokens in; 1500.", "N")] = None,
    output_tokens: Annotated[int | None, _option("--output-tokens", _LOAD, "Tokens out; 300.", "N")] = None,
    prefix_hits: Annotated[float, _option("--prefix-hits", _LOAD, "Share of a prompt already cached.", "SHARE")] = 0.0,
    tpot_ms: Annotated[float, _option("--tpot-ms", _PROMISE, "At most so long between tokens.", "MS")] = 50.0,
    ttft_ms: Annotated[float | None, _option("--ttft-ms", _PROMISE, "At most so long to the first.", "MS")] = None,
    weights: Weights = "bf16",
    kv: Annotated[str, _option("--kv", "Formats", "How the KV cache is stored.", "FORMAT")] = "bf16",
    compute: Compute = None,
    tensor_parallel: Annotated[
        str, _option("--tensor-parallel", _ASSUMED, "Devices that share a model, or auto.", "N")
    ] = "1",
    efficiency_compute: Annotated[
        float, _option("--efficiency-compute", _ASSUMED, "Share of the compute peak reached.", "SHARE")
    ] = 0.6,
    efficiency_bandwidth: Annotated[
        float, _option("--efficiency-bandwidth", _ASSUMED, "Share of the bandwidth reached.", "SHARE")
    ] = 0.8,
    fixed_ms: Annotated[float, _option("--fixed-ms", _ASSUMED, "Fixed time of each step.", "MS")] = 0.5,
    memory_fraction: Annotated[
        float, _option("--memory-fraction", _ASSUMED, "Share of memory the engine may use.", "SHARE")
    ] = 0.9,
    reserve_gb: Annotated[float, _option("--reserve-gb", _ASSUMED, "Reserved for activations.", "GB")] = 3.0,
    kv_block_tokens: Annotated[
        int, _option("--kv-block-tokens", _ASSUMED, "KV memory comes in such blocks; 1 wastes none.", "N")
    ] = 1,
    max_batch: Annotated[int, _option("--max-batch", _ASSUMED, "The engine's own limit.", "N")] = 512,
    headroom: Annotated[float, _option("--headroom", _ASSUMED, "Load at which a replica is run.", "SHARE")] = 0.7,
    spares: Annotated[int, _option("--spares", _ASSUMED, "Replicas kept for a failure.", "N")] = 1,
    hours: Annotated[float, _option("--hours", _ASSUMED, "Hours billed in a month.", "H")] = 730.0,
    prefill_attention: Annotated[
        bool, _option("--prefill-attention", _ASSUMED, "Count the attention FLOPs of prompts.")
    ] = False,
    disaggregated: Annotated[bool, _option("--disaggregated", _ASSUMED, "Prefill on other replicas.")] = False,
    change: Annotated[
        list[str] | None,
        _option("--change", "Change", "Compare with this edit: a size (num_kv_heads=32) or a field "
                "(tpot_seconds=0.01, device=h200). May be repeated.", "FIELD=VALUE"),
    ] = None,
    sensitivity: Annotated[bool, _option("--sensitivity", _OUT, "Print the elasticities.")] = False,
    formulas: Annotated[bool, _option("--formulas", _OUT, "Print each link's formula.")] = False,
    report: Annotated[
        Path, _option("--report", _OUT, "Where the page goes (with --json only if named).", "FILE")
    ] = Path("trace-tensor-report.html"),
    no_report: Annotated[bool, _option("--no-report", _OUT, "Write no page.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """What serving a model costs, every number on the way, and why an edit moves it.

    Prints the answer with its band, the chain from the tensor to the bill, the invoice and what would move it, and
    writes a self-contained page. The defaults are the course's flagship: Llama-3-8B on an H100.

        trace-tensor bill --change num_kv_heads=32
    """
    from course_lib.cli import journeys
    from course_lib.cli.models import named_model
    from course_lib.cli.output import command_line, is_given
    from course_lib.hardware import device as device_record
    from course_lib.journey import Journey
    from course_lib.report.record import journey_report
    from course_lib.serving.slo import SLO

    journeys.check_sizes(context.params)
    machine = device_record(device)
    cost = journeys.tariff(machine, prices, provider, usd_per_hour)
    served = journeys.served(named_model(model), kv_elements)
    load, notes = journeys.workload(served, workload, rate, prompt_tokens, output_tokens, prefix_hits)
    before = Journey(
        model=served, device=machine, tariff=cost, workload=load,
        slo=SLO(tpot_seconds=tpot_ms / 1e3, ttft_seconds=None if ttft_ms is None else ttft_ms / 1e3),
        weight_dtype=weights, kv_dtype=kv, compute_dtype=compute, efficiency_compute=efficiency_compute,
        efficiency_bandwidth=efficiency_bandwidth, fixed_seconds=fixed_ms / 1e3, memory_fraction=memory_fraction,
        reserve_bytes=reserve_gb * 1e9, headroom_fraction=headroom, num_spares=spares, hours_per_month=hours,
        max_batch=max_batch, tensor_parallel=int(tensor_parallel) if tensor_parallel.isdigit() else tensor_parallel,
        prefill_attention=prefill_attention, kv_block_tokens=kv_block_tokens, disaggregated=disaggregated,
    )  # fmt: skip
    after = journeys.changed(before, change, prices, provider, usd_per_hour) if change else before
    made = journey_report(
        after, before=before if change else None, change=", ".join(change or ()), command=command_line(context),
        notes=(*notes, *journeys.outside_band(after)),
    )  # fmt: skip
    page = None if no_report or (json and not is_given(context, "report")) else report
    _print(made, page=page, json=json, formulas=formulas, sensitivity=sensitivity)


def _print(made: Any, *, page: Path | None, json: bool, formulas: bool, sensitivity: bool) -> None:
    """The page first: when it cannot be written, nothing is printed."""
    from course_lib.cli.output import print_json, print_text, write_whole

    if page is not None:
        from course_lib.report.page import html_report

        write_whole(page, html_report(made))
    if json:
        from course_lib.report.data import report_data

        print_json(report_data(made))
        return
    from course_lib.report.text import text_report

    where = f"\n\nThe whole report, with figures and sources: {page}" if page is not None else ""
    print_text(text_report(made, formulas=formulas, sensitivity=sensitivity) + where)
