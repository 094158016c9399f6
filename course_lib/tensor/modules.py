"""Modules: parameters with names, and a dotted path for every operation that runs inside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from course_lib.errors import InvalidInputError, UnknownNameError
from course_lib.tensor.dispatch import current_module, inside_module
from course_lib.tensor.dtypes import dtype as dtype_record
from course_lib.tensor.ops_index import embedding
from course_lib.tensor.ops_nn import layer_norm, rms_norm
from course_lib.tensor.tensor import Tensor

__all__ = ["Embedding", "LayerNorm", "Linear", "Module", "Parameter", "RMSNorm", "Sequential"]


class Parameter(Tensor):
    """A tensor that training changes: it requires a gradient, and its memory is a parameter's.

    >>> Parameter([1.0]).meta.is_parameter
    True
    """

    __slots__ = ()

    def __init__(self, values: Any, *, dtype: str | None = None) -> None:
        super().__init__(values, dtype=dtype, requires_grad=True)
        self.is_parameter = True


class Module:
    """Something with parameters that can be called.

    A module learns its name when it becomes an attribute of another (a list or tuple of modules gives
    ``name.0``, ``name.1``...), and every operation inside its `forward` carries the dotted path.

    >>> class Twice(Module):
    ...     def __init__(self):
    ...         self.layer = Linear(2, 2, rng=np.random.default_rng(0))
    ...     def forward(self, x):
    ...         return self.layer(self.layer(x))
    >>> [name for name, _ in Twice().named_parameters()]
    ['layer.weight', 'layer.bias']
    """

    _name: str = ""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The computation; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run `forward` under this module's path."""
        outer = current_module()
        with inside_module(f"{outer}.{self._name}" if outer and self._name else outer or self._name):
            return self.forward(*inputs, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, list) and value and all(isinstance(item, Module) for item in value):
            value = tuple(value)  # a list could grow behind our back, and its new members would have no name
        for child_name, child in _children_in(name, value):
            object.__setattr__(child, "_name", child_name)
        object.__setattr__(self, name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted paths."""
        yield prefix, self
        for attribute, value in vars(self).items():
            for name, child in _children_in(attribute, value):
                yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names, each once, though two modules may share it."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for attribute, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{path}.{attribute}" if path else attribute), value

    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters."""
        return tuple(parameter for _, parameter in self.named_parameters())

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, shared ones once."""
        return sum(parameter.size for parameter in self.parameters())

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def load_parameters(self, values: Mapping[str, Any]) -> None:
        """Copy values in by name: exactly the names of `named_parameters`, in their shapes.

        Raises:
            UnknownNameError: a name that is not a parameter; InvalidInputError: one missing or misshapen.
        """
        own = dict(self.named_parameters())
        for name in values:
            if name not in own:
                raise UnknownNameError("parameter", name, own)
        for name, parameter in own.items():
            if name not in values:
                raise InvalidInputError("every parameter needs a value", given=f"none for '{name}'")
            array = np.asarray(values[name])
            if array.shape != parameter.shape:
                raise InvalidInputError(f"parameter '{name}' has shape {parameter.shape}", given=array.shape)
            parameter.data[...] = array


def _children_in(attribute: str, value: Any) -> list[tuple[str, Module]]:
    if isinstance(value, Module):
        return [(attribute, value)]
    if isinstance(value, tuple):
        return [(f"{attribute}.{i}", item) for i, item in enumerate(value) if isinstance(item, Module)]
    return []


def _sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or size < 1:
            raise InvalidInputError(f"{name} must be a whole number of at least 1", given=size)


def _uniform(shape: tuple[int, ...], bound: float, rng: np.random.Generator, dtype: str) -> Parameter:
    return Parameter(rng.uniform(-bound, bound, shape).astype(dtype_record(dtype).storage), dtype=dtype)


class Linear(Module):
    """y = x W^T + b, with W of shape (out, in) as in torch.

    Args:
        in_features: size of the last axis of x.
        out_features: size of the last axis of y.
        bias: whether there is b.
        rng: draws W and b uniformly from +-1/sqrt(in).
        dtype: of the parameters.

    >>> Linear(3, 2, rng=np.random.default_rng(0))(Tensor([[1.0, 2.0, 3.0]])).shape
    (1, 2)
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, rng: np.random.Generator,
                 dtype: str = "fp32") -> None:
        _sizes(in_features=in_features, out_features=out_features)
        bound = 1 / math.sqrt(in_features)
        self.weight = _uniform((out_features, in_features), bound, rng, dtype)
        self.bias = _uniform((out_features,), bound, rng, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        if x.shape[-1:] != self.weight.shape[1:]:
            raise InvalidInputError(f"this Linear takes a last axis of {self.weight.shape[1]}",
                                    given=f"x of shape {x.shape}")
        product = x @ self.weight.T
        return product if self.bias is None else product + self.bias


class Embedding(Module):
    """Row i of a table for token i: (V, D), drawn from a normal distribution as in torch."""

    def __init__(self, num_rows: int, size: int, *, rng: np.random.Generator, dtype: str = "fp32") -> None:
        _sizes(num_rows=num_rows, size=size)
        self.weight = Parameter(rng.standard_normal((num_rows, size)).astype(dtype_record(dtype).storage),
                                dtype=dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        return embedding(self.weight, tokens)


class RMSNorm(Module):
    """x / sqrt(mean x^2 + eps) * weight over the last axis."""

    def __init__(self, size: int, *, eps: float = 1e-5, dtype: str = "fp32") -> None:
        _sizes(size=size)
        self.weight = Parameter(np.ones(size), dtype=dtype)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return rms_norm(x, self.weight, eps=self.eps)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""

    def __init__(self, size: int, *, eps: float = 1e-5, dtype: str = "fp32") -> None:
        _sizes(size=size)
        self.weight = Parameter(np.ones(size), dtype=dtype)
        self.bias = Parameter(np.zeros(size), dtype=dtype)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return layer_norm(x, self.weight, self.bias, eps=self.eps)


class Sequential(Module):
    """Modules (or plain functions of a tensor) one after the other, named "0", "1"... as in torch."""

    def __init__(self, *stages: Any) -> None:
        self.stages = stages
        for position, stage in enumerate(stages):
            if isinstance(stage, Module):
                setattr(self, str(position), stage)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and its stages under their positions."""
        yield prefix, self
        for position, stage in enumerate(self.stages):
            if isinstance(stage, Module):
                yield from stage.named_modules(f"{prefix}.{position}" if prefix else str(position))

    def forward(self, x: Any) -> Any:
        """Each stage on the result of the one before."""
        for stage in self.stages:
            x = stage(x)
        return x
