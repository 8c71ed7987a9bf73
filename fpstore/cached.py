"""Properties that are computed once per object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class CachedProperty(Generic[T]):
    """A property that is computed at its first use, and kept.

    Two threads may compute it at the same time. In Python 3.11, that of functools holds a lock instead, one for all objects,
    which a fork can leave held in the child.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> CachedProperty[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> CachedProperty[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


cached_property = CachedProperty
