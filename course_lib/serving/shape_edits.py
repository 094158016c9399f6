"""What-if edits of a model shape: what each one carries along, and which have no meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.serving.experts import Experts, require_counts

if TYPE_CHECKING:
    from course_lib.serving.shape_record import ModelShape

__all__ = ["EXPERT_FIELDS", "changed_shape"]

EXPERT_FIELDS = ("num_experts", "num_experts_per_token", "expert_feed_forward_size", "num_shared_experts")
"""Names that an edit may use for fields of :attr:`ModelShape.experts`."""


def changed_shape(shape: ModelShape, edits: Mapping[str, object]) -> ModelShape:
    """The shape after the edits; see :meth:`ModelShape.with_changes` for the rules.

    >>> from course_lib.serving.model_shape import model_shape
    >>> changed_shape(model_shape("llama-3-8b"), {"num_layers": 36}).num_parameters
    8902709248
    """
    known = {field.name for field in fields(shape)} | set(EXPERT_FIELDS)
    for name in edits:
        if name not in known:
            raise UnknownNameError("field of a model shape", name, known)
    changes = {name: value for name, value in edits.items() if name not in EXPERT_FIELDS}
    inner = {name: value for name, value in edits.items() if name in EXPERT_FIELDS}
    if inner:
        changes["experts"] = _changed_experts(shape, changes, inner)
    if "feed_forward_size" in changes and shape.num_expert_layers == shape.num_layers:
        raise InvalidInputError(
            f"each layer of {shape.name} routes to experts, so feed_forward_size is not in use",
            given=f"feed_forward_size {changes['feed_forward_size']!r}",
            next_step="Change expert_feed_forward_size.",
        )
    if shape.latent_attention is not None and "num_heads" in changes:
        changes.setdefault("num_kv_heads", changes["num_heads"])
    num_layers = changes.get("num_layers")
    if isinstance(num_layers, int) and num_layers > 0 and num_layers != shape.num_layers:
        require_counts(f"model shape {shape.name!r}", positive={"num_layers": num_layers})
        _check_dense_layers(shape, changes)
        changes.setdefault("attention_windows", _continued(shape.attention_windows, num_layers))
    return replace(shape, **changes)  # type: ignore[arg-type]


def _changed_experts(shape: ModelShape, changes: Mapping[str, object], inner: Mapping[str, object]) -> Experts:
    if shape.experts is None or "experts" in changes:
        reason = "has no experts to change" if shape.experts is None else "is given experts as a whole already"
        raise InvalidInputError(f"{shape.name} {reason}", given=", ".join(inner))
    return replace(shape.experts, **inner)  # type: ignore[arg-type]


def _check_dense_layers(shape: ModelShape, changes: Mapping[str, object]) -> None:
    """Leading dense layers stay leading; any other placing has no single continuation."""
    dense = shape.experts.dense_layers if shape.experts is not None else ()
    if "experts" not in changes and sorted(set(dense)) != list(range(len(set(dense)))):
        raise InvalidInputError(
            f"the dense layers of {shape.name} do not lead, so a new number of layers leaves their places open",
            given=f"num_layers {changes['num_layers']}",
            next_step="Give experts=Experts(..., dense_layers=...) as well.",
        )


def _continued(windows: tuple[int | None, ...], length: int) -> tuple[int | None, ...]:
    """The first ``length`` entries of the shortest pattern that repeats into ``windows``."""
    period = next(p for p in range(1, len(windows) + 1) if all(w == windows[i % p] for i, w in enumerate(windows)))
    return tuple(windows[i % period] for i in range(length))
