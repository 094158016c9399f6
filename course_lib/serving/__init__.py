"""serving: many requests share the machine. Model shapes first: exact parameters, KV bytes, FLOPs."""

from __future__ import annotations

from course_lib.serving.model_shape import (
    Experts,
    LatentAttention,
    ModelShape,
    ParameterGroups,
    ShapeRow,
    TensorParallel,
    check_tensor_parallel,
    model_shape,
    model_shapes,
    parameter_groups,
    shape_table,
    tensor_parallel_degrees,
)

__all__ = [
    "Experts",
    "LatentAttention",
    "ModelShape",
    "ParameterGroups",
    "ShapeRow",
    "TensorParallel",
    "check_tensor_parallel",
    "model_shape",
    "model_shapes",
    "parameter_groups",
    "shape_table",
    "tensor_parallel_degrees",
]
