"""The table of tell-tale ratios says which mistake was made, and stays silent otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lesson.signatures import SIGNATURES, factor_signature, ratio_signature

ALL = tuple(SIGNATURES)


@pytest.mark.parametrize(
    ("ratio", "name"),
    [
        (0.5, "half"),
        (2.0, "double"),
        (4.0, "grouped-query-heads"),
        (8.0, "grouped-query-heads"),
        (0.125, "bits-for-bytes"),
        (2**30 / 1e9, "gb-for-gib"),  # 1.0737: the GB number where GiB is asked
        (1e9 / 2**30, "gib-for-gb"),
        (1024 / 1000, "decimal-prefix"),
        (1000 / 1024, "binary-prefix"),
    ],
)
def test_each_ratio_of_the_table_is_recognised(ratio, name):
    assert ratio_signature([ratio] * 3, ALL).name == name


def test_a_rounded_unit_slip_is_still_recognised():
    # 16.06 GB is 14.957 GiB; printed as 14.96
    assert ratio_signature([14.96 / 16.06], ALL).name == "gib-for-gb"


def test_ratios_that_do_not_agree_or_are_not_asked_for_say_nothing():
    assert ratio_signature([2.0, 2.1], ALL) is None
    assert ratio_signature([8.0], ("half",)) is None
    assert ratio_signature([], ALL) is None
    assert ratio_signature([1.7], ALL) is None


def work(batch, width, depth):
    return batch * width * depth


@given(st.lists(st.tuples(*[st.integers(2, 50)] * 3), min_size=2, max_size=5, unique_by=lambda case: case[0]))
def test_a_factor_left_out_is_named(cases):
    # 1/batch in every case; batch differs between all of them
    assert factor_signature(work, cases, [1 / case[0] for case in cases]).name.startswith("missing-factor-")


def test_a_factor_that_never_changes_proves_nothing():
    assert factor_signature(work, [(2, 3, 5), (2, 4, 5)], [0.5, 0.5]) is None


def test_batch_has_a_hint_of_its_own_and_an_extra_factor_too():
    cases = [(2, 3, 5), (7, 4, 6)]
    assert "one sample" in factor_signature(work, cases, [1 / 2, 1 / 7]).hint
    found = factor_signature(work, cases, [3.0, 4.0])
    assert (found.name, "width" in found.hint) == ("extra-factor-width", True)


def test_inputs_that_are_no_numbers_are_passed_over():
    assert factor_signature(work, [((1, 2), True, "a"), ((3,), True, "b")], [0.5, 0.25]) is None
