"""What goes wrong is said in one message on stderr; exit 2, no traceback, nothing on stdout."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from course_lib.errors import TraceATensorError

__all__ = ["reported"]

P = ParamSpec("P")
_FLAGS = {
    "tensor_parallel": "--tensor-parallel", "prompt_tokens": "--prompt-tokens", "output_tokens": "--output-tokens",
    "kv_elements_per_token": "--kv-elements", "weight_dtype": "--weights", "kv_dtype": "--kv",
}  # fmt: skip


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors on purpose, and whose failed reads and writes, become a message and exit code 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:  # the reader of our output has seen enough
            raise
        except OverflowError as error:
            typer.echo(f"trace-tensor: a number is too large to compute with ({error}).", err=True)
            raise typer.Exit(2) from None
        except (TraceATensorError, OSError) as error:
            typer.echo(f"trace-tensor: {_with_flags(str(error))}", err=True)
            raise typer.Exit(2) from None

    return run


def _with_flags(message: str) -> str:
    """Name the options of the command line where the message names arguments of Python."""
    named = [  # the value where the message gives one; N where it gives a formula or dots
        f"{flag} {match[1] or 'N'}" for name, flag in _FLAGS.items()
        if (match := re.search(rf"\b{name}=(?:(\w[\w-]*)(?=[.,;)]|$| \w))?", message))
    ]  # fmt: skip
    named += ["--usd-per-hour USD or --prices FILE"] * ("Tariff(usd_per_hour" in message)
    return message + (f"\nOn this command line: {', '.join(named)}." if named else "")
