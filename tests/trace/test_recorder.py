import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.tensor import SGD, AdamW, CausalLM, Linear, Sequential, Tensor, relu
from course_lib.trace import Arithmetic, record

SIZE = st.integers(1, 12)


def mlp(sizes, rng):
    stages = []
    for n_in, n_out in pairwise(sizes):
        stages += [Linear(n_in, n_out, rng=rng), relu]
    return Sequential(*stages[:-1])


def inputs(*shape, requires_grad=False):
    return Tensor(np.random.default_rng(1).normal(size=shape).astype(np.float32), requires_grad=requires_grad)


def test_the_mlp_of_the_course_counts_its_published_numbers():
    # 2*32*(64*128 + 128*128 + 128*10) = 1,654,784; backward skips dX of the first layer: 2x - 2*32*64*128
    model = mlp([64, 128, 128, 10], np.random.default_rng(0))
    with record() as trace:
        model(inputs(32, 64)).sum().backward()
    assert trace.forward.matmul_flops == 1_654_784
    assert trace.backward.matmul_flops == 2_785_280
    assert trace.complete


@settings(max_examples=25, deadline=None)
@given(st.lists(SIZE, min_size=2, max_size=5), SIZE, st.booleans())
def test_backward_is_twice_forward_less_the_first_dx(sizes, batch, requires_grad):
    model = mlp(sizes, np.random.default_rng(0))
    with record() as trace:
        model(inputs(batch, sizes[0], requires_grad=requires_grad)).sum().backward()
    products = [2 * batch * a * b for a, b in pairwise(sizes)]
    assert trace.forward.matmul_flops == sum(products)
    assert trace.backward.matmul_flops == 2 * sum(products) - (0 if requires_grad else products[0])


def test_a_square_mlp_pays_the_backward_tax_of_exercise_one():
    # (2L - 1) / L of forward for L layers
    for layers in (1, 2, 4, 8):
        model = mlp([16] * (layers + 1), np.random.default_rng(0))
        with record() as trace:
            model(inputs(4, 16)).sum().backward()
        assert trace.backward.matmul_flops * layers == trace.forward.matmul_flops * (2 * layers - 1)


def test_phases_modules_and_ids_are_stable():
    def run():
        rng = np.random.default_rng(0)
        model = mlp([4, 8, 2], rng)
        optimizer = AdamW(model.parameters())
        with record() as trace:
            model(inputs(3, 4)).sum().backward()
            optimizer.step()
        return trace

    one, two = run(), run()
    assert one == two
    ids = [event.event_id for event in one.events]
    assert len(set(ids)) == len(ids)
    assert {event.phase for event in one.events} == {"forward", "backward", "update"}
    assert len(one.update) == 4  # two weights, two biases
    assert one.update.bytes_written == 3 * one.parameter_bytes


def test_saved_bytes_of_an_mlp_are_its_inputs_activations_and_no_weights():
    # x (32 x 64) and two hidden activations (32 x 128), fp32, each saved once: (64 + 128 + 128)*32*4
    model = mlp([64, 128, 128, 10], np.random.default_rng(0))
    with record() as trace:
        model(inputs(32, 64)).sum().backward()
    assert trace.saved_bytes == (64 + 128 + 128) * 32 * 4
    assert trace.raw_saved_bytes > trace.saved_bytes
    assert trace.parameter_bytes == 26_122 * 4


def test_a_view_moves_nothing_and_shares_its_storage():
    with record() as trace:
        x = inputs(4, 6)
        y = x.reshape(2, 12).transpose(0, 1)
        _ = y + y
    views = [event for event in trace.events if event.is_view]
    assert len(views) == 2
    assert sum(event.work.bytes_moved for event in views) == 0
    assert len({ref.storage_id for event in views for ref in (*event.inputs, *event.outputs)}) == 1


def test_a_language_model_is_counted_completely():
    model = CausalLM(vocab_size=11, model_size=16, num_layers=2, num_heads=4, num_kv_heads=2, feed_forward_size=24,
                     rng=np.random.default_rng(0))  # fmt: skip
    tokens = Tensor(np.arange(6).reshape(1, 6) % 11)
    with record() as trace:
        model.loss(tokens, tokens).backward()
        SGD(model.parameters(), learning_rate=0.1).step()
    assert trace.complete, trace.uncounted
    assert trace.transcendentals > 0
    assert any(event.module for event in trace.backward.events)


def test_the_trace_is_usable_inside_the_block_and_kept_by_an_exception():
    traces = []

    def fails():
        with record() as trace:
            traces.append(trace)
            _ = inputs(2, 2) @ inputs(2, 2)
            assert trace.flops == 16
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    _ = inputs(2, 2) @ inputs(2, 2)
    assert len(traces[0]) == 1


def test_nested_records_both_see_and_siblings_do_not():
    with record() as outer:
        _ = inputs(2, 2) + inputs(2, 2)
        with record() as inner:
            _ = inputs(2, 2) @ inputs(2, 2)
    assert [event.op for event in outer.events] == ["add", "matmul"]
    assert [event.op for event in inner.events] == ["matmul"]


def test_rules_of_your_own_replace_ours():
    with record(rules={"add": lambda op: Arithmetic(1000)}) as trace:
        _ = inputs(2, 2) + inputs(2, 2)
    assert trace.flops == 1000


def test_nothing_recorded_is_an_empty_trace():
    with record() as trace:
        pass
    assert (len(trace), trace.flops, trace.peak_bytes) == (0, 0, 0)


def test_importing_the_room_loads_no_torch():
    heavy = "('torch', 'numba', 'jsonschema', 'pandas')"
    code = f"import sys, course_lib.trace; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
