"""Builds objects of dataclasses from JSON."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, Dict, Type, TypeVar, Union

T = TypeVar("T")


def build(cls: Type[T], value: Any) -> T:
    """Returns an object of `cls`. Fields that `value` lacks have their defaults; those that `cls` lacks are dropped."""
    return typing.cast(T, _convert(cls, value))


@functools.lru_cache(maxsize=None)
def _types(cls: Any) -> Dict[str, Any]:
    return typing.get_type_hints(cls)


def _convert(kind: Any, value: Any) -> Any:
    if value is None or kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union:
        return _convert(arguments[0], value)
    if origin is list:
        return [_convert(arguments[0], item) for item in value]
    if origin is dict:
        # A list of pairs, where the order matters.
        return {key: _convert(arguments[1], item) for key, item in (value.items() if isinstance(value, dict) else value)}
    if origin is tuple:
        return tuple(_convert(item_kind, item) for item_kind, item in zip(arguments, value))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        types = _types(kind)
        return kind(**{name: _convert(types[name], item) for name, item in value.items() if name in types})
    # JSON has addresses as text, since its numbers hold 53 bits only.
    if kind is int and isinstance(value, str):
        return int(value, 16)
    return value
