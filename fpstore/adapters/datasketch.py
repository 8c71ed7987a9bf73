"""`MinHashLSH` of the package `datasketch`, on disk."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np

import fpstore
from fpstore.adapters.folder import FolderIndex
from fpstore.api import PathLike
from fpstore.base.aliases import Array
from fpstore.errors import InputError, show
from fpstore.hashing import PrecomputedMinHash
from fpstore.io.packages import import_package
from fpstore.lsh import LshStore

__all__ = ["MinHashLSH"]

DOCUMENTS = 10_000_000  # for which the length of keys is planned
LITERAL = "\0"  # starts an id that is the literal of a key


class MinHashLSH(FolderIndex[LshStore[str]]):
    """The methods of ``datasketch.MinHashLSH``, with its bands, in an LSH index.

    A query returns every key whose MinHash has an equal band, as there. Keys are strings, numbers,
    bytes, None, or tuples of these. An empty set has no MinHash, and is refused.

    Parameters
    ----------
    threshold, num_perm, weights, params
        As for ``datasketch.MinHashLSH``; at least 8 permutations, and at most 256 bands of 256.
    path : path-like, optional
        The folder of the index. If it exists, it is opened. Without it, the index is temporary.

    Raises
    ------
    InputError
        The index at the path has other bands, or a MinHash another length.

    Examples
    --------
    >>> from datasketch import MinHash
    >>> from fpstore.adapters.datasketch import MinHashLSH
    >>> cat, dog = MinHash(), MinHash()
    >>> cat.update_batch([b"the", b"cat", b"sat"]); dog.update_batch([b"a", b"dog", b"ran"])
    >>> index = MinHashLSH(threshold=0.5)
    >>> index.insert("cat", cat); index.insert(("dog", 1), dog)
    >>> index.query(dog), "cat" in index
    ([('dog', 1)], True)
    """

    _opening: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        threshold: float = 0.9,
        num_perm: int = 128,
        weights: tuple[float, float] = (0.5, 0.5),
        params: tuple[int, int] | None = None,
        *,
        path: PathLike | None = None,
    ) -> None:
        package = import_package("datasketch", "fpstore.adapters.datasketch")
        like = package.MinHashLSH(threshold, num_perm, weights, params)
        self.h, self.b, self.r = num_perm, like.b, like.r
        self._scheme: str | None = None  # of the MinHashes so far
        hasher = PrecomputedMinHash(count=num_perm)
        every = hasher.signature_bits
        plan = fpstore.lsh.plan(
            DOCUMENTS, hasher, threshold, background=0.0, bands=(self.b, self.r), radius=every
        )
        self._open(lambda folder: fpstore.lsh.build(folder, [], hasher=hasher, plan=plan), path)
        if self.store.bands != (self.b, self.r):
            stored = self.store.bands
            self.close()
            raise InputError(f"the index has {stored} bands and rows", expected=(self.b, self.r))

    def insert(self, key: Hashable, minhash: Any, check_duplication: bool = True) -> None:
        """Insert a key; InputError if it is there."""
        self.insert_many([(key, minhash)], check_duplication)

    def insert_many(self, rows: Iterable[tuple[Hashable, Any]], check: bool = True) -> None:
        """Insert pairs of key and MinHash in one change; InputError if a key is there."""
        pairs = list(rows)
        names = [_name(key) for key, _ in pairs]
        if check and (len({*names}) < len(names) or any(name in self.store.ids for name in names)):
            raise InputError("The given key already exists: keys are inserted once", got=names)
        minima = self._minima(minhash for _, minhash in pairs)
        self.store.insert(minima, names, threads=1 if len(names) == 1 else None)

    def query(self, minhash: Any) -> list[Any]:
        """Return the keys that share a band with a MinHash."""
        return [_key(match.id) for match in self.store.probe(self._minima([minhash])[0])]

    def query_many(self, minhashes: Iterable[Any]) -> list[list[Any]]:
        """Return for each of many MinHashes the keys that share a band with it."""
        matches = self.store.probe_many(self._minima(minhashes))
        return [[_key(match.id) for match in row] for row in matches]

    def remove(self, key: Hashable) -> None:
        """Remove a key; InputError if it is not there."""
        if not self.store.delete([_name(key)]).removed:
            raise InputError("The given key does not exist: remove keys that are there", got=key)

    def __contains__(self, key: Hashable) -> bool:
        return _name(key) in self.store.ids

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.store.ids)

    def is_empty(self) -> bool:
        """Return whether there is no key."""
        return len(self) == 0

    def insertion_session(self, buffer_size: int = 50_000) -> Session:
        """Return a context manager whose ``insert`` collects rows, and inserts them in batches."""
        return Session(self, buffer_size)

    @contextmanager
    def deletion_session(self, buffer_size: int = 50_000) -> Iterator[MinHashLSH]:
        """Return a context manager that has ``remove``."""
        yield self

    def _minima(self, minhashes: Iterable[Any]) -> Array:
        """Return the hash values of MinHashes in rows, and check that they compare."""
        rows = [np.empty((0, self.h), np.uint64)]
        for minhash in minhashes:
            scheme, values = getattr(minhash, "scheme", None), minhash.hashvalues
            self._scheme = self._scheme or scheme
            if len(values) != self.h or scheme != self._scheme:
                expected, got = (self.h, self._scheme), (len(values), scheme)
                message = f"a MinHash must have length {self.h}, and scheme {self._scheme}"
                raise InputError(f"{message}; got {got}", expected=expected, got=got)
            if values.ndim == 2:  # of a weighted MinHash: the element, and its quantized weight
                values = (values[:, 0] << 32) ^ (values[:, 1] & 0xFFFFFFFF)
            rows.append(values.astype(np.uint64)[None])
        return np.concatenate(rows)


class Session:
    """Inserts in batches."""

    def __init__(self, index: MinHashLSH, buffer_size: int) -> None:
        self._index, self._size = index, buffer_size
        self._rows: dict[bool, list[tuple[Hashable, Any]]] = {True: [], False: []}

    def insert(self, key: Hashable, minhash: Any, check_duplication: bool = True) -> None:
        """Insert a row at the latest when the session is closed."""
        rows = self._rows[check_duplication]
        rows.append((key, minhash))
        if len(rows) >= self._size:
            self.close()

    def close(self) -> None:
        """Insert the rows that wait."""
        for check, rows in self._rows.items():
            waiting, rows[:] = rows[:], []
            self._index.insert_many(waiting, check)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


def _name(key: Hashable) -> str:
    """Return the id of a key: a string itself, another key its literal."""
    if isinstance(key, str) and key and key[0] != LITERAL:
        return key
    try:
        if literal_eval(repr(key)) == key:
            return LITERAL + repr(key)
    except (ValueError, SyntaxError):
        pass
    raise InputError(f"a key is a string, a number or a tuple of these, got {show(key)}", got=key)


def _key(name: str) -> Any:
    return literal_eval(name[1:]) if name[0] == LITERAL else name
