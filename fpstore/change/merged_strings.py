"""The strings of a new dictionary, from an old dictionary and from the strings added since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Groups, Words
from fpstore.base.strings import StringColumn, string_spans
from fpstore.building.strings import StringSample, StringSpool
from fpstore.change.content import unite_groups
from fpstore.format.dictionary import Dictionary
from fpstore.format.strings import StringLayout, Strings, StringWriter

# the zstandard dictionary is trained again when the number of strings has grown by this factor
TRAINED_GROWTH = 4


class MergedStrings:
    """The strings of an old dictionary, strings added since, and strings of other stores.

    They are in the order of their numbers. The numbers of ``added`` begin with ``first``, and
    b"" is for a number that is not in use. ``used`` has a flag for each number.
    """

    def __init__(
        self,
        old: Dictionary | None,
        first: int,
        added: Sequence[bytes],
        joined: StringSpool | None,
        used: npt.NDArray[np.bool_],
    ) -> None:
        self._old, self._first, self._added = old, first, added
        self._joined, self._used = joined, used
        self.count = len(used)
        self._in_use_count = int(np.count_nonzero(used))

    # By hash

    def hashes(self) -> Iterator[Words]:
        """Start a pass over the distinct hashes, ascending."""
        return (hashes for hashes, _, _ in self.groups())

    def groups(self) -> Iterator[Groups]:
        """Start a pass over (hashes, how many strings have each, their numbers), by hash."""
        streams = [iter(self._groups_of_added())]
        if self._old is not None:
            streams.append(self._groups_in_use(self._old.groups(), 0))
        if self._joined is not None:
            streams.append(
                self._groups_in_use(self._joined.groups(), self._first + len(self._added))
            )
        return unite_groups(streams)

    def _groups_of_added(self) -> list[Groups]:
        numbers = np.flatnonzero(self._used[self._first : self._first + len(self._added)])
        in_use = np.array([number for number in numbers.tolist() if self._added[number]], np.uint64)
        if not len(in_use):
            return []
        hashes = np.concatenate(
            [
                strings.hashes()
                for strings in _pieces([self._added[number] for number in in_use.tolist()])
            ]
        )
        order = np.argsort(hashes, kind="stable")
        distinct, counts = np.unique(hashes, return_counts=True)
        return [(distinct, counts.astype(np.uint64), in_use[order] + np.uint64(self._first))]

    def _groups_in_use(self, groups: Iterator[Groups], shift: int) -> Iterator[Groups]:
        """Yield the groups of numbers in use, each number raised by ``shift``."""
        for hashes, counts, numbers in groups:
            shifted = numbers + np.uint64(shift)
            used = self._used[shifted]
            if used.all():
                yield hashes, counts, shifted
                continue
            owners = np.repeat(np.arange(len(hashes)), counts.astype(np.int64))
            counts = np.bincount(owners[used], minlength=len(hashes)).astype(np.uint64)
            if used.any():
                yield hashes[counts > 0], counts[counts > 0], shifted[used]

    # By number

    def write(self, path: Path, threads: int, tick: Callable[[], None]) -> dict[str, int]:
        """Write the strings in the order of their numbers; return the shape of the file.

        Records of the old dictionary whose strings all stay are copied as they are.
        """
        old = None if self._old is None else self._old.strings
        layout = None if old is None else old.layout
        copies = layout is not None and self._in_use_count < TRAINED_GROWTH * layout.trained
        writer = StringWriter(
            path, layout if copies and layout is not None else self._train_layout(), threads
        )
        try:
            if old is not None:
                self._write_old(writer, old, copies, tick)
            number = self._first
            for strings in self._new_strings():
                writer.add(strings.with_blanks(self._used[number : number + len(strings)]))
                number += len(strings)
                tick()
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _write_old(
        self, writer: StringWriter, old: Strings, copies: bool, tick: Callable[[], None]
    ) -> None:
        step = old.per_record
        for first, values in old.records():
            tick()
            records = np.arange(first, first + len(values), dtype=np.uint64)
            used = self._used[first * step : min((first + len(values)) * step, old.count)]
            # the last record may be short: the next strings go into it
            whole = len(used) // step if copies else 0
            if whole:
                writer.copy(
                    self._drop_unused(
                        writer, old, records[:whole], values[:whole], used[: whole * step]
                    )
                )
            at = whole * step
            for strings in old.decode_records(records[whole:], values[whole:]):
                writer.add(strings.with_blanks(used[at : at + len(strings)]))
                at += len(strings)

    @staticmethod
    def _drop_unused(
        writer: StringWriter,
        old: Strings,
        records: Words,
        values: list[bytes],
        used: npt.NDArray[np.bool_],
    ) -> list[bytes]:
        """Return the values of whole records without the strings that are not in use."""
        old.check(records, values)
        used = used.reshape(len(records), -1)
        places = np.flatnonzero(~used.all(axis=1))
        values, at = values.copy(), 0
        for strings in old.decode_records(
            records[places], [values[place] for place in places.tolist()]
        ):
            part = places[at : at + len(strings) // used.shape[1]]
            at += len(part)
            unused = ~used[part]
            # the unused numbers of other records had no strings before
            changes = (unused & (strings.sizes.reshape(unused.shape) > 0)).any(axis=1)
            if not changes.any():
                continue
            remaining = strings.with_blanks(~unused.ravel()).filter(
                np.repeat(changes, unused.shape[1])
            )
            data, offsets = writer.encode(records[part[changes]], remaining)
            for place, (start, end) in zip(
                part[changes].tolist(), pairwise(offsets.tolist()), strict=True
            ):
                values[place] = data[start:end].tobytes()
        return values

    def _train_layout(self) -> StringLayout:
        """Return a layout for all strings in use, by a sample of them."""
        sample, number = StringSample(), 0
        for strings in self._all_strings():
            sample.add(strings.filter(self._used[number : number + len(strings)]))
            number += len(strings)
        return sample.layout(self._in_use_count)

    def _all_strings(self) -> Iterator[StringColumn]:
        if self._old is not None:
            yield from (column for _, column in self._old.strings.columns())
        yield from self._new_strings()

    def _new_strings(self) -> Iterator[StringColumn]:
        yield from _pieces(self._added)
        if self._joined is not None:
            yield from self._joined.strings()


def _pieces(strings: Sequence[bytes]) -> Iterator[StringColumn]:
    for span in string_spans(strings):
        yield StringColumn.from_strings(strings[span])
