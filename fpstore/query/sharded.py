"""A sharded store as one snapshot: each question goes to all shards, and unites the answers."""

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
from fpstore.base.arrays import NO_WORDS, is_run_start, list_lims, list_numbers
from fpstore.base.strings import StringColumn
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, leading_words, row_order, rows_to_numbers
from fpstore.design.estimates import probe_nanoseconds
from fpstore.design.families import Design
from fpstore.disk.files import open_folder
from fpstore.disk.handles import many_files, open_file_limit
from fpstore.disk.mapped import LAZY
from fpstore.disk.refusals import refusal_error
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
    empty_matches,
    keep_nearest,
    queries_at_once,
    unite,
)
from fpstore.query.id_lookup import SizedIds
from fpstore.query.matches import Match, MatchList
from fpstore.query.merged import merge_streams, unite_equal_keys
from fpstore.query.repeats import repeated_ids
from fpstore.query.snapshot import Snapshot
from fpstore.query.store_snapshot import MAX_MATCHES, StoreSnapshot
from fpstore.query.tracker import Tracker

# The number of a string is its number in the shard, with the number of the shard in the bits above:
# so numbers are in the order in which one store would have numbered the strings. Integers are
# their own numbers, and row numbers go on from shard to shard.
NUMBER_BITS = 40
NUMBER_MASK = np.uint64((1 << NUMBER_BITS) - 1)
FILE_SHARE = 4  # the shards of a store keep open one in this many files of the process


