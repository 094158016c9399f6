"""Workloads, lengths and promises."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib.errors import InvalidInputError
from course_lib.serving import SLO, Constant, Empirical, Geometric, LogNormal, Workload


@pytest.mark.parametrize("law", [Constant(7), Geometric(35.0), LogNormal(300, 1.0), Empirical((3, 5, 100))])
def test_the_mean_of_samples_is_the_mean_of_the_law(law):
    num = 200_000
    sample = law.sample(np.random.default_rng(0), num)
    assert sample.min() >= 1
    assert sample.dtype == np.int64
    # five standard errors, and half a token for the rounding of LogNormal
    assert abs(sample.mean() - law.mean) <= 5 * sample.std() / math.sqrt(num) + 0.5


def test_a_geometric_length_has_the_geometric_tail():
    sample = Geometric(20.0).sample(np.random.default_rng(1), 100_000)
    # P(length > 20) = 0.95**20 = 0.3585, standard error 0.0015
    assert abs((sample > 20).mean() - 0.95**20) < 0.006


@pytest.mark.parametrize(
    "make",
    [lambda: Constant(0), lambda: Constant(1.5), lambda: Geometric(0.5), lambda: LogNormal(10, -1),
     lambda: Empirical(()), lambda: Empirical((1, 0))],
)  # fmt: skip
def test_impossible_lengths_are_refused(make):
    with pytest.raises(InvalidInputError):
        make()


def test_arrivals_come_at_the_rate_and_in_order():
    workload = Workload(
        arrival_requests_per_second=50, prompt_tokens=10, output_tokens=Geometric(5), num_requests=40_000
    )
    arrival = workload.requests(np.random.default_rng(0)).arrival_at_seconds
    assert (np.diff(arrival) >= 0).all()
    assert abs(40_000 / arrival[-1] - 50) < 1.25  # five standard errors of 0.5 %
    assert abs(np.diff(arrival).std() * 50 - 1) < 0.05  # exponential gaps: deviation equals mean
    batch = Workload(arrival_requests_per_second=50, prompt_tokens=10, output_tokens=5, arrivals="batch")
    assert not batch.requests(np.random.default_rng(0)).arrival_at_seconds.any()


def test_prefix_hits_leave_one_token_of_each_prompt_to_compute():
    workload = Workload(
        arrival_requests_per_second=1, prompt_tokens=1, output_tokens=1, prefix_hit_fraction=0.99, num_requests=2
    )
    assert workload.requests(np.random.default_rng(0)).cached_tokens.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrival_requests_per_second": 0}, "above zero"),
        ({"arrival_requests_per_second": -3}, "above zero"),
        ({"prefix_hit_fraction": 1.0}, "prefix"),
        ({"num_requests": 0}, "num_requests"),
        ({"arrivals": "bursty"}, "poisson"),
        ({"arrivals": "recorded"}, "from_csv"),
        ({"prompt_tokens": "many"}, "distribution"),
        ({"output_tokens": 0}, "1 or more"),
    ],
)
def test_an_impossible_workload_says_what_is_wrong(change, words):
    with pytest.raises(InvalidInputError, match=words):
        Workload(**{"arrival_requests_per_second": 1, "prompt_tokens": 5, "output_tokens": 5, **change})


def test_a_recorded_trace_is_replayed_from_its_first_request(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("id,arrival_at_seconds,prompt_tokens,output_tokens\nb,12.5,30,4\na,10,20,2\n")
    workload = Workload.from_csv(path)
    requests = workload.requests(np.random.default_rng(0))
    assert requests.arrival_at_seconds.tolist() == [0.0, 2.5]
    assert requests.prompt_tokens.tolist() == [20, 30]
    assert workload.arrival_requests_per_second == 0.4  # one gap of 2.5 s
    assert (workload.mean_prompt_tokens, workload.mean_output_tokens) == (25.0, 3.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1 must name"),
        ("arrival_at_seconds,prompt_tokens\n1,2\n", "Missing: output_tokens"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n", "no requests"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n1,2,3\nsoon,2,3\n", "line 3: arrival_at_seconds"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n-1,2,3\n", "line 2: arrival_at_seconds"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n1,2.5,3\n", "line 2: prompt_tokens"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n1,2\n", "line 2: output_tokens"),
        ("arrival_at_seconds,prompt_tokens,output_tokens\n1,2,0\n", "line 2: output_tokens"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "broken.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=words):
        Workload.from_csv(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent\.csv"):
        Workload.from_csv(tmp_path / "absent.csv")


def test_a_promise_is_kept_by_the_record_and_by_the_array_alike():
    slo = SLO(ttft_seconds=0.2, tpot_seconds=0.05)
    cases = [(0.2, 0.05), (0.21, 0.01), (0.1, 0.06), (0.1, math.nan)]
    one_by_one = [slo.is_met_by(ttft_seconds=a, tpot_seconds=b) for a, b in cases]
    assert one_by_one == slo.good(*np.array(cases).T).tolist() == [True, False, False, True]
    for bad in ({"ttft_seconds": 0}, {"tpot_seconds": -1}, {"attainment": 0}, {"attainment": 1.01}):
        with pytest.raises(InvalidInputError):
            SLO(**bad)


@pytest.mark.parametrize("digits", ["9" * 23, "9" * 5_000, "9" * 200_000], ids=len)
def test_a_number_too_long_for_any_prompt_is_refused_with_its_line(tmp_path, digits):
    path = tmp_path / "long.csv"
    path.write_text(f"arrival_at_seconds,prompt_tokens,output_tokens\n0,{digits},5\n")
    with pytest.raises(InvalidInputError, match=r"long\.csv line [12]"):
        Workload.from_csv(path)
