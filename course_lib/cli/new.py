"""``trace-tensor new``: a commented template that is itself a valid record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from course_lib.cli.errors import reported
from course_lib.errors import InvalidInputError

__all__ = ["Kind", "new", "template"]

_WORKLOAD = """\
arrival_at_seconds,prompt_tokens,output_tokens,note
0.00,1500,300,"one line a request: when it came, tokens in, tokens out; this column is for you and is not read"
0.02,1200,250,"any order of lines; the bill uses the mean rate and the mean lengths"
0.03,1800,350,"a simulation uses the instants too"
"""


class Kind(StrEnum):
    """What a template is of."""

    DEVICE = "device"
    PRICE = "price"
    WORKLOAD = "workload"


@reported
def new(
    kind: Annotated[Kind, typer.Argument(help="What to describe.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write here; else print.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a commented template, checked by loading it; fill in your numbers and pass it to any command.

        trace-tensor new device --out my-gpu.toml

        trace-tensor new price --out my-prices.toml

        trace-tensor bill --device my-gpu.toml --prices my-prices.toml
    """
    text = template(kind)
    if out is None:
        typer.echo(text, nl=False)
        return
    if out.exists() and not force:
        raise InvalidInputError(f"{out} is there already", next_step="Name another file, or replace it with --force.")
    from course_lib.cli.output import write_whole

    write_whole(out, text)
    typer.echo(f"Wrote {out}. Fill in your numbers, then: trace-tensor bill {_FLAGS[kind]} {out}")


_FLAGS = {Kind.DEVICE: "--usd-per-hour 2 --device", Kind.PRICE: "--prices", Kind.WORKLOAD: "--workload"}


def template(kind: Kind) -> str:
    """The template, after a load of it has succeeded.

    >>> template(Kind.WORKLOAD).splitlines()[0]
    'arrival_at_seconds,prompt_tokens,output_tokens,note'
    """
    from course_lib.cost import price_template, read_prices
    from course_lib.hardware import device, device_template
    from course_lib.serving.workload import Workload

    text = {Kind.DEVICE: device_template(), Kind.PRICE: price_template(), Kind.WORKLOAD: _WORKLOAD}[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("template.csv" if kind is Kind.WORKLOAD else "template.toml")
        path.write_text(text, encoding="utf-8")
        loads: dict[Kind, Callable[[Path], object]] = {
            Kind.DEVICE: device, Kind.PRICE: read_prices, Kind.WORKLOAD: Workload.from_csv
        }  # fmt: skip
        loads[kind](path)
    return text
