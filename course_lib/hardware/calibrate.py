"""Calibration: what this machine really does, measured with its spread and kept as a machine card."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.hardware.device import Device
from course_lib.sources import Citation

__all__ = ["WORKING_SETS_BYTES", "MachineCard", "Measurement", "TriadPoint", "calibrate"]

WORKING_SETS_BYTES = (24 * 2**10, 384 * 2**10, 6 * 2**20, 96 * 2**20)
"""Three arrays in L1, in L2, in L3 and in memory, on most machines."""

_MIN_REPEATS = 7
_MIN_SECONDS = 2e-3  # a repeat lasts this long, so that the clock's resolution is below a thousandth of it
_MAX_LOOPS = 2**17  # no Python call takes less than 15 ns, so that these last longer than _MIN_SECONDS
_TRIAD_ARRAYS_MOVED = 5  # numpy runs a = c * s and then a = a + b: reads c, a, b and writes a twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured rate or time: median and quartiles of ``num_repeats`` repeats, never a single run."""

    median: float
    lower_quartile: float
    upper_quartile: float
    num_repeats: int

    def __post_init__(self) -> None:
        if not 0 < self.lower_quartile <= self.median <= self.upper_quartile < math.inf:
            raise InvalidInputError("a measurement is positive with ordered quartiles", given=repr(self))

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a share of the median."""
        return (self.upper_quartile - self.lower_quartile) / self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class TriadPoint:
    """Bandwidth of ``a = b + s * c`` in float64 with three arrays of this size together."""

    working_set_bytes: int
    bytes_per_second: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCard:
    """What calibration found.

    Args:
        machine: processor and system, as Python names them.
        measured_on: ISO date.
        num_cpus: processors that Python sees.
        load_average: running processes at the start; None where the system does not say. Above the number of idle
            processors, the numbers are those of a shared machine.
        threads: how many threads each measurement used, in words.
        memory_bytes: main memory; None where unknown.
        gemm_flops_per_second: numpy's float32 matrix product.
        gemm_size: rows and columns of it.
        triad: bandwidth by working set, smallest first.
        dispatch_seconds: time of one numpy operation on one number.
    """

    machine: str
    measured_on: str
    num_cpus: int
    load_average: float | None
    threads: str
    memory_bytes: int | None
    gemm_flops_per_second: Measurement
    gemm_size: int
    triad: tuple[TriadPoint, ...]
    dispatch_seconds: Measurement

    @property
    def memory_bytes_per_second(self) -> float:
        """Bandwidth at the largest working set, taken as that of main memory."""
        return self.triad[-1].bytes_per_second.median

    def to_json(self) -> str:
        """The card as JSON text; :meth:`from_json` reads it back to an equal card."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> MachineCard:
        """A card from its JSON text.

        Raises:
            InvalidInputError: not JSON, or not a machine card.
        """
        try:
            raw = json.loads(text)
            raw["gemm_flops_per_second"] = Measurement(**raw["gemm_flops_per_second"])
            raw["dispatch_seconds"] = Measurement(**raw["dispatch_seconds"])
            raw["triad"] = tuple(
                TriadPoint(
                    working_set_bytes=point["working_set_bytes"],
                    bytes_per_second=Measurement(**point["bytes_per_second"]),
                )
                for point in raw["triad"]
            )
            if not raw["triad"]:
                raise ValueError("it has no triad")
            return cls(**raw)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            asked = f"this text is no machine card: {error}"
            raise InvalidInputError(asked, next_step="Run calibrate() again.") from error

    def as_device(self, name: str = "this-machine") -> Device:
        """The card as a device, so that a roofline can use it: measured rates in place of a data sheet's.

        Raises:
            InvalidInputError: the memory size of the machine is unknown.
        """
        if self.memory_bytes is None:
            raise InvalidInputError("the card does not know the size of the memory", next_step="Set memory_bytes.")

        def cite(what: str, spread: float) -> Citation:
            note = f"{what}; quartiles {spread:.0%} apart; load {self.load_average}; {self.threads}"
            return Citation(source=f"calibrate() on {self.machine}", kind="derived", date=self.measured_on, note=note)

        gemm, memory = self.gemm_flops_per_second, self.triad[-1].bytes_per_second
        return Device(
            name=name, title=self.machine, vendor="measured", kind="cpu",
            peak_flops_per_second={"fp32": gemm.median}, memory_bytes=self.memory_bytes,
            memory_bytes_per_second=memory.median,
            citations={
                "peak_flops_per_second.fp32": cite(f"median of {gemm.num_repeats} products", gemm.spread),
                "memory_bytes_per_second": cite(f"median of {memory.num_repeats} triads", memory.spread),
                "memory_bytes": cite("size named by the system", 0.0),
            },
        )  # fmt: skip


