import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import InvalidInputError
from course_lib.trace import Storage, TensorRef, Trace, TraceEvent, Work

PATHS = st.sampled_from(["", "a", "a.b", "a.b.c", "d"])


def event(op, module, work, *, phase="forward", source="elementwise"):
    return TraceEvent(f"{phase}:{module}:{op}:0", op, phase, module, (), (), work, (), source)


EVENTS = st.lists(
    st.builds(event, st.sampled_from(["mm", "add"]), PATHS, st.builds(Work, *[st.integers(0, 99)] * 4),
              phase=st.sampled_from(["forward", "backward", "update"])), max_size=12)  # fmt: skip


@given(EVENTS)
def test_phases_partition_every_total(events):
    trace = Trace(events)
    for name in ("flops", "macs", "matmul_flops", "bytes_read", "bytes_written", "bytes_moved", "transcendentals"):
        parts = [getattr(part, name) for part in (trace.forward, trace.backward, trace.update)]
        assert getattr(trace, name) == sum(parts)


@given(EVENTS)
def test_a_module_holds_its_children(events):
    by_module = Trace(events).by_module()
    assert by_module[""] == Trace(events).work
    for path, work in by_module.items():
        inside = [e.work for e in events if not path or e.module == path or e.module.startswith(path + ".")]
        assert work == Work.total(inside)
    assert set(Trace(events).by_module(depth=1)) == {path for path in by_module if "." not in path}


@given(EVENTS, EVENTS)
def test_a_diff_sums_to_the_change_and_turns_sign(after, before):
    diff = Trace(after).diff(Trace(before))
    assert diff.flops == sum(row.flops for row in diff.rows) == Trace(after).flops - Trace(before).flops
    assert diff.bytes_moved == sum(row.bytes_moved for row in diff.rows)
    assert Trace(before).diff(Trace(after)).flops == -diff.flops
    assert Trace(after).diff(Trace(after)).rows == ()


def test_a_diff_names_what_changed():
    before = Trace([event("mm", "up", Work(10, 5, 0, 0)), event("add", "", Work(1, 0, 0, 0))])
    after = Trace([event("mm", "up", Work(30, 15, 0, 0)), event("add", "", Work(1, 0, 0, 0))])
    diff = after.diff(before)
    assert [(row.module, row.op, row.flops) for row in diff.rows] == [("up", "mm", 20)]
    assert "up" in str(diff)
    assert "<table>" in diff._repr_html_()


def test_an_uncounted_operation_makes_every_total_incomplete_and_is_named():
    trace = Trace([event("mm", "", Work(8, 4, 0, 0), source="matmul"),
                   event("mystery", "", Work(0, 0, 40, 40), source="uncounted")])  # fmt: skip
    assert trace.uncounted == ("mystery",)
    assert not trace.complete
    table = trace.table()
    assert "incomplete" in str(table)
    assert "mystery" in table.notes[-1]
    row = next(row for row in table.rows if row[1] == "mystery")
    assert row[3:5] == ("unknown", "unknown")
    assert "incomplete" in repr(trace)


def test_a_table_has_one_total_row_in_text_rows_and_html():
    trace = Trace([event("mm", "", Work(8, 4, 2, 1)), event("mm", "x", Work(8, 4, 2, 1))])
    table = trace.table()
    assert table.rows[-1][:6] == ("total", "", 2, 16, 8, 4)
    assert table._repr_html_().count("<tr>") == 3
    assert "2 x forward" in str(table)


def test_limits_of_an_empty_trace():
    trace = Trace()
    assert (trace.flops, trace.uncounted, trace.complete, len(trace)) == (0, (), True, 0)
    assert trace.by_module() == {"": Work.zero()}
    assert trace.table().rows[-1][2] == 0


def test_a_trace_refuses_tensors_of_unlisted_storages():
    stray = TraceEvent("id", "mm", "forward", "", (TensorRef(3, (1,), (1,), "fp32"),), (), Work.zero())
    with pytest.raises(InvalidInputError, match="storage 3"):
        Trace([stray], [Storage(0, 4, "input")])
    with pytest.raises(InvalidInputError, match="saved storage"):
        Trace([TraceEvent("id", "mm", "forward", "", (), (), Work.zero(), (9,))])


def test_depth_is_not_negative():
    with pytest.raises(InvalidInputError, match="depth"):
        Trace().by_module(depth=-1)


def test_totals_beyond_64_bits_stay_exact():
    huge = Work(2**70, 2**69, 0, 0)
    assert Trace([event("mm", "", huge)] * 3).flops == 3 * 2**70 > np.iinfo(np.int64).max
