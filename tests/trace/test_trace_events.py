import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.trace import TensorRef, TraceEvent, Work

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def test_an_expanded_tensor_counts_the_memory_that_exists():
    # a row of 1024 fp32 seen as 1024 x 1024: 4 MiB to the eye, 4 KiB in memory
    ref = TensorRef(0, (1024, 1024), (0, 1), "fp32")
    assert ref.num_elements * 4 == 4 * 2**20
    assert ref.nbytes == 4 * 2**10


def test_four_bit_elements_round_up_to_whole_bytes():
    assert TensorRef(0, (5,), (1,), "int4").nbytes == 3  # 20 bits


@given(SHAPES, st.data())
def test_distinct_elements_equal_those_numpy_can_reach(shape, data):
    expanded = [data.draw(st.booleans()) for _ in shape]
    base = np.arange(max(int(np.prod(shape)), 1))
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        if not expanded[axis]:
            strides[axis], step = step, step * max(shape[axis], 1)
    view = np.lib.stride_tricks.as_strided(base, shape, [base.itemsize * stride for stride in strides])
    ref = TensorRef(0, shape, tuple(strides), "int64")
    assert ref.num_distinct_elements == len(np.unique(view))
    assert ref.num_elements == view.size


def test_an_unknown_dtype_is_refused_with_near_matches():
    with pytest.raises(UnknownNameError, match="bf16"):
        _ = TensorRef(0, (1,), (1,), "bf61").nbytes


def test_a_phase_is_forward_backward_or_update():
    with pytest.raises(InvalidInputError, match="forward, backward, update"):
        TraceEvent("id", "mm", "sideways", "", (), (), Work.zero())
