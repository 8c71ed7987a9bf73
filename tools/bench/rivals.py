"""The rivals: exact indexes for the same radius, which run beside a store."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bench.answers import Answers
from bench.data import Words
from bench.harness import Growth, available_memory
from fpstore import _kernel
from fpstore.design.families import design as make_design
from fpstore.query.batches import queries_at_once, split_queries

MEMORY_SHARE = 0.8


class MissingError(Exception):
    """A rival cannot run here; the message says why."""


class Rival(Protocol):
    """An index over a set of distinct keys."""

    bytes: int

    def run(self, queries: Words, threads: int) -> object:
        """Do the work that is timed."""

    def answers(self, queries: Words) -> Answers:
        """Return what it finds."""


class Contender(NamedTuple):
    """A rival that is not built yet."""

    name: str
    make: Callable[[Words], Rival]
    bytes_per_fingerprint: float  # about, while it is built: to know beforehand whether it fits
    has_ids: bool
    most_log2: int = 64
    threads: tuple[int, ...] = (1, 2)

    def log2(self, size_: int) -> int:
        """Return the largest size up to the wanted one that it can take here."""
        size = min(size_, self.most_log2)
        while self.bytes_per_fingerprint * 2.0**size > MEMORY_SHARE * available_memory():
            size -= 1
        return size


class Faiss:
    """One of FAISS's binary indexes."""

    def __init__(self, keys: Words, make: Callable[[Any], Any]) -> None:
        try:
            import faiss
        except ImportError as error:
            raise MissingError("faiss is missing: pip install faiss-cpu") from error
        self._faiss, self._keys = faiss, keys
        with Growth() as grown:
            self._index = make(faiss)
            self._index.add(self._bytes(keys))
        self.bytes = grown.bytes

    @staticmethod
    def _bytes(words: Words) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)

    def run(self, queries: Words, threads: int) -> tuple[Any, Any, Any]:
        self._faiss.omp_set_num_threads(threads)
        # FAISS reports distances below its radius.
        lims, distances, rows = self._index.range_search(self._bytes(queries), 4)
        return lims, distances, rows

    def answers(self, queries: Words) -> Answers:
        lims, _, rows = self.run(queries, 1)
        return Answers(lims.astype(np.int64), self._keys[rows])


def _multi_hash(faiss: Any, hashes: int, bits: int, flips: int) -> Any:
    index = faiss.IndexBinaryMultiHash(64, hashes, bits)
    index.nflip = flips
    return index


class SimhashPackage:
    """`SimhashIndex` of the package `simhash`: dicts of sets of strings, in Python."""

    def __init__(self, keys: Words) -> None:
        try:
            import simhash
        except ImportError as error:
            raise MissingError("simhash is missing: pip install simhash") from error
        self._simhash, self._keys = simhash, keys
        with Growth() as grown:
            self._index = simhash.SimhashIndex(
                [(str(row), simhash.Simhash(key)) for row, key in enumerate(keys.tolist())], k=3
            )
        self.bytes = grown.bytes

    def run(self, queries: Words, threads: int) -> list[list[str]]:
        assert threads == 1
        return [
            self._index.get_near_dups(self._simhash.Simhash(query)) for query in queries.tolist()
        ]

    def answers(self, queries: Words) -> Answers:
        rows = self.run(queries, 1)
        matches = [self._keys[np.array(r, dtype=np.int64)] for r in rows]
        return Answers(
            np.cumsum([0, *map(len, rows)], dtype=np.int64),
            np.concatenate([np.empty(0, np.uint64), *matches]),
        )


class _Table(ctypes.Structure):
    _fields_ = (
        ("entries", ctypes.c_void_p),
        ("permutation", ctypes.c_void_p),
        ("variants", ctypes.c_void_p),
        ("variant_count", ctypes.c_uint64),
        ("prefix_bits", ctypes.c_uint32),
        ("flips", ctypes.c_uint32),
    )


