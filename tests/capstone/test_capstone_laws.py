"""Each law of the contract, broken one at a time; accuracy, ranking and binding terms by hand."""

import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.capstone.accuracy import (
    binding_share,
    check_bytes,
    check_figures,
    check_ranking,
    kendall_tau,
    log_errors,
)
from grading.capstone.contract import (
    check_contract,
    check_reproducible,
    check_sound,
    compulsory_bytes,
    soundness_cells,
    tpot_floor,
    ttft_floor,
    variants,
)
from grading.capstone.execution import answers
from grading.capstone.findings import Finding
from grading.capstone.recordings import FIGURES, public, recording
from grading.capstone.records import usd_per_month

CELLS = soundness_cells()


def told(function, *arguments):
    with pytest.raises(Finding) as caught:
        function(*arguments)
    return caught.value.name


def floor_answers(cells=CELLS, slack=1.01):
    """A model at its floors: bytes compulsory, times at the speed of light."""
    found = []
    for cell in cells:
        tpot, ttft = slack * tpot_floor(cell), slack * ttft_floor(cell)
        rate = cell.config.max_batch / tpot
        found.append({
            "ttft_seconds": ttft, "tpot_seconds": tpot, "tokens_per_second": rate,
            "usd_per_month": usd_per_month(cell.machine, cell.traffic, rate),
            "bytes_moved": slack * compulsory_bytes(cell),
            "breakdown": {"weights": 1.0, "compute": 0.0, "kv": 0.5, "other": 0.0},
        })  # fmt: skip
    return found


def truth_answers(scale=1.0):
    return [
        {name: scale * one.measured[name] for name in FIGURES} | {"breakdown": dict(one.breakdown)} for one in public()
    ]


# Laws


def test_a_model_at_its_floors_is_sound():
    check_sound(CELLS, floor_answers())


BROKEN = {
    "below-compulsory": (0, "bytes_moved", lambda v: 0.5 * v),
    "below-roofline": (0, "tpot_seconds", lambda v: 0.5 * v),
    "dollars-do-not-follow": (0, "usd_per_month", lambda v: 1.5 * v),
    "negative-dollars": (0, "usd_per_month", lambda v: -v),
    "contract": (2, "ttft_seconds", lambda v: 0.0),
}


@pytest.mark.parametrize("law", BROKEN)
def test_each_broken_law_is_named(law):
    position, field, change = BROKEN[law]
    found = floor_answers()
    found[position][field] = change(found[position][field])
    assert told(check_sound, CELLS, found) == law


@pytest.mark.parametrize("position", [1, 2])
def test_a_better_machine_that_is_slower_is_named(position):
    found = floor_answers()
    answer, cell = found[position], CELLS[position]
    answer["tpot_seconds"] = 2 * found[0]["tpot_seconds"]
    assert told(check_sound, CELLS, found) == "more-is-slower"
    answer["tpot_seconds"] = found[0]["tpot_seconds"]
    answer["tokens_per_second"] = 0.5 * found[0]["tokens_per_second"]
    answer["usd_per_month"] = usd_per_month(cell.machine, cell.traffic, answer["tokens_per_second"])
    assert told(check_sound, CELLS, found) == "more-is-slower"


@pytest.mark.parametrize("position", [3, 4])
def test_a_bill_that_is_not_linear_is_named(position):
    found = floor_answers()
    answer, cell = found[position], CELLS[position]
    answer["tokens_per_second"] *= 1.1  # follows its own tokens per second, and so does not double
    answer["usd_per_month"] = usd_per_month(cell.machine, cell.traffic, answer["tokens_per_second"])
    assert told(check_sound, CELLS, found) == "dollars-do-not-double"


def test_compulsory_bytes_by_hand():
    cell = recording("l40s-small-batch").cell.with_changes(
        prompt_tokens=10, output_tokens=3, num_requests=4, length_sigma=0.0, max_batch=2
    )
    # 4 requests of 3 steps, 2 at a time: 6 steps read the weights. Tokens 2 and 3 read 11 and 12 KV tokens: 4 * 23.
    expected = 6 * cell.config.step_weight_bytes + 92 * cell.config.kv_token_bytes
    assert compulsory_bytes(cell) == expected


@given(st.sampled_from(range(0, len(CELLS), 5)), st.integers(1, 64), st.integers(2, 60), st.integers(1, 16))
@settings(max_examples=15, deadline=None)
def test_the_bench_itself_is_above_every_floor(start, num_requests, output, batch):
    from grading.staff.capstone.machines import measure

    cell = CELLS[start].with_changes(
        num_requests=num_requests, output_tokens=output, max_batch=batch, arrival_requests_per_second=None
    )
    found, _ = measure(cell)
    assert found["bytes_moved"] >= compulsory_bytes(cell)
    assert found["tpot_seconds"] >= tpot_floor(cell)
    assert found["ttft_seconds"] >= ttft_floor(cell)


