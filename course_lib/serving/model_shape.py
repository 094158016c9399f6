"""Model shapes by name or from a public ``config.json``: exact parameters, KV bytes, FLOPs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.serving.config_families import shape_from_config
from course_lib.serving.experts import Experts, LatentAttention
from course_lib.serving.parameter_groups import ParameterGroups, parameter_groups
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.tensor_parallel import TensorParallel, check_tensor_parallel, tensor_parallel_degrees

__all__ = [
    "Experts", "LatentAttention", "ModelShape", "ParameterGroups", "ShapeRow", "TensorParallel",
    "check_tensor_parallel", "model_shape", "model_shapes", "parameter_groups", "shape_table",
    "tensor_parallel_degrees",
]  # fmt: skip


@cache
def model_shapes() -> tuple[str, ...]:
    """Names of the catalogue, sorted.

    >>> "llama-3-8b" in model_shapes()
    True
    """
    folder = files("course_lib.models").joinpath("shapes")
    return tuple(sorted(entry.name[: -len(".json")] for entry in folder.iterdir() if entry.name.endswith(".json")))


def model_shape(source: str | PathLike[str] | Mapping[str, object] | ModelShape) -> ModelShape:
    """The shape of a model.

    Args:
        source: a name of :func:`model_shapes`; a path to a ``config.json`` or to the folder that holds one; a
            parsed configuration; or a shape, which is returned as it is.

    Returns:
        ModelShape: validated sizes with their source and notes.

    Raises:
        UnknownNameError: no such name; near matches are offered.
        InvalidInputError: an unreadable file, a missing key, an impossible size.
        UnsupportedError: a family or a setting that is not modelled, by name.

    >>> model_shape("llama-3-8b").num_parameters
    8030261248
    >>> model_shape("lama-3-8b")
    Traceback (most recent call last):
        ...
    course_lib.errors.UnknownNameError: unknown model; given: 'lama-3-8b'. Did you mean 'llama-3-70b' or ...
    """
    if isinstance(source, ModelShape):
        return source
    if isinstance(source, Mapping):
        return shape_from_config(source, name=str(source.get("_name_or_path") or "config"), source="a configuration")
    if isinstance(source, str):
        if source.lower() in model_shapes():
            return _catalogue_shape(source.lower())
        if not (source.endswith(".json") or _exists(source)):
            raise UnknownNameError(
                "model", source, model_shapes(), next_step="A path to a config.json is read from disk."
            )
    return _shape_from_file(Path(source))


@cache
def _catalogue_shape(name: str) -> ModelShape:
    text = files("course_lib.models").joinpath("shapes", f"{name}.json").read_text(encoding="utf-8")
    values = json.loads(text)
    return shape_from_config(values, name=name, source=values["_source"])


def _exists(name: str) -> bool:
    """Is it a path on this disk? A name that no disk could hold is not."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _shape_from_file(path: Path) -> ModelShape:
    try:
        path = path / "config.json" if path.is_dir() else path
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInputError(
            "a model configuration must be a readable file", given=f"{path} ({error.strerror})"
        ) from error
    except (ValueError, RecursionError) as error:  # malformed JSON, bytes that are not UTF-8, endless nesting
        raise InvalidInputError("a model configuration must be valid JSON", given=f"{path} ({error})") from error
    if not isinstance(values, dict):
        raise InvalidInputError(
            "a model configuration must be a JSON object", given=f"{path} holds {type(values).__name__}"
        )
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return shape_from_config(values, name=name, origin=str(path), source=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """One line of the catalogue as documentation prints it."""

    name: str
    num_parameters: int
    num_active_parameters: int
    kv_bytes_per_token: int
    source: str


def shape_table(dtype: str = "bf16") -> tuple[ShapeRow, ...]:
    """The catalogue as rows, sorted by name: exact totals, active parameters, KV bytes of a token.

    Args:
        dtype: format of the KV cache.

    >>> next(row for row in shape_table() if row.name == "deepseek-v3").kv_bytes_per_token
    70272
    """
    return tuple(
        ShapeRow(
            name=name,
            num_parameters=shape.num_parameters,
            num_active_parameters=shape.num_active_parameters,
            kv_bytes_per_token=shape.kv_bytes_per_token(dtype),
            source=shape.source,
        )
        for name, shape in ((name, model_shape(name)) for name in model_shapes())
    )