def compile_rival(folder: Path) -> ctypes.CDLL:
    """Compile rival.cpp for this machine into a folder, unless it is there already, and load it."""
    library = folder / "rival.so"
    if not library.exists():
        compiler = shutil.which("g++")
        if compiler is None:
            raise MissingError("g++ is missing")
        flags = ["-std=c++17", "-O3", "-march=native", "-Wall", "-Wextra", "-shared", "-fPIC"]
        subprocess.run(
            [compiler, *flags, str(Path(__file__).with_name("rival.cpp")), "-o", str(library)],
            check=True,
        )
    loaded = ctypes.CDLL(str(library))
    loaded.rival_probe.restype = ctypes.c_void_p
    loaded.rival_probe.argtypes = [
        ctypes.POINTER(_Table),
        ctypes.c_uint32,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_void_p,
    ]
    loaded.rival_take.restype = None
    loaded.rival_take.argtypes = [ctypes.c_void_p] * 3
    return loaded


class Uncompressed:
    """The tables of a design as sorted arrays with a binary search.

    The same look-ups as the store's.
    """

    def __init__(self, keys: Words, design: str, library: ctypes.CDLL) -> None:
        self._library, self._count = library, len(keys)
        self._design = made = make_design(design, 3)
        lookups = made.lookups(len(keys))
        self._kept: list[npt.NDArray[Any]] = []
        self._tables = (_Table * len(lookups))()
        self.bytes = 0
        for place, lookup in enumerate(lookups):
            spec = made.tables[lookup.table]
            permutation = np.frombuffer(spec.permutation, np.uint8)
            entries = np.sort(_kernel.permute(keys, permutation))
            self._kept += [permutation, entries, lookup.masks]
            self.bytes += entries.nbytes
            self._tables[place] = _Table(
                entries.ctypes.data,
                permutation.ctypes.data,
                lookup.masks.ctypes.data,
                len(lookup.masks),
                lookup.prefix_bits,
                lookup.flips,
            )

    def _probe(self, queries: Words) -> tuple[npt.NDArray[np.int64], Words, npt.NDArray[np.uint8]]:
        lims = np.empty(len(queries) + 1, np.int64)
        search = self._library.rival_probe(
            self._tables,
            len(self._tables),
            self._count,
            queries.ctypes.data,
            len(queries),
            3,
            lims.ctypes.data,
        )
        fingerprints = np.empty(int(lims[-1]), np.uint64)
        distances = np.empty(int(lims[-1]), np.uint8)
        self._library.rival_take(search, fingerprints.ctypes.data, distances.ctypes.data)
        return lims, fingerprints, distances

    def run(
        self, queries: Words, threads: int
    ) -> list[tuple[npt.NDArray[np.int64], Words, npt.NDArray[np.uint8]]]:
        parts = split_queries(queries, threads, queries_at_once(self._design, self._count))
        if threads == 1:
            return [self._probe(part) for part in parts]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self._probe, parts))

    def answers(self, queries: Words) -> Answers:
        lims, fingerprints, _ = self._probe(np.ascontiguousarray(queries))
        return Answers(lims, fingerprints)


def outside() -> list[Contender]:
    """Return the indexes that others wrote.

    Bytes per fingerprint as measured at 2^22 to 2^24, with room to grow.
    """
    return [
        Contender(
            "faiss IndexBinaryMultiHash 2x32 nflip=1",
            lambda k: Faiss(k, lambda f: _multi_hash(f, 2, 32, 1)),
            230,
            True,
            27,
        ),
        Contender(
            "faiss IndexBinaryMultiHash 4x16 nflip=0",
            lambda k: Faiss(k, lambda f: _multi_hash(f, 4, 16, 0)),
            100,
            True,
            26,
        ),
        Contender(
            "faiss IndexBinaryFlat", lambda k: Faiss(k, lambda f: f.IndexBinaryFlat(64)), 24, True
        ),
        Contender("simhash SimhashIndex", SimhashPackage, 3000, True, 16, (1,)),
    ]


def uncompressed(design: str, folder: Path) -> Contender:
    """Return the uncompressed tables of a design, to be compiled when they are made."""
    tables = len(make_design(design, 3).tables)
    return Contender(
        f"uncompressed {design}",
        lambda keys: Uncompressed(keys, design, compile_rival(folder)),
        8.0 * (tables + 3),
        False,
    )
