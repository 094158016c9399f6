import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.hardware import Device, MachineCard, Measurement, TriadPoint, calibrate, roofline

SMALL = {"gemm_size": 16, "working_sets_bytes": (2400, 4800)}


class TickingClock:
    """A clock that moves on by the next of its steps at each second look, so that durations are chosen."""

    def __init__(self, *durations):
        self.durations, self.now, self.looks = durations, 0.0, 0

    def __call__(self):
        if self.looks % 2:
            self.now += self.durations[self.looks // 2 % len(self.durations)]
        self.looks += 1
        return self.now


def measurement(median=1e9):
    return Measurement(median=median, lower_quartile=0.9 * median, upper_quartile=1.2 * median, num_repeats=7)


def card(**changes):
    fields = {
        "machine": "a laptop", "measured_on": "2026-01-02", "num_cpus": 4, "load_average": 0.5, "threads": "1 thread",
        "memory_bytes": 8_000_000_000, "gemm_flops_per_second": measurement(50e9), "gemm_size": 512,
        "triad": (
            TriadPoint(working_set_bytes=2400, bytes_per_second=measurement(100e9)),
            TriadPoint(working_set_bytes=10**8, bytes_per_second=measurement(10e9)),
        ),
        "dispatch_seconds": measurement(5e-7),
    }  # fmt: skip
    return MachineCard(**{**fields, **changes})


def test_rates_follow_from_the_clock_by_hand():
    # every repeat takes 10 ms: product 2*16^3 / 0.01 = 819,200 FLOP/s; triad 100 numbers: 5*8*100 / 0.01 = 400,000 B/s
    found = calibrate(clock=TickingClock(0.01), **SMALL)
    assert found.gemm_flops_per_second.median == pytest.approx(819_200)
    assert [point.working_set_bytes for point in found.triad] == [2400, 4800]
    assert found.triad[0].bytes_per_second.median == pytest.approx(400_000)
    assert found.memory_bytes_per_second == pytest.approx(800_000)
    assert found.dispatch_seconds.median == pytest.approx(0.01)
    assert found.gemm_flops_per_second.spread == pytest.approx(0, abs=1e-9)


def test_the_median_ignores_one_slow_repeat_and_the_quartiles_show_the_noise():
    # first the look for a long enough loop (10 ms), then seven repeats
    found = calibrate(clock=TickingClock(0.01, *[0.01] * 6, 1.0), **SMALL)
    assert found.gemm_flops_per_second.median == pytest.approx(819_200)
    noisy = calibrate(clock=TickingClock(0.01, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07), **SMALL)
    assert noisy.gemm_flops_per_second.spread > 0.5


def test_short_calls_are_looped_until_the_clock_can_see_them():
    # 1 ms, then 4 ms when doubled: 2 calls in each repeat of 4 ms: 2 ms a call
    clock = TickingClock(0.001, *[0.004] * 8, 0.01)
    assert calibrate(clock=clock, **SMALL).gemm_flops_per_second.median == pytest.approx(2 * 16**3 / 0.002)


def test_this_machine_calibrates_and_its_card_survives_json():
    found = calibrate(gemm_size=64, working_sets_bytes=(24_000, 240_000))
    assert MachineCard.from_json(found.to_json()) == found
    assert found.gemm_flops_per_second.num_repeats == 7
    assert found.load_average is None or found.load_average >= 0
    assert "OMP_NUM_THREADS" in found.threads


def test_a_card_is_a_device_for_the_roofline():
    machine = card().as_device("mine")
    assert isinstance(machine, Device)
    assert machine.ridge_point("fp32") == pytest.approx(5.0)  # 50e9 / 10e9
    work = SimpleNamespace(flops=10**9, bytes_read=10**9, bytes_written=0, transcendentals=0)
    assert roofline(work, machine, "fp32").bound == "memory"
    assert "load 0.5" in machine.citations["memory_bytes_per_second"].note
    with pytest.raises(InvalidInputError, match="memory"):
        card(memory_bytes=None).as_device()


@given(st.floats(1e-3, 1e15), st.floats(0, 1), st.floats(0, 1))
def test_any_card_survives_json(median, below, above):
    value = Measurement(
        median=median, lower_quartile=median * (1 - below * 0.99), upper_quartile=median * (1 + above), num_repeats=9
    )
    found = card(gemm_flops_per_second=value)
    assert MachineCard.from_json(found.to_json()) == found


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"triad": 3}'])
def test_what_is_no_card_is_refused(text):
    with pytest.raises(InvalidInputError, match="no machine card"):
        MachineCard.from_json(text)


def test_a_card_with_a_foreign_or_missing_key_is_refused():
    raw = json.loads(card().to_json())
    with pytest.raises(InvalidInputError, match="no machine card"):
        MachineCard.from_json(json.dumps({**raw, "colour": "red"}))
    del raw["num_cpus"]
    with pytest.raises(InvalidInputError, match="num_cpus"):
        MachineCard.from_json(json.dumps(raw))


@pytest.mark.parametrize(
    "bad", [{"repeats": 6}, {"gemm_size": 0}, {"working_sets_bytes": ()}, {"working_sets_bytes": (4800, 2400)}]
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InvalidInputError):
        calibrate(**{**SMALL, **bad})


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(InvalidInputError, match="clock"):
        calibrate(clock=lambda: 0.0, **SMALL)


def test_measurements_are_positive_and_ordered():
    with pytest.raises(InvalidInputError):
        Measurement(median=1.0, lower_quartile=2.0, upper_quartile=3.0, num_repeats=7)
    with pytest.raises(InvalidInputError):
        Measurement(median=0.0, lower_quartile=0.0, upper_quartile=0.0, num_repeats=7)


@pytest.mark.parametrize("text", ["[" * 100_000, card(triad=()).to_json()], ids=["nesting", "no triad"])
def test_a_tampered_card_is_refused(text):
    with pytest.raises(InvalidInputError, match="no machine card"):
        MachineCard.from_json(text)
