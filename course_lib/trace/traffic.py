"""Bytes of an operation: each operand read once, each output written once, with named exceptions."""

from __future__ import annotations

from course_lib.trace.events import item_bits
from course_lib.trace.operation import Operation

__all__ = ["NO_ARITHMETIC", "RESERVES", "bytes_of"]

# Reserves memory without touching it.
RESERVES = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_", "set_"})

# Writes its output from nothing: shapes and dtypes of operands matter, their values do not.
_GENERATES = frozenset({
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "rand", "randn", "randint", "rand_like",
    "randn_like", "randint_like", "arange", "linspace", "eye", "scalar_tensor", "new_zeros", "new_ones", "new_full",
    "fill", "zero", "uniform", "normal", "bernoulli", "exponential", "randperm", "tril_indices", "triu_indices",
    "_efficientzerotensor",
})  # fmt: skip

# Reads only the rows it picks: the table's bytes are those of the output.
_GATHERS = frozenset({"embedding", "index_select", "gather", "index", "take", "take_along_axis", "getitem"})

# Reads the operand after the first only; the first is overwritten.
_OVERWRITES = frozenset({"copy"})

# Moves values and computes nothing: copies, casts, gathers, joins, masks, whole-number work.
_COPIES = frozenset({
    "clone", "contiguous", "reshape", "_reshape_copy", "_to_copy", "to", "copy", "cat", "concat", "stack",
    "repeat", "repeat_interleave", "flip", "roll", "tril", "triu", "constant_pad_nd", "pad",
    "select_backward", "slice_backward", "split_backward", "unfold_backward", "as_strided_copy",
    "view_copy", "expand_copy", "cast", "astype", "embedding", "index_select", "gather", "index", "take",
    "take_along_axis", "getitem", "one_hot", "scatter", "index_fill", "slice_scatter", "select_scatter",
    "index_copy", "reflection_pad2d", "replication_pad2d", "_local_scalar_dense", "item",
    "upsample_nearest2d", "pixel_shuffle", "channel_shuffle", "im2col", "complex", "real", "imag",
    "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_not", "isnan", "isinf", "any", "all", "nonzero", "bincount", "_unique2", "unique_dim",
    "equal", "_cudnn_init_dropout_state", "histc", "searchsorted", "bucketize",
})  # fmt: skip

NO_ARITHMETIC = frozenset(_COPIES | _GENERATES)


_PICKS = frozenset({"nll_loss", "nll_loss_forward", "nll_loss2d_forward"})


def bytes_of(op: Operation, *, in_place: bool = False) -> tuple[int, int]:
    """Bytes (read, written) of one operation.

    ``read = sum(operands)``, ``written = sum(outputs)``; a fill reads nothing, a copy in place reads its source
    only, and a gather reads its indices and as many bytes of the table as it returns.
    """
    name = op.op
    written = sum([ref.nbytes for ref in op.outputs])
    if name == "adamw_step":  # also writes both moments, which are operands
        written += sum([ref.nbytes for ref in op.inputs[2:]])
    if name in _GENERATES:
        return 0, written
    if name in _GATHERS and op.inputs:
        return written + sum([ref.nbytes for ref in op.inputs[1:]]), written
    if name in _PICKS:  # one log-probability a target
        table, targets = op.inputs[:2]
        picked = targets.num_elements * item_bits(table.dtype) / 8
        return int(picked) + sum([ref.nbytes for ref in op.inputs[1:]]), written
    if name in ("nll_loss_backward", "nll_loss2d_backward") and len(op.inputs) > 2:  # the log-probabilities' shape only
        return op.inputs[0].nbytes + sum([ref.nbytes for ref in op.inputs[2:]]), written
    if in_place and name in _OVERWRITES:
        return sum([ref.nbytes for ref in op.inputs[1:]]), written
    return sum([ref.nbytes for ref in op.inputs]), written
