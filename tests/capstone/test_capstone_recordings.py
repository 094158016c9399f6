"""The recorded runs are what the bench gives; records go through JSON; lengths and dollars by hand."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import DoesNotFitError, InvalidInputError, UnknownNameError
from grading.capstone.recordings import HELD_OUT, REPLAY, bench, held_out, public, read, recording, replayed
from grading.capstone.records import Cell, EngineConfig, Traffic, catalogue_machine, quantile_lengths, usd_per_month
from grading.cells import STARTERS
from grading.staff.capstone.record import held_out_cells, public_cells, record, replay_cells, rounded


def test_the_recorded_cells_are_those_of_the_script():
    assert [one.cell for one in public()] == list(public_cells())
    assert [one.cell for one in read(HELD_OUT)] == list(held_out_cells())
    assert [one.cell for one in read(REPLAY)] == list(replay_cells())


@pytest.mark.parametrize("name", ["h100-small-batch", "held-out-00", "held-out-18"])
def test_recording_a_cell_again_gives_the_same_entry(name):
    """held-out-18 keeps so many heads that the pool runs out and requests are preempted."""
    path = STARTERS / "capstone" / "recordings.json" if name.startswith("h100") else HELD_OUT
    entry = next(e for e in json.loads(path.read_text(encoding="utf-8"))["entries"] if e["cell"]["name"] == name)
    again = record(Cell.from_dict(entry["cell"]), num_steps=40 if "steps" in entry else 0)
    assert json.loads(json.dumps(again)) == entry


def test_the_fast_run_of_the_bench_gives_the_recorded_dollars():
    for one in (*public(), *read(REPLAY))[::9]:
        fast = rounded(list(bench().usd_of_repetitions(one.cell)))
        assert fast == pytest.approx(list(one.usd_of_repetitions), rel=1e-8)  # nine digits are kept


def test_no_held_out_cell_is_public():
    seen = [(one.cell.config, one.cell.traffic) for one in (*public(), *read(REPLAY))]
    assert not [one for one in read(HELD_OUT) if (one.cell.config, one.cell.traffic) in seen]


def test_each_course_is_graded_on_eighteen_cells_six_for_each_machine():
    cells = held_out("0")
    assert len({one.name for one in cells}) == 18
    assert {sum(o.cell.machine.name == name for o in cells) for name in ("h100-sxm", "a100-80gb-sxm", "l40s")} == {6}
    assert held_out("0") == cells
    assert held_out("another") != cells


def test_the_puzzle_of_the_notebook_is_what_was_recorded():
    base = recording("a100-base")
    narrow = next(r for r in read(REPLAY) if r.cell == base.cell.with_changes(weight_dtype="fp8"))
    before, after = base.measured["usd_per_month"], narrow.measured["usd_per_month"]
    assert (round(before), round(after), round(100 * (after / before - 1), 1)) == (26_476, 29_666, 12.0)


@given(st.integers(1, 4096), st.integers(1, 4096), st.sampled_from(["bf16", "fp8"]), st.integers(1, 512))
@settings(max_examples=25, deadline=None)
def test_a_cell_survives_json(prompt, output, dtype, batch):
    traffic = Traffic(arrival_requests_per_second=None, prompt_tokens=prompt, output_tokens=output)
    config = EngineConfig(model="llama-3-8b", kv_dtype=dtype, max_batch=batch)
    cell = Cell(name="x", config=config, machine=catalogue_machine("l40s"), traffic=traffic)
    assert Cell.from_dict(json.loads(json.dumps(cell.to_dict()))) == cell


def test_kv_blocks_by_hand():
    machine, config = catalogue_machine("h100-sxm"), EngineConfig(model="llama-3-8b")
    # 0.9 * 80e9 - 16,060,522,496 - 3e9 = 52,939,477,504 bytes; a block is 16 * 131,072; 25,243.5 of them
    assert machine.kv_blocks(config) == 25_243
    with pytest.raises(DoesNotFitError):
        catalogue_machine("l40s").kv_blocks(EngineConfig(model="llama-3-70b"))


def test_two_draws_hold_the_same_lengths_in_another_order():
    traffic = Traffic(arrival_requests_per_second=2.0, prompt_tokens=300, output_tokens=50, num_requests=64)
    one, two = traffic.requests(1), traffic.requests(2)
    assert sorted(one.prompt_tokens) == sorted(two.prompt_tokens)
    assert list(one.prompt_tokens) != list(two.prompt_tokens)
    assert set(quantile_lengths(70, 0.0, 8)) == {70}


def test_dollars_are_linear_in_price_and_demand():
    cell = recording("h100-base").cell
    usd = usd_per_month(cell.machine, cell.traffic, 1000.0)
    assert usd == pytest.approx(730 * 2.95 * 20)  # 20,000 tokens/s over 1,000 a replica: 20 replicas
    dearer = replace(cell.machine, usd_per_hour=2 * cell.machine.usd_per_hour)
    assert usd_per_month(dearer, cell.traffic, 1000.0) == pytest.approx(2 * usd)


def test_what_was_never_run_is_not_replayed_and_wrong_values_are_refused():
    cell = recording("h100-base").cell
    assert replayed(cell.with_changes(max_batch=65)) is None
    with pytest.raises(UnknownNameError):
        recording("h100-bas")
    for wrong in ({"max_batch": 0}, {"prompt_tokens": 10**9}, {"machine": "abacus"}, {"colour": "red"}):
        with pytest.raises(InvalidInputError):
            cell.with_changes(**wrong)
