from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.trace import Storage, TensorRef, Trace, TraceEvent, Work


def event(op, inputs, outputs, *, phase="forward", saved=(), view=False):
    def refs(ids):
        return tuple(TensorRef(i, (1,), (1,), "fp32") for i in ids)

    return TraceEvent(f"{phase}::{op}:0", op, phase, "", refs(inputs), refs(outputs), Work.zero(), tuple(saved),
                      "view" if view else "elementwise")  # fmt: skip


def storages(kinds, nbytes=None):
    return [Storage(i, (nbytes or {}).get(i, 10), kind) for i, kind in enumerate(kinds)]


def test_a_chain_holds_two_links_at_a_time():
    # input 0 (held by the caller) -> 1 -> 2 -> 3 (the result); while 2 is made, 0, 1 and 2 are alive
    chain = [event("a", [0], [1]), event("b", [1], [2]), event("c", [2], [3])]
    trace = Trace(chain, storages(["input", *["intermediate"] * 3]))
    assert trace.live_bytes == (20, 30, 30)
    assert trace.peak_bytes == 30


def test_what_is_saved_waits_for_its_backward():
    # 1 is saved by b and read again in backward; 2 dies there too
    events = [event("a", [0], [1]), event("b", [1], [2], saved=[1]), event("c", [2], [3]),
              event("b_backward", [3, 1], [4], phase="backward")]  # fmt: skip
    trace = Trace(events, storages(["input", *["intermediate"] * 4]))
    assert trace.live_bytes == (20, 30, 40, 40)
    assert trace.forward.live_bytes == (20, 30, 40)


def test_a_view_is_no_use_and_parameters_stand_apart():
    events = [event("t", [1], [1], view=True), event("mm", [0, 1], [2]), event("t", [2], [2], view=True)]
    trace = Trace(events, storages(["input", "parameter", "intermediate"], {1: 1000}))
    assert trace.live_bytes == (10, 20, 20)
    assert trace.parameter_bytes == 1000


def test_saved_bytes_counts_a_storage_once_and_no_parameter():
    events = [event("mm", [0, 1], [2], saved=[0, 1]), event("mm", [2, 1], [3], saved=[2, 1, 2])]
    trace = Trace(events, storages(["input", "parameter", "intermediate", "intermediate"], {0: 7, 2: 5}))
    assert trace.saved_bytes == 12
    assert trace.backward.saved_bytes == 0


def test_an_empty_trace_holds_nothing():
    assert (Trace().peak_bytes, Trace().saved_bytes, Trace().live_bytes) == (0, 0, ())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_liveness_equals_a_reference_count_replayed_event_by_event(picks):
    """Oracle: allocate outputs, free a storage when no later event reads it, unless nothing ever does."""
    events, available = [], [0]
    for at, (first, second) in enumerate(picks):
        operands = {available[first % len(available)], available[second % len(available)]}
        events.append(event("op", sorted(operands), [at + 1]))
        available.append(at + 1)
    trace = Trace(events, storages(["input", *["intermediate"] * len(picks)]))
    readers = [{ref.storage_id for ref in e.inputs} for e in events]
    ever_read = set().union(*readers)
    alive, seen = {0}, []
    for at in range(len(events)):
        alive.add(at + 1)
        seen.append(10 * len(alive))
        later = set().union(*readers[at + 1 :]) if at + 1 < len(events) else set()
        alive = {i for i in alive if i == 0 or i in later or i not in ever_read}
    assert trace.live_bytes == tuple(seen)
