"""A chain with some inputs changed is the chain that would be made afresh."""

from __future__ import annotations

import math

import pytest

from course_lib.journey import Chain, Journey

BASE = Journey()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tpot_seconds", 0.02), ("max_batch", 16), ("memory_fraction", 0.5), ("fixed_seconds", 0.002),
        ("mean_output_tokens", 400.0), ("efficiency_bandwidth", 0.6), ("arrivals", 90.0),
    ],
)  # fmt: skip
def test_every_link_after_a_changed_input_is_that_of_a_fresh_chain(name: str, value: float) -> None:
    changed = BASE.chain.with_inputs(**{name: value})
    fresh = Chain(BASE.rules, {**BASE.inputs, name: value})
    for rule in BASE.rules:
        if rule.shown:
            assert changed[rule.name] == fresh[rule.name], rule.name


def test_the_elasticity_to_the_promise_is_that_of_the_dollars_themselves() -> None:
    # Batch and interval grow together: with interval = promise and batch = (promise - t1) / t2, the rate is
    # (1 - t1 / promise) / (o t2), so d ln $ / d ln promise = -t1 / (promise - t1), here -6.1 ms / 43.9 ms = -0.14.
    ends = [
        Chain(BASE.rules, {**BASE.inputs, "continuous_batch": True, "tpot_seconds": 0.05 * factor})
        for factor in (1.001, 0.999)
    ]
    up, down = (chain["continuous_usd_per_month"] for chain in ends)
    found = BASE.sensitivity()["tpot_seconds"]
    assert found == pytest.approx(math.log(up / down) / math.log(1.001 / 0.999))
    fixed = BASE["weight_read_seconds"] + BASE["step_fixed_seconds"]
    assert found == pytest.approx(-fixed / (0.05 - fixed), abs=2e-3)  # the batch is 211 of 211.8
