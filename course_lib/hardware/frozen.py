"""A mapping that cannot be changed: hashable, copied and pickled like the frozen records that hold it."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["FrozenDict"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A dict without the ways to change it.

    >>> peaks = FrozenDict({"bf16": 989e12})
    >>> hash(peaks) == hash(FrozenDict({"bf16": 989e12}))
    True
    >>> peaks["fp4"] = 1.0
    Traceback (most recent call last):
        ...
    TypeError: this mapping is part of a frozen record; use dataclasses.replace to make a changed record
    """

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "this mapping is part of a frozen record; use dataclasses.replace to make a changed record"
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[Key, Value]], tuple[dict[Key, Value]]]:
        return FrozenDict, (dict(self),)
