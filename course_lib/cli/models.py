"""What ``--model`` names: a shape, or a module that the user's own code builds."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from course_lib.errors import InvalidInputError, TraceATensorError, UnknownNameError
from course_lib.serving.model_shape import model_shape
from course_lib.serving.shape_record import ModelShape

__all__ = ["NamedModel", "named_model", "token_ids"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model as the command line named it.

    Args:
        name: what to call it.
        shape: of a catalogue name or a configuration; else None.
        module: what a factory returned; else None.
        inputs: example inputs that the factory gave with it.
    """

    name: str
    shape: ModelShape | None = None
    module: Any = None
    inputs: tuple[Any, ...] = ()


def named_model(text: str) -> NamedModel:
    """Resolve ``--model``.

    Args:
        text: a catalogue name, a path to a ``config.json`` or its folder, or ``package.module:factory``, where
            ``factory()`` returns an ``nn.Module`` or ``(module, inputs)``; the current folder is on the path.

    Raises:
        UnknownNameError, InvalidInputError, UnsupportedError: it cannot be resolved; the message says why.

    >>> named_model("gpt2").shape.num_parameters
    124439808
    """
    if not _FACTORY.fullmatch(text):
        shape = model_shape(text)
        return NamedModel(name=shape.name, shape=shape)
    module, inputs = _made(text)
    return NamedModel(name=text.partition(":")[2], module=module, inputs=inputs)


def _made(text: str) -> tuple[Any, tuple[Any, ...]]:
    factory = _factory(text)
    from torch import nn

    if not isinstance(factory, nn.Module):
        if not callable(factory):
            raise InvalidInputError(f"{text} is a function that returns an nn.Module", given=type(factory).__name__)
        with _users_code(f"{text}() returns an nn.Module"):
            factory = factory()
    module, inputs = factory if isinstance(factory, tuple) and len(factory) == 2 else (factory, ())
    if not isinstance(module, nn.Module):
        raise InvalidInputError(
            f"{text}() returns an nn.Module, or a pair of module and inputs", given=type(module).__name__
        )
    return module, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _factory(text: str) -> Any:
    module_name, _, name = text.partition(":")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")  # as python -m does: the user's own folder
    with _users_code(f"{module_name} can be imported"):
        module = importlib.import_module(module_name)
    if not hasattr(module, name):
        public = [each for each in dir(module) if not each.startswith("_")]
        raise UnknownNameError(f"name in {module_name}", name, public)
    return getattr(module, name)


@contextmanager
def _users_code(asked: str) -> Iterator[None]:
    """Code of the user: its errors become one message, and what it prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except TraceATensorError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            asked, given=f"{type(error).__name__}: {error}",
            next_step="Run it in Python alone to see where. The form is package.module:factory, from this folder.",
        ) from error  # fmt: skip


def token_ids(batch: int, tokens: int) -> Any:
    """Token ids to run a model on, (B, T), all 0: which tokens they are changes no count.

    Raises:
        InvalidInputError: no sequence, or no token in it.
    """
    import torch

    for flag, given, what in (("--batch", batch, "sequence"), ("--tokens", tokens, "token of each sequence")):
        if given < 1:
            raise InvalidInputError(f"a run needs a {what}", given=f"{flag} {given}", allowed="1 or more")
    return torch.zeros(batch, tokens, dtype=torch.long)
