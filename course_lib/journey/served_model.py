"""What the journey needs to know of a model: counts and bytes, from a shape, a traced module, or between two shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from course_lib.errors import UnsupportedError
from course_lib.serving.shape_record import ModelShape
from course_lib.serving.tensor_parallel import check_tensor_parallel
from course_lib.tensor.dtypes import dtype_bytes

__all__ = ["Blend", "ServedModel", "decode_weight_fractions", "device_share", "kv_bytes"]

_MANY = 1_000_000  # a batch so large that every expert works


class ServedModel(Protocol):
    """Counts of a model, or of the part of it that one device holds. ``ModelShape`` is one."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def num_parameters(self) -> int:
        """All parameters."""

    @property
    def matmul_flops_per_token(self) -> int:
        """FLOPs of one token without attention over the context."""

    @property
    def num_layers(self) -> int:
        """Layers, for the number of all-reduces."""

    @property
    def model_size(self) -> int:
        """Width of the residual stream, for the size of an all-reduce."""

    def decode_weight_bytes(self, batch: int, dtype: str) -> float:
        """Weight bytes that a decode step reads."""

    def kv_bytes_per_token(self, dtype: str) -> float:
        """KV bytes that one more token adds."""

    def kv_bytes(self, context_tokens: int, dtype: str) -> float:
        """KV bytes of one sequence."""

    def attention_flops(self, num_query_tokens: int, context_tokens: int) -> float:
        """FLOPs of attention over the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend:
    """A model between two others, for sizes that are not whole numbers: ``(1 - t) * start + t * end``.

    Every count of a transformer is affine in each of its sizes (L, D, F, N, K, H, V) alone, so a blend of two
    shapes that differ in one size is exactly the shape with the size in between.
    """

    start: ModelShape
    end: ModelShape
    t: float

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.start.name} + {self.t:g} of the way"

    @property
    def num_parameters(self) -> int:
        """Blended (a real number where the size is)."""
        return self._mix(self.start.num_parameters, self.end.num_parameters)  # type: ignore[return-value]

    @property
    def matmul_flops_per_token(self) -> int:
        """Blended."""
        return self._mix(self.start.matmul_flops_per_token, self.end.matmul_flops_per_token)  # type: ignore[return-value]

    @property
    def num_layers(self) -> int:
        """Blended."""
        return self._mix(self.start.num_layers, self.end.num_layers)  # type: ignore[return-value]

    @property
    def model_size(self) -> int:
        """Blended."""
        return self._mix(self.start.model_size, self.end.model_size)  # type: ignore[return-value]

    def decode_weight_bytes(self, batch: int, dtype: str) -> float:
        """Blended."""
        return self._mix(self.start.decode_weight_bytes(batch, dtype), self.end.decode_weight_bytes(batch, dtype))

    def kv_bytes_per_token(self, dtype: str) -> float:
        """Blended."""
        return self._mix(self.start.kv_bytes_per_token(dtype), self.end.kv_bytes_per_token(dtype))

    def kv_bytes(self, context_tokens: int, dtype: str) -> float:
        """Blended."""
        return self._mix(self.start.kv_bytes(context_tokens, dtype), self.end.kv_bytes(context_tokens, dtype))

    def attention_flops(self, num_query_tokens: int, context_tokens: int) -> float:
        """Blended."""
        queries, context = num_query_tokens, context_tokens
        return self._mix(self.start.attention_flops(queries, context), self.end.attention_flops(queries, context))

    def share(self, degree: int) -> Blend:
        """The part on one device."""
        ends = (check_tensor_parallel(shape, degree).device_shape for shape in (self.start, self.end))
        start, end = ends
        return Blend(start=start, end=end, t=self.t)

    def _mix(self, start: float, end: float) -> float:
        return start + self.t * (end - start)


def device_share(model: ServedModel, degree: int) -> ServedModel:
    """The part of a model that one of ``degree`` devices holds.

    Raises:
        InvalidInputError: a size does not divide. UnsupportedError: a traced module has no shape to divide.
    """
    if degree == 1:
        return model
    if isinstance(model, Blend):
        return model.share(degree)
    if isinstance(model, ModelShape):
        return _shape_share(model, degree)
    raise UnsupportedError(
        f"{model.name} is known by its counts alone, so it cannot be split over {degree} devices. "
        "Give the module a model_shape() method, or pass a ModelShape."
    )


@lru_cache(maxsize=256)
def _shape_share(shape: ModelShape, degree: int) -> ModelShape:
    return check_tensor_parallel(shape, degree).device_shape


def kv_bytes(model: ServedModel, context_tokens: float, dtype: str) -> float:
    """KV bytes of one sequence at a context that may lie between two whole numbers (linear in between)."""
    whole = int(context_tokens)
    low = model.kv_bytes(whole, dtype)
    part = context_tokens - whole
    return low if not part else low + part * (model.kv_bytes(whole + 1, dtype) - low)


def decode_weight_fractions(model: ServedModel) -> tuple[float, float, float]:
    """(m, i, r): a decode step of B sequences reads the share ``m - i * r**(B - 1)`` of the stored weights.

    ``m`` is P_mm / P; a dense model has nothing idle (i = 0). With experts ``r = 1 - k/E``, since ``E * r**B`` of
    them are expected idle; the curve is taken from the model's own counts at batches of 1, 2 and very many.
    """
    stored = model.num_parameters * dtype_bytes("bf16")
    most, one = (model.decode_weight_bytes(batch, "bf16") / stored for batch in (_MANY, 1))
    idle = most - one
    if idle <= 1e-12:
        return most, 0.0, 0.0
    return most, idle, (most - model.decode_weight_bytes(2, "bf16") / stored) / idle
