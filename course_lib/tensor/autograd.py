"""Backward: the chain rule from one tensor to all leaves, without recursion.

Nodes are visited from the youngest to the oldest. An operation's inputs exist before its output does, so the
order of creation reversed is a topological order, and a chain of any depth fits in a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.errors import InvalidInputError
from course_lib.tensor.dispatch import Node, grad_mode, inside_module, phase

if TYPE_CHECKING:
    from course_lib.tensor.tensor import Tensor

__all__ = ["backward"]


def backward(root: Tensor, grad: Any = None, *, retain_graph: bool = False) -> None:
    """Leave d(root)/d(leaf), times grad, in each leaf's `.grad`, added to what is there.

    ``grad(input) += grad(output) * d(output)/d(input)`` for every operation, youngest first.

    Args:
        root: where to start.
        grad: gradient of the root; 1 if left out, which needs a root of one element.
        retain_graph: keep what was saved, for another backward.

    Raises:
        InvalidInputError: no graph, a graph already freed, a missing or misshapen grad.
    """
    seed = _seed(root, grad)
    nodes = _nodes_of(root)
    pending: dict[int, tuple[Tensor, Tensor]] = {id(root): (root, seed)}  # tensor and its gradient so far
    with grad_mode(False), phase("backward"):
        for node, output in nodes:
            _, grad_output = pending.pop(id(output))
            if output._retains_grad:
                _accumulate(output, grad_output, {})
            with inside_module(node.module):
                gradients = node.op.backward(node.context, grad_output)
                for operand, gradient in zip(node.inputs, gradients):
                    _add_pending(pending, operand, gradient)
            if not retain_graph:
                node.free()
        owners: dict[int, Tensor] = {seed.storage_id: seed} if grad is not None else {}
        for leaf, gradient in pending.values():
            _accumulate(leaf, gradient, owners)


def _seed(root: Tensor, grad: Any) -> Tensor:
    if not root.requires_grad:
        raise InvalidInputError(
            "backward needs a tensor that depends on one with requires_grad=True", given=f"shape {root.shape}, "
            "requires_grad=False", next_step="Set requires_grad=True on an input, and leave no_grad().")
    if grad is None and root.size != 1:
        raise InvalidInputError(
            "backward without a gradient starts from a single number", given=f"shape {root.shape}",
            next_step=f"Reduce first (.sum() or .mean()), or pass a gradient of shape {root.shape}.")
    if grad is None:
        return root.wrap(np.ones(root.shape, dtype=root.data.dtype), root.dtype)
    seed = root.as_operand(np.asarray(grad, dtype=root.data.dtype) if not hasattr(grad, "node") else grad)
    seed = seed.detach().to(root.dtype)
    if seed.shape != root.shape:
        raise InvalidInputError("the gradient must have the tensor's shape", allowed=str(root.shape),
                                given=str(seed.shape))
    return seed


def _nodes_of(root: Tensor) -> list[tuple[Node, Tensor]]:
    """All nodes behind a tensor with the tensor each made, youngest first."""
    found: dict[int, tuple[Node, Tensor]] = {}
    stack = [root]
    while stack:
        tensor = stack.pop()
        node = tensor.node
        if node is None or node.sequence in found:
            continue
        if node.is_freed:
            raise InvalidInputError(
                "this graph was already used by a backward, which freed what it had saved",
                given=f"a second backward through '{node.op.name}'",
                next_step="Run forward again, or pass retain_graph=True to the first backward.")
        found[node.sequence] = (node, tensor)
        stack.extend(operand for operand, needed in zip(node.inputs, node.context.needs) if needed)
    return [found[sequence] for sequence in sorted(found, reverse=True)]


def _add_pending(pending: dict[int, tuple[Tensor, Tensor]], operand: Tensor, gradient: Tensor | None) -> None:
    """Add one contribution to an operand's gradient: every use of a tensor adds one."""
    if gradient is None:
        return
    earlier = pending.get(id(operand))
    pending[id(operand)] = (operand, gradient if earlier is None else earlier[1] + gradient)


def _accumulate(tensor: Tensor, gradient: Tensor, owners: dict[int, Tensor]) -> None:
    """Store a gradient, or add it to the one that is there; each leaf owns its gradient's memory."""
    if tensor.grad is not None:
        tensor.grad = tensor.grad + gradient
        return
    owns_memory = gradient.nbytes == gradient.storage_nbytes  # not a part of it, nor one with repeats
    if gradient.storage_id in owners or not owns_memory:
        gradient = _owned_copy(gradient)
    owners[gradient.storage_id] = gradient
    tensor.grad = gradient


def _owned_copy(gradient: Tensor) -> Tensor:
    from course_lib.tensor.ops_shape import row_major_copy

    return row_major_copy(gradient)
