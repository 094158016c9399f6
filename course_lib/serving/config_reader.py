"""Read one value at a time from a public ``config.json``, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.errors import InvalidInputError, UnsupportedError

__all__ = ["Config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration and where it comes from.

    Args:
        values: the parsed JSON object.
        origin: file or name that error messages give.

    >>> Config(values={"hidden_size": 8}, origin="tiny").size("hidden_size")
    8
    """

    values: Mapping[str, object]
    origin: str

    def size(self, key: str, *, default: int | None = None) -> int:
        """A positive whole number; ``default`` where the key is absent or null.

        >>> Config(values={}, origin="tiny").size("hidden_size")
        Traceback (most recent call last):
            ...
        course_lib.errors.InvalidInputError: tiny needs the key 'hidden_size', a positive whole number; given:
        nothing.
        """
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise InvalidInputError(
                    f"{self.origin} needs the key {key!r}, a positive whole number", given="nothing"
                )
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise InvalidInputError(
                f"{self.origin} needs the key {key!r} to be a positive whole number", given=repr(value)
            )
        return value

    def optional_size(self, key: str) -> int | None:
        """A positive whole number, or None where the key is absent or null."""
        return self.size(key) if self.values.get(key) is not None else None

    def count(self, key: str, *, default: int = 0) -> int:
        """A whole number of 0 or more; ``default`` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        return 0 if value == 0 and value is not False else self.size(key)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; ``default`` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInputError(f"{self.origin} needs the key {key!r} to be true or false", given=repr(value))
        return value

    def items(self, key: str) -> list[object]:
        """A list; empty where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InvalidInputError(f"{self.origin} needs the key {key!r} to be a list", given=repr(value))
        return value

    def layer_indices(self, key: str, num_layers: int) -> tuple[int, ...]:
        """A list of layer numbers, each below ``num_layers``."""
        indices = []
        for item in self.items(key):
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < num_layers:
                raise InvalidInputError(
                    f"{self.origin} needs {key!r} to list layers", allowed=f"0 to {num_layers - 1}", given=repr(item)
                )
            indices.append(item)
        return tuple(sorted(set(indices)))

    def refuse(self, key: str, reason: str, *, allowed: object = None) -> None:
        """Refuse a setting that is not modelled: anything but absent, null, false, 0 and ``allowed``.

        >>> Config(values={"add_cross_attention": True}, origin="x").refuse("add_cross_attention", "cross-attention")
        Traceback (most recent call last):
            ...
        course_lib.errors.UnsupportedError: cross-attention is not modelled (add_cross_attention = True in x).
        """
        value = self.values.get(key)
        if value and value != allowed:
            shown = type(value).__name__ if isinstance(value, Mapping | list) else repr(value)
            raise UnsupportedError(f"{reason} is not modelled ({key} = {shown} in {self.origin}).")
