"""Names of fields: a field inside of another one has a dotted name, such as ``metadata.url``.

A field whose own name has the dot comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fpstore.errors import shorten

_LIKENESS = 0.6  # the least ratio of difflib at which a name is near another one
_SHOWN, _NEAREST = 8, 3  # names in a message
MAX_NAMES = 1000  # that are compared with one that is missing
_MISSING = object()


def _value(row: Any, name: str) -> Any:
    while isinstance(row, Mapping):
        if name in row:
            return row[name]
        outer, dot, inner = name.partition(".")
        if not dot or outer not in row:
            break
        row, name = row[outer], inner
    return _MISSING


def field_reader(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that reads a field of an object; None where it is missing."""
    if "." not in name:
        return lambda row: row.get(name)

    def read(row: Mapping[str, Any]) -> Any:
        value = _value(row, name)
        return None if value is _MISSING else value

    return read


def has_field(row: Mapping[str, Any], name: str) -> bool:
    """Whether an object has a field, which may be null."""
    return _value(row, name) is not _MISSING


def field_names(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of all fields of an object, those inside of others behind them."""
    for name, value in row.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from field_names(value, f"{prefix}{name}.")


def nearest_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that a mistyped one may stand for, the likeliest first.

    Case does not count, and a name may lack the fields around it, as ``url`` of ``metadata.url``.
    """
    from difflib import get_close_matches

    known = dict.fromkeys(names)
    inner = [known_name for known_name in known if known_name.endswith(f".{name}")]
    folded = {known_name.lower(): known_name for known_name in list(known)[:MAX_NAMES]}
    close = get_close_matches(name.lower(), folded, _NEAREST, _LIKENESS)
    return list(dict.fromkeys([*inner, *(folded[match] for match in close)]))[:_NEAREST]


def names_here(noun: str, name: str, shown: Sequence[str], names: Iterable[str]) -> str:
    """Return the names that there are, and of all names the nearest ones, for a message."""
    nearest = ", ".join(map(shorten, nearest_names(name, names)))
    listed = f"{noun} here: {', '.join(map(shorten, shown[:_SHOWN]))}"
    return f"{listed}; nearest: {nearest}" if nearest else listed
