"""Values become tensors: data types, layouts, operations with forward and backward side by side."""

from course_lib.tensor.dispatch import Observer, Op, OpCall, Phase, TensorMeta, apply, observe, phase
from course_lib.tensor.dtypes import DType, dtype, dtype_bits, dtype_bytes, dtypes
from course_lib.tensor.op_table import OPS, OpInfo

__all__ = ["OPS", "DType", "Observer", "Op", "OpCall", "OpInfo", "Phase", "TensorMeta", "apply", "dtype",
           "dtype_bits", "dtype_bytes", "dtypes", "observe", "phase"]
