"""The commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from course_lib.cli.bill import bill
from course_lib.cli.doctor import doctor
from course_lib.cli.new import new
from course_lib.cli.roofline import roofline
from course_lib.cli.trace import trace

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True, rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"trace-tensor {version('trace-a-tensor')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Follow one tensor from its values to the monthly bill."""


for _command in (bill, trace, roofline, new, doctor):
    app.command()(_command)
