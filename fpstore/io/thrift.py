"""Structs in the compact protocol of Apache Thrift, in which a Parquet file has its metadata.

They are read and written without their schema, so that no field is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# types of the protocol; a flag has its value in its type
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE, _BINARY, _LIST, _SET, STRUCT = (
    *range(1, 11),
    12,
)
_INTEGERS, _FLAGS, _LISTS = (_SHORT, _INT, _LONG), (_TRUE, _FALSE), (_LIST, _SET)
_FIXED_SIZES = {_BYTE: 1, _DOUBLE: 8}
_LONG_LIST = 15  # elements, from which on the number of them stands apart


class Field(NamedTuple):
    """A field of a struct: its type, and an int, bytes, a `Struct`, or a list with its type."""

    kind: int
    value: Any


Struct = dict[int, Field]


def decode_struct(data: memoryview) -> Struct:
    """Return the fields of a struct by their numbers; ValueError for a map."""
    return _Decoder(data).struct()


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def struct(self) -> Struct:
        fields, number = Struct(), 0
        while header := self._byte():
            step, kind = header >> 4, header & 15
            number = number + step if step else self._value(_SHORT)
            fields[number] = Field(kind, self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            zigzag = self._varint()
            return zigzag >> 1 ^ -(zigzag & 1)
        if kind == STRUCT:
            return self.struct()
        if kind in _LISTS:
            return self._list()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in _FIXED_SIZES:
            return self._take(_FIXED_SIZES[kind])
        _check_flag(kind)
        return None

    def _list(self) -> tuple[int, list[Any]]:
        header = self._byte()
        size, kind = header >> 4, header & 15
        if size == _LONG_LIST:
            size = self._varint()
        return kind, [self._value(_element(kind)) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) > 0x7F:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift


def encode_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct."""
    parts, before = list[bytes](), 0
    for number, (kind, value) in fields.items():
        step, before = number - before, number
        if 0 < step < 16:
            parts.append(bytes([step << 4 | kind]))
        else:
            parts += [bytes([kind]), _encode(_SHORT, number)]
        parts.append(_encode(kind, value))
    return b"".join([*parts, b"\0"])


def _encode(kind: int, value: Any) -> bytes:
    if kind in _INTEGERS:
        return _encode_varint(value << 1 if value >= 0 else ~(value << 1))
    if kind == STRUCT:
        return encode_struct(value)
    if kind in _LISTS:
        return _encode_list(*value)
    if kind == _BINARY:
        return _encode_varint(len(value)) + bytes(value)
    if kind in _FIXED_SIZES:
        return bytes(value)
    _check_flag(kind)
    return b""


def _encode_list(kind: int, values: list[Any]) -> bytes:
    size = len(values)
    header = bytes([min(size, _LONG_LIST) << 4 | kind])
    if size >= _LONG_LIST:
        header += _encode_varint(size)
    return header + b"".join(_encode(_element(kind), value) for value in values)


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _element(kind: int) -> int:
    """Return the type of an element of a list: a flag is a byte there."""
    return _BYTE if kind in _FLAGS else kind


def _check_flag(kind: int) -> None:
    if kind not in _FLAGS:
        raise ValueError(f"no type {kind} of the compact protocol is known")
