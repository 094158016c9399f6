"""Predict before reveal: committed once, never judged by nearness, polite when missing."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from course_lib.lesson import predict, reveal
from course_lib.lesson.progress import progress_path, progress_store


def test_a_reveal_without_a_prediction_refuses_and_does_not_measure():
    called = []
    result = reveal("w9-9-n", lambda: called.append(1) or 42)
    assert (repr(result), called) == ("0.0", [])
    assert "42" not in result._repr_html_()
    assert "Commit a number" in str(result)


def test_predicted_measured_ratio_and_interval_are_shown():
    predict("w9-9-n", 30, unit="FLOP", low=10, high=50)
    result = reveal("w9-9-n", 40)
    assert (result.ratio, result.inside, repr(result)) == (0.75, True, "1.0")
    assert "0.75" in result._repr_html_()
    assert "holds the measured value" in str(result)


@pytest.mark.parametrize("value", [1, 1e30, -5, 0, 1e-30])
def test_the_mark_is_for_committing_and_not_for_being_right(value):
    predict("w9-9-n", value)
    assert repr(reveal("w9-9-n", 1_654_784)) == "1.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((...,), "Replace"),
        ((None,), "Replace"),
        (("3e6",), "finite number"),
        ((float("nan"),), "finite number"),
        ((float("inf"),), "finite number"),
        ((True,), "finite number"),
        ((10**400,), "finite number"),
        ((object(),), "one number"),
        ((5, 1), "both ends"),
        ((5, 6, 9), "inside your interval"),
        ((5, 9, 1), "inside your interval"),
    ],
)
def test_what_is_no_prediction_is_said_and_not_stored(arguments, words):
    value, low, high = (*arguments, None, None)[:3]
    notice = predict("w9-9-n", value, low=low, high=high)
    assert words in str(notice)
    assert repr(reveal("w9-9-n", 1)) == "0.0"


def test_it_can_be_changed_until_revealed_and_then_the_first_stands():
    predict("w9-9-n", 10)
    predict("w9-9-n", 20)
    assert reveal("w9-9-n", 40).predicted == 20
    assert "stays on record" in str(predict("w9-9-n", 40))
    assert reveal("w9-9-n", 40).predicted == 20


def test_cells_run_twice_or_out_of_order_change_nothing():
    reveal("w9-9-n", 40)
    predict("w9-9-n", 10)
    first = str(reveal("w9-9-n", 40))
    predict("w9-9-n", 10)
    assert str(reveal("w9-9-n", 40)) == first


def test_numpy_numbers_and_one_element_arrays_are_predictions():
    predict("w9-9-n", np.float32(2.5), low=np.int64(1), high=np.array(9))
    assert reveal("w9-9-n", np.float64(5)).ratio == 0.5


def test_a_measurement_that_fails_says_so_without_a_traceback():
    predict("w9-9-n", 10)
    result = reveal("w9-9-n", lambda: undefined_name)  # noqa: F821
    assert "NameError" in str(result)
    assert repr(result) == "1.0"


@pytest.mark.parametrize("measured", [0, (1, 2), "yes", np.arange(3), None])
def test_measured_things_that_have_no_ratio_are_shown_all_the_same(measured):
    predict("w9-9-n", 10)
    result = reveal("w9-9-n", measured)
    assert result.ratio is None
    result._repr_html_()


def test_while_grading_nothing_is_measured_and_no_file_is_written(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert repr(reveal("w9-9-n", lambda: 1 / 0)) == "0.0"
    predict("w9-9-n", 10)
    assert repr(reveal("w9-9-n", lambda: 1 / 0)) == "1.0"
    assert not progress_path().exists()


def test_the_file_holds_what_was_predicted_and_measured():
    predict("w9-9-n", 10, unit="byte", low=5, high=20)
    reveal("w9-9-n", 16)
    entry = json.loads(progress_path().read_text())["predictions"]["w9-9-n"]
    assert {key: entry[key] for key in ("value", "low", "high", "unit", "measured")} == {
        "value": 10, "low": 5, "high": 20, "unit": "byte", "measured": 16,
    }  # fmt: skip
    assert entry["predicted_at"] <= entry["revealed_at"]
    assert progress_store().entry("predictions", "unknown") == {}


def test_what_cannot_be_read_as_a_number_is_refused_and_never_raises():
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

    tensors = (torch.empty(3, device="meta"), torch.eye(3).to_sparse())
    for value in (Hostile(), *tensors, Fraction(10**400), Decimal("sNaN")):
        assert predict("w1-1-hostile", value).word == "Not stored yet"
        assert predict("w1-1-hostile", 3, low=value, high=value).word == "Not stored yet"


def test_a_unit_and_an_id_that_are_no_text_are_stored_as_text():
    assert predict(("w1", 1), 3, unit=object).word == "Committed"
    assert list(json.loads(progress_path().read_text())["predictions"]) == ["('w1', 1)"]
