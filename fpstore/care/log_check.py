"""Verifying a journal: its pages, its records and their numbers, and that they add up to what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from fpstore.disk import lmdb_pages as pages
from fpstore.disk.files import read_at
from fpstore.errors import CorruptStoreError, FpstoreError
from fpstore.format import layout
from fpstore.query.delta import LAST_ROW, Record, unpack
from fpstore.query.journal import LOG, META, MOVED_KEY, STATE_KEY, Journal
from fpstore.query.snapshot import View

Note = Callable[[FpstoreError], None]


def check_journal(journal: Journal, generation: int, note: Note, tick: Callable[[int], None]) -> None:
    """Read a journal as it is at one moment, beside a writer; tell each fault.

    It is read page by page, without LMDB, which follows whatever a damaged page says.

    Parameters
    ----------
    journal : Journal
    generation : int
        The number of its generation.
    note : callable
        Called with each fault.
    tick : callable
        Called with the number of rows of each record that was read.
    """
    try:
        with pages.opened(journal.path) as descriptor, ExitStack() as kept:
            meta = None
            while meta is None:  # a busy writer may commit twice before the page is read
                kept.close()
                transaction = kept.enter_context(journal.pinned())
                metas = pages.read_metas(journal.path, descriptor)
                meta = next((meta for meta in metas if meta.transaction == transaction), None)
                if meta is None and max(meta.transaction for meta in metas) < transaction:
                    raise CorruptStoreError(f"{journal.path}: transaction {transaction} is missing", path=journal.path)
            try:
                pages.Tree(journal.path, descriptor, meta).check()
            except CorruptStoreError as error:
                note(error)
            tree = pages.Tree(journal.path, descriptor, meta)
            tree.faults = []  # told above
            databases = tree.databases()
            if set(databases) != {META, LOG}:
                raise CorruptStoreError(
                    f"{journal.path}: its databases are {sorted(databases)}", path=journal.path, expected={META, LOG}
                )
            _check_meta(journal.path, tree.items(databases[META]), descriptor, generation, note)
            for record in read_log(journal.path, tree.items(databases[LOG]), descriptor, note):
                tick(len(record.kinds))
    except FpstoreError as error:
        if journal.path.exists():  # else a merge has just removed it
            note(error)


def _check_meta(path: Path, items: Iterable[pages.Item], descriptor: int, generation: int, note: Note) -> None:
    known = {STATE_KEY: "state", MOVED_KEY: "moved"}
    found = {}
    for item in items:
        if item.key not in known:
            note(CorruptStoreError(f"{path}: an unknown record {item.key!r}", path=path, got=item.key))
            continue
        try:
            data = read_at(descriptor, path, item.start, item.size)
            found[item.key] = layout.unpack_record(data, path, known[item.key])
        except FpstoreError as error:
            note(error)
            found[item.key] = {}
    if STATE_KEY not in found:
        note(CorruptStoreError(f"{path}: the state record is missing", path=path))
    elif found[STATE_KEY] and found[STATE_KEY]["generation"]["number"] != generation:
        got = found[STATE_KEY]["generation"]["number"]
        note(CorruptStoreError(f"{path}: it is the journal of generation {got}", path=path, expected=generation, got=got))


def read_log(path: Path, items: Iterable[pages.Item], descriptor: int, note: Note) -> Iterator[Record]:
    """Yield the intact records of a log, in order; tell of those that are damaged or missing."""
    expected = 1
    for item in items:
        number = int.from_bytes(item.key, "big")
        if len(item.key) != 8 or number < expected:
            note(CorruptStoreError(f"{path}: a log record has the key {item.key.hex()}", path=path, got=item.key))
            continue
        if number > expected:
            which = f"log record {expected} is" if number == expected + 1 else f"log records {expected} to {number - 1} are"
            note(CorruptStoreError(f"{path}: {which} missing", path=path, expected=expected, got=number))
        expected = number + 1
        try:
            record = unpack(read_at(descriptor, path, item.start, item.size), path)
        except FpstoreError as error:
            note(error)
            continue
        if record.number != number:
            note(CorruptStoreError(f"{path}: log record {record.number} has the key {number}", path=path, got=record.number))
            continue
        yield record


def check_totals(view: View, tick: Callable[[int], None]) -> None:
    """Count what tables and delta hold together, and compare it with what the last record says.

    Raises
    ------
    CorruptStoreError
    """
    totals, path = view.totals, view.generation.folder
    bound = totals.next_row if totals.id_kind == "row" and totals.next_row < LAST_ROW else 2**64
    if totals.id_kind == "string" and view.delta is not None:
        bound = view.delta.first_name + len(view.delta.names)
    fingerprints = ids = 0
    for keys, _, numbers in view.groups():
        fingerprints += len(keys)
        ids += len(numbers)
        if len(numbers) and int(numbers.max()) >= bound:
            highest = int(numbers.max())
            raise CorruptStoreError(f"{path}: there is an id number {highest}", path=path, expected=bound, got=highest)
        tick(len(keys))
    for what, expected, got in (("fingerprints", totals.fingerprints, fingerprints), ("ids", totals.ids, ids)):
        if expected != got:
            raise CorruptStoreError(
                f"{path}: tables and delta hold {got} {what}, the journal says {expected}", path=path, expected=expected, got=got
            )
