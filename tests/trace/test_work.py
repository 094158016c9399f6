import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.trace import Work

COUNTS = st.integers(min_value=0, max_value=10**15)
WORKS = st.builds(Work, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


def test_a_linear_layer_worked_by_hand():
    # (32, 64) @ (64, 128): 32*64*128 = 262,144 multiply-adds; plus 4,096 elementwise FLOPs of a ReLU
    work = Work(flops=2 * 262_144 + 4_096, macs=262_144, bytes_read=8, bytes_written=4)
    assert (work.matmul_flops, work.elementwise_flops, work.bytes_moved) == (524_288, 4_096, 12)


@given(WORKS, WORKS, WORKS)
def test_addition_is_associative_and_has_a_zero(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + Work.zero() == a


@given(st.lists(WORKS, max_size=6))
def test_total_equals_repeated_addition(works):
    added = Work.zero()
    for work in works:
        added = added + work
    assert Work.total(works) == added


@given(WORKS, st.integers(min_value=0, max_value=20))
def test_multiplication_is_repeated_addition(work, count):
    assert work * count == count * work == Work.total([work] * count)


@pytest.mark.parametrize("bad", [-1, 1.0, np.int64(3), "4", None, True])
def test_a_count_that_is_no_whole_number_is_refused_by_name(bad):
    with pytest.raises(InvalidInputError, match="bytes_read"):
        Work(0, 0, bad, 0)


def test_work_adds_only_to_work_and_scales_only_by_whole_numbers():
    with pytest.raises(TypeError):
        Work.zero() + 1
    with pytest.raises(TypeError):
        Work.zero() * 1.5