def calibrate(
    *,
    repeats: int = _MIN_REPEATS,
    gemm_size: int = 512,
    working_sets_bytes: tuple[int, ...] = WORKING_SETS_BYTES,
    clock: Callable[[], float] = time.perf_counter,
) -> MachineCard:
    """Measure this machine with numpy: a matrix product, a triad by working set, and the cost of one small call.

    Args:
        repeats: timed repeats of each, 7 or more; one more before them is thrown away.
        gemm_size: rows and columns of the float32 product.
        working_sets_bytes: sizes of the three arrays of the triad together, increasing.
        clock: seconds, increasing; replaced in tests.

    Returns:
        A machine card with medians and quartiles. About a second of work.

    Raises:
        InvalidInputError: fewer repeats than 7, sizes that are too small or not increasing.

    Assumes: nothing else runs (the load average is recorded so that a reader can judge); the triad runs on one
        thread, the product on as many as the BLAS library takes.

    Source: McCalpin, STREAM; Williams, Waterman and Patterson, 2009.
    """
    if repeats < _MIN_REPEATS or gemm_size < 1:
        raise InvalidInputError(f"{_MIN_REPEATS} repeats or more and a positive size", given=(repeats, gemm_size))
    increasing = list(working_sets_bytes) == sorted(set(working_sets_bytes))
    if not working_sets_bytes or min(working_sets_bytes) < 24 or not increasing:
        raise InvalidInputError("working sets increase, from 24 B on", given=working_sets_bytes)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return MachineCard(
        machine=f"{platform.processor() or platform.machine()}, {platform.system()} {platform.machine()}",
        measured_on=date.today().isoformat(),
        num_cpus=os.cpu_count() or 1,
        load_average=load,
        threads=f"triad: 1 thread; product: BLAS with OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}",
        memory_bytes=_memory_bytes(),
        gemm_flops_per_second=_gemm(gemm_size, repeats, clock),
        gemm_size=gemm_size,
        triad=tuple(_triad(size, repeats, clock) for size in working_sets_bytes),
        dispatch_seconds=_dispatch(repeats, clock),
    )


def _gemm(size: int, repeats: int, clock: Callable[[], float]) -> Measurement:
    rng = np.random.default_rng(0)
    a, b = rng.random((size, size), dtype=np.float32), rng.random((size, size), dtype=np.float32)
    out = np.empty((size, size), dtype=np.float32)
    return _rate(2 * size**3, _seconds(lambda: np.matmul(a, b, out=out), repeats, clock))


def _triad(working_set_bytes: int, repeats: int, clock: Callable[[], float]) -> TriadPoint:
    num = working_set_bytes // (3 * 8)
    a, b, c = np.zeros(num), np.ones(num), np.ones(num)

    def run() -> None:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)

    rate = _rate(_TRIAD_ARRAYS_MOVED * 8 * num, _seconds(run, repeats, clock))
    return TriadPoint(working_set_bytes=3 * 8 * num, bytes_per_second=rate)


def _dispatch(repeats: int, clock: Callable[[], float]) -> Measurement:
    one, two = np.ones(1), np.empty(1)
    return _summary(_seconds(lambda: np.add(one, one, out=two), repeats, clock))


def _seconds(run: Callable[[], object], repeats: int, clock: Callable[[], float]) -> list[float]:
    """Seconds of one call in each repeat; short calls are looped until a repeat is long enough for the clock."""
    run()
    loops = 1
    while (elapsed := _elapsed(run, loops, clock)) < _MIN_SECONDS:
        loops *= 2
        if loops > _MAX_LOOPS:
            raise InvalidInputError("the clock moves forward", given=f"{elapsed} s for {loops // 2} calls")
    return [_elapsed(run, loops, clock) / loops for _ in range(repeats)]


def _elapsed(run: Callable[[], object], loops: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(loops):
        run()
    return clock() - start


def _rate(amount: float, seconds: list[float]) -> Measurement:
    return _summary([amount / each for each in seconds])


def _summary(samples: list[float]) -> Measurement:
    lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return Measurement(median=median, lower_quartile=lower, upper_quartile=upper, num_repeats=len(samples))


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
