"""Options shared by the commands, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Batch", "Compute", "DeviceName", "Json", "KVElements", "ModelName", "Prices", "Provider", "Tokens", "UsdPerHour",
    "Weights",
]  # fmt: skip

_MACHINE = "Model and machine"

ModelName = Annotated[
    str,
    typer.Option(
        "--model", metavar="MODEL", rich_help_panel=_MACHINE,
        help="A catalogue name, a config.json, or package.module:factory that returns an nn.Module "
             "or (module, inputs).",
    ),
]  # fmt: skip
DeviceName = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", rich_help_panel=_MACHINE, help="A catalogue name, or your own .toml."),
]
KVElements = Annotated[
    int | None,
    typer.Option(
        "--kv-elements", metavar="N", rich_help_panel=_MACHINE,
        help="Elements that one token adds to the KV cache, all layers; for a module that does not say.",
    ),
]  # fmt: skip
Prices = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", rich_help_panel=_MACHINE, help="Your own prices, a .toml file."),
]
Provider = Annotated[
    str | None,
    typer.Option("--provider", rich_help_panel=_MACHINE, help="Whose price; the default one of the file otherwise."),
]
UsdPerHour = Annotated[
    float | None,
    typer.Option("--usd-per-hour", metavar="USD", rich_help_panel=_MACHINE, help="Price of one device for one hour."),
]
Weights = Annotated[
    str, typer.Option("--weights", metavar="FORMAT", rich_help_panel="Formats", help="How weights are stored.")
]
Compute = Annotated[
    str | None,
    typer.Option(
        "--compute", metavar="FORMAT", rich_help_panel="Formats",
        help="What is multiplied; bf16, or what the device has. W8A8 is --weights fp8 --compute fp8.",
    ),
]  # fmt: skip
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Sequences.")]
Tokens = Annotated[int, typer.Option("--tokens", metavar="N", help="Tokens of each sequence.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
