"""The dictionary of string ids: each string has a number, which stands for it in the id map."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from fpstore.aliases import Words
from fpstore.arguments import MAX_ID_BYTES
from fpstore.disk.sealed import SealedReader, SealedWriter
from fpstore.errors import CorruptStoreError, InputError

STRINGS_FILE = "strings.mdb"
STRINGS = b"strings"
NUMBERS = b"numbers"
MAX_STRING_BYTES = MAX_ID_BYTES
APPEND_ITEMS = 1 << 11
TICK_ROWS = 1 << 14


class StringWriter:
    """Numbers strings in the order of first appearance, in an LMDB file."""

    def __init__(self, writer: SealedWriter) -> None:
        self._writer = writer
        self._names = writer.database(STRINGS)
        self._numbers = writer.database(NUMBERS)
        self.count = 0

    def number(self, names: Sequence[str]) -> Words:
        """Return the numbers of strings; new strings are added."""
        encoded = [name.encode() for name in names]
        longest = max(encoded, key=len, default=b"")
        if len(longest) > MAX_STRING_BYTES:
            raise InputError(f"a string id takes at most {MAX_STRING_BYTES} bytes of UTF-8, got one of {len(longest)}")
        hashes = {name: xxhash.xxh64_digest(name) for name in dict.fromkeys(encoded)}

        def work(transaction: Any) -> dict[bytes, int]:
            known: dict[bytes, bytes] = (
                dict(transaction.cursor(self._numbers).getmulti(sorted(set(hashes.values())))) if self.count else {}
            )
            numbers: dict[bytes, int] = {}
            changed: dict[bytes, bytes] = {}
            fresh: list[tuple[bytes, bytes]] = []
            for name, key in hashes.items():
                places = known.get(key, b"")
                number = self._find(transaction, places, name) if places else None
                if number is None:
                    number = self.count + len(fresh)
                    place = struct.pack(">Q", number)
                    fresh.append((place, sealed_string(number, name)))
                    changed[key] = changed.get(key, places) + place
                numbers[name] = number
            transaction.cursor(self._names).putmulti(fresh, append=True)
            transaction.cursor(self._numbers).putmulti(sorted(changed.items()))
            return numbers

        numbers = self._writer.run(work)
        self.count = max(self.count, max(numbers.values(), default=-1) + 1)
        return np.fromiter((numbers[name] for name in encoded), np.uint64, len(encoded))

    def _find(self, transaction: Any, places: bytes, name: bytes) -> int | None:
        for (number,) in struct.iter_unpack(">Q", places):
            if transaction.get(struct.pack(">Q", number), db=self._names) == sealed_string(number, name):
                return int(number)
        return None


def sealed_string(number: int, name: bytes) -> bytes:
    """Return the dictionary's value for a string: the low half of its XXH64, seeded with its number, then the string."""
    return struct.pack("<I", xxhash.xxh64_intdigest(name, number) & 0xFFFFFFFF) + name


