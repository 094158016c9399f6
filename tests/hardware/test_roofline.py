import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnsupportedError
from course_lib.hardware import device, devices, roofline

EXACT = 1e-12  # the same divisions in another order
counts = st.integers(0, 10**18)
shares = st.floats(0.01, 1.0)


def work(flops=0, bytes_read=0, bytes_written=0, transcendentals=0):
    return SimpleNamespace(
        flops=flops, bytes_read=bytes_read, bytes_written=bytes_written, transcendentals=transcendentals
    )


def test_a_square_matmul_by_hand():
    # 4096^3 bf16: 2*4096^3 = 137,438,953,472 FLOP / 989e12 = 138.97 us; 3*4096^2*2 = 100,663,296 B / 3.35e12 = 30.05 us
    line = roofline(work(2 * 4096**3, 2 * 2 * 4096**2, 2 * 4096**2), device("h100-sxm"))
    assert line.seconds_compute == pytest.approx(138.97e-6, rel=1e-4)  # printed to 5 digits
    assert line.seconds_memory == pytest.approx(30.05e-6, rel=1e-4)
    assert line.bound == "compute"
    assert line.arithmetic_intensity == pytest.approx(4096 / 3, rel=EXACT)


def test_decoding_8b_in_bf16_takes_4_79_ms_at_the_speed_of_light():
    line = roofline(work(2 * 8_030_261_248, 2 * 8_030_261_248), device("h100-sxm"))
    assert line.seconds_lower * 1e3 == pytest.approx(4.79, abs=0.005)  # 16.06 GB / 3.35 TB/s, EXERCISES 2.5
    assert line.bound == "memory"


def test_exponentials_bind_where_the_device_records_their_rate():
    # 256x lower throughput and 512x fewer: at head size 128 the exponentials take half the time of the matmuls
    line = roofline(work(512 * 10**12, transcendentals=10**12), device("h100-sxm"), "fp16")
    assert line.seconds_transcendental / line.seconds_compute == pytest.approx(989 / 3.9 / 512, rel=EXACT)  # 0.495
    assert roofline(work(10**12, transcendentals=10**12), device("h100-sxm")).bound == "transcendental"


def test_a_device_without_that_rate_says_none_and_leaves_the_axis_out():
    line = roofline(work(10**9, 10**9, transcendentals=10**15), device("a100-80gb-sxm"))
    assert line.seconds_transcendental is None
    assert line.bound in ("compute", "memory")


@given(st.sampled_from(devices()), counts, counts, counts, shares, shares)
def test_bounds_are_ordered_and_no_efficiency_goes_below_the_floor(name, flops, read, written, e_c, e_b):
    record = device(name)
    for dtype in record.formats:
        line = roofline(work(flops, read, written), record, dtype, efficiency_compute=e_c, efficiency_bandwidth=e_b)
        assert line.seconds_floor <= line.seconds_lower * (1 + EXACT)
        assert line.seconds_lower <= line.seconds_upper <= 3 * line.seconds_lower * (1 + EXACT)
        assert line.require_possible(line.seconds_lower) == line.seconds_lower


@given(st.integers(1, 10**15), st.integers(1, 10**15))
def test_the_ridge_point_decides_the_bound(flops, read):
    line = roofline(work(flops, read), device("l40s"))
    if not math.isclose(line.arithmetic_intensity, line.ridge_point, rel_tol=1e-9):
        assert (line.bound == "compute") == (line.arithmetic_intensity > line.ridge_point)


def test_a_claim_below_the_floor_raises_with_the_floor_in_it():
    line = roofline(work(0, 141_000_000_000), device("h100-sxm"))  # 70.5e9 parameters, 2 bytes: 42.1 ms
    with pytest.raises(InvalidInputError, match=r"42\.1 ms"):
        line.require_possible(4.2e-3, what="70B at 4.2 ms")
    with pytest.raises(InvalidInputError):
        line.require_possible(math.nan)


def test_a_slower_device_setting_is_still_above_its_own_floor():
    line = roofline(work(10**12, 10**9), device("t4"), "fp16", efficiency_compute=0.5)
    assert line.require_possible(line.seconds_floor) == line.seconds_floor
    assert line.seconds_compute == pytest.approx(2 * line.seconds_floor, rel=EXACT)


def test_limits_no_work_no_bytes_and_huge_work():
    record = device("h100-sxm")
    nothing = roofline(work(), record)
    assert (nothing.seconds_lower, nothing.arithmetic_intensity, nothing.bound) == (0.0, 0.0, "compute")
    assert roofline(work(1), record).arithmetic_intensity == math.inf
    assert math.isfinite(roofline(work(10**30, 10**30), record).seconds_upper)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.01, math.nan])
def test_efficiencies_outside_0_to_1_are_refused(value):
    with pytest.raises(InvalidInputError, match="efficiency_compute"):
        roofline(work(1, 1), device("t4"), "fp16", efficiency_compute=value)


def test_negative_counts_and_missing_formats_are_refused():
    with pytest.raises(InvalidInputError, match="0 or more"):
        roofline(work(-1, 1), device("h100-sxm"))
    with pytest.raises(UnsupportedError, match="fp16"):
        roofline(work(1, 1), device("t4"))


def test_the_exact_batch_from_which_a_gemm_is_compute_bound():
    # (B, 4096, 4096) bf16: intensity 2BDF/(2BD+2DF+2BF) = B*4096/(2B+4096); equal to 295.2 at B = 344.9
    def line(batch):
        return roofline(work(2 * batch * 4096**2, 2 * (batch * 4096 + 4096**2), 2 * batch * 4096), device("h100-sxm"))

    assert line(344).bound == "memory"
    assert line(345).bound == "compute"  # and not 296, which the rule "B above the ridge" gives


def test_the_work_record_of_the_trace_room_is_what_a_roofline_reads():
    from course_lib.trace import Work

    counted = Work(flops=989 * 10**12, macs=0, bytes_read=3_350_000_000_000, bytes_written=0)
    line = roofline(counted, device("h100-sxm"))
    assert line.seconds_compute == pytest.approx(1, rel=EXACT)
    assert line.seconds_memory == pytest.approx(1, rel=EXACT)
