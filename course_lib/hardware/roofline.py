"""The roofline: the least time a machine needs for some work, and which of its rates binds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from course_lib.errors import InvalidInputError
from course_lib.hardware.device import Device
from course_lib.units import format_quantity, format_seconds

__all__ = ["CountedWork", "Roofline", "roofline"]


class CountedWork(Protocol):
    """What a roofline reads from a work record: counts of operations and bytes."""

    @property
    def flops(self) -> int: ...  # noqa: D102

    @property
    def bytes_read(self) -> int: ...  # noqa: D102

    @property
    def bytes_written(self) -> int: ...  # noqa: D102

    @property
    def transcendentals(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Bounds on the time of some work on a device.

    Args:
        seconds_compute: flops / (peak * efficiency_compute).
        seconds_memory: bytes moved / (bandwidth * efficiency_bandwidth).
        seconds_transcendental: exponentials / (their rate * efficiency_compute); None where no rate is recorded.
        seconds_floor: the speed of light, the largest of these at efficiency 1; nothing real is faster.
        arithmetic_intensity: flops / bytes moved [FLOP/B]; infinite for work that moves nothing.
        ridge_point: intensity at which compute and memory take equally long, at the given efficiencies.
        dtype: number format whose peak was used.
        device: name of the device.
    """

    seconds_compute: float
    seconds_memory: float
    seconds_transcendental: float | None
    seconds_floor: float
    arithmetic_intensity: float
    ridge_point: float
    dtype: str
    device: str

    @property
    def seconds_lower(self) -> float:
        """All engines at work at once: the largest of the times."""
        return max(self._times.values())

    @property
    def seconds_upper(self) -> float:
        """Nothing overlaps: the sum of the times."""
        return math.fsum(self._times.values())

    @property
    def bound(self) -> str:
        """What binds: ``"compute"``, ``"memory"`` or ``"transcendental"``; on a tie the first of these."""
        return max(self._times, key=lambda name: self._times[name])

    def require_possible(self, seconds: float, *, what: str = "a prediction") -> float:
        """Return ``seconds``, or refuse a time below the floor.

        Args:
            seconds: a predicted, claimed or measured time [s].
            what: named in the message.

        Raises:
            InvalidInputError: the time is below the speed of light of the device, or not a number.

        >>> from course_lib.hardware.device import device
        >>> from types import SimpleNamespace
        >>> token = SimpleNamespace(flops=140e9, bytes_read=141e9, bytes_written=0, transcendentals=0)
        >>> roofline(token, device("h100-sxm")).require_possible(0.0042, what="70B bf16 at 4.2 ms a token")
        Traceback (most recent call last):
            ...
        course_lib.errors.InvalidInputError: 70B bf16 at 4.2 ms a token is below ... 42.1 ms; given: 4.2 ms. ...
        """
        if not seconds >= self.seconds_floor * (1 - _ROUNDING):
            raise InvalidInputError(
                f"{what} is below the floor of {self.device} in {self.dtype}, {format_seconds(self.seconds_floor)}",
                given=format_seconds(seconds),
                next_step="Look for work left out, a sparse peak, bytes that came from a cache, or another device.",
            )
        return seconds

    @property
    def _times(self) -> dict[str, float]:
        times = {"compute": self.seconds_compute, "memory": self.seconds_memory}
        if self.seconds_transcendental is not None:
            times["transcendental"] = self.seconds_transcendental
        return times

    def __str__(self) -> str:
        intensity = format_quantity(self.arithmetic_intensity, "FLOP/B")
        return (
            f"{self.bound}-bound on {self.device} ({self.dtype}): {format_seconds(self.seconds_lower)} to "
            f"{format_seconds(self.seconds_upper)}; intensity {intensity}, ridge {self.ridge_point:.4g} FLOP/B"
        )


_ROUNDING = 1e-12  # a time computed from the same counts may differ from the floor in its last bits


def roofline(
    work: CountedWork,
    device: Device,
    dtype: str = "bf16",
    *,
    efficiency_compute: float = 1.0,
    efficiency_bandwidth: float = 1.0,
) -> Roofline:
    """Roofline bounds of ``work`` on ``device``.

    ``t_compute = F / (e_c * P)``, ``t_memory = Q / (e_b * B)``, ``t_exp = X / (e_c * R)``;
    ``seconds_lower = max``, ``seconds_upper = sum``, with F = work.flops, Q = work.bytes_read + work.bytes_written,
    X = work.transcendentals, P = device.peak(dtype), B = device.memory_bytes_per_second,
    R = device.transcendentals_per_second.

    Args:
        work: counted work, such as ``trace.work`` or a ``Work``.
        device: the machine.
        dtype: format that is multiplied (not merely stored).
        efficiency_compute: share of the peak reached, in (0, 1].
        efficiency_bandwidth: share of the bandwidth reached, in (0, 1].

    Raises:
        UnsupportedError: the hardware lacks the format.
        InvalidInputError: an efficiency outside (0, 1], a negative count.

    Assumes: every byte counted goes to main memory and none is found in a cache; one rate for all operations; a
        datasheet roofline (efficiency 1) is a bound and never a prediction.

    Source: Williams, Waterman and Patterson, Roofline, 2009; the exponential axis: FlashAttention-3, section 3.1.

    >>> from types import SimpleNamespace
    >>> from course_lib.hardware.device import device
    >>> gemv = SimpleNamespace(flops=2 * 4096**2, bytes_read=2 * 4096**2, bytes_written=8192, transcendentals=0)
    >>> print(roofline(gemv, device("h100-sxm")))
    memory-bound on h100-sxm (bf16): 10 µs to 10.1 µs; intensity 1 FLOP/B, ridge 295.2 FLOP/B
    """
    for name, value in (("efficiency_compute", efficiency_compute), ("efficiency_bandwidth", efficiency_bandwidth)):
        if not 0 < value <= 1:
            raise InvalidInputError(f"{name} is a share of the peak", allowed="above 0, at most 1", given=value)
    bytes_moved = work.bytes_read + work.bytes_written
    if min(work.flops, work.bytes_read, work.bytes_written, work.transcendentals) < 0:
        raise InvalidInputError("counts of work are 0 or more", given=repr(work))
    peak, bandwidth, rate = device.peak(dtype), device.memory_bytes_per_second, device.transcendentals_per_second
    light = [work.flops / peak, bytes_moved / bandwidth, work.transcendentals / rate if rate else 0.0]
    return Roofline(
        seconds_compute=light[0] / efficiency_compute,
        seconds_memory=light[1] / efficiency_bandwidth,
        seconds_transcendental=light[2] / efficiency_compute if rate else None,
        seconds_floor=max(light),
        arithmetic_intensity=_intensity(work.flops, bytes_moved),
        ridge_point=peak * efficiency_compute / (bandwidth * efficiency_bandwidth),
        dtype=dtype,
        device=device.name,
    )


def _intensity(flops: int, bytes_moved: int) -> float:
    if bytes_moved:
        return flops / bytes_moved
    return math.inf if flops else 0.0
