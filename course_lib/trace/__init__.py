"""Tensors become work: which operations ran, what each costs, what autograd keeps, what is alive at the peak.

``record()`` watches our own tensors, ``trace_torch()`` any torch module, on the CPU or on the meta device.
Importing this room loads no torch.
"""

from course_lib.trace.diff import DiffRow, TraceDiff
from course_lib.trace.events import PHASES, Phase, Storage, StorageKind, TensorRef, TraceEvent
from course_lib.trace.operation import Arithmetic, Operation, Rule
from course_lib.trace.recorder import record
from course_lib.trace.rules import AttentionConvention, Cost, cost, cost_rules
from course_lib.trace.serialization import schema
from course_lib.trace.table import Table
from course_lib.trace.torch_trace import trace_torch
from course_lib.trace.trace import Trace
from course_lib.trace.work import Work

__all__ = [
    "PHASES", "Arithmetic", "AttentionConvention", "Cost", "DiffRow", "Operation", "Phase", "Rule", "Storage",
    "StorageKind", "Table", "TensorRef", "Trace", "TraceDiff", "TraceEvent", "Work", "cost", "cost_rules", "record",
    "schema", "trace_torch",
]  # fmt: skip
