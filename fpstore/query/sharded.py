"""A sharded store as one snapshot.

Each question goes to all shards, one after the other, and their answers are united.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Groups, Lims, Words
from fpstore.base.arrays import differs, lims_of, lists_of
from fpstore.base.strings import StringColumn
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, leading_words, order_of, rows_to_numbers
from fpstore.design.estimates import probe_nanoseconds
from fpstore.design.families import Design
from fpstore.disk.files import open_folder
from fpstore.disk.handles import many_files, usual_files
from fpstore.disk.mapped import LAZY
from fpstore.disk.refusals import refused
from fpstore.errors import ClosedStoreError, CorruptStoreError, StoreNotFoundError
from fpstore.format.dictionary import DICTIONARY_FILES, NO_NUMBER
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import Manifest, is_sharded, read_manifest
from fpstore.format.mapping import IDS_FILE, PLACES_FILES
from fpstore.format.record import Totals
from fpstore.format.shards import LOST, Shard, ShardsManifest, read_shards
from fpstore.query.batches import (
    MatchColumns,
    Nearest,
    no_matches,
    queries_at_once,
    shortened,
    united,
)
from fpstore.query.matches import Match, MatchList
from fpstore.query.merged import merged, recounted
from fpstore.query.names import Named
from fpstore.query.repeats import repeated_names
from fpstore.query.snapshot import Snapshot
from fpstore.query.store_snapshot import MOST_MATCHES, StoreSnapshot
from fpstore.query.tracker import Tracker

# The number of a string is its number in the shard, with the number of the shard in the bits above:
# so numbers are in the order in which one store would have seen the strings. Integers are numbers
# of their own, and rows are counted on from shard to shard.
NUMBER_BITS = 40
NUMBER_MASK = np.uint64((1 << NUMBER_BITS) - 1)
_ROOM = 4  # of the files that the process may open, the shards of a store keep one in so many


class ShardedSnapshot(Snapshot):
    """The content of all shards, as it was when each was opened first.

    It has no generation of its own.

    Shards are opened when a question first reaches them, and kept open while the process may have
    enough files open; each question opens the others, and closes them again.
    """

    def __init__(self, path: Path, manifest: ShardsManifest, pages: str = LAZY) -> None:
        self.path, self.manifest, self.pages = path, manifest, pages
        self.width = Width(manifest.width)
        self.totals = Totals(
            manifest.fingerprints,
            manifest.ids,
            sum(s.rows for s in manifest.shards),
            manifest.id_kind,
        )
        self._manifests = [self._checked(shard) for shard in manifest.shards]
        self._kept: dict[int, tuple[Tracker, StoreSnapshot]] = {}
        self._keeps, room = 0, usual_files() // _ROOM
        for known in self._manifests:
            room -= _descriptors(known)
            self._keeps += room >= 0
        self._closed = False

    # The shards

    def _checked(self, shard: Shard) -> Manifest:
        """Return the manifest of a shard; CorruptStoreError if it is not the one of this place."""
        path, whole = self.path / shard.name, self.manifest
        try:
            folder = open_folder(path)
        except FileNotFoundError:
            raise CorruptStoreError(f"{path}: this shard is missing: {LOST}", path=path) from None
        except OSError as error:
            raise refused(path, error) from error
        try:
            known = read_manifest(path, folder)
        except StoreNotFoundError as error:
            raise CorruptStoreError(
                f"{path}: this shard is not a store: {LOST}", path=path
            ) from error
        finally:
            os.close(folder)
        if known.identity.hex() != shard.identity:
            message = f"{path}: another store is in the place of this shard: {LOST}"
            raise CorruptStoreError(
                message, path=path, expected=shard.identity, got=known.identity.hex()
            )
        facts: dict[str, tuple[object, object]] = {
            "width": (whole.width, known.design.width.bits),
            "radius": (whole.radius, known.design.radius),
            "fingerprinter": (whole.fingerprinter, known.fingerprinter),
            "generation": (shard.generation, known.generation.number),
        }
        self._refuse_changed(path, facts)
        return known

    def _refuse_changed(self, path: Path, facts: dict[str, tuple[object, object]]) -> None:
        for name, (expected, got) in facts.items():
            if expected != got:
                message = f"{path}: this shard has changed ({name}) since it became one: {LOST}"
                raise CorruptStoreError(message, path=path, expected=expected, got=got)

    def tracked(self, place: int) -> tuple[Tracker, StoreSnapshot]:
        """Open a shard, which the caller closes.

        CorruptStoreError if it has changed since it became one.
        """
        shard = self.manifest.shards[place]
        tracker = Tracker(self.path / shard.name, self.pages)
        try:
            snapshot = tracker.snapshot()
            expected = {
                "identity": shard.identity,
                "generation": shard.generation,
                "log records": shard.records,
            }
            self._refuse_changed(
                tracker.path, {name: (expected[name], got) for name, got in snapshot.state.items()}
            )
        except BaseException:
            tracker.close()
            raise
        return tracker, snapshot

    @contextmanager
    def _opened(self, place: int) -> Iterator[StoreSnapshot]:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        kept = self._kept.get(place)
        if kept is not None:
            yield kept[1]
            return
        opened = self.tracked(place)
        if place < self._keeps:
            kept = self._kept.setdefault(place, opened)  # another thread may have opened it too
            if kept is not opened:
                opened[0].close()
            yield kept[1]
            return
        try:
            yield opened[1]
        finally:
            opened[0].close()

    def shards(self) -> Iterator[tuple[int, StoreSnapshot]]:
        """Yield the place and the snapshot of each shard, which may be closed afterwards."""
        for place in range(len(self.manifest.shards)):
            with self._opened(place) as snapshot:
                yield place, snapshot

    def close(self) -> None:
        """Close all shards."""
        self._closed = True
        while self._kept:
            self._kept.popitem()[1][0].close()

    # What it is

    @property
    def folder(self) -> Path:
        return self.path

    @property
    def design(self) -> Design:
        return self._manifests[0].design

    @property
    def radius(self) -> int:
        return self.manifest.radius

    @property
    def state(self) -> dict[str, object]:
        return {
            "shards": [
                [shard.identity, shard.generation, shard.records] for shard in self.manifest.shards
            ]
        }

    @property
    def has_long_strings(self) -> bool:
        return self.totals.id_kind == "string" and any(
            snapshot.has_long_strings for _, snapshot in self.shards()
        )

    def scans(self, radius: int) -> bool:
        return all(
            known.design.scans(known.generation.fingerprints, radius) for known in self._manifests
        )

    def probe_nanoseconds(self, radius: int, queries: int) -> float:
        return sum(
            probe_nanoseconds(
                known.design, known.generation.fingerprints, radius, queries, known.blocks
            )
            for known in self._manifests
        )

    @property
    def bounded_queries(self) -> int:
        return min(queries_at_once(known.design) for known in self._manifests)

    # Probing

    def probe(self, value: int, radius: int) -> MatchList:
        found: dict[int, Match] = {}
        for place, snapshot in self.shards():
            first = self.manifest.shards[place].first_row
            for fingerprint, distance, ids in snapshot.probe(value, radius):
                some: list[Any] = [number + first for number in ids] if first else ids
                known = found.setdefault(fingerprint, Match(fingerprint, distance, []))
                known.ids.extend(some)
        for match in found.values():
            match.ids[:] = self._in_order(match)
        return MatchList(
            sorted(found.values(), key=lambda match: (match.distance, match.fingerprint))
        )

    def _in_order(self, match: Match) -> list[Any]:
        """Return the ids that shards have for one fingerprint, each once."""
        if self.totals.id_kind != "string":
            return sorted({*match.ids})
        return self.ids_of_one(match.fingerprint) if self.manifest.repeated_strings else match.ids

    def probe_columns(
        self, queries: Words, radius: int, threads: int, most: int | None = None
    ) -> MatchColumns | None:
        """Return the columns of the matches of many queries.

        None if there are too many in a part, or in all shards together.
        """
        found, count = [no_matches(queries)], 0
        for _, snapshot in self.shards():
            columns = snapshot.probe_columns(queries, radius, threads, most)
            if columns is None:
                return None
            found.append(columns)
            count += len(columns[1])
            if most is not None and count > most * threads:
                return None
        return united(found)

    def probe_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        return self._nearest(
            queries, limit, lambda snapshot: snapshot.probe_nearest(queries, radius, threads, limit)
        )

    def scan_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        return self._nearest(
            queries, limit, lambda snapshot: snapshot.scan_nearest(queries, radius, threads, limit)
        )

    def _nearest(
        self, queries: Words, limit: int, ask: Callable[[StoreSnapshot], Nearest]
    ) -> Nearest:
        found, more = [no_matches(queries)], np.zeros(len(queries), bool)
        for _, snapshot in self.shards():
            columns, others = ask(snapshot)
            found.append(columns)
            more |= others
            if sum(len(c[1]) for c in found) > MOST_MATCHES:
                nearest, others = shortened(united(found), limit)
                found, more = [nearest], more | others
        nearest, others = shortened(united(found), limit)
        return nearest, more | others

    def scan_columns(self, queries: Words, radius: int, threads: int) -> MatchColumns:
        found = [snapshot.scan_columns(queries, radius, threads) for _, snapshot in self.shards()]
        return united([no_matches(queries), *found])

    def has(self, value: int) -> bool:
        return any(snapshot.has(value) for _, snapshot in self.shards())

    # Ids

    def id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        owners, numbers = [np.empty(0, np.intp)], [np.empty(0, np.uint64)]
        leading = leading_words(fingerprints)
        for place, shard in enumerate(self.manifest.shards):
            some = self._within(shard, leading)
            if len(some):
                with self._opened(place) as snapshot:
                    lims, found = snapshot.id_numbers(fingerprints[some])
                owners.append(some[lists_of(lims)])
                numbers.append(self._numbers(place, found))
        owner, number = np.concatenate(owners), np.concatenate(numbers)
        order = order_of(owner, number)
        owner, number = owner[order], number[order]
        fresh = differs(owner) | differs(number)
        return lims_of(np.bincount(owner[fresh], minlength=len(fingerprints))), number[fresh]

    def _within(self, shard: Shard, leading: Words) -> npt.NDArray[np.intp]:
        """Return the places of the fingerprints that a shard may have, by their leading words."""
        if shard.bounds is None:
            return np.empty(0, np.intp)
        least, greatest = leading_words(self.width.rows(int(bound, 16) for bound in shard.bounds))
        return np.flatnonzero((leading >= least) & (leading <= greatest))

    def _numbers(self, place: int, numbers: Words) -> Words:
        """Return the numbers of ids in all shards, given their numbers in one."""
        if self.totals.id_kind != "string":
            first = self.manifest.shards[place].first_row
            return numbers + np.uint64(first) if first else numbers
        return self._canonical(numbers | np.uint64(place << NUMBER_BITS))

    def _canonical(self, numbers: Words) -> Words:
        """Return numbers of strings that are the same where the strings are.

        The first that a string has.
        """
        aliases, firsts = self._aliases
        if not len(aliases):
            return numbers
        at = np.minimum(np.searchsorted(aliases, numbers), len(aliases) - 1)
        return np.where(aliases[at] == numbers, firsts[at], numbers)

    @cached_property
    def _aliases(self) -> tuple[Words, Words]:
        """The numbers, ascending, of strings that a shard before has too, and the first number that each such string has."""
        pairs = (
            [pair for pairs in self.repeated_strings() for pair in pairs]
            if self.manifest.repeated_strings
            else []
        )
        aliases, firsts = np.array(sorted(pairs), np.uint64).reshape(-1, 2).T
        return aliases, firsts

    def repeated_strings(self) -> Iterator[list[tuple[int, int]]]:
        """Return pairs of the number of a string that a shard before has too, and of its number there."""
        sources = [(0, self._hashes(place)) for place in range(len(self.manifest.shards))]
        return repeated_names(self, _of_all(sources))

    def _hashes(self, place: int) -> Iterator[Groups]:
        """Yield the hashes of the strings of a shard, ascending, how many strings have each, and their numbers."""
        above = np.uint64(place << NUMBER_BITS)
        with self._opened(place) as snapshot:
            groups = (
                iter(())
                if snapshot.generation.dictionary is None
                else snapshot.generation.dictionary.groups()
            )
            strings, first = snapshot.delta.strings, snapshot.delta.first_string
            used = np.flatnonzero([bool(string) for string in strings])
            hashes = StringColumn.of([strings[i] for i in used.tolist()]).hashes()
            order = order_of(hashes, used)
            added = (
                hashes[order],
                np.ones(len(used), np.uint64),
                used[order].astype(np.uint64) + np.uint64(first),
            )
            for keys, counts, numbers in merged([(0, groups), (0, iter([recounted(added)]))]):
                yield keys, counts, numbers | above

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        if self.totals.id_kind != "string":
            return Named(numbers)
        places, out, size = numbers >> np.uint64(NUMBER_BITS), [""] * len(numbers), 0
        for place in np.unique(places).tolist():
            at = np.flatnonzero(places == place)
            with self._opened(place) as snapshot:
                named = snapshot.named_within(
                    numbers[at] & NUMBER_MASK, None if most is None else most - size
                )
            if named is None:
                return None
            size += named.string_bytes
            for i, name in zip(at.tolist(), named.ids, strict=True):
                out[i] = name
        return Named(out, size)

    def number_of(self, name: str) -> int | None:
        for place, snapshot in self.shards():
            if (number := snapshot.number_of(name)) is not None:
                return place << NUMBER_BITS | number
        return None

    def numbers_of_strings(self, strings: Any) -> Words:
        out = np.full(len(strings), NO_NUMBER)
        for place, snapshot in self.shards():
            left = np.flatnonzero(out == NO_NUMBER)
            found = snapshot.numbers_of_strings([strings[i] for i in left.tolist()])
            known = found != NO_NUMBER
            out[left[known]] = found[known] | np.uint64(place << NUMBER_BITS)
        return out

    def with_ids(self, numbers: Words) -> tuple[Words, Words]:
        fingerprints, ids = [self.width.empty(0)], [np.empty(0, np.uint64)]
        for place, snapshot in self.shards():
            rows, found = snapshot.with_ids(self._in_shard(place, numbers))
            fingerprints.append(rows)
            ids.append(self._numbers(place, found))
        every, number = np.concatenate(fingerprints), np.concatenate(ids)
        order = order_of(number, every)
        every, number = every[order], number[order]
        fresh = differs(number) | differs(every)
        return every[fresh], number[fresh]

    def _in_shard(self, place: int, numbers: Words) -> Words:
        """Return the numbers that some ids have in one shard, as far as it may have them."""
        shard = self.manifest.shards[place]
        if self.totals.id_kind == "row":
            rows: Words = numbers[numbers >= shard.first_row] - np.uint64(shard.first_row)
            return rows[rows < shard.rows]
        if self.totals.id_kind == "integer":
            return numbers
        aliases, firsts = self._aliases
        every = np.concatenate([numbers, aliases[np.isin(firsts, numbers)]])
        here: Words = every[every >> np.uint64(NUMBER_BITS) == place] & NUMBER_MASK
        return here

    # Everything

    def groups(self) -> Iterator[Groups]:
        return _of_all(
            [
                (self._least(place), self._groups_of(place))
                for place in range(len(self.manifest.shards))
            ]
        )

    def fingerprints(self) -> Iterator[Words]:
        sources = [
            (self._least(place), self._fingerprints_of(place))
            for place in range(len(self.manifest.shards))
        ]
        return (keys for keys, _, _ in _of_all(sources))

    def _least(self, place: int) -> int:
        bounds = self.manifest.shards[place].bounds
        return 0 if bounds is None else rows_to_numbers(self.width.row(int(bounds[0], 16)))[0]

    def _groups_of(self, place: int) -> Iterator[Groups]:
        with self._opened(place) as snapshot:
            for keys, counts, numbers in snapshot.groups():
                yield self._ascending(keys, counts, self._numbers(place, numbers))

    def _ascending(self, keys: Words, counts: Words, numbers: Words) -> Groups:
        """Return a piece in which the numbers of each fingerprint ascend, also where strings have their numbers from others."""
        if len(self._aliases[0]):
            numbers = numbers[order_of(lists_of(lims_of(counts)), numbers)]
        return keys, counts, numbers

    def _fingerprints_of(self, place: int) -> Iterator[Groups]:
        with self._opened(place) as snapshot:
            for keys in snapshot.fingerprints():
                yield keys, np.ones(len(keys), np.uint64), np.zeros(len(keys), np.uint64)

    def counted(self) -> tuple[int, int]:
        """Count the distinct fingerprints, and their distinct pairs with ids.

        Shards that overlap are read.
        """
        shards = [shard for shard in self.manifest.shards if shard.bounds is not None]
        fingerprints, ids = (
            sum(shard.fingerprints for shard in shards),
            sum(shard.ids for shard in shards),
        )
        bounds = sorted(shard.bounds for shard in shards if shard.bounds is not None)
        if all(one[1] < other[0] for one, other in pairwise(bounds)):
            return fingerprints, ids
        if self.totals.id_kind == "row":  # no two shards have a pair
            return sum(map(len, self.fingerprints())), ids
        fingerprints = ids = 0
        for keys, _, numbers in self.groups():
            fingerprints, ids = fingerprints + len(keys), ids + len(numbers)
        return fingerprints, ids


def _of_all(sources: list[tuple[int, Iterator[Groups]]]) -> Iterator[Groups]:
    """Merge what shards have: all whose ranges overlap are open at once."""
    with many_files():
        yield from merged(sources)


def _descriptors(manifest: Manifest) -> int:
    """Return how many files a shard has open at most; each that is mapped has two."""
    record = manifest.generation
    files = len(manifest.design.tables) + len(record.filters) + len((LOG_FILE, IDS_FILE))
    files += 0 if record.dictionary is None else len(DICTIONARY_FILES)
    files += 0 if record.places is None else len(PLACES_FILES)
    return 2 * files + 1  # and the folder


def bounds_of(snapshot: StoreSnapshot) -> list[str] | None:
    """Return the least and the greatest fingerprint of a shard in hexadecimal digits.

    None if it has none.
    """
    if not snapshot.totals.fingerprints:
        return None
    table = snapshot.generation.tables[0]
    ends = [snapshot.fingerprints()]
    if snapshot.changes is None:
        ends = [
            (keys for keys, _ in table.pieces(start)) for start in (0, table.kernel.block_count - 1)
        ]
    least = next(ends[0])
    *_, greatest = chain([least], ends[-1])
    return snapshot.width.texts(np.concatenate([least[:1], greatest[-1:]]))


def snapshot_at(path: Path) -> Snapshot:
    """Open a store or a sharded store, and return its current content."""
    return (
        ShardedSnapshot(path, read_shards(path)) if is_sharded(path) else Tracker(path).snapshot()
    )
