import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import DoesNotFitError, InvalidInputError, UnknownNameError
from course_lib.hardware import CapacityError, Ledger


def test_a_tiled_copy_by_hand():
    # 10 tiles of 100 B through a 250 B scratchpad with two live tiles: 1000 B in, 1000 B out, peak 200
    ledger = Ledger(capacities={"hbm": None, "sram": 250})
    for _ in range(10):
        ledger.allocate("sram", 100)
        ledger.allocate("sram", 100)
        ledger.read("hbm", 100)
        ledger.write("hbm", 100)
        ledger.free("sram", 200)
    assert (ledger.bytes_read["hbm"], ledger.bytes_written["hbm"], ledger.bytes_moved("hbm")) == (1000, 1000, 2000)
    assert (ledger.peak_bytes["sram"], ledger.live_bytes["sram"], ledger.bytes_moved("sram")) == (200, 0, 0)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    ledger = Ledger(capacities={"sram": 100})
    ledger.allocate("sram", 60)
    with pytest.raises(CapacityError, match=r"100 B.*60 B.*41 B.*1 B") as error:
        ledger.allocate("sram", 41)
    assert isinstance(error.value, DoesNotFitError)
    refused = error.value
    assert (refused.space, refused.nbytes, refused.live_bytes, refused.capacity_bytes) == ("sram", 41, 60, 100)
    assert (ledger.live_bytes["sram"], ledger.peak_bytes["sram"]) == (60, 60)
    ledger.allocate("sram", 40)
    assert ledger.live_bytes["sram"] == 100


@given(st.lists(st.tuples(st.sampled_from(["allocate", "free", "read", "write"]), st.integers(0, 50)), max_size=60))
def test_live_bytes_never_leave_their_bounds_whatever_is_asked(calls):
    ledger, live, peak = Ledger(capacities={"sram": 100}), 0, 0
    for action, nbytes in calls:
        try:
            getattr(ledger, action)("sram", nbytes)
        except (CapacityError, InvalidInputError):
            assert live + nbytes > 100 if action == "allocate" else nbytes > live
            continue
        live += nbytes * {"allocate": 1, "free": -1}.get(action, 0)
        peak = max(peak, live)
    assert (ledger.live_bytes["sram"], ledger.peak_bytes["sram"]) == (live, peak)
    assert 0 <= live <= peak <= 100


def test_spaces_are_separate_and_numpy_sizes_are_welcome():
    ledger = Ledger(capacities={"a": 10, "b": 10})
    ledger.read("a", np.int64(3))
    assert ledger.bytes_read == {"a": 3, "b": 0}
    assert type(ledger.bytes_read["a"]) is int


@pytest.mark.parametrize("nbytes", [-1, 1.5, True, None])
def test_a_number_of_bytes_is_a_whole_number(nbytes):
    with pytest.raises(InvalidInputError):
        Ledger(capacities={"sram": 10}).read("sram", nbytes)


def test_unknown_spaces_and_empty_machines_are_refused():
    with pytest.raises(UnknownNameError, match="'sram'"):
        Ledger(capacities={"sram": 10}).allocate("sran", 1)
    with pytest.raises(InvalidInputError):
        Ledger(capacities={})
    with pytest.raises(InvalidInputError):
        Ledger(capacities={"sram": -1})


def test_limits_zero_capacity_and_unbounded():
    ledger = Ledger(capacities={"none": 0, "all": None})
    ledger.allocate("none", 0)
    with pytest.raises(CapacityError):
        ledger.allocate("none", 1)
    ledger.allocate("all", 10**18)
    assert ledger.peak_bytes["all"] == 10**18