class Strings:
    """Reads the dictionary: numbers to strings."""

    def __init__(self, reader: SealedReader) -> None:
        self._reader = reader

    def string(self, number: int) -> str:
        """Return the string of a number."""
        return self._opened(number, self._reader.get(struct.pack(">Q", number), STRINGS)).decode()

    def several(self, numbers: Words) -> list[str]:
        """Return the strings of ascending numbers; each is looked up once."""
        packed = numbers.astype(">u8").tobytes()
        values = self._reader.get_many([packed[i : i + 8] for i in range(0, len(packed), 8)], STRINGS)
        return [self._opened(number, value).decode() for number, value in zip(numbers.tolist(), values, strict=True)]

    def number(self, name: bytes) -> int | None:
        """Return the number of a string, or None.

        Raises
        ------
        CorruptStoreError
            A number listed under the hash has no intact string with that hash, so the string may be this one.
        """
        key = xxhash.xxh64_digest(name)
        for number in self._listed(key):
            found = self._opened(number, self._reader.get(struct.pack(">Q", number), STRINGS))
            if found == name:
                return number
            if xxhash.xxh64_digest(found) != key:
                raise self._damaged(f"id number {number} is listed for another string")
        return None

    def _listed(self, key: bytes) -> list[int]:
        """Return the numbers that are listed under a hash."""
        places = self._reader.get(key, NUMBERS)
        if places is None:
            return []
        if not places or len(places) % 8:
            raise self._damaged(f"the numbers of hash {key.hex()} are damaged")
        return [number for (number,) in struct.iter_unpack(">Q", places)]

    def _damaged(self, what: str) -> CorruptStoreError:
        return CorruptStoreError(f"{self._reader.path}: {what}: run fpstore repair", path=self._reader.path)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, string in UTF-8) in order of the numbers."""
        for key, value in self._reader.items(STRINGS):
            number = int.from_bytes(key, "big")
            yield number, self._opened(number, value)

    def places(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (hash, numbers of the strings that have it) in order of the hashes."""
        return self._reader.items(NUMBERS)

    @property
    def file_bytes(self) -> int:
        """Size of the file on disk."""
        return self._reader.file_bytes

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _opened(self, number: int, value: bytes | None) -> bytes:
        if value is not None and len(value) > 4:
            name = value[4:]
            if xxhash.xxh64_intdigest(name, number) & 0xFFFFFFFF == int.from_bytes(value[:4], "little"):
                return name
        what = "has no string" if value is None else "has a damaged string"
        raise CorruptStoreError(f"{self._reader.path}: id number {number} {what}", path=self._reader.path)

    def verify(self, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Check each string, and that it leads back to its number.

        ``tick`` is called now and then with the number of strings checked since the last call.
        """
        self._reader.verify()
        names = 0
        for number, name in self.items():
            names += 1
            if names % TICK_ROWS == 0:
                tick(TICK_ROWS)
            places = self._reader.get(xxhash.xxh64_digest(name), NUMBERS) or b""
            if struct.pack(">Q", number) not in [places[i : i + 8] for i in range(0, len(places), 8)]:
                raise CorruptStoreError(
                    f"{self._reader.path}: the id dictionary is damaged at number {number}", path=self._reader.path
                )
        count = sum(len(value) // 8 for _, value in self.places()) if names else 0
        if count != names:
            raise CorruptStoreError(
                f"{self._reader.path}: the id dictionary has {names} strings and {count} numbers", path=self._reader.path
            )


class NewStrings:
    """Strings of other stores, which get the next numbers. They are kept in a file, since there may be any number of them.

    Parameters
    ----------
    path : Path
        The file to create.
    first : int
        The first number.
    """

    def __init__(self, path: Path, first: int) -> None:
        self._path, self.first = path, first
        self._writer = SealedWriter(path)
        self._numbers = StringWriter(self._writer)
        self._reader: SealedReader | None = None

    def __len__(self) -> int:
        return self._numbers.count

    def number(self, names: Sequence[str]) -> Words:
        """Return the numbers of the strings; new ones are added."""
        return self._numbers.number(names) + np.uint64(self.first)

    def _names(self) -> Strings:
        if self._reader is None:
            self._writer.finish()
            self._reader = SealedReader(self._path, (STRINGS, NUMBERS))
        return Strings(self._reader)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, string) in order of the numbers; after this, nothing can be added."""
        return ((self.first + number, name) for number, name in self._names().items())

    def places(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (hash, numbers) in order of the hashes; after this, nothing can be added."""
        for key, value in self._names().places():
            yield key, b"".join(struct.pack(">Q", self.first + number) for (number,) in struct.iter_unpack(">Q", value))

    def close(self) -> None:
        """Close the file."""
        if self._reader is None:
            self._writer.abort()
        else:
            self._reader.close()


class StringSources(NamedTuple):
    """Where the strings of a new dictionary come from.

    Attributes
    ----------
    old : Strings or None
        The dictionary with the numbers below ``first``.
    added : sequence of bytes
        The strings with the numbers from ``first`` on; the numbers of empty ones are unused.
    first : int
    joined : NewStrings or None
        The strings with the numbers after those.
    """

    old: Strings | None
    added: Sequence[bytes]
    first: int
    joined: NewStrings | None = None


def merge_strings(path: Path, sources: StringSources, used: npt.NDArray[np.bool_], tick: Callable[[], None]) -> dict[str, int]:
    """Write a dictionary of the strings whose numbers are in use, and return its record for the manifest.

    Parameters
    ----------
    path : Path
        The file to create.
    sources : StringSources
    used : ndarray of bool
        Whether each of these numbers is in use.
    tick : callable
        Called now and then.
    """
    old, added, first, joined = sources
    writer = SealedWriter(path)
    try:
        names, numbers = writer.database(STRINGS), writer.database(NUMBERS)
        extra = [(first + i, name) for i, name in enumerate(added) if name and used[first + i]]
        kept = ((number, name) for number, name in (old.items() if old else ()) if number < len(used) and used[number])
        after = ((number, name) for number, name in (joined.items() if joined else ()) if used[number])
        values = ((struct.pack(">Q", number), sealed_string(number, name)) for number, name in chain(kept, extra, after))
        _append(writer, names, values, tick)
        fresh: dict[bytes, bytes] = {}
        for number, name in extra:
            key = xxhash.xxh64_digest(name)
            fresh[key] = fresh.get(key, b"") + struct.pack(">Q", number)
        places = heapq.merge(old.places() if old else (), sorted(fresh.items()), joined.places() if joined else ())
        _append(writer, numbers, _in_use(places, used), tick)
        size, digest = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return {"bytes": size, "digest": digest, "largest": 0}


def _in_use(places: Iterable[tuple[bytes, bytes]], used: npt.NDArray[np.bool_]) -> Iterator[tuple[bytes, bytes]]:
    """Join the numbers of equal hashes, and leave out those that are not in use."""
    for key, group in groupby(places, key=itemgetter(0)):
        found = b"".join(value for _, value in group)
        kept = [found[i : i + 8] for i in range(0, len(found), 8) if _is_used(int.from_bytes(found[i : i + 8], "big"), used)]
        if kept:
            yield key, b"".join(kept)


def _is_used(number: int, used: npt.NDArray[np.bool_]) -> bool:
    return number < len(used) and bool(used[number])


def _append(writer: SealedWriter, database: object, items: Iterator[tuple[bytes, bytes]], tick: Callable[[], None]) -> None:
    while batch := list(islice(items, APPEND_ITEMS)):
        writer.run(partial(_put_all, database, batch))
        tick()


def _put_all(database: object, batch: list[tuple[bytes, bytes]], transaction: Any) -> None:
    transaction.cursor(database).putmulti(batch, append=True)
