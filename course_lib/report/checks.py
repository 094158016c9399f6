"""Validity: numbers that others have published, computed here when the report is made, with what is left over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lib.hardware import device
from course_lib.serving import capacity
from course_lib.serving.model_shape import model_shape

__all__ = ["CrossCheck", "cross_checks"]

_INDEX = "parameter total of the published checkpoint"
_BOOK = "How to Scale Your Model (2025), chapter on inference"
_TOTALS = {"gpt2": 124_439_808, "llama-2-7b": 6_738_415_616, "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """A published number beside ours.

    Args:
        what: the quantity.
        published, computed: both values, in the same unit.
        source: where the first one is printed.
        unit: "" for a count, "s" for seconds.
    """

    what: str
    published: float
    computed: float
    source: str
    unit: str = ""

    @property
    def residual(self) -> float:
        """``computed / published - 1``."""
        return self.computed / self.published - 1

    def texts(self) -> tuple[str, str, str]:
        """Published value, computed value, residual, as printed."""
        residual = "exact" if self.computed == self.published else f"{self.residual:+.1%}"
        return self._text(self.published), self._text(self.computed), residual

    def _text(self, value: float) -> str:
        return f"{1e3 * value:.2f} ms" if self.unit == "s" else f"{value:,.0f}"


def cross_checks() -> tuple[CrossCheck, ...]:
    """Parameter totals, and step times of a published worked example, from the functions that make the bill.

    >>> [check.texts()[2] for check in cross_checks()][:5]
    ['exact', 'exact', 'exact', 'exact', '-0.1%']
    """
    totals = (
        CrossCheck(what=f"parameters of {name}", published=total, computed=model_shape(name).num_parameters,
                   source=_INDEX)
        for name, total in _TOTALS.items()
    )  # fmt: skip
    llama = model_shape("llama-3-70b")
    steps = (
        ("step of a 30 B int8 model on 16 TPU v5e, batch 4, context 8,192, 100 kB of KV a token", 2.57e-3,
         _v5e_step_seconds(30e9, 100e3, batch=4, chips=16)),
        ("the same at batch 256", 21.05e-3, _v5e_step_seconds(30e9, 100e3, batch=256, chips=16)),
        ("step of Llama-3-70B in int8 on 8 TPU v5e, batch 32, context 8,192", 17.4e-3,
         _v5e_step_seconds(llama.num_parameters, llama.kv_bytes_per_token("int8"), batch=32, chips=8)),
    )  # fmt: skip
    return (
        *totals,
        *(CrossCheck(what=what, published=printed, computed=ours, source=_BOOK, unit="s")
          for what, printed, ours in steps),
    )  # fmt: skip


def _v5e_step_seconds(num_parameters: float, kv_bytes_per_token: float, *, batch: int, chips: int) -> float:
    """One decode step at the speed of light, int8 weights multiplied in bf16, as the book computes it."""
    chip = device("tpu-v5e")
    bandwidth, peak = chips * chip.memory_bytes_per_second, chips * chip.peak("bf16")
    compute, weights, kv = (
        np.array([seconds])
        for seconds in (
            2 * num_parameters * batch / peak, num_parameters / bandwidth, batch * 8192 * kv_bytes_per_token / bandwidth
        )
    )  # fmt: skip
    return float(capacity.step_seconds(compute, weights, kv, fixed_seconds=0.0)[0])
