"""What an optimization changed, in one record: work, memory and error, before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.hardware.scratchpad import Ledger
from course_lib.optimization.attention import standard_attention
from course_lib.optimization.flash import flash_attention
from course_lib.optimization.tiles import Array, FlopCount, scratchpad_ledger
from course_lib.trace.work import Work

__all__ = ["BeforeAfter", "compare_attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """An optimization's evidence: counted work and memory of both ways, and how far the results are from exact.

    Args:
        name: the optimization.
        before, after: counted work.
        memory_before_bytes, memory_after_bytes: what each way keeps in memory beside its inputs and outputs.
        error_before, error_after: the distance of each result from the exact one, as ``error_name`` says.
        error_name: what the error is.
    """

    name: str
    before: Work
    after: Work
    memory_before_bytes: int
    memory_after_bytes: int
    error_before: float
    error_after: float
    error_name: str

    def __post_init__(self) -> None:
        if min(self.memory_before_bytes, self.memory_after_bytes) < 0:
            raise InvalidInputError("memory is 0 bytes or more", given=str(self))
        if not (self.error_before >= 0 and self.error_after >= 0):  # nan is refused too
            raise InvalidInputError("an error is a number, 0 or more", given=f"{self.error_before}, {self.error_after}")

    @property
    def bytes_ratio(self) -> float:
        """Bytes moved before, divided by bytes moved after: above 1, traffic fell."""
        return self.before.bytes_moved / self.after.bytes_moved

    @property
    def flops_ratio(self) -> float:
        """FLOPs before, divided by FLOPs after: below 1, the optimization computes more."""
        return self.before.flops / self.after.flops

    def rows(self) -> tuple[tuple[str, float, float], ...]:
        """Quantity, before, after: one row each, for a table."""
        return (
            ("FLOPs", self.before.flops, self.after.flops),
            ("exponentials", self.before.transcendentals, self.after.transcendentals),
            ("bytes moved", self.before.bytes_moved, self.after.bytes_moved),
            ("memory [byte]", self.memory_before_bytes, self.memory_after_bytes),
            (self.error_name, self.error_before, self.error_after),
        )


def compare_attention(q: Array, k: Array, v: Array, *, block_q: int, block_k: int, causal: bool = False) -> BeforeAfter:
    """Run standard and flash attention (forward) on the same inputs and record what each did.

    Args:
        q, k, v: inputs as in :func:`course_lib.optimization.flash_attention`; causal hides later keys.
        block_q, block_k: tile sizes of the flash run.

    Returns:
        Work as executed; memory: the standard way's scores and probabilities of one head, the flash way's peak of
        on-chip bytes; error: the largest distance from the result in fp64.

    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 256, 32)).astype(np.float32)
    >>> evidence = compare_attention(q, k, v, block_q=64, block_k=64)
    >>> round(evidence.bytes_ratio, 2), evidence.flops_ratio < 1.02, evidence.error_after < 1e-5
    (3.6, True, True)
    """
    exact = standard_attention(*(array.astype(np.float64) for array in (q, k, v)), causal=causal)
    before, standard, _ = _run(lambda **counters: standard_attention(q, k, v, causal=causal, **counters))
    after, flash, peak_bytes = _run(
        lambda **counters: flash_attention(q, k, v, block_q=block_q, block_k=block_k, causal=causal, **counters)
    )
    return BeforeAfter(
        name=f"flash attention, {block_q} x {block_k} tiles", before=before, after=after,
        memory_before_bytes=2 * q.shape[-2] * k.shape[-2] * q.itemsize, memory_after_bytes=peak_bytes,
        error_before=float(np.abs(standard - exact).max()), error_after=float(np.abs(flash - exact).max()),
        error_name="largest error",
    )  # fmt: skip


def _run(attention: Callable[..., Array]) -> tuple[Work, Array, int]:
    ledger, flops = scratchpad_ledger(), FlopCount()
    output = attention(ledger=ledger, flops=flops)
    return _work(ledger, flops), output, ledger.peak_bytes["sram"]


def _work(ledger: Ledger, flops: FlopCount) -> Work:
    return Work(
        flops=flops.total, macs=flops.matmul // 2, bytes_read=ledger.bytes_read["hbm"],
        bytes_written=ledger.bytes_written["hbm"], transcendentals=flops.exponentials,
    )  # fmt: skip
