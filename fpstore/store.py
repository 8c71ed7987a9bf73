"""The store: open, probe, scan, look inside, close."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fpstore import _kernel, layout
from fpstore.design import Design, check_radius
from fpstore.environment import Reader
from fpstore.errors import ClosedStoreError, InputError, ReadOnlyError, StoreNotFoundError
from fpstore.folder import is_store
from fpstore.ids import NAMES, NUMBERS, IdMap, Names
from fpstore.inspection import Report, describe, verify_store
from fpstore.io import check_fingerprints
from fpstore.matches import IdLookup, Match, Matches
from fpstore.resources import parse_threads
from fpstore.table import TableReader

Words = npt.NDArray[np.uint64]
Columns = tuple[Any, ...]  # lims, fingerprints, distances, and what else the kernel counts

SCAN_BLOCKS = 1 << 13  # blocks and queries of one kernel call: what a scan does between two looks at signals
SCAN_QUERIES = 1 << 8
PROBE_QUERIES = 1 << 16  # queries of one kernel call
SPLIT_QUERIES = 1 << 8  # fewer are not worth another thread
FIRST_BATCH = 1 << 12
QUICK_QUERIES = 1 << 10  # so few are done before anybody wants to stop them


class Store:
    """An exact Hamming-radius index on disk; made by :func:`fpstore.build`, opened by :func:`fpstore.open`.

    A context manager. Any number of processes may read a store at once; it survives ``fork``; after :meth:`close` every use is an
    error.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError
        From the constructor.
    """

    def __init__(self, path: Path, mode: str = "r") -> None:
        if mode not in ("r", "r+"):
            raise InputError(f"mode must be 'r' or 'r+', got {mode!r}")
        if mode == "r+":
            raise ReadOnlyError("mode 'r+' comes with inserts: this version builds and reads", path=path)
        self.path = path
        self._closed = True
        if not path.exists():
            raise StoreNotFoundError(f"{path}: no such store", path=path)
        if not is_store(path):
            raise StoreNotFoundError(f"{path}: not a fpstore store (no {layout.STORE_FILE} in it)", path=path)
        self._reader = Reader(path / layout.STORE_FILE, (layout.META, NAMES, NUMBERS))
        self._ids: IdMap | None = None
        self._open_tables: list[TableReader] = []
        self._closed = False
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        path = self.path / layout.STORE_FILE
        self._record = layout.unpack_record(self._reader.get(layout.STORE_KEY, layout.META), path, "store")
        layout.check_store_record(self._record, path)
        self._generation = layout.unpack_record(self._reader.get(layout.GENERATION_KEY, layout.META), path, "generation")
        self._design = Design.from_json(self._record["design"])
        folder = self.path / layout.generation_name(self._generation["number"])
        count, digest = self._generation["fingerprints"], self._generation["set_digest"]
        self._open_tables = [TableReader(folder / layout.table_name(i)) for i in range(len(self._design.tables))]
        for i, table in enumerate(self._tables):
            table.check_place(self._design, i, count, digest)
        self._ids = IdMap(folder / layout.IDS_FILE, digest, self._generation["ids_file"])
        self._names = Names(self._reader) if self._record["id_kind"] == "string" else None
        self._probers: dict[int, _kernel.Prober] = {}

    # Life cycle

    def close(self) -> None:
        """Give back every handle. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        self._probers = {}
        self._open_tables = []
        if self._ids is not None:
            self._ids.close()
        self._reader.close()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        """Pickle as the path: the other process opens the store anew."""
        self._check()
        return type(self), (self.path,)

    def _check(self) -> None:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)

    @property
    def _tables(self) -> list[TableReader]:
        """The tables in design order; ClosedStoreError when another thread has closed the store meanwhile."""
        tables = self._open_tables
        if not tables:
            self._check()
        return tables

    # Properties

    @property
    def kernel_tables(self) -> list[_kernel.Table]:
        """The kernel's tables, in design order: for benchmarks and tests."""
        self._check()
        return [table.kernel for table in self._tables]

    @property
    def radius(self) -> int:
        """The largest radius that probes answer from the tables."""
        return self._design.radius

    @property
    def design(self) -> Design:
        """The tables and why they suffice."""
        return self._design

    @property
    def fingerprinter(self) -> dict[str, Any] | None:
        """How the fingerprints were made (name, version, parameters), when the store was told."""
        made: dict[str, Any] | None = self._record["fingerprinter"]
        return made

    def __len__(self) -> int:
        """How many distinct fingerprints are stored."""
        self._check()
        return int(self._generation["fingerprints"])

    def __repr__(self) -> str:
        if self._closed:
            return f"<fpstore.Store {str(self.path)!r}, closed>"
        return f"<fpstore.Store {str(self.path)!r}: {len(self)} fingerprints, radius {self.radius}, design {self._design.name}>"

    def __contains__(self, fingerprint: object) -> bool:
        self._check()
        try:
            value = check_fingerprint(fingerprint)
        except InputError:
            return False
        return self._tables[0].kernel.locate_one(value) is not None

    def __getitem__(self, fingerprint: int) -> list[int] | list[str]:
        """Return the ids of a stored fingerprint; KeyError when it is not stored."""
        self._check()
        place = self._tables[0].kernel.locate_one(check_fingerprint(fingerprint))
        if place is None:
            raise KeyError(fingerprint)
        assert self._ids is not None
        return self._named(self._ids.get(*place))

    # Probing

    def probe(self, fingerprint: int, radius: int | None = None) -> list[Match]:
        """Find every stored fingerprint within ``radius`` bits of one.

        Parameters
        ----------
        fingerprint : int
            0 to 2^64 - 1.
        radius : int, optional
            0 to 64; by default the store's. A larger radius than the store's is answered by a scan of the whole first table.

        Returns
        -------
        list of Match
            Every match, once, by distance and fingerprint.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [0b1000, 0b1011])
        >>> [(m.fingerprint, m.distance) for m in store.probe(0b1001, radius=1)]
        [(8, 1), (11, 1)]
        """
        self._check()
        value = check_fingerprint(fingerprint)
        radius = self.radius if radius is None else check_radius(radius, 64)
        if radius > self.radius:
            return next(iter(self.scan(np.array([value], np.uint64), radius)))
        assert self._ids is not None
        found = self._prober(radius).probe_one(value, radius, self._tables[0].kernel)
        return [Match(f, distance, self._named(self._ids.get(block, rank))) for f, distance, block, rank in found]

    def probe_many(self, fingerprints: Any, radius: int | None = None, threads: int | None = None) -> Matches:
        """Find every stored fingerprint within ``radius`` bits of each query.

        Parameters
        ----------
        fingerprints : ndarray of uint64, shape (queries,), or sequence of int
        radius : int, optional
            0 to 64; by default the store's. A larger one is answered by :meth:`scan`.
        threads : int, optional
            By default one per processor.

        Returns
        -------
        Matches

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        self._check()
        queries = check_fingerprints(fingerprints)
        radius = self.radius if radius is None else check_radius(radius, 64)
        if radius > self.radius:
            return self.scan(queries, radius, threads)
        prober = self._prober(radius)
        workers = parse_threads(threads)
        columns = _probe(partial(prober.probe, radius=radius), _parts(queries, workers), workers)
        return _joined(columns, self.ids_of)

    def probe_batches(
        self, fingerprints: Any, radius: int | None = None, threads: int | None = None, matches: int = 1 << 22
    ) -> Iterator[Matches]:
        """Answer :meth:`probe_many` a part at a time, in bounded memory however many matches there are.

        Parameters
        ----------
        fingerprints : ndarray of uint64, shape (queries,), or sequence of int
        radius : int, optional
            0 to the store's, which is the default.
        threads : int, optional
            By default one per processor.
        matches : int
            The most matches to hold at once. Only a part of one query may have more.

        Yields
        ------
        Matches
            Of the next ``len(part)`` queries, in order.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        self._check()
        queries = check_fingerprints(fingerprints)
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        if matches < 1:
            raise InputError(f"matches must be at least 1, got {matches!r}")
        prober, workers = self._prober(radius), parse_threads(threads)
        start, size = 0, FIRST_BATCH
        while start < len(queries):
            self._check()
            part = queries[start : start + size]
            most = max(matches // workers, 1) if len(part) > 1 else None
            columns = _probe(partial(prober.probe, radius=radius, most=most), _parts(part, workers), workers)
            if any(column is None for column in columns):
                size = max(len(part) // 2, 1)
                continue
            found = _joined(columns, self.ids_of)
            yield found
            start += len(part)
            if len(found.fingerprints) < matches // 4:
                size = min(size * 2, PROBE_QUERIES * workers)

    def scan(self, fingerprints: Any, radius: int, threads: int | None = None) -> Matches:
        """Find every stored fingerprint within any ``radius`` (0 to 64) of each query, by reading the whole first table.

        The table is read once for all queries; the time grows with fingerprints x queries.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        self._check()
        queries = check_fingerprints(fingerprints)
        radius = check_radius(radius, 64)
        kernel = self._tables[0].in_order
        parts = [
            (q, b, min(b + SCAN_BLOCKS, kernel.block_count))
            for q in range(0, len(queries), SCAN_QUERIES)
            for b in range(0, kernel.block_count, SCAN_BLOCKS)
        ]
        columns = _run(
            lambda p: kernel.scan(queries[p[0] : p[0] + SCAN_QUERIES], radius, p[1], p[2]),
            parts,
            parse_threads(threads),
        )
        number = np.concatenate(
            [
                np.empty(0, np.int64),
                *(np.repeat(np.arange(len(c[0]) - 1) + p[0], np.diff(c[0])) for p, c in zip(parts, columns, strict=True)),
            ]
        )
        found = np.concatenate([np.empty(0, np.uint64), *(c[1] for c in columns)])
        distances = np.concatenate([np.empty(0, np.uint8), *(c[2] for c in columns)])
        order = np.lexsort((found, distances, number))
        lims = np.zeros(len(queries) + 1, np.int64)
        np.cumsum(np.bincount(number, minlength=len(queries)), out=lims[1:])
        return Matches(lims, found[order], distances[order], self.ids_of)

    def _prober(self, radius: int) -> _kernel.Prober:
        prober = self._probers.get(radius)
        if prober is None:
            prober = _kernel.Prober()
            for lookup in self._design.lookups(len(self), radius):
                prober.add(self._tables[lookup.table].kernel, lookup.prefix_bits, lookup.flips, lookup.masks)
            self._probers[radius] = prober
        return prober

    # Ids

    def ids_of(self, fingerprints: Any) -> tuple[npt.NDArray[np.int64], Words | list[str]]:
        """Return (lims, ids) of stored fingerprints; those of the m-th are ``ids[lims[m]:lims[m + 1]]``.

        Raises
        ------
        KeyError
            One of them is not stored.
        """
        self._check()
        wanted = check_fingerprints(fingerprints)
        blocks, ranks = self._tables[0].kernel.locate(wanted)
        missing = np.flatnonzero(blocks == np.uint64(2**64 - 1))
        if len(missing):
            raise KeyError(int(wanted[missing[0]]))
        assert self._ids is not None
        lims, numbers = self._ids.gather(blocks, ranks)
        return lims, numbers if self._names is None else self._named(numbers.tolist())  # type: ignore[return-value]

    def _named(self, numbers: list[int]) -> list[int] | list[str]:
        if self._names is None:
            return numbers
        return [self._names.name(number) for number in numbers]

    def items(self) -> Iterator[tuple[Words, npt.NDArray[np.int64], Words | list[str]]]:
        """Yield (fingerprints, lims, ids) of everything stored, in ascending order of fingerprint, a piece at a time."""
        self._check()
        assert self._ids is not None
        block = 0
        for fingerprints, entry_counts in self._tables[0].pieces():
            records = [self._ids.block(block + i) for i in range(len(entry_counts))]
            block += len(entry_counts)
            lims = np.zeros(len(fingerprints) + 1, np.int64)
            np.cumsum(np.concatenate([counts for counts, _ in records]), out=lims[1:])
            numbers = np.concatenate([ids for _, ids in records])
            yield fingerprints, lims, numbers if self._names is None else self._named(numbers.tolist())  # type: ignore[misc]

    # Looking inside

    def stats(self) -> dict[str, Any]:
        """Return what the store holds and what each part takes; see docs/api.md for the keys."""
        self._check()
        assert self._ids is not None
        return describe(self._record, self._generation, self._design, self._tables, self._ids, self._reader)

    def verify(self, progress: Callable[[str, int, int | None], None] | None = None) -> Report:
        """Read every byte: checksums, order, counts, keys, codes, id records, and that all tables hold the same set.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(phase, done, total)``, total being None when unknown.

        Returns
        -------
        Report
            ``ok``, and the faults found, each with its file and block.
        """
        self._check()
        assert self._ids is not None
        return verify_store(self._generation, self._tables, self._ids, self._names, progress)


def check_fingerprint(value: object) -> int:
    """Return one fingerprint as an int, or raise InputError that says what it was."""
    if isinstance(value, np.uint64) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64):
        return int(value)
    if isinstance(value, np.unsignedinteger):
        return int(value)
    what = f"{type(value).__name__} {value!r}"
    raise InputError(f"a fingerprint is an int from 0 to 2^64 - 1 or a numpy.uint64, got {what[:80]}")


def _parts(queries: Words, threads: int) -> list[Words]:
    """Cut a batch evenly for the threads: as few parts as possible, for a large one opens each block for many queries."""
    count = max(-(-len(queries) // PROBE_QUERIES), min(threads, len(queries) // SPLIT_QUERIES), 1)
    count = -(-count // threads) * threads if count > 1 else 1
    return [part for part in np.array_split(queries, count) if len(part)]


def _joined(columns: list[Columns], ids_of: IdLookup) -> Matches:
    lims = np.zeros(sum(len(c[0]) - 1 for c in columns) + 1, np.int64)
    np.cumsum(np.concatenate([np.zeros(0, np.int64), *(np.diff(c[0]) for c in columns)]), out=lims[1:])
    return Matches(
        lims,
        np.concatenate([np.empty(0, np.uint64), *(c[1] for c in columns)]),
        np.concatenate([np.empty(0, np.uint8), *(c[2] for c in columns)]),
        ids_of,
    )


def _probe(work: Callable[..., Any], parts: list[Words], threads: int) -> list[Columns]:
    """Probe each part; many queries in other threads than this one, which is then free to meet a Ctrl-C and stop them."""
    if len(parts) == 1 and len(parts[0]) <= QUICK_QUERIES:
        return [work(parts[0])]
    stop = _kernel.Stop()
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(partial(work, stop=stop), parts))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(work: Callable[[Any], Any], parts: list[Any], threads: int) -> list[Columns]:
    """Run the work on each part, in threads when there is enough of it; results in order."""
    if threads == 1 or len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(threads, len(parts))) as pool:
        try:
            return list(pool.map(work, parts))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
