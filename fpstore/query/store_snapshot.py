"""One store as of one moment: a generation and the delta up to one record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Groups, Lims, Words
from fpstore.base.arrays import NO_WORDS, list_lims, lists_at, stable_order
from fpstore.base.threads import cached_property
from fpstore.base.width import row_order, row_place, row_places
from fpstore.design.estimates import probe_nanoseconds
from fpstore.design.families import Design
from fpstore.disk.files import RUN_REPAIR
from fpstore.errors import CorruptStoreError
from fpstore.format.dictionary import NO_NUMBER
from fpstore.format.log import LOG_FILE
from fpstore.format.record import Totals
from fpstore.query.batches import (
    PROBE_QUERIES,
    SCAN_BLOCKS,
    SCAN_QUERIES,
    MatchColumns,
    Nearest,
    collect,
    concatenate,
    empty_matches,
    keep_nearest,
    queries_at_once,
    run,
    run_batch,
    scan_table,
    split_queries,
)
from fpstore.query.delta import ABSENT, PRESENT, Delta
from fpstore.query.generation import Generation
from fpstore.query.id_lookup import SizedIds
from fpstore.query.matches import Match, MatchList
from fpstore.query.merged import cut_groups
from fpstore.query.snapshot import Snapshot

PIECE_KEYS = 1 << 18
MAX_MATCHES = 1 << 22  # in the tables, in a part from which only the nearest are kept
FEW_STRINGS = 4  # up to this many are looked up one by one


class StoreSnapshot(Snapshot):
    """A generation of tables, and the changes up to ``version``, of one store.

    ``version`` is the number of the last change that belongs to it in this process's delta,
    ``record`` in the log.
    """

    def __init__(
        self, generation: Generation, delta: Delta, version: int, totals: Totals, record: int
    ) -> None:
        self.generation = generation
        self.delta = delta
        self.version = version
        self.totals = totals
        self.record = record
        self.width = generation.design.width
        # Without changes there is nothing to look up.
        self._delta_kernel: _kernel.Delta | None = delta.kernel if version else None
        # What the tables have are the matches, and id numbers are the ids.
        self._is_plain = not version and totals.id_kind != "string"

    # What it is

    @property
    def folder(self) -> Path:
        return self.generation.folder

    @property
    def design(self) -> Design:
        return self.generation.design

    @property
    def radius(self) -> int:
        return self.generation.design.radius

    @property
    def state(self) -> dict[str, object]:
        manifest = self.generation.manifest
        return {
            "identity": manifest.identity.hex(),
            "generation": manifest.generation.number,
            "log records": self.record,
        }

    @property
    def has_long_strings(self) -> bool:
        dictionary = self.generation.dictionary
        return dictionary is not None and dictionary.strings.per_record == 1

    def scans(self, radius: int) -> bool:
        return self.generation.scans(radius)

    def probe_nanoseconds(self, radius: int, queries: int) -> float:
        return probe_nanoseconds(
            self.generation.design,
            self.generation.count,
            radius,
            queries,
            self.generation.manifest.blocks,
        )

    @property
    def bounded_queries(self) -> int:
        return queries_at_once(self.generation.design)

    # Probing

    def probe(self, value: int, radius: int) -> MatchList:
        matches = self.generation.probe_one(value, radius)
        if self._is_plain:
            return matches
        if self._delta_kernel is not None:
            return self._with_changes(matches, value, radius)
        for match in matches:
            ids: list[Any] = match.ids
            ids[:] = self.list_ids(ids)
        return matches

    @property
    def usual_prober(self) -> _kernel.SingleProber | None:
        """The prober of single queries at the store's radius, if what it finds are the matches."""
        if not self._is_plain:
            return None
        return self.generation.single_prober(self.generation.design.radius)

    def _with_changes(self, base: Iterable[Any], value: int, radius: int) -> MatchList:
        """Apply the changes to the matches in the tables, which have id numbers."""
        changes, version = self._delta_kernel, self.version
        assert changes is not None
        added = changes.probe_one(value, radius, version)
        matches = MatchList(
            Match(f, distance, self.list_ids(changes.ids_one(f, ids, version)))
            for f, distance, ids in base
            if not changes.removals or changes.state(f, version) != ABSENT
        )
        if added:
            matches += [
                Match(f, distance, self.list_ids(changes.ids_one(f, [], version)))
                for f, distance in added
            ]
            if len(matches) > len(added):
                matches.sort(key=lambda match: (match.distance, match.fingerprint))
        return matches

    def probe_columns(
        self, queries: Words, radius: int, threads: int, most: int | None = None
    ) -> MatchColumns | None:
        if most is None and self.generation.scans(radius):
            if self._delta_kernel is None or radius > self.generation.design.radius:
                return self.scan_columns(queries, radius, threads)
            # Tables may be read whole because they are small. The delta, which is indexed for the
            # design's radius, need not be.
            return self._combine_delta(
                self.base_columns(queries, radius, threads), queries, radius, threads, None
            )
        parts: list[MatchColumns] = []
        for columns in run_batch(
            partial(self._probe_part, radius=radius, most=most),
            queries,
            threads,
            self.design,
            self.generation.queries_at_once if most is None else self.bounded_queries,
        ):
            if columns is None:
                return None
            parts.append(columns)
        return concatenate(parts)

    def _probe_part(
        self, queries: Words, radius: int, most: int | None, threads: int, stop: _kernel.Stop | None
    ) -> MatchColumns | None:
        columns = self.generation.probe(queries, radius, most, threads, stop)
        if columns is None or self._delta_kernel is None:
            return columns
        return self._combine_delta(columns, queries, radius, threads, stop)

    def _combine_delta(
        self,
        base: MatchColumns,
        queries: Words,
        radius: int,
        threads: int,
        stop: _kernel.Stop | None,
    ) -> MatchColumns:
        assert self._delta_kernel is not None
        changes = partial(self._delta_kernel.probe, radius=radius, version=self.version)
        if threads == 1:
            added = changes(queries, stop=stop)
        else:
            added = concatenate(
                run(changes, split_queries(queries, threads, PROBE_QUERIES), threads)
            )
        return self._delta_kernel.combine(base, added, self.version)

    def probe_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        if self.generation.scans(radius):
            return self.scan_nearest(queries, radius, threads, limit)
        # A part with too many matches is probed again in halves, so calls are smaller.
        parts = run_batch(
            partial(self._part_nearest, radius=radius, limit=limit),
            queries,
            threads,
            self.design,
            self.bounded_queries,
        )
        return concatenate([columns for columns, _ in parts]), np.concatenate(
            [np.empty(0, bool), *(more for _, more in parts)]
        )

    def _part_nearest(
        self, queries: Words, radius: int, limit: int, threads: int, stop: _kernel.Stop | None
    ) -> Nearest:
        columns = self._probe_part(
            queries, radius, None if len(queries) < 2 else MAX_MATCHES, threads, stop
        )
        if columns is not None:
            return keep_nearest(columns, limit)
        half = len(queries) // 2
        (a, more_a), (b, more_b) = (
            self._part_nearest(part, radius, limit, threads, stop)
            for part in (queries[:half], queries[half:])
        )
        return concatenate([a, b]), np.concatenate([more_a, more_b])

    def scan_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        kernel, absent = self.generation.tables[0].for_scans, self.deleted_fingerprints
        # Few long parts: each holds up to `limit` matches of a query.
        count = max(min(threads, kernel.block_count // SCAN_BLOCKS), 1)
        ranges = list(pairwise(kernel.block_count * i // count for i in range(count + 1)))
        parts = [(q, *blocks) for q in range(0, len(queries), SCAN_QUERIES) for blocks in ranges]

        def work(
            part: tuple[int, int, int], stop: _kernel.Stop | None
        ) -> tuple[int, MatchColumns, npt.NDArray[np.uint8]]:
            first, start, end = part
            nearest = kernel.nearest(
                queries[first : first + SCAN_QUERIES], radius, limit, start, end, absent, stop=stop
            )
            return first, nearest[:3], nearest[3]

        results = run(work, parts, threads)
        if self._delta_kernel is not None:
            added = self._delta_kernel.nearest(queries, radius, limit, self.version)
            results.append((0, added[:3], added[3]))
        if not results:
            return empty_matches(queries), np.zeros(len(queries), bool)
        columns = collect(
            [(np.arange(len(more)) + first, c) for first, c, more in results], len(queries)
        )
        columns, more = keep_nearest(columns, limit)
        for first, _, more_in_part in results:
            more[first : first + len(more_in_part)] |= more_in_part != 0
        return columns, more

    @cached_property
    def deleted_fingerprints(self) -> Words:
        """The fingerprints of the tables that have been deleted, ascending."""
        if self._delta_kernel is None or not self._delta_kernel.removals:
            return self.width.empty(0)
        changed = self.changed_groups[0]
        deleted: Words = changed[self._delta_kernel.states(changed, self.version) == ABSENT]
        return deleted

    def base_columns(self, queries: Words, radius: int, threads: int) -> MatchColumns:
        """Return the matches in the tables, also of fingerprints that were deleted since."""
        if self.generation.scans(radius):
            return scan_table(self.generation.tables[0].for_scans, queries, radius, threads)
        parts = run_batch(
            partial(self.generation.probe, radius=radius),
            queries,
            threads,
            self.design,
            self.generation.queries_at_once,
        )
        return concatenate([columns for columns in parts if columns is not None])

    def scan_columns(self, queries: Words, radius: int, threads: int) -> MatchColumns:
        base = scan_table(self.generation.tables[0].for_scans, queries, radius, threads)
        if self._delta_kernel is None:
            return base
        return self._delta_kernel.combine(
            base, self._delta_kernel.scan(queries, radius, self.version), self.version
        )

    def probe_prefixes(
        self, queries: Words, bits: int, most: int | None = None, stop: _kernel.Stop | None = None
    ) -> MatchColumns | None:
        """Return the fingerprints that have the leading bits of each query, as columns.

        None if the tables have more than ``most``.
        """
        base = self.generation.probe_prefixes(queries, bits, most, stop)
        if base is None or self._delta_kernel is None:
            return base
        return self._delta_kernel.combine(
            base, self._delta_kernel.share(queries, bits, self.version, stop), self.version
        )

    @property
    def changes(self) -> _kernel.Delta | None:
        """The delta for the kernel, or None if it has nothing that belongs to this snapshot."""
        return self._delta_kernel

    def has(self, value: int) -> bool:
        state = 0 if self._delta_kernel is None else self._delta_kernel.state(value, self.version)
        return state == PRESENT if state else self.generation.identity.locate_one(value) is not None

    def still_stored(self, fingerprints: Words) -> npt.NDArray[np.bool_]:
        """Return whether each of these fingerprints of the tables is still stored."""
        if self._delta_kernel is None:
            return np.ones(len(fingerprints), bool)
        stored: npt.NDArray[np.bool_] = (
            self._delta_kernel.states(fingerprints, self.version) != ABSENT
        )
        return stored

    # Ids

    def get_ids(self, value: int) -> list[int] | list[str]:
        return self.list_ids(self.get_id_numbers(value)[0])

    def get_id_numbers(self, value: int) -> tuple[list[int], bool]:
        """Return the id numbers of a fingerprint, if any, and whether it is in the tables."""
        place = self.generation.identity.locate_one(value)
        ids = [] if place is None else self.generation.ids.get_at(*place)
        if self._delta_kernel is not None:
            ids = self._delta_kernel.ids_one(value, ids, self.version)
        return ids, place is not None

    def id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        lims, numbers = self.base_id_numbers(fingerprints)
        if self._delta_kernel is not None:
            lims, numbers = self._delta_kernel.ids(fingerprints, lims, numbers, self.version)
        return lims, numbers

    def base_id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        return self.generation.ids.gather(fingerprints)

    def list_ids(self, numbers: list[int]) -> list[int] | list[str]:
        if self.totals.id_kind == "string" and len(numbers) <= FEW_STRINGS:
            return list(map(self._string, numbers))
        return super().list_ids(numbers)

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        """Each distinct string is read once, in order, and is one object."""
        if self.totals.id_kind != "string":
            return SizedIds(numbers)
        order = stable_order(numbers)
        ascending = numbers[order]
        dictionary, delta = self.generation.dictionary, self.delta
        out, in_dictionary, size = [""] * len(numbers), 0, 0
        if dictionary is not None:
            in_dictionary = int(np.searchsorted(ascending, np.uint64(delta.first_string)))
            string_bytes = dictionary.strings.place(
                ascending[:in_dictionary], order[:in_dictionary].astype(np.uint64), out, most
            )
            if string_bytes is None:
                return None
            size = string_bytes
        last, string = -1, ""
        for place, number in zip(
            order[in_dictionary:].tolist(), ascending[in_dictionary:].tolist(), strict=True
        ):
            if number != last:
                last, string = number, self._string(number)
            out[place] = string
            size += len(string)
            if most is not None and size > most:
                return None
        return SizedIds(out, size)

    def _string(self, number: int) -> str:
        delta, dictionary = self.delta, self.generation.dictionary
        if number >= delta.first_string:
            if number - delta.first_string < len(delta.strings):
                return delta.strings[number - delta.first_string].decode()
        elif dictionary is not None:
            return dictionary.strings.string(number)
        path = self.generation.folder
        raise CorruptStoreError(f"{path}: id number {number} has no string", path=path)

    def number_of(self, name: str) -> int | None:
        encoded = name.encode()
        if (number := self.delta.number_of(encoded)) is not None:
            return number
        return (
            None
            if self.generation.dictionary is None
            else self.generation.dictionary.number(encoded)
        )

    def numbers_of_strings(self, strings: Sequence[bytes]) -> Words:
        """Each record of the dictionary is read once."""
        dictionary, delta = self.generation.dictionary, self.delta
        numbers = (
            np.full(len(strings), NO_NUMBER) if dictionary is None else dictionary.numbers(strings)
        )
        if delta.strings:
            for i in np.flatnonzero(numbers == NO_NUMBER).tolist():
                if (number := delta.number_of(strings[i])) is not None:
                    numbers[i] = number
        return numbers

    def with_ids(self, numbers: Words) -> tuple[Words, Words]:
        wanted = np.unique(numbers)
        fingerprints, ids = self._base_pairs(wanted)
        if self._delta_kernel is not None:
            unchanged = self._delta_kernel.pair_states(fingerprints, ids, self.version) == 0
            added, added_ids = self._delta_kernel.find(wanted, self.version)
            fingerprints = np.concatenate([fingerprints[unchanged], added])
            ids = np.concatenate([ids[unchanged], added_ids])
        order = row_order(ids, fingerprints)
        return fingerprints[order], ids[order]

    def get_fingerprints(self, number: int) -> list[int]:
        places, identity = self.generation.places, self.generation.identity
        if places is None or self._delta_kernel is not None:
            return super().get_fingerprints(number)
        return [
            identity.entry_at(block, rank, places.name) for block, rank in places.get_places(number)
        ]

    def _base_pairs(self, wanted: Words) -> tuple[Words, Words]:
        """Return the pairs of the tables that have one of these ids; ``wanted`` ascends."""
        generation = self.generation
        if generation.places is None:
            blocks, ranks, ids = generation.ids.find(wanted)
            return generation.identity.entries_at(blocks, ranks, generation.ids.name), ids
        lims, blocks, ranks = generation.places.gather_places(wanted)
        order = np.argsort(blocks, kind="stable")
        fingerprints = generation.identity.entries_at(
            blocks[order], ranks[order], generation.places.name
        )
        return fingerprints, np.repeat(wanted, np.diff(lims))[order]

    # Everything

    def groups(self) -> Iterator[Groups]:
        changed, added = self.changed_groups
        block = 0
        for keys, entry_counts in self.generation.tables[0].pieces():
            counts, ids = self.generation.ids.blocks(block, keys, entry_counts)
            block += len(entry_counts)
            last = keys[-1:]
            end = row_place(changed, last, "right")
            fresh, added = cut_groups(added, last, "right")
            if end or len(fresh[0]):
                if end:
                    fresh = _kernel.union_groups(
                        *fresh, *self._current_groups(keys, counts, ids, changed[:end])
                    )
                keys, counts, ids = _kernel.merge_groups(keys, counts, ids, changed[:end], *fresh)
                changed = changed[end:]
            if len(keys):
                yield keys, counts, ids
        while len(added[0]):
            end = min(PIECE_KEYS, len(added[0]))
            piece, added = cut_groups(added, added[0][end - 1 : end], "right")
            yield piece

    @cached_property
    def changed_groups(self) -> tuple[Words, Groups]:
        """The fingerprints of the tables whose ids changed, and the added groups, ascending."""
        if self._delta_kernel is None:
            return self.width.empty(0), (self.width.empty(0), NO_WORDS, NO_WORDS)
        fingerprints, in_base, lims, ids = self._delta_kernel.export(self.version)
        self.generation.tables[0].check_size()  # what follows reads through its mapping
        if not np.array_equal(in_base, self.delta.in_base(fingerprints)):
            log = self.generation.folder / LOG_FILE
            raise CorruptStoreError(
                f"{log}: the log is malformed (its rows contradict the tables): {RUN_REPAIR}",
                path=log,
            )
        counts = np.diff(lims).astype(np.uint64)
        added = counts > 0
        return fingerprints[in_base != 0], (fingerprints[added], counts[added], ids)

    def _current_groups(self, keys: Words, counts: Words, ids: Words, changed: Words) -> Groups:
        """Return the groups that the changed fingerprints of a piece of the tables have now."""
        places = row_places(keys, changed)
        assert self._delta_kernel is not None
        starts = (np.cumsum(counts) - counts)[places]
        lims, new = self._delta_kernel.ids(
            changed, list_lims(counts[places]), lists_at(ids, starts, counts[places]), self.version
        )
        sizes = np.diff(lims).astype(np.uint64)
        stored = sizes > 0
        return changed[stored], sizes[stored], new

    def fingerprints(self) -> Iterator[Words]:
        pieces = self.generation.tables[0].pieces() if self._delta_kernel is None else self.groups()
        for piece in pieces:
            yield piece[0]
