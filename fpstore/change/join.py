"""Joining whole stores into one: a merge whose content is that of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from fpstore.building.generation_writer import Written
from fpstore.building.sources import Content, Joined, Source
from fpstore.change.merge import Host, Merge, Progress
from fpstore.change.obsolete import remove_generation
from fpstore.disk.refusals import refused
from fpstore.errors import CorruptStoreError, FpstoreError, InputError
from fpstore.format import layout
from fpstore.format.strings import NewNames
from fpstore.query.delta import Totals
from fpstore.query.snapshot import View

Words = npt.NDArray[np.uint64]
JOINED = ".joined"  # a folder for the strings of other stores
BATCH_NAMES = 1 << 10


class Join(Merge):
    """Merges the content of other stores, and the delta, into a new generation. Nothing is inserted meanwhile.

    Parameters
    ----------
    others : sequence of View
    renumber : bool
        Give the ids of each other store, which are integers, the numbers that follow those before.

    Raises
    ------
    InputError
        The ids or the fingerprints of the stores do not go together.
    """

    def __init__(
        self,
        host: Host,
        others: Sequence[View],
        renumber: bool,
        memory: int,
        threads: int,
        progress: Progress | None,
        design: str | None = None,
    ) -> None:
        super().__init__(host, memory, threads, progress, design)
        self._others, self._renumber = others, renumber

    def run(self) -> None:
        """Merge. The turn is kept, for the strings that come with the other stores take the next numbers."""
        with self._host.alone():
            view = self._freeze()
            self._kind = self._common_kind(view)
            self._next_row = view.totals.next_row
            self._folder = self._path / (layout.generation_name(view.generation.record["number"] + 1) + JOINED)
            try:
                remove_generation(self._folder)
                self._folder.mkdir()
                self._joined = self._sources(view)
                self._replace(view)
            except OSError as error:
                if isinstance(error, (FpstoreError, InterruptedError)):
                    raise
                raise refused(self._path, error, "; nothing was merged") from error
            finally:
                if self._new_names is not None:
                    self._new_names.close()
                remove_generation(self._folder)

    def _common_kind(self, view: View) -> str:
        made = view.generation.store["fingerprinter"]
        kind = view.totals.id_kind if view.totals.ids else None
        for other in self._others:
            theirs = other.generation.store["fingerprinter"]
            if made is not None and theirs is not None and made != theirs:
                raise InputError(f"{other.generation.path}: its fingerprints were made in another way than those of {self._path}")
            if not other.totals.ids:
                continue
            if kind is not None and (kind == "string") != (other.totals.id_kind == "string"):
                raise InputError(
                    f"{other.generation.path}: its ids are of another kind (integers or strings) than those of {self._path}"
                )
            kind = other.totals.id_kind if kind in (None, other.totals.id_kind) else "integer"
        if kind == "string" and self._renumber:
            raise InputError("string ids cannot be renumbered: leave renumber out")
        return kind or view.totals.id_kind

    def _sources(self, view: View) -> Source:
        sources: list[Source] = [Content(view)]
        highest = _highest(view) if self._renumber else 0
        delta = view.delta
        assert delta is not None
        if self._kind == "string":
            self._new_names = NewNames(self._folder / layout.NAMES_FILE, delta.first_name + len(self._names))
        for other in self._others:
            if self._new_names is not None:
                sources.append(Content(other, self._translation(view, other, self._new_names)))
            elif self._renumber:
                sources.append(Content(other, _shift(highest)))
                highest += _highest(other)
                if highest > 2**64:
                    raise InputError(f"{other.generation.path}: its ids would go over 2^64-1: merge without renumber")
                self._next_row = max(self._next_row, highest)
            else:
                sources.append(Content(other))
                self._next_row = max(self._next_row, other.totals.next_row)
        return Joined(sources)

    def _translation(self, view: View, other: View, new: NewNames) -> Callable[[Words], Words]:
        """Give each string of another store a number in this one; the table of numbers is a file."""
        last = other.delta.first_name + len(other.delta.names) if other.delta is not None else other.generation.next_name()
        file = self._folder / f"numbers-{len(list(self._folder.iterdir()))}"
        table: Words = np.memmap(file, np.uint64, "w+", shape=(max(last, 1),))
        names = _names(other)
        while batch := list(islice(names, BATCH_NAMES)):
            theirs = np.array([number for number, _ in batch], np.uint64)
            if int(theirs.max()) >= last:
                raise CorruptStoreError(f"{other.generation.folder}: id number {theirs.max()} should not exist")
            strings = [name.decode() for _, name in batch]
            known = [view.number_of(name) for name in strings]
            fresh = iter(new.number([name for name, number in zip(strings, known, strict=True) if number is None]).tolist())
            table[theirs] = [next(fresh) if number is None else number for number in known]

        def translated(ids: Words) -> Words:
            if len(ids) and int(ids.max()) >= last:
                raise CorruptStoreError(f"{other.generation.folder}: id number {ids.max()} has no name")
            found: Words = np.asarray(table[ids])
            return found

        return translated

    def _expected(self, view: View) -> int:
        return view.totals.fingerprints + sum(other.totals.fingerprints for other in self._others)

    def _strings(self, view: View) -> bool:
        return self._kind == "string"

    def _source(self, view: View) -> Source:
        return self._joined

    def _totals(self, view: View, written: Written) -> Totals:
        return Totals(written.fingerprints, written.ids, self._next_row, self._kind)


def _names(view: View) -> Iterator[tuple[int, bytes]]:
    """Yield (number, string) of the dictionary and the delta."""
    if view.generation.names is not None:
        yield from view.generation.names.items()
    if view.delta is not None:
        yield from ((number, name) for number, name in enumerate(view.delta.names, view.delta.first_name) if name)


def _highest(view: View) -> int:
    """Return a number above all ids."""
    if view.totals.id_kind == "row":
        return view.totals.next_row
    return max((int(ids.max(initial=0)) + 1 for _, _, ids in view.groups()), default=0)


def _shift(by: int) -> Callable[[Words], Words]:
    return lambda ids: ids + np.uint64(by)
