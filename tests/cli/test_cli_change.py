"""``--change``: each field takes a value of its own kind, and a size stays within what a machine can hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from course_lib.cli.errors import _with_flags
from course_lib.cli.journeys import changed
from course_lib.errors import TraceATensorError
from course_lib.journey import Journey

Run = Callable[..., Result]

FLAGSHIP = Journey()

WRONG = [
    ("tpot_seconds=nan", ("tpot_seconds takes a number or null", "nan")),
    ("tpot_seconds=NaN", ("tpot_seconds takes a number", "nan")),
    ("arrival_requests_per_second=inf", ("arrival_requests_per_second takes a number", "inf")),
    ("arrival_requests_per_second=null", ("takes a number", "None")),
    ("headroom_fraction=most", ("headroom_fraction takes a number", "most")),
    ("num_spares=[1]", ("num_spares takes a number", "[1]")),
    ("hours_per_month={}", ("hours_per_month takes a number", "{}")),
    ("compute_dtype=8", ("compute_dtype takes a name or null", "8")),
    ("disaggregated=1", ("disaggregated takes true or false", "1")),
    ("tied_embeddings=[]", ("tied_embeddings takes true or false", "[]")),
    ("experts=8", ("unknown field", "num_experts")),
    ("attention_windows=4096", ("unknown field", "attention_windows")),
    ("num_layers=20000", ("num_layers", "at most 10,000", "20,000")),
    (f"vocab_size={10**13}", ("vocab_size", "at most 1,000,000,000,000")),
    (f"num_layers={'9' * 400}", ("num_layers takes a number", "...")),
]


@pytest.mark.parametrize(("edit", "said"), WRONG, ids=[edit[:40] for edit, _ in WRONG])
def test_a_value_of_the_wrong_kind_is_refused_by_name(run: Run, edit: str, said: tuple[str, ...]) -> None:
    result = run("bill", "--json", "--change", edit)
    message = " ".join(result.stderr.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(words in message for words in said), message


values = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=4), st.lists(st.none()))
names = st.sampled_from([
    "tpot_seconds", "ttft_seconds", "attainment", "arrival_requests_per_second", "prompt_tokens", "prefix_hit_fraction",
    "efficiency_compute", "num_spares", "reserve_bytes", "max_batch", "tensor_parallel", "prefill_attention",
    "compute_dtype", "kv_dtype", "num_layers", "model_size", "head_size", "gated_feed_forward", "family",
])  # fmt: skip


@given(name=names, value=values)
def test_any_value_for_any_field_gives_a_journey_or_an_error_on_purpose(name: str, value: object) -> None:
    with suppress(TraceATensorError):
        assert changed(FLAGSHIP, [f"{name}={json.dumps(value)}"], None, None, None).bill.billed_usd_per_month > 0


def test_null_takes_a_promise_away_and_true_turns_a_switch(run: Run) -> None:
    without = changed(FLAGSHIP, ["tpot_seconds=null"], None, None, None)
    assert without.slo.tpot_seconds is None
    assert changed(FLAGSHIP, ["disaggregated=true"], None, None, None).disaggregated is True


def test_a_log_with_one_instant_has_no_rate(run: Run) -> None:
    Path("w.csv").write_text("arrival_at_seconds,prompt_tokens,output_tokens\n5,100,20\n5,100,20\n")
    result = run("bill", "--workload", "w.csv")
    assert result.exit_code == 2
    assert "different instants" in " ".join(result.stderr.split())


def test_kv_elements_beside_a_shape_is_refused_not_ignored(run: Run) -> None:
    result = run("bill", "--kv-elements", "5")
    assert result.exit_code == 2
    assert "follows from its shape" in " ".join(result.stderr.split())


@pytest.mark.parametrize("option", ["--rate", "--hours", "--fixed-ms", "--spares", "--max-batch", "--usd-per-hour"])
def test_a_number_beyond_all_sense_is_refused_before_it_overflows(run: Run, option: str) -> None:
    result = run("bill", "--json", option, "1" + "0" * 308)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} takes numbers up to 1e+15" in " ".join(result.stderr.split())


def test_an_efficiency_outside_the_bands_is_said_and_one_inside_is_not(run: Run) -> None:
    said = json.loads(run("bill", "--json", "--efficiency-compute", "0.3").stdout)["warnings"]
    assert [note for note in said if "compute efficiency 0.3" in note and "0.4 to 0.7" in note]
    assert not [note for note in json.loads(run("bill", "--json").stdout)["warnings"] if "outside" in note]


def test_a_trace_without_a_backward_pass_says_so_and_one_with_it_does_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "frozen_mine.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Linear(4, 4).requires_grad_(False), torch.ones(2, 4)\n"
        "def live():\n    return torch.nn.Linear(4, 4), torch.ones(2, 4)\n"
    )
    assert "No backward pass is counted" in run("trace", "--model", "frozen_mine:build").stdout
    assert "No backward pass is counted" not in run("trace", "--model", "frozen_mine:live").stdout


@pytest.mark.parametrize(
    ("message", "option"),
    [
        ("tensor_parallel=4 is the smallest degree.", "--tensor-parallel 4."),
        ("Give kv_elements_per_token=2 * layers * heads.", "--kv-elements N."),
        ("Shorten it with prompt_tokens=..., output_tokens=....", "--prompt-tokens N, --output-tokens N."),
        ("Store in weight_dtype=int4-g64.", "--weights int4-g64."),
    ],
)
def test_a_message_names_the_option_with_its_value_or_n(message: str, option: str) -> None:
    assert _with_flags(message).endswith(f"\nOn this command line: {option}")