def test_variants_change_one_thing_each():
    base, faster, stronger, dearer, busier = variants(CELLS[0])
    assert faster.machine.memory_bytes_per_second == 1.5 * base.machine.memory_bytes_per_second
    assert stronger.machine.peak_flops_per_second == 1.5 * base.machine.peak_flops_per_second
    assert dearer.machine.usd_per_hour == 2 * base.machine.usd_per_hour
    assert busier.traffic.demand_tokens_per_second == 2 * base.traffic.demand_tokens_per_second


# Contract


@pytest.mark.parametrize("field", [*FIGURES, "breakdown"])
def test_a_missing_field_is_named(field):
    answer = floor_answers()[0]
    del answer[field]
    assert told(check_contract, CELLS[0], answer) == "contract"


@pytest.mark.parametrize("terms", [{}, {"weights": 1.0}, dict.fromkeys(("weights", "compute", "kv", "other"), 0.0)])
def test_a_breakdown_needs_its_four_terms_and_some_time(terms):
    assert told(check_contract, CELLS[0], floor_answers()[0] | {"breakdown": terms}) == "contract"


def test_one_bit_of_difference_between_two_runs_is_found_and_elapsed_time_is_not():
    first = floor_answers()
    second = copy.deepcopy(first)
    second[7]["breakdown"]["kv"] = math.nextafter(0.5, 1)
    assert told(check_reproducible, CELLS, first, second) == "two-runs-differ"
    timed = [answer | {"elapsed_seconds": number} for number, answer in enumerate(first)]
    check_reproducible(CELLS, first, timed)


def test_a_constant_is_no_prediction():
    first = [answer | {"tpot_seconds": 1.0} for answer in floor_answers()]
    assert told(check_reproducible, CELLS, first, first) == "constant"


# Accuracy


def test_errors_are_symmetric_factors():
    assert log_errors("tpot_seconds", public(), truth_answers(1.25)) == pytest.approx([0.25] * 18)
    assert log_errors("tpot_seconds", public(), truth_answers(1 / 1.25)) == pytest.approx([0.25] * 18)


def test_a_figure_just_inside_its_band_passes_and_just_outside_fails():
    check_figures(("tpot_seconds",), 0.10, public(), truth_answers(1.099))
    assert told(check_figures, ("tpot_seconds",), 0.10, public(), truth_answers(1.101)) == "inaccurate"


def test_bytes_need_three_cells_of_four():
    found = truth_answers()
    for answer in found[:4]:
        answer["bytes_moved"] *= 2
    check_bytes(public(), found)  # 14 of 18 are right
    found[4]["bytes_moved"] *= 2
    assert told(check_bytes, public(), found) == "inaccurate"


def test_a_cache_of_every_query_head_is_recognised():
    found = truth_answers()
    for answer, one in zip(found, public()):
        shape = one.cell.config.shape
        answer["bytes_moved"] += (shape.num_heads / shape.num_kv_heads - 1) * one.kv_bytes
    assert told(check_bytes, public(), found) == "kv-of-every-query-head"


@given(st.permutations(range(6)))
def test_tau_of_a_permutation_counts_its_inversions(order):
    inversions = sum(order[i] > order[j] for i in range(6) for j in range(i + 1, 6))
    assert kendall_tau(range(6), order) == pytest.approx(1 - 2 * inversions / 15)


def test_ranking_needs_order_and_the_binding_term():
    check_ranking(public(), truth_answers())
    reverse = [a | {"usd_per_month": 1 / a["usd_per_month"]} for a in truth_answers()]
    assert told(check_ranking, public(), reverse) == "wrong-order"
    other = [a | {"breakdown": {"weights": 0.0, "compute": 0.0, "kv": 0.0, "other": 1.0}} for a in truth_answers()]
    assert binding_share(public(), other) == 0
    assert told(check_ranking, public(), other) == "wrong-binding-term"


# Running a model


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import nowhere", "model-does-not-load"),
        ("x = 1", "model-does-not-load"),
        ("import os; os._exit(3)", "model-does-not-load"),
        ("def predict(c, m, w): return 1 / 0", "model-raises"),
        ("def predict(c, m, w): return {'tpot_seconds': float('nan')}", "model-raises"),
        ("def predict(c, m, w): return {'tpot_seconds': 'fast'}", "model-raises"),
    ],
)
def test_a_model_that_does_not_run_is_told_why(tmp_path, text, name):
    (tmp_path / "model.py").write_text(text, encoding="utf-8")
    assert told(answers, tmp_path, CELLS[:1]) == name


def test_what_a_model_prints_and_warns_is_harmless(tmp_path):
    noise = "print('x' * 10**6); warnings.warn('w'); sys.stderr.write('e')"
    text = f"import sys, warnings\ndef predict(c, m, w):\n    {noise}\n    return {{'n': 1}}"
    (tmp_path / "model.py").write_text(text, encoding="utf-8")
    assert answers(tmp_path, CELLS[:2]) == [{"n": 1}, {"n": 1}]
