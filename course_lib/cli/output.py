"""Writing: files whole or not at all, JSON alone on stdout, colour only for a terminal that wants it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from course_lib.errors import InvalidInputError

__all__ = ["command_line", "is_given", "print_json", "print_text", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a text file; when anything fails, what was there before stays and nothing half-written does.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InvalidInputError(
            "a report needs a file that can be written", given=f"{path} ({error.strerror or error})",
            next_step="Name another file, or free some space.",
        ) from error  # fmt: skip
    finally:
        partial.unlink(missing_ok=True)


def print_json(data: Any) -> None:
    """Strict JSON: no NaN, no infinity."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print lines; on a terminal, headings and what binds are bold, unless NO_COLOR is set."""
    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    first, *rest = text.split("\n")
    lines = text.split("\n") if plain else [typer.style(first, bold=True), *map(_styled, rest)]
    typer.echo("\n".join(lines))


def _styled(line: str) -> str:
    heading = line[:1].isupper() and line[:8].isupper()
    return typer.style(line, bold=True) if heading or line.startswith("  * ") else line


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user wrote this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def command_line(context: typer.Context) -> str:
    """The command as it was given, option by option, quoted for a shell."""
    words = [context.command_path]
    for parameter in context.command.params:
        if not is_given(context, parameter.name or ""):
            continue
        value = context.params[parameter.name or ""]
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0]] if isinstance(each, bool) else [parameter.opts[0], str(each)]
    return " ".join([words[0], shlex.join(words[1:])]).strip()
