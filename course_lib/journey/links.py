"""A chain of links: named pure functions, evaluated when first needed, each showing its formula and its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import InvalidInputError, UnknownNameError

__all__ = ["BASES", "Chain", "Link", "LinkRule", "link"]

BASES = ("counted", "computed", "assumed", "cited")
"""Counted from shapes or executed code; computed by the formula; assumed (change it!); cited from a source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One number of the journey.

    Args:
        name: of the link, and of the argument of the links that use it.
        title: the field's words.
        value: the number.
        unit: of the value.
        formula: how it follows from its inputs, as text.
        basis: one of :data:`BASES`.
        binds: this link keeps the bill from being smaller.
        inputs: (name, value) of the numbers it was made from.
        source: citation of a cited number, or what an assumption is.
    """

    name: str
    title: str
    value: float
    unit: str
    formula: str
    basis: str
    binds: bool = False
    inputs: tuple[tuple[str, float], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRule:
    """How a link is made: a pure function whose argument names are the links and inputs that it needs.

    Args:
        per_batch: the function takes ``batches``, an array of batch sizes, or links that do; elsewhere such a link
            has the value at the chosen batch.
        shown: whether the link is a row of the explanation.
    """

    name: str
    title: str
    unit: str
    formula: str
    basis: str
    function: Callable[..., Any]
    needs: tuple[str, ...]
    per_batch: bool = False
    shown: bool = True

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise InvalidInputError("a link has a basis", given=repr(self.basis), allowed=", ".join(BASES))

    def with_function(self, function: Callable[..., Any]) -> LinkRule:
        """The same link made by another function (its argument names say what it needs)."""
        return replace(self, function=function, needs=tuple(inspect.signature(function).parameters))


def link(
    title: str, unit: str, formula: str, *, basis: str = "computed", per_batch: bool = False, shown: bool = True
) -> Callable[[Callable[..., Any]], LinkRule]:
    """Turn a function into the rule of the link that has its name.

    >>> @link("area", "m2", "width * height")
    ... def area(width, height):
    ...     return width * height
    >>> area.needs
    ('width', 'height')
    """

    def rule(function: Callable[..., Any]) -> LinkRule:
        return LinkRule(
            name=function.__name__, title=title, unit=unit, formula=formula, basis=basis, function=function,
            needs=tuple(inspect.signature(function).parameters), per_batch=per_batch, shown=shown,
        )  # fmt: skip

    return rule


class Chain:
    """Evaluates rules over inputs; each link is made once, when it is first needed.

    >>> @link("area", "m2", "width * height")
    ... def area(width, height):
    ...     return width * height
    >>> Chain((area,), {"width": 3, "height": 4})["area"]
    12
    """

    def __init__(self, rules: Iterable[LinkRule], inputs: Mapping[str, Any]) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self.inputs = inputs
        self._values: dict[str, Any] = dict(inputs)
        self._values["over"] = self.over

    def __getitem__(self, name: str) -> Any:
        """The value of a link or an input; a per-batch link at the chosen batch."""
        if name not in self._values:
            rule = self._rule(name)
            if rule.per_batch:
                self._values[name] = float(self.over(name, np.array([self["batch"]]))[0])
            else:
                self._values[name] = rule.function(**{need: self[need] for need in rule.needs})
        return self._values[name]

    def with_inputs(self, **changes: Any) -> Chain:
        """The chain with some inputs changed; links that do not depend on them are not made again."""
        affected, grown = set(changes), True
        while grown:
            grown = False
            for rule in self.rules.values():
                needs = (*rule.needs, "batch") if rule.per_batch else rule.needs
                if rule.name not in affected and not affected.isdisjoint(needs):
                    affected.add(rule.name)
                    affected.update(("over",) if rule.per_batch else ())
                    grown = True
        chain = Chain(self.rules.values(), {**self.inputs, **changes})
        chain._values.update({name: value for name, value in self._values.items() if name not in {*affected, "over"}})
        return chain

    def over(self, name: str, batches: NDArray[np.float64]) -> NDArray[np.float64]:
        """A per-batch link for many batch sizes at once."""
        return self._over(name, {"batches": batches})

    def _over(self, name: str, known: dict[str, Any]) -> NDArray[np.float64]:
        if name not in known:
            rule = self._rule(name)
            needs = {
                need: self._over(need, known) if need == "batches" or self._is_per_batch(need) else self[need]
                for need in rule.needs
            }
            known[name] = np.broadcast_to(rule.function(**needs), known["batches"].shape)
        return known[name]  # type: ignore[no-any-return]

    def _is_per_batch(self, name: str) -> bool:
        return name in self.rules and self.rules[name].per_batch

    def _rule(self, name: str) -> LinkRule:
        if name not in self.rules:
            raise UnknownNameError("link", name, {*self.rules, *self.inputs})
        return self.rules[name]

    def links(self, binding: Iterable[str], sources: Mapping[str, str]) -> tuple[Link, ...]:
        """Every shown link in the order of the rules; links without a value (a promise not made) are left out."""
        binding = set(binding)
        made = []
        for rule in self.rules.values():
            value = self[rule.name] if rule.shown else None
            if value is None:
                continue
            numbers = tuple((need, float(self[need])) for need in rule.needs if self._is_number(need))
            made.append(
                Link(
                    name=rule.name, title=rule.title, value=value, unit=rule.unit, formula=rule.formula,
                    basis=rule.basis, binds=rule.name in binding, inputs=numbers, source=sources.get(rule.name, ""),
                )
            )  # fmt: skip
        return tuple(made)

    def _is_number(self, need: str) -> bool:
        if need in ("over", "batches"):
            return False
        return isinstance(self[need], int | float) and not isinstance(self[need], bool)
