"""Work: what an operation does, counted in FLOPs, multiply-adds, bytes and transcendentals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from course_lib.errors import InvalidInputError

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """Counted work of one operation, or of many added together.

    ``matmul_flops = 2 * macs`` and ``flops = matmul_flops + elementwise_flops``.

    Args:
        flops: all floating-point operations: 2 for each multiply-add of a matrix product, convolution or
            attention, plus the arithmetic of elementwise operations and reductions.
        macs: multiply-adds of matrix products, convolutions and attention only.
        bytes_read: each operand read once per operation.
        bytes_written: each output written once per operation; a view moves 0 bytes.
        transcendentals: exp, log, tanh, erf, sqrt, rsqrt, sin, cos, pow. They are not in ``flops``: they run on
            another unit, and on some machines they bind (a third axis of the roofline).

    Raises:
        InvalidInputError: a count is negative or no whole number.

    >>> Work(flops=2 * 32 * 64 * 128, macs=32 * 64 * 128, bytes_read=40_960, bytes_written=16_384) * 2
    Work(flops=1048576, macs=524288, bytes_read=81920, bytes_written=32768, transcendentals=0)
    """

    flops: int
    macs: int
    bytes_read: int
    bytes_written: int
    transcendentals: int = 0

    def __post_init__(self) -> None:
        if type(self.flops) is type(self.macs) is type(self.bytes_read) is type(self.bytes_written) is int and (
            type(self.transcendentals) is int
            and self.flops >= 0 and self.macs >= 0 and self.bytes_read >= 0 and self.bytes_written >= 0
            and self.transcendentals >= 0
        ):  # fmt: skip
            return
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise InvalidInputError(
                    f"{field.name} is a count", given=repr(value), allowed="a Python int, 0 or more",
                    next_step="Convert with int() if it comes from NumPy.",
                )  # fmt: skip

    @property
    def matmul_flops(self) -> int:
        """FLOPs of matrix products, convolutions and attention: what MFU and ``6 N D`` count."""
        return 2 * self.macs

    @property
    def elementwise_flops(self) -> int:
        """FLOPs outside matrix products: activations, norms, softmax, reductions, residual adds."""
        return self.flops - 2 * self.macs

    @property
    def bytes_moved(self) -> int:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        if not isinstance(other, Work):
            return NotImplemented
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def __mul__(self, count: int) -> Work:
        if type(count) is not int:
            return NotImplemented
        return Work(*(count * a for a in astuple(self)))

    __rmul__ = __mul__

    @classmethod
    def zero(cls) -> Work:
        """No work.

        >>> Work.zero().flops
        0
        """
        return cls(0, 0, 0, 0, 0)

    @classmethod
    def total(cls, works: Iterable[Work]) -> Work:
        """Sum of many works.

        >>> Work.total([Work(2, 1, 0, 0), Work(3, 0, 8, 4, 5)])
        Work(flops=5, macs=1, bytes_read=8, bytes_written=4, transcendentals=5)
        """
        flops = macs = bytes_read = bytes_written = transcendentals = 0
        for work in works:
            flops += work.flops
            macs += work.macs
            bytes_read += work.bytes_read
            bytes_written += work.bytes_written
            transcendentals += work.transcendentals
        return cls(flops, macs, bytes_read, bytes_written, transcendentals)
