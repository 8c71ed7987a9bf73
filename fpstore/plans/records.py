"""Dataclasses as JSON, and back: each value is written and read by the type of its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from fpstore import hashing
from fpstore.errors import show

PLAIN = {NoneType, str, int, float, bool}


def as_json(value: Any) -> Any:
    """Return a value as JSON; numbers and flags of NumPy, which users pass, become Python's.

    Fields of dataclasses whose metadata say ``resolved`` are left out.

    Raises
    ------
    TypeError
        A value of a type that JSON does not have.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, list | tuple | range):
        return [as_json(item) for item in value]
    if isinstance(value, hashing.Hasher):
        return as_json(value.describe())
    if is_dataclass(value) and not isinstance(value, type):
        written = (field.name for field in fields(value) if "resolved" not in field.metadata)
        return {name: as_json(getattr(value, name)) for name in written}
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} in a plan")


def from_json(kind: Any, value: Any) -> Any:
    """Return the value of a type that was written as JSON.

    Parameters
    ----------
    kind : type
        A dataclass, a named tuple or a hasher; a plain type; or a list, tuple or union of them. A
        union has at most one type that JSON writes as a list or an object.

    Raises
    ------
    TypeError, ValueError, KeyError
        The value is not of this type.
    """
    origin, kinds = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        if not isinstance(value, list | dict):
            return value
        structured = set(kinds) - PLAIN
        if not structured:
            raise TypeError(f"expected {kind}, got {show(value)}")
        return from_json(structured.pop(), value)
    if value is None:
        raise TypeError(f"expected {kind}, got nothing")
    if isinstance(value, list) and origin is not None:
        if len(kinds) == 1 or ... in kinds:
            item_kind = kinds[0]
            items = value if item_kind in PLAIN else [from_json(item_kind, item) for item in value]
        else:
            items = [from_json(*pair) for pair in zip(kinds, value, strict=True)]
        return tuple(items) if origin is tuple else items
    kind = origin or kind
    if not isinstance(kind, type):
        return value
    if issubclass(kind, hashing.Hasher):
        return hashing.from_description(value)
    if is_dataclass(kind):
        kinds_by_name = _field_types(kind)
        read = {name: from_json(kinds_by_name[name], item) for name, item in value.items()}
        resolved = (
            field.name for field in fields(kind) if field.init and "resolved" in field.metadata
        )
        return kind(**read, **dict.fromkeys(resolved))
    if issubclass(kind, tuple):
        pairs = zip(_field_types(kind).values(), value, strict=True)
        return kind(*(from_json(*pair) for pair in pairs))
    return value


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