class ShardedSnapshot(Snapshot):
    """The content of all shards, as it was when each was opened first.

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
        self._manifests = [self._check_manifest(shard) for shard in manifest.shards]
        self.open_shards: dict[int, tuple[Tracker, StoreSnapshot]] = {}
        self._most_open, files = 0, open_file_limit() // FILE_SHARE
        for shard_manifest in self._manifests:
            files -= _descriptors(shard_manifest)
            self._most_open += files >= 0
        self._closed = False

    # The shards

    def _check_manifest(self, shard: Shard) -> Manifest:
        """Return the manifest of a shard; CorruptStoreError if it is not the one of this place."""
        path, sharded = self.path / shard.name, self.manifest
        try:
            folder = open_folder(path)
        except FileNotFoundError:
            raise CorruptStoreError(f"{path}: this shard is missing: {LOST}", path=path) from None
        except OSError as error:
            raise refusal_error(path, error) from error
        try:
            manifest = read_manifest(path, folder)
        except StoreNotFoundError as error:
            raise CorruptStoreError(
                f"{path}: this shard is not a store: {LOST}", path=path
            ) from error
        finally:
            os.close(folder)
        if manifest.identity.hex() != shard.identity:
            message = f"{path}: another store is in the place of this shard: {LOST}"
            raise CorruptStoreError(
                message, path=path, expected=shard.identity, got=manifest.identity.hex()
            )
        facts: dict[str, tuple[object, object]] = {
            "width": (sharded.width, manifest.design.width.bits),
            "radius": (sharded.radius, manifest.design.radius),
            "fingerprinter": (sharded.fingerprinter, manifest.fingerprinter),
            "generation": (shard.generation, manifest.generation.number),
        }
        self._refuse_changed(path, facts)
        return manifest

    def _refuse_changed(self, path: Path, facts: dict[str, tuple[object, object]]) -> None:
        for name, (expected, got) in facts.items():
            if expected != got:
                message = f"{path}: this shard has changed ({name}) since it became one: {LOST}"
                raise CorruptStoreError(message, path=path, expected=expected, got=got)

    def open_shard(self, place: int) -> tuple[Tracker, StoreSnapshot]:
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
    def _shard_snapshot(self, place: int) -> Iterator[StoreSnapshot]:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)
        shard = self.open_shards.get(place)
        if shard is not None:
            yield shard[1]
            return
        tracker, snapshot = self.open_shard(place)
        if place < self._most_open:
            # another thread may have opened it too
            shard = self.open_shards.setdefault(place, (tracker, snapshot))
            if shard[0] is not tracker:
                tracker.close()
            yield shard[1]
            return
        try:
            yield snapshot
        finally:
            tracker.close()

    def shards(self) -> Iterator[tuple[int, StoreSnapshot]]:
        """Yield the place and the snapshot of each shard, which may be closed afterwards."""
        for place in range(len(self.manifest.shards)):
            with self._shard_snapshot(place) as snapshot:
                yield place, snapshot

    def close(self) -> None:
        self._closed = True
        while self.open_shards:
            self.open_shards.popitem()[1][0].close()

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
            manifest.design.scans(manifest.generation.fingerprints, radius)
            for manifest in self._manifests
        )

    def probe_nanoseconds(self, radius: int, queries: int) -> float:
        return sum(
            probe_nanoseconds(
                manifest.design, manifest.generation.fingerprints, radius, queries, manifest.blocks
            )
            for manifest in self._manifests
        )

    @property
    def bounded_queries(self) -> int:
        return min(queries_at_once(manifest.design) for manifest in self._manifests)

    # Probing

    def probe(self, value: int, radius: int) -> MatchList:
        matches: dict[int, Match] = {}
        for place, snapshot in self.shards():
            first = self.manifest.shards[place].first_row
            for fingerprint, distance, ids in snapshot.probe(value, radius):
                match = matches.setdefault(fingerprint, Match(fingerprint, distance, []))
                match.ids.extend([number + first for number in ids] if first else ids)
        for match in matches.values():
            match.ids[:] = self._distinct_ids(match)
        return MatchList(
            sorted(matches.values(), key=lambda match: (match.distance, match.fingerprint))
        )

    def _distinct_ids(self, match: Match) -> list[Any]:
        if self.totals.id_kind != "string":
            return sorted({*match.ids})
        return self.get_ids(match.fingerprint) if self.manifest.repeated_strings else match.ids

    def probe_columns(
        self, queries: Words, radius: int, threads: int, most: int | None = None
    ) -> MatchColumns | None:
        """None if there are too many matches in a part, or in all shards together."""
        parts, count = [empty_matches(queries)], 0
        for _, snapshot in self.shards():
            columns = snapshot.probe_columns(queries, radius, threads, most)
            if columns is None:
                return None
            parts.append(columns)
            count += len(columns[1])
            if most is not None and count > most * threads:
                return None
        return unite(parts)

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
        parts, more = [empty_matches(queries)], np.zeros(len(queries), bool)
        for _, snapshot in self.shards():
            columns, more_in_shard = ask(snapshot)
            parts.append(columns)
            more |= more_in_shard
            if sum(len(part[1]) for part in parts) > MAX_MATCHES:
                nearest, cut_short = keep_nearest(unite(parts), limit)
                parts, more = [nearest], more | cut_short
        nearest, cut_short = keep_nearest(unite(parts), limit)
        return nearest, more | cut_short

    def scan_columns(self, queries: Words, radius: int, threads: int) -> MatchColumns:
        parts = [snapshot.scan_columns(queries, radius, threads) for _, snapshot in self.shards()]
        return unite([empty_matches(queries), *parts])

    def has(self, value: int) -> bool:
        return any(snapshot.has(value) for _, snapshot in self.shards())

    # Ids

    def id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        owners, numbers = [np.empty(0, np.intp)], [NO_WORDS]
        leading = leading_words(fingerprints)
        for place, shard in enumerate(self.manifest.shards):
            rows = self._rows_in_bounds(shard, leading)
            if len(rows):
                with self._shard_snapshot(place) as snapshot:
                    lims, shard_numbers = snapshot.id_numbers(fingerprints[rows])
                owners.append(rows[list_numbers(lims)])
                numbers.append(self._numbers(place, shard_numbers))
        owner, number = np.concatenate(owners), np.concatenate(numbers)
        order = row_order(owner, number)
        owner, number = owner[order], number[order]
        first = is_run_start(owner) | is_run_start(number)
        return list_lims(np.bincount(owner[first], minlength=len(fingerprints))), number[first]

    def _rows_in_bounds(self, shard: Shard, leading: Words) -> npt.NDArray[np.intp]:
        """Return the rows that a shard may have, by their leading words."""
        if shard.bounds is None:
            return np.empty(0, np.intp)
        least, greatest = leading_words(self.width.rows(int(bound, 16) for bound in shard.bounds))
        return np.flatnonzero((leading >= least) & (leading <= greatest))

    def _numbers(self, place: int, numbers: Words) -> Words:
        """Return the numbers of ids in all shards, given their numbers in one."""
        if self.totals.id_kind != "string":
            first = self.manifest.shards[place].first_row
            return numbers + np.uint64(first) if first else numbers
        return self._canonical_numbers(numbers | np.uint64(place << NUMBER_BITS))

    def _canonical_numbers(self, numbers: Words) -> Words:
        """Return the first number of each string: equal strings have the same."""
        aliases, firsts = self._aliases
        if not len(aliases):
            return numbers
        at = np.minimum(np.searchsorted(aliases, numbers), len(aliases) - 1)
        return np.where(aliases[at] == numbers, firsts[at], numbers)

    @cached_property
    def _aliases(self) -> tuple[Words, Words]:
        """The ascending numbers of strings that an earlier shard has, and their first numbers."""
        pairs = (
            [pair for pairs in self.repeated_strings() for pair in pairs]
            if self.manifest.repeated_strings
            else []
        )
        aliases, firsts = np.array(sorted(pairs), np.uint64).reshape(-1, 2).T
        return aliases, firsts

    def repeated_strings(self) -> Iterator[list[tuple[int, int]]]:
        """Yield pairs of the number of a string that an earlier shard has too, and that one's."""
        sources = [(0, self._hashes(place)) for place in range(len(self.manifest.shards))]
        return repeated_ids(self, _merge_shards(sources))

    def _hashes(self, place: int) -> Iterator[Groups]:
        """Yield the strings of a shard as (hashes, how many have each, numbers), ascending."""
        above = np.uint64(place << NUMBER_BITS)
        with self._shard_snapshot(place) as snapshot:
            groups = (
                iter(())
                if snapshot.generation.dictionary is None
                else snapshot.generation.dictionary.groups()
            )
            strings, first = snapshot.delta.strings, snapshot.delta.first_string
            used = np.flatnonzero([bool(string) for string in strings])
            hashes = StringColumn.from_strings([strings[i] for i in used.tolist()]).hashes()
            order = row_order(hashes, used)
            added = (
                hashes[order],
                np.ones(len(used), np.uint64),
                used[order].astype(np.uint64) + np.uint64(first),
            )
            for keys, counts, numbers in merge_streams(
                [(0, groups), (0, iter([unite_equal_keys(added)]))]
            ):
                yield keys, counts, numbers | above

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        if self.totals.id_kind != "string":
            return SizedIds(numbers)
        places, out, size = numbers >> np.uint64(NUMBER_BITS), [""] * len(numbers), 0
        for place in np.unique(places).tolist():
            at = np.flatnonzero(places == place)
            with self._shard_snapshot(place) as snapshot:
                part = snapshot.ids_within(
                    numbers[at] & NUMBER_MASK, None if most is None else most - size
                )
            if part is None:
                return None
            size += part.string_bytes
            for i, name in zip(at.tolist(), part.ids, strict=True):
                out[i] = name
        return SizedIds(out, size)

    def number_of(self, name: str) -> int | None:
        for place, snapshot in self.shards():
            if (number := snapshot.number_of(name)) is not None:
                return place << NUMBER_BITS | number
        return None

    def numbers_of_strings(self, strings: Any) -> Words:
        out = np.full(len(strings), NO_NUMBER)
        for place, snapshot in self.shards():
            missing = np.flatnonzero(out == NO_NUMBER)
            numbers = snapshot.numbers_of_strings([strings[i] for i in missing.tolist()])
            stored = numbers != NO_NUMBER
            out[missing[stored]] = numbers[stored] | np.uint64(place << NUMBER_BITS)
        return out

    def with_ids(self, numbers: Words) -> tuple[Words, Words]:
        fingerprints, ids = [self.width.empty(0)], [NO_WORDS]
        for place, snapshot in self.shards():
            shard_rows, shard_numbers = snapshot.with_ids(self._numbers_in_shard(place, numbers))
            fingerprints.append(shard_rows)
            ids.append(self._numbers(place, shard_numbers))
        rows, number = np.concatenate(fingerprints), np.concatenate(ids)
        order = row_order(number, rows)
        rows, number = rows[order], number[order]
        first = is_run_start(number) | is_run_start(rows)
        return rows[first], number[first]

    def _numbers_in_shard(self, place: int, numbers: Words) -> Words:
        """Return the numbers of ids in one shard, without those that it cannot have."""
        shard = self.manifest.shards[place]
        if self.totals.id_kind == "row":
            rows: Words = numbers[numbers >= shard.first_row] - np.uint64(shard.first_row)
            return rows[rows < shard.rows]
        if self.totals.id_kind == "integer":
            return numbers
        aliases, firsts = self._aliases
        with_aliases = np.concatenate([numbers, aliases[np.isin(firsts, numbers)]])
        in_shard = with_aliases >> np.uint64(NUMBER_BITS) == place
        return np.asarray(with_aliases[in_shard] & NUMBER_MASK)

    # Everything

    def groups(self) -> Iterator[Groups]:
        return _merge_shards(
            [
                (self._least_fingerprint(place), self._shard_groups(place))
                for place in range(len(self.manifest.shards))
            ]
        )

    def fingerprints(self) -> Iterator[Words]:
        sources = [
            (self._least_fingerprint(place), self._shard_fingerprints(place))
            for place in range(len(self.manifest.shards))
        ]
        return (keys for keys, _, _ in _merge_shards(sources))

    def _least_fingerprint(self, place: int) -> int:
        bounds = self.manifest.shards[place].bounds
        return 0 if bounds is None else rows_to_numbers(self.width.row(int(bounds[0], 16)))[0]

    def _shard_groups(self, place: int) -> Iterator[Groups]:
        with self._shard_snapshot(place) as snapshot:
            for keys, counts, numbers in snapshot.groups():
                yield self._sort_numbers(keys, counts, self._numbers(place, numbers))

    def _sort_numbers(self, keys: Words, counts: Words, numbers: Words) -> Groups:
        """Sort the numbers of each fingerprint, if strings may have the numbers of other shards."""
        if len(self._aliases[0]):
            numbers = numbers[row_order(list_numbers(list_lims(counts)), numbers)]
        return keys, counts, numbers

    def _shard_fingerprints(self, place: int) -> Iterator[Groups]:
        with self._shard_snapshot(place) as snapshot:
            for keys in snapshot.fingerprints():
                yield keys, np.ones(len(keys), np.uint64), np.zeros(len(keys), np.uint64)

    def count_distinct(self) -> tuple[int, int]:
        """Count the distinct fingerprints, and their distinct pairs with ids.

        Shards that overlap are read.
        """
        shards = [shard for shard in self.manifest.shards if shard.bounds is not None]
        fingerprints = sum(shard.fingerprints for shard in shards)
        ids = sum(shard.ids for shard in shards)
        bounds = sorted(shard.bounds for shard in shards if shard.bounds is not None)
        if all(low[1] < high[0] for low, high in pairwise(bounds)):
            return fingerprints, ids
        if self.totals.id_kind == "row":  # no two shards have a pair
            return sum(map(len, self.fingerprints())), ids
        fingerprints = ids = 0
        for keys, _, numbers in self.groups():
            fingerprints, ids = fingerprints + len(keys), ids + len(numbers)
        return fingerprints, ids


def _merge_shards(sources: list[tuple[int, Iterator[Groups]]]) -> Iterator[Groups]:
    """Merge the streams of shards: all whose ranges overlap are open at once."""
    with many_files():
        yield from merge_streams(sources)


def _descriptors(manifest: Manifest) -> int:
    """Return how many descriptors an open shard takes; each file that is mapped has two."""
    record = manifest.generation
    files = len(manifest.design.tables) + len(record.filters) + len((LOG_FILE, IDS_FILE))
    files += 0 if record.dictionary is None else len(DICTIONARY_FILES)
    files += 0 if record.places is None else len(PLACES_FILES)
    return 2 * files + 1  # and the folder


def fingerprint_bounds(snapshot: StoreSnapshot) -> list[str] | None:
    """Return the least and the greatest fingerprint in hexadecimal digits, if there are any."""
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
